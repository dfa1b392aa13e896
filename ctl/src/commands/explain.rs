//! Why was this host chosen, and no other?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Facts, Grid, cell, state_cell};
use crate::output::text::{ABSENT, clean, decimal, list, milliseconds, or_dash, percent};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl explain 5f1c2a9e                 the decision that `usherctl place` has answered
  usherctl explain 5f1c2a9e --json          for scripts

Each row shows what the decision knew of a host. CPU + MEM + USERS + PROCS terms add up to W; lowest W wins")]
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
    let mut text =
        head(explanation) + "\n\n" + &inputs(&explanation.hosts) + "\n\n" + &terms(&explanation.hosts);
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
    let mut facts = Facts::new();
    facts.fact("decision", clean(&explanation.decision_id));
    facts.fact_if("decided at", explanation.decided_at.as_ref().map(|at| time(at.seconds, at.nanos)));
    facts.fact("pool", clean(&explanation.pool));
    facts.fact("policy", format!("version {}", explanation.policy_version));
    facts.fact_if("weights", explanation.weights.as_ref().map(weights));
    facts.fact_if("user", explanation.user.as_deref().map(clean));
    facts.fact_if("resource", explanation.resource.as_deref().map(clean));
    facts.fact("cost", explanation.cost.to_string());
    facts.fact("chosen", chosen(explanation));
    facts.fact_if("flags", (!explanation.flags.is_empty()).then(|| list(&explanation.flags)));
    facts.fact_if("chance", chance(explanation.tied_hosts));
    facts.fact(
        "compared with",
        format!(
            "{} users and {} processes, the most per unit of capacity",
            explanation.top_users, explanation.top_processes
        ),
    );
    let consents = explanation.consents.iter().map(|asked| format!("{} {}", asked.host_name, asked.answer));
    let consents: Vec<String> = consents.collect();
    facts.fact_if("asked", (!consents.is_empty()).then(|| list(&consents)));
    facts.render()
}

fn chosen(explanation: &v1::Explanation) -> String {
    let Some(id) = &explanation.chosen_host_id else {
        return format!("nobody: {}", clean(&explanation.refused_reason));
    };
    let name = explanation.hosts.iter().find(|host| host.host_id == *id).map(|host| &host.host_name);
    format!("{} by {}", clean(name.unwrap_or(id)), words::word::<v1::PlacementReason>(explanation.reason))
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

fn time(seconds: i64, nanos: i32) -> String {
    // A timestamp that no calendar has is the coordinator's mistake; it is shown as it came.
    jiff::Timestamp::new(seconds, nanos)
        .map_or_else(|_| format!("{seconds} s after 1970"), |time| format!("{time:.3}"))
}

/// What the decision knew of each host, and why some were no candidates.
fn inputs(hosts: &[v1::ExplainedHost]) -> String {
    let header = [
        "HOST", "STATE", "CPU", "MEM", "USERS", "PENDING", "PROCS", "AI", "XF", "CAPACITY", "AGE", "WHY NOT",
    ];
    let mut grid = Grid::new(&header, &[2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for host in hosts {
        grid.row([
            cell(clean(&host.host_name)),
            state_cell(host.state),
            cell(percent(host.cpu_percent)),
            cell(percent(host.memory_percent)),
            cell(or_dash(host.users)),
            cell(host.pending_users.to_string()),
            cell(or_dash(host.processes)),
            cell(decimal(host.availability_index, 1)),
            cell(decimal(host.expansion_factor, 2)),
            cell(host.capacity.to_string()),
            cell(milliseconds(host.load_age_ms)),
            cell(why_not(host)),
        ]);
    }
    grid.render()
}

fn why_not(host: &v1::ExplainedHost) -> String {
    if host.excluded.is_empty() {
        return String::new();
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
        let flags = list(&host.flags);
        grid.row([
            cell(or_dash(host.rank)),
            cell(clean(&host.host_name)),
            term(|terms| terms.cpu),
            term(|terms| terms.memory),
            term(|terms| terms.users),
            term(|terms| terms.processes),
            term(|terms| terms.weighted_load),
            cell(if flags == ABSENT { String::new() } else { flags }),
        ]);
    }
    grid.render()
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
    fn a_time_is_written_in_utc() {
        assert_eq!(time(0, 500_000_000), "1970-01-01T00:00:00.500Z");
        assert_eq!(time(i64::MAX, 0), "9223372036854775807 s after 1970");
    }
}
