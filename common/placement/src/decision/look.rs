//! What does a list say of a host?
//!
//! Lists, pages, metrics and scenarios show the same host in different forms; what they say of it is found here, once.
//! A host that is not heard is compared with nobody: it has no load, and no word that qualifies one. What qualifies its
//! availability stands as long as that does.

use usher_availability::{Availability, Basis};
use usher_types::HostState;

use super::{Assessment, Flags, Inputs};
use crate::{farm::state_reason, load::LoadTerms};

/// The limit of the host's users holds against it because nobody knows how many there are.
pub const USERS_UNKNOWN: &str = "users_unknown";
/// There is no availability index: nothing was timed on the host, or too long ago.
pub const NO_DATA: &str = "no_data";

/// One host as a list shows it: as a login of one user whom nobody knows would find it.
#[derive(Clone, PartialEq, Debug)]
pub struct HostLook {
    /// Its state.
    pub state: HostState,
    /// How available it is.
    pub availability: Availability,
    /// The terms of its weighted load. Absent: it is not heard, or nobody knows a number to compare it by.
    pub terms: Option<LoadTerms>,
    /// Words that qualify its load and its availability.
    pub flags: Flags,
    /// It is full because its users are not known.
    pub users_unknown: bool,
    /// Values that stand for a wrong one, by name.
    pub stale: Vec<&'static str>,
}

impl HostLook {
    /// The host at `position`, as it was assessed for a request of nobody.
    pub fn at(assessment: &Assessment<'_>, position: usize) -> Self {
        let Inputs { pool, words, now, .. } = *assessment.inputs();
        let (host, state) = (&pool.hosts[position], assessment.state(position));
        let is_heard = state.is_measured() && host.reading.is_some();
        let flags = assessment.host_flags(position);
        Self {
            state,
            availability: host.availability(now),
            terms: assessment.terms(position).filter(|_| is_heard),
            flags: if is_heard { flags } else { flags.without(Flags::INCOMPLETE).without(Flags::RAMPING) },
            users_unknown: state == HostState::MaxUsers && words[position].users().is_none(),
            stale: host.reading.iter().flat_map(|reading| &reading.stale).copied().collect(),
        }
    }

    /// Whether nothing was timed on it, or too long ago.
    pub fn has_no_data(&self) -> bool {
        self.availability.basis == Basis::NoData
    }

    /// All that qualifies it, in words: flags, then [`USERS_UNKNOWN`] and [`NO_DATA`], then `stale_NAME` of each value
    /// that stands for a wrong one.
    pub fn words(&self) -> Vec<String> {
        let users = self.users_unknown.then_some(USERS_UNKNOWN);
        let data = self.has_no_data().then_some(NO_DATA);
        let words = self.flags.names().chain(users).chain(data).map(str::to_owned);
        words.chain(self.stale.iter().map(|value| format!("stale_{value}"))).collect()
    }
}

/// Why the host at `position` is in its state, for people. Empty where the state says it all.
pub fn reason_of_state(assessment: &Assessment<'_>, position: usize) -> String {
    let Inputs { pool, words, now, .. } = *assessment.inputs();
    state_reason(&pool.state_input(position, words[position], 1, now), assessment.state(position))
}
