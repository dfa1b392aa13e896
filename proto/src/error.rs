//! How does a caller learn why it was refused, in a form that a program can act on?
//!
//! Every error carries `google.rpc.ErrorInfo` with the domain `usher.v1` and one of the reasons in [`reason`]; errors
//! that pass by themselves carry `RetryInfo`, refused fields `BadRequest`. All of it travels in HTTP/2 trailers, which
//! peers bound at a few KiB: texts are cut here, so that a long list of faults never turns an answer into a broken
//! stream.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{BadRequest, ErrorDetails, FieldViolation, StatusExt as _};
use usher_types::FieldFault;

use crate::fault::cut;

/// The domain of all reasons.
pub const DOMAIN: &str = "usher.v1";

/// In the metadata of a refused placement: how many hosts of the farm the coordinator hears.
pub const HOSTS_HEARD: &str = "hosts_heard";
/// As above: how many are registered.
pub const HOSTS_REGISTERED: &str = "hosts_registered";
/// As above: how many of the full hosts keep what is free of them for coordinators that have lost them, or have given this
/// one its share. Absent: none.
pub const KEPT_HOSTS: &str = "kept_hosts";

/// Why a call was refused. The words are part of the protocol.
pub mod reason {
    /// Every host that could serve is at its limit of users.
    pub const MAX_USERS: &str = "MAX_USERS";
    /// Every host that could serve holds as many places as it may.
    pub const MAX_PENDING: &str = "MAX_PENDING";
    /// No host that had to be asked gave its consent.
    pub const NO_CONSENT: &str = "NO_CONSENT";
    /// No host is there.
    pub const ALL_OFFLINE: &str = "ALL_OFFLINE";
    /// Every host is drained.
    pub const ALL_RESTRICTED: &str = "ALL_RESTRICTED";
    /// What is known is too old to decide by.
    pub const STALE: &str = "STALE";
    /// There is no such pool.
    pub const UNKNOWN_POOL: &str = "UNKNOWN_POOL";
    /// No host holds the resource.
    pub const UNKNOWN_RESOURCE: &str = "UNKNOWN_RESOURCE";
    /// The resource is out of service.
    pub const OUT_OF_SERVICE: &str = "OUT_OF_SERVICE";
    /// The request id came before, with another content.
    pub const REQUEST_ID_REUSED: &str = "REQUEST_ID_REUSED";
    /// The settings are not at the expected version.
    pub const POLICY_VERSION: &str = "POLICY_VERSION";
    /// The settings of pools come from a file on the coordinator.
    pub const POLICY_FROM_FILE: &str = "POLICY_FROM_FILE";
    /// A file is no backup that can be restored.
    pub const BAD_BACKUP: &str = "BAD_BACKUP";
    /// A backup is of another farm.
    pub const OTHER_FARM: &str = "OTHER_FARM";
    /// A field holds what is not allowed.
    pub const INVALID_FIELD: &str = "INVALID_FIELD";
    /// The caller's role does not allow the call.
    pub const NOT_AUTHORIZED: &str = "NOT_AUTHORIZED";
    /// The caller is not who it says.
    pub const IDENTITY_MISMATCH: &str = "IDENTITY_MISMATCH";
    /// The host has a stream to this coordinator already, under another name of it.
    pub const SAME_COORDINATOR: &str = "SAME_COORDINATOR";
    /// The coordinator is going down.
    pub const SHUTTING_DOWN: &str = "SHUTTING_DOWN";
    /// Another living host has this id.
    pub const HOST_ID_IN_USE: &str = "HOST_ID_IN_USE";
    /// It was kept once, and is no longer.
    pub const RETENTION: &str = "RETENTION";
    /// The request itself leaves no host.
    pub const ALL_EXCLUDED: &str = "ALL_EXCLUDED";
    /// There is no such host.
    pub const UNKNOWN_HOST: &str = "UNKNOWN_HOST";
    /// Several hosts have this name.
    pub const AMBIGUOUS_HOST: &str = "AMBIGUOUS_HOST";
    /// More calls are under way than the coordinator serves at once.
    pub const OVERLOADED: &str = "OVERLOADED";
    /// A reader of the farm must ask again.
    pub const RESYNC: &str = "RESYNC";
    /// What would change could not be stored.
    pub const STORE_UNAVAILABLE: &str = "STORE_UNAVAILABLE";
    /// The certificate has brought as many modelled hosts as it may.
    pub const MAX_VIRTUAL_HOSTS: &str = "MAX_VIRTUAL_HOSTS";
}

/// The message stands in the trailers twice: by itself and in the details.
const MAX_MESSAGE_BYTES: usize = 2000;
/// Keys and values of the metadata together.
const MAX_METADATA_BYTES: usize = 1200;
/// One value of the metadata.
const MAX_VALUE_BYTES: usize = 256;
/// Fields and descriptions of all violations together.
const MAX_VIOLATION_BYTES: usize = 1600;

/// What an error of usher says to a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorInfo {
    /// One of [`reason`], or one of a newer peer.
    pub reason: String,
    /// Details by name; which ones depends on the reason.
    pub metadata: HashMap<String, String>,
}

/// An error with a reason, and with the time after which a retry makes sense.
///
/// A message beyond 2000 bytes, metadata values beyond 256 and metadata beyond 1200 in all are cut.
pub fn status(
    code: Code,
    reason: &str,
    message: impl Into<String>,
    metadata: HashMap<String, String>,
    retry: Option<Duration>,
) -> Status {
    with_details(code, message.into(), details(reason, metadata, retry))
}

