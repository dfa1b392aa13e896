//! What does a status say of the stream to each coordinator?
//!
//! Whether it is there and, if not, since when, why, and when it is tried again; and what the host keeps free because
//! the coordinator is not heard: seats that nobody gets would otherwise look like an error.

use serde_json::{Value, json};
use usher_placement::host::{HeldBack, Report};
use usher_types::BootTime;

use super::status::{known, seconds};
use crate::coordinators::{Origin, ServiceStatus};
use crate::report::{StreamPhase, StreamStatus};

/// One coordinator, as the host sees it.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    /// Its address.
    pub(super) coordinator: &'a str,
    /// Where it is known from.
    pub(super) origin: &'a Origin,
    /// The address that this is another name of.
    pub(super) same_as: Option<&'a str>,
    /// A stream is open, whether it has greeted us or not.
    pub(super) is_open: bool,
    /// No ticks come of it.
    pub(super) is_unheard: bool,
    pub(super) status: StreamStatus,
    /// What is kept free for it.
    pub(super) held_back: HeldBack,
}

fn nonzero(count: u64) -> Option<Value> {
    (count > 0).then(|| json!(count))
}

/// What came of a service that DNS is asked for.
pub(super) fn service_json(status: &ServiceStatus) -> Value {
    let unusable = status.unusable.as_ref();
    known([
        ("service", Some(json!(status.service))),
        ("known", Some(json!(status.known))),
        ("remembered", Some(json!(status.is_remembered))),
        ("error", status.error.as_ref().map(|error| json!(error))),
        ("unusable", unusable.map(|(count, _)| json!(count))),
        ("unusable_error", unusable.map(|(_, first)| json!(first))),
        ("left_out", (status.left_out > 0).then(|| json!(status.left_out))),
    ])
}

/// One sentence about a service that DNS does not answer for. Absent: it does.
pub(super) fn unanswered(status: &ServiceStatus) -> Option<String> {
    let error = status.error.as_ref()?;
    let known = match (status.known, status.is_remembered) {
        (0, _) => "no coordinator is known from it".to_owned(),
        (known, true) => format!("{known} coordinators are remembered from an earlier run"),
        (known, false) => format!("{known} coordinators are known from its last answer"),
    };
    Some(format!("service {}: {error}; {known}", status.service))
}

/// What the host keeps free for the coordinator of this number alone.
pub(super) fn held_back_for(number: usize, report: Option<&Report>) -> HeldBack {
    let Some(report) = report else { return HeldBack::default() };
    let (load, others) = (report.load(), report.held_back_from(number));
    HeldBack {
        users: load.held_back_users.saturating_sub(others.users),
        places: load.held_back_places.saturating_sub(others.places),
    }
}

