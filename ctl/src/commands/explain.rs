//! Why was this host chosen, and no other?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

use crate::commands::Context;
use crate::commands::decisions::passed_over;
use crate::commands::pool::learned_table;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell, state_cell};
use crate::output::text::{clean, clean_or_dash, decimal, list, milliseconds, or_dash, percent};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl explain 5f1c2a9e                 the decision that `usherctl place` has answered
  usherctl explain 5f1c2a9e --json          for scripts

Each row shows what the decision knew of a host; a dash is what it did not know or did not use. Hosts of a better
TIER come first, those that failed last; within a tier, by weighted load: the terms CPU + MEM + USERS + PROCS add up
to W, and the lowest W wins. CPU and MEM as `35.0% +3.1` are what was measured and what the logins on their way are
expected to add. By the predictive method the terms BACKGROUND + LOGONS + SESSIONS + MEM + SCARCE MEM add up to SCORE.
Other methods rank by SCORE, too; the lowest wins")]
pub(crate) struct Arguments {
    /// As answered by `place` or `failover`
    decision_id: String,
}

/// Explains a decision.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let operation = format!("explaining decision {}", arguments.decision_id);
    let request = v1::ExplainRequest { decision_id: arguments.decision_id };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            PlacementServiceClient::new(channel).explain(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    emit(&match &response.explanation {
        Some(explanation) => page(explanation),
        None => "the coordinator's answer holds no explanation".to_owned(),
    })
}

/// The explanation for people: what was decided by which rules, then each host.
pub(crate) fn page(explanation: &v1::Explanation) -> String {
    let hosts = &explanation.hosts;
    let is_weighed = hosts.iter().any(|host| host.terms.is_some());
    let is_predicted = hosts.iter().any(|host| host.predicted.is_some());
    let ranking = match (is_weighed, is_predicted) {
        (true, _) => terms(hosts),
        (false, true) => predictions(hosts),
        (false, false) => scores(hosts),
    };
    let mut text = head(explanation) + "\n\n" + &inputs(hosts) + "\n\n" + &ranking;
    if !explanation.costs.is_empty() {
        text += "\n\none more session costs:\n";
        text += &learned_table(&explanation.costs);
    }
    let medians: Vec<String> = explanation
        .hosts
        .iter()
        .filter_map(|host| host.terms.as_ref().map(|terms| (host, terms)))
        .filter(|(_, terms)| !terms.filled_in.is_empty())
        .map(|(host, terms)| format!("  {}: {}", clean(&host.host_name), list(&terms.filled_in)))
        .collect();
    if !medians.is_empty() {
        text += "\n\nnot known, the pool's median stands for it:\n";
        text += &medians.join("\n");
    }
    text
}

fn head(explanation: &v1::Explanation) -> String {
    // A coordinator of 0.1 knows no other method and does not name it.
    let by_load = matches!(explanation.method(), v1::Method::WeightedLoad | v1::Method::Unspecified);
    let mut facts = Facts::new();
    facts.fact("decision", clean(&explanation.decision_id));
    facts.fact_if("decided at", explanation.decided_at.as_ref().map(|at| time(at.seconds, at.nanos)));
    facts.fact("pool", clean(&explanation.pool));
    facts.fact("policy", format!("version {}", explanation.policy_version));
    facts.fact_if("method", (explanation.method != 0).then(|| words::word::<v1::Method>(explanation.method)));
    facts.fact_if("weights", explanation.weights.as_ref().filter(|_| by_load).map(weights));
    facts.fact_if("user", explanation.user.as_deref().map(clean));
    facts.fact_if("resource", explanation.resource.as_deref().map(clean));
    facts.fact("cost", explanation.cost.to_string());
    facts.fact("chosen", chosen(explanation));
    facts.fact_if("not sent to", explanation.redirect.as_ref().map(passed_over));
    facts.fact_if("flags", (!explanation.flags.is_empty()).then(|| list(&explanation.flags)));
    facts.fact_if("chance", chance(explanation.tied_hosts));
    let (users, processes) = (explanation.top_users, explanation.top_processes);
    let compared = format!("{users} users and {processes} processes, the most per unit of capacity");
    facts.fact_if("compared with", by_load.then_some(compared));
    let consents = explanation.consents.iter().map(|asked| format!("{} {}", asked.host_name, asked.answer));
    let consents: Vec<String> = consents.collect();
    facts.fact_if("asked", (!consents.is_empty()).then(|| list(&consents)));
    facts.fact_if("drawn", explanation.drawn.as_ref().map(drawn));
    facts.fact_if("excluded", excluded(explanation));
    if explanation.reduced {
        facts.fact("reduced", "only the chosen host, the best 16 and the counts are kept of it");
    }
    facts.render()
}

