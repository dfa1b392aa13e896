//! What must a host remember over a restart of its agent?
//!
//! Its promises, and what it had learned of itself: places, latches, penalties and since when it is ready. All of it is
//! of one boot: after another the logins are gone, the caches are cold, and times of the boot-time clock mean nothing.

use serde::{Deserialize, Serialize};
use usher_types::BusyReasons;

use super::{book::BookRecord, penalties::Penalties, reach::ToldShare, ready_age::ReadyAge};

/// What is kept in the runtime directory. Fields that are missing are as if nothing was known: so a file of 0.1, which
/// has the book and one latch, can be read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRecord {
    /// The places.
    pub book: BookRecord,
    /// What held the host BUSY.
    latched: Vec<String>,
    /// The one latch of 0.1.
    #[serde(skip_serializing)]
    availability_latched: bool,
    pub(super) penalties: Penalties,
    pub(super) ready: ReadyAge,
    /// What each coordinator may give while it is not heard, by what it was told.
    pub(super) told: Vec<ToldShare>,
}

impl HostRecord {
    pub(super) fn new(
        book: BookRecord,
        latched: BusyReasons,
        penalties: Penalties,
        ready: ReadyAge,
        told: Vec<ToldShare>,
    ) -> Self {
        let latched = latched.names().map(str::to_owned).collect();
        Self { book, latched, availability_latched: false, penalties, ready, told }
    }

    /// What held the host BUSY. Reasons that are not known any more are left out.
    pub(super) fn latched(&self) -> BusyReasons {
        let named = self.latched.iter().filter_map(|name| BusyReasons::named(name));
        let held = named.fold(BusyReasons::NONE, |held, reason| held.with(reason, true));
        held.with(BusyReasons::AVAILABILITY, self.availability_latched)
    }
}

/// A [`BootTime`](usher_types::BootTime) on the disk: microseconds.
pub(super) mod micros {
    use serde::{Deserialize, Deserializer, Serializer};
    use usher_types::BootTime;

    pub(in crate::host) fn serialize<S: Serializer>(at: &BootTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(at.as_micros())
    }

    pub(in crate::host) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BootTime, D::Error> {
        u64::deserialize(from).map(BootTime::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_0_1_can_be_read() {
        let json = r#"{"availability_latched":true,"book":{"places":[{"token":{"gateway":"g","request_id":"R1"},
            "attempt":1,"content_hash":7,"pool":"desk","endpoint":{"kind":"ssh","address":"192.0.2.1","port":22},
            "user":"alice","cost":1,"connected":false,"admitted":true,"came_us":9,"ends_us":120000009}],"ended":[]}}"#;
        let record: HostRecord = serde_json::from_str(json).unwrap();
        assert_eq!((record.book.len(), record.latched()), (1, BusyReasons::AVAILABILITY));
    }

    #[test]
    fn what_is_written_can_be_read_and_unknown_reasons_are_left_out() {
        let held = BusyReasons::CPU.with(BusyReasons::ERRORS, true);
        let record = HostRecord::new(
            BookRecord::default(),
            held,
            Penalties::default(),
            ReadyAge::default(),
            Vec::new(),
        );
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<HostRecord>(&json).unwrap(), record);
        let newer: HostRecord = serde_json::from_str(r#"{"latched":["psi","weather"],"more":1}"#).unwrap();
        assert_eq!(newer.latched(), BusyReasons::PSI);
    }
}
