//! What stands for a value that came wrong?
//!
//! A number that cannot be is dropped where it arrives. For a few intervals the last good one stands for it, marked as
//! stale, so that one garbled report changes no order; then it is not known. That is so from an instant on, not from the
//! next report on: [`Farm::values_until`] says when, and every snapshot made later is without it.

use std::{sync::Arc, time::Duration};

use usher_types::{BootTime, HostId, Memory, MountFullness, OwnAvailability, Percent, UserLimit};

use super::{Farm, HostEntry, Reading};

/// For how many intervals the last good value stands for a wrong one.
pub(super) const KEEP_GOOD_INTERVALS: u32 = 3;

/// A good value, and when it was measured.
pub(super) type Good<T> = Option<(T, BootTime)>;

/// The last good value of each number that may come wrong, and when it was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct LastGood {
    pub(super) cpu_percent: Good<f64>,
    pub(super) memory: Good<Memory>,
    pub(super) users: Good<u32>,
    pub(super) processes: Good<u32>,
    pub(super) capacity: Good<f64>,
    pub(super) max_users: Good<UserLimit>,
    pub(super) threshold: Good<Percent>,
    pub(super) range: Good<f64>,
    pub(super) psi_full: Good<Percent>,
    pub(super) mounts: Good<Arc<[MountFullness]>>,
    /// What is good of a list of mounts of which a part came wrong.
    pub(super) mounts_left: Arc<[MountFullness]>,
    pub(super) own_availability: Good<Arc<OwnAvailability>>,
    /// Values that an older one stands for now, and the last instant at which it does.
    pub(super) stale: Vec<(&'static str, BootTime)>,
}

/// Lets the last good value stand for a wrong one.
pub(super) struct Kept {
    pub(super) keep_for: Duration,
    pub(super) now: BootTime,
    /// Values that an older one stands for, and the last instant at which it does.
    pub(super) stale: Vec<(&'static str, BootTime)>,
}

impl Kept {
    /// The value to believe: the one that came, or, if it came wrong, the last good one while it is young enough. One
    /// that the host says it does not know is not known, and the older one is forgotten.
    pub(super) fn value<T: Clone>(
        &mut self,
        name: &'static str,
        good: &mut Good<T>,
        came: Option<T>,
        wrong: bool,
    ) -> Option<T> {
        if came.is_some() || !wrong {
            *good = came.clone().map(|value| (value, self.now));
            return came;
        }
        let (value, measured_at) = good.as_ref()?;
        let until = *measured_at + self.keep_for;
        if self.now > until {
            return None;
        }
        self.stale.push((name, until));
        Some(value.clone())
    }
}

impl Farm {
    /// Values that have stood for wrong ones for long enough are not known any more at `now`, whether or not another
    /// Load has come. Whether there were any.
    pub(super) fn expire_values(&mut self, now: BootTime) -> bool {
        if self.next_expiry.is_none_or(|next| now <= next) {
            return false;
        }
        let expired = |host: &HostEntry| host.last_good.stale.iter().any(|(_, until)| now > *until);
        let hosts = self.hosts.iter().filter(|(_, host)| expired(host));
        let host_ids: Vec<HostId> = hosts.map(|(host_id, _)| host_id.clone()).collect();
        for host_id in &host_ids {
            self.expire_values_of(host_id, now);
        }
        let left = self.hosts.values().flat_map(|host| &host.last_good.stale);
        self.next_expiry = left.map(|(_, until)| *until).min();
        !host_ids.is_empty()
    }

    /// The last instant at which everything is believed that is believed now. Absent: nothing stands for a wrong value.
    pub fn values_until(&self) -> Option<BootTime> {
        self.next_expiry
    }

    fn expire_values_of(&mut self, host_id: &HostId, now: BootTime) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        let Some(pool) = self.pools.get(&host.view.facts.pool) else { return };
        let range = host.view.range(&pool.policy);
        let over: Vec<_> = host.last_good.stale.extract_if(.., |(_, until)| now > *until).collect();
        let Some(reading) = &mut host.view.reading else { return };
        let reading = Arc::make_mut(reading);
        for (name, _) in over {
            reading.stale.retain(|stale| *stale != name);
            forget(reading, name, &host.last_good);
        }
        if reading.users.is_none() {
            host.cell.forget_users();
        }
        if host.view.range(&pool.policy) != range {
            host.follow_range(&pool.policy);
        }
        // A host that keeps latches has said itself what holds.
        if !host.keeps_latches {
            host.latch(&pool.policy, now);
        }
        self.publish(host_id);
    }
}

/// The value called `name` is not known.
fn forget(reading: &mut Reading, name: &str, good: &LastGood) {
    let own = &mut reading.overrides;
    match name {
        CPU => reading.cpu_percent = None,
        MEMORY => reading.memory = None,
        USERS => reading.users = None,
        PROCESSES => reading.processes = None,
        PSI => reading.psi_full = None,
        // The others of the list were good.
        MOUNTS => reading.mounts = good.mounts_left.clone(),
        OWN_AVAILABILITY => reading.own_availability = None,
        CAPACITY => own.capacity = None,
        MAX_USERS => own.max_users = None,
        THRESHOLD => own.threshold = None,
        RANGE => own.range = None,
        other => debug_assert!(false, "{other} is no value that is kept"),
    }
}

pub(super) const CPU: &str = "cpu";
pub(super) const MEMORY: &str = "memory";
pub(super) const USERS: &str = "users";
pub(super) const PROCESSES: &str = "processes";
pub(super) const PSI: &str = "psi";
pub(super) const MOUNTS: &str = "mounts";
pub(super) const OWN_AVAILABILITY: &str = "own_availability";
pub(super) const CAPACITY: &str = "capacity";
pub(super) const MAX_USERS: &str = "max_users";
pub(super) const THRESHOLD: &str = "threshold";
pub(super) const RANGE: &str = "range";