fn chosen(explanation: &v1::Explanation) -> String {
    let Some(id) = &explanation.chosen_host_id else {
        return format!("nobody: {}", clean(&explanation.refused_reason));
    };
    let name = explanation.hosts.iter().find(|host| host.host_id == *id).map(|host| &host.host_name);
    format!("{} by {}", clean(name.unwrap_or(id)), words::word::<v1::PlacementReason>(explanation.reason))
}

/// `40 hosts looked at of 9500 of the best class, in a pool of 10000`.
fn drawn(drawn: &v1::DrawnHosts) -> String {
    let v1::DrawnHosts { looked_at, best_class, pool } = drawn;
    format!("{looked_at} hosts looked at of {best_class} of the best class, in a pool of {pool}")
}

/// How many hosts each rule excluded, most first: `3 OFFLINE, 1 tried before`.
fn excluded(explanation: &v1::Explanation) -> Option<String> {
    let mut counts: Vec<_> = explanation.excluded_counts.iter().collect();
    counts.sort_by(|(rule, count), (other_rule, other)| other.cmp(count).then(rule.cmp(other_rule)));
    let counts: Vec<String> = counts.iter().map(|(rule, count)| format!("{count} {}", clean(rule))).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

fn chance(tied_hosts: u32) -> Option<String> {
    (tied_hosts >= 2).then(|| format!("decided among {tied_hosts} hosts that were equally good"))
}

fn weights(weights: &v1::Weights) -> String {
    let percent = |weight: Option<f64>| weight.map_or_else(|| "0".to_owned(), |weight| weight.to_string());
    format!(
        "cpu {} / memory {} / users {} / processes {} percent",
        percent(weights.cpu_percent),
        percent(weights.memory_percent),
        percent(weights.users_percent),
        percent(weights.processes_percent)
    )
}

/// A time in UTC.
pub(super) fn time(seconds: i64, nanos: i32) -> String {
    // A timestamp that no calendar has is the coordinator's mistake; it is shown as it came.
    jiff::Timestamp::new(seconds, nanos)
        .map_or_else(|_| format!("{seconds} s after 1970"), |time| format!("{time:.3}"))
}

/// What the decision knew of each host, and why some were no candidates.
fn inputs(hosts: &[v1::ExplainedHost]) -> String {
    let header = [
        "HOST", "STATE", "TIER", "CPU", "MEM", "USERS", "PENDING", "LOGONS", "PROCS", "AI", "XF", "CAPACITY",
        "RAMP", "AGE", "WHY NOT",
    ];
    let mut grid = Grid::new(&header, &[3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    for host in hosts {
        grid.row([
            cell(clean(&host.host_name)),
            state_cell(host.state),
            cell(clean_or_dash(&host.tier)),
            cell(with_expected(host.cpu_percent, host.expected_cpu_percent)),
            cell(with_expected(host.memory_percent, host.expected_memory_percent)),
            cell(or_dash(host.users)),
            cell(host.pending_users.to_string()),
            cell(or_dash(host.logons_in_progress)),
            cell(or_dash(host.processes)),
            cell(decimal(host.availability_index, 1)),
            cell(decimal(host.expansion_factor, 2)),
            cell(host.capacity.to_string()),
            cell(percent(host.ramp.map(|share| 100.0 * share))),
            cell(milliseconds(host.load_age_ms)),
            cell(why_not(host)),
        ]);
    }
    grid.render()
}

/// `35.0% +3.1`: what was measured, and what the logins on their way are expected to add.
fn with_expected(measured: Option<f64>, expected: Option<f64>) -> String {
    match expected.filter(|points| points.abs() >= 0.05) {
        Some(points) => format!("{} {points:+.1}", percent(measured)),
        None => percent(measured),
    }
}

fn why_not(host: &v1::ExplainedHost) -> String {
    if host.excluded.is_empty() {
        return match host.penalised.as_str() {
            "" => String::new(),
            cause => format!("comes last: {}", clean(cause)),
        };
    }
    let because = if host.state_reason.is_empty() { "" } else { ": " };
    format!("{}{because}{}", clean(&host.excluded), clean(&host.state_reason))
}

/// The terms of each host and their sum, in the order of the decision.
fn terms(hosts: &[v1::ExplainedHost]) -> String {
    let mut grid = Grid::new(
        &["RANK", "HOST", "CPU", "+ MEM", "+ USERS", "+ PROCS", "= W", "FLAGS"],
        &[0, 2, 3, 4, 5, 6],
    );
    for host in hosts {
        let term = |pick: fn(&v1::LoadTerms) -> f64| cell(decimal(host.terms.as_ref().map(pick), 3));
        grid.row([
            cell(or_dash(host.rank)),
            cell(clean(&host.host_name)),
            term(|terms| terms.cpu),
            term(|terms| terms.memory),
            term(|terms| terms.users),
            term(|terms| terms.processes),
            term(|terms| terms.weighted_load),
            cell(flags(host)),
        ]);
    }
    grid.render()
}

/// The terms of each host's expected demand, and the numbers of logons behind them, in the order of the decision.
fn predictions(hosts: &[v1::ExplainedHost]) -> String {
    let header = [
        "RANK",
        "HOST",
        "BACKGROUND",
        "+ LOGONS",
        "+ SESSIONS",
        "+ MEM",
        "+ SCARCE MEM",
        "= SCORE",
        "LOGONS",
        "PLACES",
        "CORES",
        "FLAGS",
    ];
    let mut grid = Grid::new(&header, &[0, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for host in hosts {
        let value = |pick: fn(&v1::PredictedLoad) -> Option<f64>, decimals| {
            cell(decimal(host.predicted.as_ref().and_then(pick), decimals))
        };
        grid.row([
            cell(or_dash(host.rank)),
            cell(clean(&host.host_name)),
            value(|load| Some(load.background), 3),
            value(|load| Some(load.logons), 3),
            value(|load| Some(load.sessions), 3),
            value(|load| Some(load.memory), 3),
            value(|load| Some(load.scarce_memory), 3),
            cell(decimal(host.score, 3)),
            value(|load| Some(load.logons_expected), 1),
            value(|load| Some(load.places), 0),
            value(|load| load.cores, 0),
            cell(flags(host)),
        ]);
    }
    grid.render()
}

/// The number that ranks each host by a method without terms.
fn scores(hosts: &[v1::ExplainedHost]) -> String {
    let mut grid = Grid::new(&["RANK", "HOST", "SCORE", "FLAGS"], &[0, 2]);
    for host in hosts {
        grid.row([
            cell(or_dash(host.rank)),
            cell(clean(&host.host_name)),
            cell(decimal(host.score, 4)),
            cell(flags(host)),
        ]);
    }
    grid.render()
}

fn flags(host: &v1::ExplainedHost) -> String {
    if host.flags.is_empty() { String::new() } else { list(&host.flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explanation() -> v1::Explanation {
        let chosen = v1::ExplainedHost {
            host_id: "id-1".into(),
            host_name: "app1".into(),
            state: v1::HostState::Available.into(),
            rank: Some(1),
            cpu_percent: Some(35.0),
            users: Some(10),
            pending_users: 1,
            capacity: 1.0,
            terms: Some(v1::LoadTerms {
                cpu: 10.5,
                memory: 16.5,
                users: 17.857,
                processes: 11.798,
                weighted_load: 56.655,
                filled_in: vec!["memory".into()],
            }),
            ..Default::default()
        };
        let offline = v1::ExplainedHost {
            host_id: "id-2".into(),
            host_name: "app2".into(),
            state: v1::HostState::Offline.into(),
            excluded: "OFFLINE".into(),
            state_reason: "silent for 40 s".into(),
            capacity: 1.0,
            ..Default::default()
        };
        v1::Explanation {
            decision_id: "d-1".into(),
            pool: "desk".into(),
            policy_version: 3,
            weights: Some(v1::Weights { users_percent: Some(100.0), ..Default::default() }),
            chosen_host_id: Some("id-1".into()),
            reason: v1::PlacementReason::LowestLoad.into(),
            tied_hosts: 2,
            cost: 1,
            hosts: vec![chosen, offline],
            ..Default::default()
        }
    }

    #[test]
    fn the_terms_stand_beside_their_sum_and_every_host_has_its_row() {
        let text = page(&explanation());
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            rows.contains(&vec!["1", "app1", "10.500", "16.500", "17.857", "11.798", "56.655"]),
            "{text}"
        );
        assert!(rows.contains(&vec!["-", "app2", "-", "-", "-", "-", "-"]), "{text}");
        assert!(text.contains("OFFLINE: silent for 40 s"));
        assert!(text.contains("app1: memory"));
    }

    #[test]
    fn the_head_names_policy_weights_the_chosen_and_chance() {
        let text = head(&explanation());
        for part in [
            "version 3",
            "cpu 0 / memory 0 / users 100 / processes 0 percent",
            "app1 by LOWEST_LOAD",
            "decided among 2 hosts",
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
        let refused = v1::Explanation {
            chosen_host_id: None,
            refused_reason: "MAX_USERS".into(),
            tied_hosts: 0,
            ..explanation()
        };
        let text = head(&refused);
        assert!(text.contains("nobody: MAX_USERS") && !text.contains("chance"), "{text}");
    }

    #[test]
    fn a_method_without_terms_shows_its_score_and_none_of_the_numbers_that_it_did_not_use() {
        let by_availability = |mut host: v1::ExplainedHost, score| {
            (host.terms, host.score) = (None, score);
            host
        };
        let mut explanation = explanation();
        explanation.method = v1::Method::Availability.into();
        let offline = explanation.hosts.pop().unwrap();
        let mut penalised = by_availability(explanation.hosts.pop().unwrap(), Some(1.25));
        (penalised.penalised, penalised.tier) = ("failed".into(), "AVAILABLE".into());
        (penalised.ramp, penalised.logons_in_progress) = (Some(0.25), Some(3));
        explanation.hosts = vec![penalised, by_availability(offline, None)];
        explanation.redirect = Some(v1::Redirect { host_name: "app2".into(), reason: "offline".into() });
        explanation.excluded_counts =
            [("OFFLINE".to_owned(), 1), ("tried before".to_owned(), 7)].into_iter().collect();
        explanation.reduced = true;
        let text = page(&explanation);
        for part in [
            "AVAILABILITY",
            "app2 (offline)",
            "7 tried before, 1 OFFLINE",
            "best 16",
            "comes last: failed",
            "25.0%",
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
        assert!(text.lines().any(|line| line.split_whitespace().eq(["1", "app1", "1.2500"])), "{text}");
        assert!(!text.contains("weights") && !text.contains("compared with") && !text.contains("= W"));
    }

    #[test]
    fn a_prediction_shows_its_terms_what_they_are_of_and_what_was_learned() {
        let mut explanation = explanation();
        explanation.method = v1::Method::Predictive.into();
        let host = &mut explanation.hosts[0];
        (host.terms, host.score) = (None, Some(0.62));
        host.predicted = Some(v1::PredictedLoad {
            background: 0.2,
            logons: 0.3,
            sessions: 0.1,
            memory: 0.02,
            logons_expected: 1.5,
            places: 2.0,
            cores: Some(8.0),
            ..Default::default()
        });
        explanation.costs =
            vec![v1::LearnedCost { name: "logon_cores".into(), value: 1.5, ..Default::default() }];
        let text = page(&explanation);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let row = ["1", "app1", "0.200", "0.300", "0.100", "0.020", "0.000", "0.620", "1.5", "2", "8"];
        assert!(rows.contains(&row.to_vec()), "{text}");
        assert!(text.contains("one more session costs:") && text.contains("1.500 cores"), "{text}");
    }

    #[test]
    fn what_is_expected_stands_beside_what_was_measured() {
        assert_eq!(with_expected(Some(35.0), Some(3.07)), "35.0% +3.1");
        assert_eq!(with_expected(Some(35.0), Some(-3.07)), "35.0% -3.1");
        assert_eq!(with_expected(Some(35.0), Some(0.0)), "35.0%");
        assert_eq!(with_expected(None, None), "-");
    }

    #[test]
    fn a_time_is_written_in_utc() {
        assert_eq!(time(0, 500_000_000), "1970-01-01T00:00:00.500Z");
        assert_eq!(time(i64::MAX, 0), "9223372036854775807 s after 1970");
    }
}
