//! Is this an answer, or silence?
//!
//! A no is an answer. What a proxy, a transport or a coordinator says that cannot answer now is silence, and the next one
//! is asked. In between are a coordinator's words of what only it sees: that nobody is alive, because it hears nobody; that
//! all are full, because what is free is for others to give; or that there is no such pool, because it has just begun with an
//! empty store. Such a no counts if no other coordinator has a better answer.

use std::error::Error as _;

use tonic::{Code, Status};
use usher_proto::error::{HOSTS_HEARD, HOSTS_REGISTERED, KEPT_HOSTS, error_info, reason, retry_after};

use crate::error::Refusal;
use crate::peers::is_full_view;

/// What an error status means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// A no that every coordinator would give.
    No(Box<Refusal>),
    /// A no that another coordinator may not agree with.
    Doubtful(Box<Refusal>),
    /// No answer: what happened instead.
    Silence(String),
}

/// What a status means. `is_partial`: the coordinator is known to hear too few hosts, whether it says so now or not.
pub(crate) fn judge(coordinator: &str, status: &Status, is_partial: bool) -> Answer {
    let Some(info) = error_info(status) else {
        return match status.code() {
            // What the library itself finds, or what no coordinator of ours says without a reason.
            Code::InvalidArgument | Code::OutOfRange if status.source().is_none() => {
                Answer::No(refusal(coordinator, status))
            }
            _ => Answer::Silence(cause_of(status)),
        };
    };
    match info.reason.as_str() {
        reason::STALE | reason::OVERLOADED | reason::SHUTTING_DOWN => {
            Answer::Silence(format!("{}: {}", info.reason, status.message()))
        }
        reason::ALL_OFFLINE
        | reason::NO_CONSENT
        | reason::NOT_AUTHORIZED
        | reason::IDENTITY_MISMATCH
        | reason::UNKNOWN_POOL
        | reason::UNKNOWN_RESOURCE => Answer::Doubtful(refusal(coordinator, status)),
        _ => {
            let refusal = refusal(coordinator, status);
            let is_partial = is_partial
                || refusal.hosts_heard().is_some_and(|(heard, registered)| !is_full_view(heard, registered));
            let is_of_hosts = matches!(status.code(), Code::ResourceExhausted | Code::Unavailable);
            if is_of_hosts && (is_partial || refusal.has_kept_hosts()) {
                Answer::Doubtful(refusal)
            } else {
                Answer::No(refusal)
            }
        }
    }
}

/// How much a coordinator knows of the farm that says no for this reason: of several the one counts that knows most.
pub(crate) fn knows(reason: &str) -> u8 {
    match reason {
        reason::STALE => 0,
        reason::UNKNOWN_POOL
        | reason::UNKNOWN_RESOURCE
        | reason::NOT_AUTHORIZED
        | reason::IDENTITY_MISMATCH => 1,
        // It hears nobody.
        reason::ALL_OFFLINE => 2,
        _ => 3,
    }
}

impl Refusal {
    /// Hosts that the coordinator hears, and those that are registered. Absent: it did not say.
    pub(crate) fn hosts_heard(&self) -> Option<(u32, u32)> {
        let count = |key| self.metadata.get(key)?.parse().ok();
        Some((count(HOSTS_HEARD)?, count(HOSTS_REGISTERED)?))
    }

    /// Whether hosts may have room that only other coordinators may give.
    pub(crate) fn has_kept_hosts(&self) -> bool {
        self.metadata.contains_key(KEPT_HOSTS)
    }
}

fn refusal(coordinator: &str, status: &Status) -> Box<Refusal> {
    let (reason, metadata) = error_info(status)
        .map_or_else(Default::default, |info| (info.reason, info.metadata.into_iter().collect()));
    Box::new(Refusal {
        coordinator: coordinator.to_owned(),
        code: status.code(),
        reason,
        message: status.message().to_owned(),
        metadata,
        retry_after: retry_after(status),
    })
}

/// The library says "transport error"; what happened is in its sources.
pub(crate) fn cause_of(status: &Status) -> String {
    let mut text = status.message().to_owned();
    if text.is_empty() {
        text = format!("{:?}", status.code());
    }
    let mut source = status.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use usher_proto::error::status;

    use super::*;

    fn kind(code: Code, reason: &str, is_partial: bool) -> &'static str {
        match judge("c1", &status(code, reason, "m", HashMap::new(), None), is_partial) {
            Answer::No(_) => "no",
            Answer::Doubtful(_) => "doubtful",
            Answer::Silence(_) => "silence",
        }
    }

    #[test]
    fn a_no_is_an_answer_and_one_that_cannot_answer_now_is_silent() {
        for (code, reason, partial, expected) in [
            (Code::NotFound, reason::UNKNOWN_POOL, false, "doubtful"),
            (Code::FailedPrecondition, reason::OUT_OF_SERVICE, true, "no"),
            (Code::ResourceExhausted, reason::MAX_USERS, false, "no"),
            (Code::ResourceExhausted, reason::MAX_USERS, true, "doubtful"),
            (Code::Unavailable, reason::ALL_RESTRICTED, false, "no"),
            (Code::Unavailable, reason::ALL_OFFLINE, false, "doubtful"),
            (Code::Unavailable, reason::NO_CONSENT, false, "doubtful"),
            (Code::Unavailable, reason::STALE, false, "silence"),
            (Code::Unavailable, reason::OVERLOADED, false, "silence"),
            (Code::Unavailable, reason::SHUTTING_DOWN, false, "silence"),
            (Code::InvalidArgument, reason::INVALID_FIELD, true, "no"),
        ] {
            assert_eq!(kind(code, reason, partial), expected, "{reason}");
        }
        for code in
            [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Internal, Code::Unimplemented]
        {
            assert!(matches!(judge("c1", &Status::new(code, "x"), false), Answer::Silence(_)), "{code:?}");
        }
    }

    #[test]
    fn a_no_that_comes_of_what_one_coordinator_sees_is_doubtful_by_its_own_words() {
        for (key, value, expected) in [
            (KEPT_HOSTS, "3", "doubtful"),
            (HOSTS_HEARD, "8", "doubtful"),
            (HOSTS_HEARD, "9", "no"),
            (HOSTS_HEARD, "many", "no"),
        ] {
            let metadata = [(HOSTS_REGISTERED, "10"), (key, value)];
            let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
            for (code, reason, of_hosts) in [
                (Code::ResourceExhausted, reason::MAX_USERS, true),
                (Code::Unavailable, reason::ALL_RESTRICTED, true),
                (Code::FailedPrecondition, reason::OUT_OF_SERVICE, false),
            ] {
                let said = status(code, reason, "m", HashMap::from(metadata.clone()), None);
                let is_doubtful = matches!(judge("c1", &said, false), Answer::Doubtful(_));
                assert_eq!(is_doubtful, of_hosts && expected == "doubtful", "{reason} with {key} {value}");
            }
        }
    }

    #[test]
    fn a_no_is_kept_whole() {
        let metadata = HashMap::from([("host:app1".to_owned(), "MAXUSERS".to_owned())]);
        let after = std::time::Duration::from_secs(5);
        let said = status(Code::ResourceExhausted, reason::MAX_USERS, "all full", metadata, Some(after));
        let Answer::No(refusal) = judge("c1", &said, false) else { panic!() };
        assert_eq!((refusal.reason.as_str(), refusal.retry_after), ("MAX_USERS", Some(after)));
        assert_eq!(refusal.hosts().collect::<Vec<_>>(), [("app1", "MAXUSERS")]);
    }
}
