//! Looking: a host as a coordinator sees it, a decision with every number, who got how many.

use std::collections::BTreeMap;

use usher_availability::Basis;
use usher_types::{HostName, Method};

use super::{Done, Fault, World, calls::Answered};
use crate::{
    decision::{Consent, ConsentAsked, ExplainedHost, Inputs, Request, Tier, UserTrace, assess_pool},
    farm::state_reason,
    load::LoadTerms,
    scenario::event::{Count, EventKind, Explained, ExplainedLine, Numbers, Shown, Terms},
};

/// How often each came out.
type Counts = BTreeMap<String, u64>;

impl World {
    pub(super) fn show(&mut self, host: &str, via: Option<usize>) -> Done {
        let number = self.host_shown(host)?;
        let shown = number.map(|number| self.look(number, via.unwrap_or(0)));
        let shown = shown.unwrap_or_else(|| unregistered(host));
        self.emit(EventKind::Shown(Box::new(shown)));
        Ok(())
    }

    /// The number of a host that is looked at. Absent: it was refused as its line was run.
    pub(super) fn host_shown(&self, host: &str) -> Result<Option<usize>, Fault> {
        if let Some(number) = self.host_called(host) {
            return Ok(Some(number));
        }
        if HostName::new(host).is_ok_and(|name| self.is_refused(&name)) {
            return Ok(None);
        }
        Err(Fault::unknown("host", host, self.by_name.keys().map(String::as_str)))
    }

    /// A host as a coordinator sees it.
    pub(super) fn look(&mut self, number: usize, coordinator: usize) -> Shown {
        let now = self.now;
        let identity = &self.machines[number].identity;
        let (id, called) = (identity.id.clone(), identity.called.to_string());
        let snapshot = self.coordinators[coordinator].snapshot(now);
        let Ok((pool, at)) = snapshot.find_host(id.as_str()) else { return unregistered(&called) };
        let (words, request, user) =
            (pool.words(), Request::of_nobody(pool.name.clone()), UserTrace::default());
        let inputs = Inputs {
            pool,
            words: &words,
            request: &request,
            user: &user,
            unwilling: &[],
            doors: &[],
            now,
            seed: 0,
        };
        let assessment = assess_pool(&inputs);
        let (host, state) = (&pool.hosts[at], assessment.state(at));
        let availability = host.availability(now);
        let is_measured = state.is_measured() && host.reading.is_some();
        let terms = assessment.terms(at).filter(|_| is_measured);
        // That numbers are missing speaks of the load, which only hosts have that were heard.
        let load_speaks = |flag: &&str| *flag != INCOMPLETE || is_measured;
        let mut flags: Vec<String> =
            assessment.host_flags(at).names().filter(load_speaks).map(str::to_owned).collect();
        let reason = state_reason(&pool.state_input(at, words[at], 1, now), state);
        if reason.starts_with(USERS_UNKNOWN) {
            flags.push(USERS_UNKNOWN.to_owned());
        }
        if availability.basis == Basis::NoData {
            flags.push(NO_DATA.to_owned());
        }
        let stale = host.reading.iter().flat_map(|reading| &reading.stale);
        flags.extend(stale.map(|metric| format!("stale_{metric}")));
        Shown {
            host: called,
            state: Some(state),
            state_reason: reason,
            numbers: Numbers {
                availability_index: availability.index,
                expansion_factor: availability.expansion_factor,
                weighted_load: terms.map(|terms| terms.weighted_load()),
                terms: terms.map(|terms| shown_terms(&terms)),
                users: host.reading.as_ref().and_then(|reading| reading.users),
                pending: Some(words[at].places()),
            },
            flags,
        }
    }

    pub(super) fn explain(&mut self, label: &str) -> Done {
        let answered = self.answered_as(label)?.clone();
        let Some(record) = &answered.record else {
            let answer = answer_of(&answered);
            self.emit(EventKind::NothingToExplain { name: label.to_owned(), answer });
            return Ok(());
        };
        let explained = record.explain();
        let asked = record.consents.iter().map(|ConsentAsked { host_name, said }| {
            let said = match said {
                Consent::Admitted => "admitted".to_owned(),
                Consent::Refused(reason) => format!("refused ({reason:?})").to_lowercase(),
                Consent::Silent => "silent".to_owned(),
            };
            format!("{host_name}: {said}")
        });
        let explanation = &explained.explanation;
        let lines = explained.hosts.iter().zip(&explanation.hosts);
        let kind = Explained {
            name: label.to_owned(),
            answer: answer_of(&answered),
            pool: explained.pool.to_string(),
            policy_version: explained.policy_version,
            method: method_name(explanation.method),
            top_users: explanation.top_users,
            top_processes: explanation.top_processes,
            asked: asked.collect(),
            hosts: lines.map(|((id, _), host)| explained_line(self.name_of(id), host)).collect(),
        };
        self.emit(EventKind::Explained(Box::new(kind)));
        Ok(())
    }