/// The refusal of fields: INVALID_ARGUMENT, each field named in the message and as a violation, the first one in the
/// metadata as `field`, `value` and `allowed`.
pub fn invalid_fields(faults: &[FieldFault]) -> Status {
    let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let metadata = faults.first().map_or_else(HashMap::new, |fault| {
        HashMap::from([
            ("field".to_owned(), fault.field.clone()),
            ("value".to_owned(), fault.value.clone()),
            ("allowed".to_owned(), fault.allowed.clone()),
        ])
    });
    let mut details = details(reason::INVALID_FIELD, metadata, None);
    let mut budget = MAX_VIOLATION_BYTES;
    let mut violations = Vec::new();
    for fault in faults {
        let description = cut(format!("{}: allowed {}", fault.value, fault.allowed), MAX_VALUE_BYTES);
        let field = cut(fault.field.clone(), MAX_VALUE_BYTES);
        let Some(left) = budget.checked_sub(field.len() + description.len()) else { break };
        budget = left;
        violations.push(FieldViolation::new(field, description));
    }
    details.set_bad_request(violations);
    with_details(Code::InvalidArgument, message, details)
}

fn details(reason: &str, metadata: HashMap<String, String>, retry: Option<Duration>) -> ErrorDetails {
    let mut entries: Vec<_> = metadata.into_iter().collect();
    // Which entries are left out must not depend on the order of a hash map.
    entries.sort();
    let mut budget = MAX_METADATA_BYTES;
    let mut kept = HashMap::new();
    for (key, value) in entries {
        let value = cut(value, MAX_VALUE_BYTES);
        if let Some(left) = budget.checked_sub(key.len() + value.len()) {
            budget = left;
            kept.insert(key, value);
        }
    }
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, kept);
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    details
}

fn with_details(code: Code, message: String, details: ErrorDetails) -> Status {
    Status::with_error_details(code, cut(message, MAX_MESSAGE_BYTES), details)
}

/// What an error says to a program. Absent if it is not one of usher's (a proxy's, a transport's).
pub fn error_info(status: &Status) -> Option<ErrorInfo> {
    let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
    Some(ErrorInfo { reason: info.reason, metadata: info.metadata })
}

/// After which time a retry makes sense. Absent if the error does not say.
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The fields that an error refuses, and why, in the order of the message. At most as many as fit its trailers.
pub fn field_violations(status: &Status) -> Vec<(String, String)> {
    let violations = status.get_details_bad_request().unwrap_or_else(|| BadRequest::new(Vec::new()));
    violations
        .field_violations
        .into_iter()
        .map(|violation| (violation.field, violation.description))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_what_is_read() {
        let metadata = HashMap::from([("pool".to_owned(), "desk".to_owned())]);
        let retry = Duration::from_millis(1500);
        let status = status(
            Code::ResourceExhausted,
            reason::MAX_USERS,
            "pool desk is full",
            metadata.clone(),
            Some(retry),
        );
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "pool desk is full"));
        let info = error_info(&status).unwrap();
        assert_eq!(info, ErrorInfo { reason: "MAX_USERS".to_owned(), metadata });
        assert_eq!(retry_after(&status), Some(retry));
    }

    #[test]
    fn an_error_of_somebody_else_has_no_reason() {
        assert_eq!(error_info(&Status::unavailable("connection refused")), None);
        assert_eq!(retry_after(&Status::unavailable("connection refused")), None);
        let other = ErrorDetails::with_error_info("MAX_USERS", "elsewhere.example", HashMap::new());
        assert_eq!(error_info(&Status::with_error_details(Code::Internal, "x", other)), None);
        let garbage = Status::with_details(Code::Internal, "x", vec![0xff_u8; 40].into());
        assert_eq!((error_info(&garbage), retry_after(&garbage)), (None, None));
        assert!(field_violations(&garbage).is_empty());
    }

    #[test]
    fn every_refused_field_is_named_and_the_first_one_is_in_the_metadata() {
        let faults = [FieldFault::new("range", 120, "1..=30"), FieldFault::new("max_users", 0, "at least 1")];
        let status = invalid_fields(&faults);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "range = 120: allowed 1..=30; max_users = 0: allowed at least 1");
        let info = error_info(&status).unwrap();
        assert_eq!(info.reason, reason::INVALID_FIELD);
        assert_eq!((info.metadata["field"].as_str(), info.metadata["value"].as_str()), ("range", "120"));
        assert_eq!(info.metadata["allowed"], "1..=30");
        let fields: Vec<_> = field_violations(&status).into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["range", "max_users"]);
        assert_eq!(retry_after(&status), None);
    }

    #[test]
    fn an_error_fits_the_trailers_however_much_was_wrong() {
        let faults = vec![FieldFault::new("f".repeat(300), "é".repeat(3000), "x".repeat(3000)); 500];
        let refused = invalid_fields(&faults);
        assert!(refused.message().len() <= MAX_MESSAGE_BYTES);
        assert!(refused.details().len() < 6 * 1024, "{} bytes", refused.details().len());
        let metadata = (0..500).map(|i| (format!("key{i}"), "é".repeat(3000))).collect();
        let long = status(Code::NotFound, reason::RETENTION, "m".repeat(9000), metadata, None);
        assert!(long.details().len() < 6 * 1024, "{} bytes", long.details().len());
        assert_eq!(error_info(&long).unwrap().reason, reason::RETENTION);
    }
}
