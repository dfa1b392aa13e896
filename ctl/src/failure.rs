//! What went wrong, for a person, for a script, and as an exit code?
//!
//! | code | means |
//! |---|---|
//! | 0 | done |
//! | 1 | a coordinator answered, and the answer was no |
//! | 2 | wrong use: found before anybody was asked |
//! | 3 | nobody answered |
//! | 4 | a check failed |
//!
//! The difference between 1 and 3 matters to scripts: after a no, asking again is useless until something changes;
//! after silence, it may help, and what was asked for may have happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tonic::{Code, Status};
use usher_proto::error::{HOSTS_HEARD, HOSTS_REGISTERED, KEPT_HOSTS, error_info, reason, retry_after};

use crate::output::text::{clean, duration};

/// What stands before a host's name in the metadata of an error.
const HOST_KEY: &str = "host:";
/// How much of the farm a refusal knows of: told in words.
const COUNTS: [&str; 3] = [HOSTS_HEARD, HOSTS_REGISTERED, KEPT_HOSTS];

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A coordinator said no.
    Refused(Box<Refusal>),
    /// The command line, a file or an environment variable is wrong.
    Usage(String),
    /// No coordinator answered: each with what happened there.
    NoAnswer(Vec<Silence>),
    /// Something that was to be so is not so.
    Check(String),
    /// `connect` has no connection, or lost it: one line.
    Unconnected(String),
    /// Anything else: a file that cannot be written, a process that cannot be started.
    Broken(anyhow::Error),
}

/// A no, with its typed reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    /// What was asked for: `placing in pool desk`.
    pub(crate) operation: String,
    /// gRPC code.
    pub(crate) code: Code,
    /// Typed reason; empty if the answer carries none.
    pub(crate) reason: String,
    /// For people.
    pub(crate) message: String,
    /// What the answer says of each host, or of each field.
    pub(crate) metadata: BTreeMap<String, String>,
    /// When asking again makes sense.
    pub(crate) retry_after: Option<Duration>,
}

/// A coordinator that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Silence {
    /// `host:port`
    pub(crate) coordinator: String,
    /// What happened instead.
    pub(crate) cause: String,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    error: ErrorDocument<'a>,
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    code: &'static str,
    reason: &'a str,
    message: String,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_s: Option<f64>,
}

impl Failure {
    /// A wrong use.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// The exit code of the program.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) | Self::Broken(_) => 1,
            Self::Usage(_) => 2,
            Self::NoAnswer(_) => 3,
            Self::Check(_) => 4,
            // What ssh itself ends with.
            Self::Unconnected(_) => 255,
        }
    }

    /// Several lines for stderr.
    pub(crate) fn for_people(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.for_people(),
            Self::Usage(message) | Self::Check(message) => format!("error: {message}"),
            Self::Unconnected(line) => line.clone(),
            Self::Broken(error) => format!("error: {}", clean(&format!("{error:#}"))),
            Self::NoAnswer(silences) => {
                let mut text = "error: no coordinator answered".to_owned();
                for silence in silences {
                    let _ = write!(text, "\n  {}: {}", clean(&silence.coordinator), clean(&silence.cause));
                }
                text += "\nhint: --coordinator HOST:PORT or USHER_COORDINATORS says where to ask";
                text
            }
        }
    }

    /// The document for stdout.
    pub(crate) fn for_scripts(&self) -> impl Serialize + '_ {
        let plain = |code, reason, message: &str| ErrorDocument {
            code,
            reason,
            message: message.to_owned(),
            metadata: BTreeMap::new(),
            retry_after_s: None,
        };
        let error = match self {
            Self::Refused(refusal) => ErrorDocument {
                metadata: refusal.metadata.clone(),
                retry_after_s: refusal.retry_after.map(|after| after.as_secs_f64()),
                ..plain(code_name(refusal.code), &refusal.reason, &refusal.message)
            },
            Self::Usage(message) => plain("INVALID_ARGUMENT", "USAGE", message),
            Self::Check(message) => plain("FAILED_PRECONDITION", "CHECK_FAILED", message),
            Self::Unconnected(line) => plain("UNAVAILABLE", "UNCONNECTED", line),
            Self::Broken(error) => plain("INTERNAL", "FAILED", &format!("{error:#}")),
            Self::NoAnswer(silences) => ErrorDocument {
                metadata: silences.iter().map(|s| (s.coordinator.clone(), s.cause.clone())).collect(),
                ..plain("UNAVAILABLE", "NO_ANSWER", "no coordinator answered")
            },
        };
        Document { error }
    }
}