    pub(super) fn tally(&mut self, label: &str) -> Done {
        let (hosts, errors) = self.counts(label)?;
        let counts = |counts: Counts| counts.into_iter().map(|(name, count)| Count { name, count }).collect();
        let name = label.to_owned();
        self.emit(EventKind::Tallied { name, hosts: counts(hosts), errors: counts(errors) });
        Ok(())
    }

    /// How many each host got, and how many were refused for which reason.
    pub(super) fn counts(&self, label: &str) -> Result<(Counts, Counts), Fault> {
        let one;
        let all = match (self.tallies.get(label), self.answers.get(label)) {
            (Some(all), _) => all.as_slice(),
            (None, Some(answered)) => {
                one = [answered.clone()];
                &one
            }
            (None, None) => {
                let known = self.tallies.keys().chain(self.answers.keys()).map(String::as_str);
                return Err(Fault::unknown("placement", label, known));
            }
        };
        let (mut hosts, mut errors) = (Counts::new(), Counts::new());
        for answered in all {
            match &answered.result {
                Ok(placed) => *hosts.entry(placed.host.clone()).or_default() += 1,
                Err(refused) => *errors.entry(refused.reason.clone()).or_default() += 1,
            }
        }
        Ok((hosts, errors))
    }
}

fn answer_of(answered: &Answered) -> String {
    match &answered.result {
        Ok(placed) => format!("{} {}", placed.host, placed.reason),
        Err(refused) => format!("error {} {}", refused.code, refused.reason),
    }
}

/// Reported only where it makes a host full.
const USERS_UNKNOWN: &str = "users_unknown";
/// The load stands on a number that is not known.
const INCOMPLETE: &str = "incomplete";
/// Nothing was ever timed on the host.
pub(super) const NO_DATA: &str = "no_data";

fn unregistered(host: &str) -> Shown {
    Shown {
        host: host.to_owned(),
        state: None,
        state_reason: String::new(),
        numbers: Numbers::default(),
        flags: Vec::new(),
    }
}

fn shown_terms(terms: &LoadTerms) -> Terms {
    let LoadTerms { cpu, memory, users, processes, filled } = *terms;
    Terms { cpu, memory, users, processes, filled: filled.names().collect() }
}

const fn method_name(method: Method) -> &'static str {
    match method {
        Method::WeightedLoad => "weighted_load",
        Method::Availability => "availability",
        Method::Predictive => "predictive",
        Method::FillFirst => "fill_first",
    }
}

fn explained_line(name: String, host: &ExplainedHost) -> ExplainedLine {
    let numbers = &host.numbers;
    let count = |count: Option<u32>| count.map(f64::from);
    let inputs = [
        ("cpu", numbers.cpu_percent),
        ("mem", numbers.memory_percent),
        ("users", count(numbers.users)),
        ("pending_users", Some(f64::from(numbers.pending_users))),
        ("procs", count(numbers.processes)),
        ("capacity", numbers.capacity),
        ("max_users", count(numbers.max_users)),
        ("logons", count(host.logons_in_progress)),
        ("ai", host.availability_index),
        ("xf", host.expansion_factor),
        ("filled", host.filled_share),
        ("ramp", host.ramp),
        ("age_s", host.load_age.map(|age| age.as_secs_f64())),
    ];
    let mut remarks: Vec<String> = host.flags.names().map(str::to_owned).collect();
    if host.tier == Some(Tier::Blind) && !remarks.iter().any(|remark| remark == "blind") {
        remarks.push("blind".to_owned());
    }
    if let Some(cause) = host.penalised {
        remarks.push(format!("penalised ({cause:?})").to_lowercase());
    }
    if host.is_silent {
        remarks.push("silent".to_owned());
    }
    ExplainedLine {
        host: name,
        rank: host.rank,
        state: host.state,
        state_reason: host.state_reason.clone(),
        excluded: host.excluded.map(|why| why.as_str().to_owned()),
        score: host.score,
        terms: host.terms.as_ref().map(shown_terms),
        inputs: inputs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        remarks,
    }
}
