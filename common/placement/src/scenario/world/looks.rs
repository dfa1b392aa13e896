//! Looking: a host as a coordinator sees it, a decision with every number, who got how many.

use std::collections::BTreeMap;

use usher_types::{HostName, Method};

use super::{Done, Fault, World, calls::Answered};
use crate::{
    decision::{
        Consent, ConsentAsked, ExplainedHost, HostLook, Inputs, NO_DATA, Request, Tier, UserTrace, Words,
        assess_pool, reason_of_state,
    },
    load::{LoadTerms, PredictedLoad},
    scenario::event::{Count, EventKind, Explained, ExplainedLine, Numbers, PredictedTerms, Shown, Terms},
};

/// How often each came out.
type Counts = BTreeMap<String, u64>;

impl World {
    pub(super) fn show(&mut self, host: &str, via: Option<usize>) -> Done {
        let number = self.host_shown(host)?;
        let shown = number.map(|number| self.look(number, via.unwrap_or(0)));
        let shown = shown.unwrap_or_else(|| unregistered(host, String::new()));
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
        if let Some(why) = self.id_in_use(number, coordinator) {
            return unregistered(&called, why);
        }
        let snapshot = self.coordinators[coordinator].snapshot(now);
        let Ok((pool, at)) = snapshot.find_host(id.as_str()) else {
            return unregistered(&called, String::new());
        };
        let (words, request, user) =
            (pool.words(), Request::of_nobody(pool.name.clone()), UserTrace::default());
        let inputs = Inputs {
            pool,
            words: Words::All(&words),
            request: &request,
            user: &user,
            unwilling: &[],
            doors: &[],
            now,
            seed: 0,
        };
        let assessment = assess_pool(&inputs);
        let look = HostLook::at(&assessment, at);
        Shown {
            host: called,
            state: Some(look.state),
            state_reason: reason_of_state(&assessment, at),
            no_data: look.has_no_data(),
            flags: look.words().into_iter().filter(|word| word != NO_DATA).collect(),
            numbers: Numbers {
                availability_index: look.availability.index,
                expansion_factor: look.availability.expansion_factor,
                weighted_load: look.terms.map(|terms| terms.weighted_load()),
                terms: look.terms.map(|terms| shown_terms(&terms)),
                users: pool.hosts[at].reading.as_ref().and_then(|reading| reading.users),
                pending: Some(words[at].places()),
            },
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

fn unregistered(host: &str, why: String) -> Shown {
    Shown {
        host: host.to_owned(),
        state: None,
        state_reason: why,
        no_data: false,
        numbers: Numbers::default(),
        flags: Vec::new(),
    }
}

fn shown_terms(terms: &LoadTerms) -> Terms {
    let LoadTerms { cpu, memory, users, processes, filled } = *terms;
    Terms { cpu, memory, users, processes, filled: filled.names().collect() }
}

const fn predicted_terms(load: &PredictedLoad) -> PredictedTerms {
    let PredictedLoad { background, logons, sessions, memory, scarce_memory, .. } = *load;
    PredictedTerms { background, logons, sessions, memory, scarce_memory }
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
    // Of logins on their way that nothing is added for, nothing is said.
    let some = |points: Option<f64>| points.filter(|points| *points > 0.0);
    let inputs = [
        ("cpu", numbers.cpu_percent),
        ("cpu_expected", some(numbers.expected_cpu)),
        ("mem", numbers.memory_percent),
        ("mem_expected", some(numbers.expected_memory)),
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
        ("logons_expected", host.predicted.map(|predicted| predicted.load.logons_expected)),
        ("places", host.predicted.map(|predicted| predicted.input.places)),
        ("cores", host.predicted.and_then(|predicted| predicted.input.cores)),
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
        predicted: host.predicted.map(|predicted| predicted_terms(&predicted.load)),
        inputs: inputs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        remarks,
    }
}