impl Refusal {
    /// The no in a coordinator's answer.
    pub(crate) fn of(operation: &str, status: &Status) -> Self {
        let (reason, metadata) = error_info(status)
            .map_or_else(Default::default, |info| (info.reason, info.metadata.into_iter().collect()));
        Self {
            operation: operation.to_owned(),
            code: status.code(),
            reason,
            message: status.message().to_owned(),
            metadata,
            retry_after: retry_after(status),
        }
    }

    fn for_people(&self) -> String {
        let reason = if self.reason.is_empty() { code_name(self.code) } else { &self.reason };
        let mut text = format!("error: {} was refused: {}", clean(&self.operation), clean(reason));
        let message = self.message_without_hosts();
        if !message.is_empty() {
            let _ = write!(text, "\n  {}", clean(message));
        }
        for (name, value) in &self.metadata {
            if let Some(host) = name.strip_prefix(HOST_KEY) {
                let _ = write!(text, "\n  {}: {}", clean(host), clean(value));
            } else if !COUNTS.contains(&name.as_str())
                && !self.message.contains(value.as_str())
                && !self.operation.contains(value.as_str())
            {
                let _ = write!(text, "\n  {}: {}", clean(name), clean(value));
            }
        }
        text += &self.view();
        if let Some(after) = self.retry_after {
            let _ = write!(text, "\ntry again after {}", duration(after));
        }
        if let Some(hint) = hint(&self.reason) {
            let _ = write!(text, "\nhint: {hint}");
        }
        text
    }

    /// What makes it one coordinator's no. Empty if it knows all of the farm.
    fn view(&self) -> String {
        let mut text = String::new();
        let count = |name| self.metadata.get(name).and_then(|count| count.parse::<u32>().ok());
        if let (Some(heard), Some(registered)) = (count(HOSTS_HEARD), count(HOSTS_REGISTERED))
            && heard < registered
        {
            let _ = write!(text, "\nthe coordinator hears {heard} of {registered} hosts");
        }
        if let Some(kept) = count(KEPT_HOSTS) {
            let _ = write!(text, "\n{kept} of these may have room that another coordinator can give");
        }
        text
    }

    /// The message names each host's reason once more, in one line; people read them better in one line each.
    fn message_without_hosts(&self) -> &str {
        let hosts = self.metadata.iter().filter_map(|(name, why)| Some((name.strip_prefix(HOST_KEY)?, why)));
        let listed = hosts.filter_map(|(host, why)| self.message.find(&format!(": {host} {why}"))).min();
        listed.map_or(&self.message, |start| &self.message[..start])
    }
}

/// What a person can do about it.
fn hint(reason: &str) -> Option<&'static str> {
    Some(match reason {
        reason::UNKNOWN_POOL => "`usherctl pool list` shows the pools",
        reason::UNKNOWN_HOST => "`usherctl hosts` shows the hosts",
        reason::AMBIGUOUS_HOST => "several hosts have this name; an id names one",
        reason::UNKNOWN_RESOURCE => "`usherctl replicas` shows which host holds what",
        reason::MAX_USERS | reason::MAX_PENDING | reason::NO_CONSENT => {
            "`usherctl hosts` shows the users of each host, `usherctl host show HOST` its limit"
        }
        reason::ALL_OFFLINE => "`usherctl hosts` shows since when each host is silent",
        reason::ALL_RESTRICTED => "`usherctl undrain HOST` lets a drained host take sessions again",
        reason::STALE => "the coordinator has just started and waits for its hosts",
        reason::OUT_OF_SERVICE => {
            "`usherctl locate RESOURCE` shows what is marked, `usherctl mark HOST RESOURCE in-service` takes it back"
        }
        reason::REQUEST_ID_REUSED => "a new login needs a new --request-id",
        reason::POLICY_VERSION => {
            "somebody else changed the pool; `usherctl pool show POOL` shows what is in force"
        }
        reason::OTHER_FARM => "--farm-was NAME says that it is meant",
        reason::BAD_BACKUP => "an earlier backup may be whole",
        reason::POLICY_FROM_FILE => "`usher-coordinator check-config` checks the file first",
        reason::NOT_AUTHORIZED | reason::IDENTITY_MISMATCH => "the role stands in the client's certificate",
        reason::RETENTION => "`usherctl decisions` and `usherctl pool history POOL` list what is kept",
        _ => return None,
    })
}