impl Stream<'_> {
    pub(super) fn json(&self, now: BootTime) -> Value {
        let status = &self.status;
        let error = status.last_error.as_ref();
        known([
            ("coordinator", Some(json!(self.coordinator))),
            ("service", self.service().map(|service| json!(service))),
            ("remembered", matches!(self.origin, Origin::Remembered(_)).then_some(json!(true))),
            ("same_as", self.same_as.map(|same_as| json!(same_as))),
            ("attached", Some(json!(self.is_open))),
            ("heard", Some(json!(!self.is_unheard))),
            ("state", Some(json!(status.phase.as_str()))),
            ("since_seconds", status.since.map(|since| seconds(now.since(since)))),
            ("last_tick_age_seconds", status.heard.map(|heard| seconds(now.since(heard)))),
            ("superseded_reports", nonzero(status.superseded_reports)),
            ("failures", (status.failures > 0).then(|| json!(status.failures))),
            ("last_error", error.map(|(why, _)| json!(why))),
            ("last_error_age_seconds", error.map(|(_, at)| seconds(now.since(*at)))),
            ("next_call_seconds", status.next_call.map(|at| seconds(at.since(now)))),
            ("held_back_users", (self.held_back.users > 0).then(|| json!(self.held_back.users))),
            ("held_back_places", (self.held_back.places > 0).then(|| json!(self.held_back.places))),
        ])
    }

    fn service(&self) -> Option<&str> {
        match self.origin {
            Origin::Settings => None,
            Origin::Service(service) | Origin::Remembered(service) => Some(service),
        }
    }

    /// One sentence about a coordinator that is not heard. Absent: it is.
    pub(super) fn silence(&self, now: BootTime) -> Option<String> {
        if !self.is_unheard {
            return None;
        }
        let status = &self.status;
        let why = match (status.phase, &status.last_error) {
            (StreamPhase::Attached, _) => "it does not tick".to_owned(),
            (_, Some((why, _))) => why.clone(),
            (_, None) => "it was not reached yet".to_owned(),
        };
        let refused = if status.phase == StreamPhase::Refused { "it refuses this host: " } else { "" };
        let since = if status.phase == StreamPhase::Attached { status.heard } else { status.since };
        let since = since.map(|since| format!(" for {} s", now.since(since).as_secs())).unwrap_or_default();
        let HeldBack { users, places } = self.held_back;
        let kept = [(users, "users"), (places, "logons")].into_iter().filter(|(count, _)| *count > 0);
        let kept: Vec<_> = kept.map(|(count, what)| format!("{count} {what}")).collect();
        let kept = match kept.as_slice() {
            [] => String::new(),
            kept => format!("; room for {} is kept free for it", kept.join(" and ")),
        };
        Some(format!("coordinator {} is not heard{since}: {refused}{why}{kept}", self.coordinator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(seconds * 1000)
    }

    fn stream(status: StreamStatus, is_unheard: bool) -> Stream<'static> {
        let held_back = HeldBack { users: 7, places: 2 };
        let (coordinator, origin) = ("c2.example:7443", &Origin::Settings);
        Stream { coordinator, origin, same_as: None, is_open: false, is_unheard, status, held_back }
    }

    #[test]
    fn a_coordinator_that_refuses_the_host_is_named_with_the_reason_and_what_it_costs() {
        let status = StreamStatus {
            phase: StreamPhase::Refused,
            since: Some(at(10)),
            next_call: Some(at(60)),
            failures: 3,
            last_error: Some(("AlreadyExists: the id is in use".into(), at(35))),
            ..StreamStatus::default()
        };
        let refused = stream(status, true);
        let expected = "coordinator c2.example:7443 is not heard for 30 s: it refuses this host: AlreadyExists: the id \
                        is in use; room for 7 users and 2 logons is kept free for it";
        assert_eq!(refused.silence(at(40)).as_deref(), Some(expected));
        let expected = json!({
            "coordinator": "c2.example:7443", "attached": false, "heard": false, "state": "refused",
            "since_seconds": 30.0, "failures": 3, "last_error": "AlreadyExists: the id is in use",
            "last_error_age_seconds": 5.0, "next_call_seconds": 20.0, "held_back_users": 7, "held_back_places": 2,
        });
        assert_eq!(refused.json(at(40)), expected);
    }

    #[test]
    fn a_coordinator_that_is_attached_and_silent_is_told_from_one_that_is_gone() {
        let attached = StreamStatus {
            phase: StreamPhase::Attached,
            since: Some(at(1)),
            heard: Some(at(30)),
            ..StreamStatus::default()
        };
        assert_eq!(stream(attached.clone(), false).silence(at(40)), None);
        let silent = Stream { held_back: HeldBack::default(), ..stream(attached, true) };
        let expected = "coordinator c2.example:7443 is not heard for 10 s: it does not tick";
        assert_eq!(silent.silence(at(40)).as_deref(), Some(expected));
        let new = stream(StreamStatus::default(), true).silence(at(40)).unwrap();
        assert!(new.contains("not heard: it was not reached yet; room for 7 users"), "{new}");
    }
}
