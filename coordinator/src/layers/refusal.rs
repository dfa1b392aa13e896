//! The statuses that the stack itself answers with.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use usher_proto::error::{reason, status};
use usher_runtime::shutdown::SHUTDOWN_DEADLINE;

/// After this an overloaded coordinator is worth another try. Longer than nearly every call takes, so that room is
/// likely; short, since logins wait for it.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The caller may not do this.
pub(super) fn not_authorized(message: String) -> Status {
    status(Code::PermissionDenied, reason::NOT_AUTHORIZED, message, HashMap::new(), None)
}

/// The coordinator goes down; these are others.
pub(crate) fn shutting_down(others: &[String]) -> Status {
    let (message, metadata) = if others.is_empty() {
        ("this coordinator is shutting down".to_owned(), HashMap::new())
    } else {
        let others = others.join(",");
        let message = format!("this coordinator is shutting down, others are {others}");
        (message, HashMap::from([("coordinators".to_owned(), others)]))
    };
    let retry = (!metadata.is_empty()).then_some(Duration::ZERO).or(Some(SHUTDOWN_DEADLINE));
    status(Code::Unavailable, reason::SHUTTING_DOWN, message, metadata, retry)
}

/// Too many calls are under way.
pub(super) fn overloaded() -> Status {
    let message = "too many calls are under way, try again later";
    status(Code::Unavailable, reason::OVERLOADED, message, HashMap::new(), Some(RETRY_AFTER))
}
