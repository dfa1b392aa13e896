//! Where a login goes.

use std::time::Duration;

use usher_proto::json::enum_name;
use usher_proto::{read, v1};
use usher_types::Endpoint;

use crate::request::Request;

/// Where a login goes.
///
/// It is a note of what was answered, not a hold on it: dropping it ends nothing. What becomes of the login is said with
/// [`Client::report`](crate::Client::report).
#[derive(Clone, Debug)]
pub struct Placement {
    pub(crate) message: v1::Placement,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) request: Request,
    pub(crate) request_id: String,
    /// Hosts that this login was sent to before, by id.
    pub(crate) tried: Vec<String>,
    /// The coordinator that answered. Absent: none did.
    pub(crate) coordinator: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) farm_age: Option<Duration>,
}

impl Placement {
    /// The host's identity.
    pub fn host_id(&self) -> &str {
        &self.message.host_id
    }

    /// The host's name.
    pub fn host_name(&self) -> &str {
        &self.message.host_name
    }

    /// Where clients reach the host; never empty.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The first endpoint that speaks `kind` ("ssh", "rdp", ...).
    pub fn endpoint(&self, kind: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.kind == kind)
    }

    /// Why this host: a word such as `LOWEST_LOAD`, `OWN_SESSION` or `LOCAL_DECISION`.
    pub fn reason(&self) -> String {
        enum_name::<v1::PlacementReason>(self.message.reason).into_owned()
    }

    /// Words that qualify the answer: `all_busy`, `partial_view`, `local_decision`, ...
    pub fn flags(&self) -> &[String] {
        &self.message.flags
    }

    /// This client decided itself, because no coordinator answered: nothing is reserved, and no host has agreed.
    pub fn is_local(&self) -> bool {
        self.coordinator.is_none()
    }

    /// The coordinator that answered. Absent: none did.
    pub fn coordinator(&self) -> Option<&str> {
        self.coordinator.as_deref()
    }

    /// Of a decision of this client's own: how old what it knew of the farm was.
    pub fn farm_age(&self) -> Option<Duration> {
        self.farm_age
    }

    /// The id of the login, for reports and retries.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// How many tries it took, >= 1; of a decision of this client's own those that failed before, which may be none.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long the place is kept. Absent: none is (the user's own session, a dry run, a decision of this client's own).
    pub fn reserved_for(&self) -> Option<Duration> {
        self.message.reservation.as_ref()?;
        self.message.reservation_left_ms.map(Duration::from_millis)
    }

    /// The whole answer, as it came over the wire.
    pub fn message(&self) -> &v1::Placement {
        &self.message
    }
}

/// The endpoints of an answer that was made here.
pub(crate) fn endpoints_of(placement: &v1::Placement) -> Vec<Endpoint> {
    placement.endpoints.iter().cloned().filter_map(|endpoint| read::endpoint(endpoint).ok()).collect()
}
