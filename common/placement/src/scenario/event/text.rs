//! Events as people read them. Numbers are shown as an expectation would write them.

use std::{fmt, time::Duration};

use usher_types::EndReason;

use super::{
    Count, Event, EventKind, Explained, ExplainedLine, Failure, Placed, PredictedTerms, Refused, Shown, Terms,
};

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Since(self.at);
        match &self.kind {
            EventKind::Placed(placed) => write!(f, "{placed}"),
            EventKind::Refused(refused) => write!(f, "{refused}"),
            EventKind::OutcomeUnknown { name, outcome } => {
                write!(f, "{name} {}: no place of it is known", format!("{outcome:?}").to_lowercase())
            }
            EventKind::StateChanged { coordinators, host, from, to, reason } => {
                write!(f, "{at} ")?;
                if !coordinators.is_empty() {
                    write!(f, "{}: ", coordinators.join(","))?;
                }
                write!(f, "{host} {from} -> {to}")?;
                if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
            }
            EventKind::PlaceEnded { host, reservation, reason } => {
                write!(f, "{at} {host} place {reservation} ended: {}", end_reason(*reason))
            }
            EventKind::MarkExpired { host, resource } => {
                write!(
                    f,
                    "{at} {host} the mark of {resource} is forgotten, the host has not listed it for a day"
                )
            }
            EventKind::Thawed { coordinator, after_s } => {
                write!(f, "{at} {coordinator} was frozen for {after_s:.1} s")
            }
            EventKind::ValueRefused { host, what, why } => write!(f, "{host} {what}: {why}"),
            EventKind::HostRefused { coordinator, host, code, reason, why } => {
                if let Some(coordinator) = coordinator {
                    write!(f, "{coordinator}: ")?;
                }
                write!(f, "{host} -> error {code} {reason}: {why}")
            }
            EventKind::PoolApplied { pool, version } => write!(f, "pool {pool} version={version}"),
            EventKind::ChangeRefused { what, code, reason, why } => {
                write!(f, "{what} -> error {code} {reason}: {why}")
            }
            EventKind::Shown(shown) => write!(f, "{shown}"),
            EventKind::Explained(explained) => write!(f, "{explained}"),
            EventKind::NothingToExplain { name, answer } => {
                write!(f, "{name}: {answer}, nothing was decided")
            }
            EventKind::Tallied { name, hosts, errors } => {
                write!(f, "tally {name}")?;
                hosts.iter().chain(errors).try_for_each(|Count { name, count }| write!(f, " {name}={count}"))
            }
            EventKind::ExpectationFailed(failure) => write!(f, "{failure}"),
        }
    }
}

/// `+15.0s`
struct Since(Duration);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0.subsec_micros().is_multiple_of(100_000) { 1 } else { 3 };
        write!(f, "+{:.decimals$}s", self.0.as_secs_f64())
    }
}

const fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Session => "its session came",
        EndReason::Cancelled => "cancelled",
        EndReason::Failed => "failed",
        EndReason::Expired => "expired",
        EndReason::HostLost => "its host was lost",
        EndReason::Superseded => "superseded",
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} reason={}", self.name, self.host, self.reason)?;
        if let Some(load) = self.weighted_load {
            write!(f, " w={load:.2}")?;
        }
        if let Some(score) = self.score {
            write!(f, " score={score:.2}")?;
        }
        let reservation = self.reservation.as_deref().unwrap_or("none");
        write!(f, " flags={} reservation={reservation}", self.flags.join(","))?;
        if self.repeated {
            f.write_str(" repeated")?;
        }
        match (&self.redirected_from, self.redirected_for) {
            (Some(from), Some(why)) => write!(f, " redirected={from}:{why}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> error {} {}", self.name, self.code, self.reason)?;
        let hosts: Vec<String> =
            self.hosts.iter().map(|host| format!("{} {}", host.host, host.why)).collect();
        let said: Vec<String> = self.detail.iter().cloned().chain(hosts).collect();
        if said.is_empty() { Ok(()) } else { write!(f, ": {}", said.join(", ")) }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(state) = self.state else {
            write!(f, "{} is not registered", self.host)?;
            return if self.state_reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.state_reason) };
        };
        write!(f, "{} {state}", self.host)?;
        if !self.state_reason.is_empty() {
            write!(f, " ({})", self.state_reason)?;
        }
        let numbers = &self.numbers;
        let no_data = if self.no_data { " (no_data)" } else { "" };
        write!(f, " ai={}{no_data}", or_absent(numbers.availability_index, 1))?;
        write!(f, " xf={}", or_absent(numbers.expansion_factor, 2))?;
        write!(f, " w={}", or_absent(numbers.weighted_load, 2))?;
        if let Some(terms) = &numbers.terms {
            write!(f, " ({terms})")?;
        }
        let users = numbers.users.map_or("absent".to_owned(), |users| users.to_string());
        let pending = numbers.pending.unwrap_or_default();
        write!(f, " users={users} pending={pending} flags={}", self.flags.join(","))
    }
}

fn or_absent(number: Option<f64>, decimals: usize) -> String {
    number.map_or("absent".to_owned(), |number| format!("{number:.decimals$}"))
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms =
            [("cpu", self.cpu), ("mem", self.memory), ("users", self.users), ("procs", self.processes)];
        for (index, (name, points)) in terms.into_iter().enumerate() {
            let plus = if index == 0 { "" } else { " + " };
            let filled = if self.filled.contains(&filled_name(name)) { " (median)" } else { "" };
            write!(f, "{plus}{name} {points:.2}{filled}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PredictedTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { background, logons, sessions, memory, scarce_memory } = self;
        write!(
            f,
            "background {background:.3} + logons {logons:.3} + sessions {sessions:.3} + memory {memory:.3}"
        )?;
        write!(f, " + scarce memory {scarce_memory:.3}")
    }
}

fn filled_name(short: &'static str) -> &'static str {
    match short {
        "mem" => "memory",
        "procs" => "processes",
        other => other,
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}, pool {} version {} by {}",
            self.name, self.answer, self.pool, self.policy_version, self.method
        )?;
        if let (Some(users), Some(processes)) = (self.top_users, self.top_processes) {
            write!(f, ", top users {}, top processes {}", short(users), short(processes))?;
        }
        for asked in &self.asked {
            write!(f, "\n  asked {asked}")?;
        }
        self.hosts.iter().try_for_each(|host| write!(f, "\n  {host}"))
    }
}

impl fmt::Display for ExplainedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{rank}. {} {}", self.host, self.state)?,
            None => write!(f, "-  {} {}", self.host, self.state)?,
        }
        if !self.state_reason.is_empty() {
            write!(f, " ({})", self.state_reason)?;
        }
        if let Some(excluded) = self.excluded.as_ref().filter(|why| *why != self.state.as_str()) {
            write!(f, ", excluded: {excluded}")?;
        }
        match (&self.terms, &self.predicted, self.score) {
            (Some(terms), _, Some(score)) => write!(f, " w={score:.2} = {terms}")?,
            (_, Some(terms), Some(score)) => write!(f, " score={score:.3} = {terms}")?,
            (None, None, Some(score)) => write!(f, " score={score:.2}")?,
            _ => {}
        }
        let inputs: Vec<String> =
            self.inputs.iter().map(|(name, value)| format!("{name}={}", short(*value))).collect();
        if !inputs.is_empty() {
            write!(f, " [{}]", inputs.join(" "))?;
        }
        if self.remarks.is_empty() { Ok(()) } else { write!(f, " {}", self.remarks.join(", ")) }
    }
}

/// At most two digits after the point, and none that are 0 at the end.
fn short(number: f64) -> String {
    ((number * 100.0).round() / 100.0).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n  - {}\n  + {}", self.line, self.subject, self.expected, self.found)
    }
}