/// The name of a gRPC code, as in its specification.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use usher_proto::error;

    use super::*;

    const MESSAGE: &str = "every host is full: app1 MAXUSERS: 50 of 50\u{7}";

    fn full() -> Status {
        let hosts = HashMap::from([("host:app1".to_owned(), "MAXUSERS: 50 of 50\u{7}".to_owned())]);
        let after = Some(Duration::from_secs(2));
        error::status(Code::ResourceExhausted, reason::MAX_USERS, MESSAGE, hosts, after)
    }

    fn refused(status: &Status) -> Failure {
        Failure::Refused(Box::new(Refusal::of("placing in pool desk", status)))
    }

    #[test]
    fn a_refusal_tells_people_the_reason_each_host_and_what_to_do() {
        let text = refused(&full()).for_people();
        assert_eq!(
            text,
            "error: placing in pool desk was refused: MAX_USERS\n  every host is full\n  app1: MAXUSERS: 50 of \
             50\\u{7}\ntry again after 2.0s\nhint: `usherctl hosts` shows the users of each host, `usherctl host show HOST` its limit"
        );
    }

    #[test]
    fn a_refusal_by_what_one_coordinator_sees_says_so_and_one_by_all_of_the_farm_does_not() {
        let counted = |heard: &str, kept: Option<&str>| {
            let counts = [(HOSTS_HEARD, Some(heard)), (HOSTS_REGISTERED, Some("9")), (KEPT_HOSTS, kept)];
            let counts =
                counts.into_iter().filter_map(|(key, count)| Some((key.to_owned(), count?.to_owned())));
            let status =
                error::status(Code::ResourceExhausted, reason::MAX_USERS, "full", counts.collect(), None);
            refused(&status).for_people().lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(counted("9", None).len(), 1, "the hint alone");
        assert_eq!(
            counted("3", Some("2"))[..2],
            [
                "the coordinator hears 3 of 9 hosts",
                "2 of these may have room that another coordinator can give"
            ]
        );
    }

    #[test]
    fn a_refusal_tells_scripts_the_same_in_fields() {
        let document = serde_json::to_value(refused(&full()).for_scripts()).unwrap();
        assert_eq!(
            document,
            serde_json::json!({"error": {
                "code": "RESOURCE_EXHAUSTED", "reason": "MAX_USERS", "message": MESSAGE,
                "metadata": {"host:app1": "MAXUSERS: 50 of 50\u{7}"}, "retry_after_s": 2.0,
            }})
        );
    }

    #[test]
    fn what_the_message_says_already_is_not_said_twice() {
        let fault = usher_types::FieldFault::new("range", 120, "1..=30");
        let text = refused(&error::invalid_fields(&[fault])).for_people();
        assert_eq!(
            text,
            "error: placing in pool desk was refused: INVALID_FIELD\n  range = 120: allowed 1..=30"
        );
    }

    #[test]
    fn an_answer_without_details_is_still_a_refusal_by_its_code() {
        let text = refused(&Status::permission_denied("role gateway may not drain")).for_people();
        assert!(text.starts_with("error: placing in pool desk was refused: PERMISSION_DENIED"), "{text}");
    }

    #[test]
    fn exit_codes_tell_a_no_from_wrong_use_silence_and_a_failed_check() {
        assert_eq!(refused(&full()).exit_code(), 1);
        assert_eq!(Failure::usage("x").exit_code(), 2);
        let silence = Silence { coordinator: "127.0.0.1:7443".into(), cause: "connection refused".into() };
        let nobody = Failure::NoAnswer(vec![silence]);
        assert_eq!(nobody.exit_code(), 3);
        assert!(nobody.for_people().contains("127.0.0.1:7443: connection refused"));
        assert_eq!(Failure::Check("x".into()).exit_code(), 4);
    }
}
