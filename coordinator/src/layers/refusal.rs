//! The statuses that the stack itself answers with.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use usher_proto::error::{reason, status};

/// After this an overloaded coordinator is worth another try. Longer than nearly every call takes, so that room is
/// likely; short, since logins wait for it.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The caller may not do this.
pub(super) fn not_authorized(message: String) -> Status {
    status(Code::PermissionDenied, reason::NOT_AUTHORIZED, message, HashMap::new(), None)
}

/// Too many calls are under way.
pub(super) fn overloaded() -> Status {
    let message = "too many calls are under way, try again later";
    status(Code::Unavailable, reason::OVERLOADED, message, HashMap::new(), Some(RETRY_AFTER))
}
