//! One coordinator of a scenario: the farm, the ledger, and a clock that may stand still.
//!
//! A frozen one is a machine whose hypervisor takes a snapshot of it: it handles nothing, its streams stay open, and
//! what comes for it waits. Of each host the newest report waits, as an agent lets it: when the coordinator wakes up it
//! finds that, as old as the last tick that it had sent, and not a flood of older ones.

use std::{collections::HashMap, sync::Arc, time::Duration};

use usher_types::{BootTime, FieldFault, Goodbye, HostId, Latency, Load, Replica, Session};

use super::store::{Change, Store};
use crate::{
    farm::{Effect, Farm, LastKnown, Snapshot},
    reservation::Ledger,
};

/// What a host says on a stream.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Load(Box<Load>, Vec<FieldFault>),
    Latency(Latency),
    Replicas(Vec<Replica>),
    Sessions(Vec<Session>),
    /// The stream ends. Without a word: it broke.
    End(Option<Goodbye>),
}

/// What waits for a frozen coordinator.
#[derive(Clone, Debug)]
enum Mail {
    Host { host_id: HostId, epoch: u64, said: Said },
    Admin(Change),
}

/// What a host said, and when.
#[derive(Debug)]
pub(super) struct Heard<'a> {
    pub host_id: &'a HostId,
    pub epoch: u64,
    pub measured_at: BootTime,
    pub now: BootTime,
    pub wall_unix_ms: u64,
}

/// One coordinator.
#[derive(Debug)]
pub(super) struct Coordinator {
    pub name: String,
    pub farm: Farm,
    pub ledger: Arc<Ledger>,
    pub frozen_until: Option<BootTime>,
    /// The number of the machine that it knows under each id: the one that it let in last.
    pub registered: HashMap<HostId, usize>,
    last_tick: BootTime,
    mail: Vec<Mail>,
    known: Vec<LastKnown>,
}

impl Coordinator {
    /// One that starts at `now` with what is stored.
    pub(super) fn new(name: String, store: &Store, known: Vec<LastKnown>, now: BootTime) -> Self {
        let ledger = Arc::new(Ledger::new());
        let mut farm = Farm::new(ledger.clone(), now);
        farm.restore(store.restored(known.clone(), now), now);
        let registered = HashMap::new();
        Self { name, farm, ledger, frozen_until: None, registered, last_tick: now, mail: Vec::new(), known }
    }

    /// Starts anew. One that is frozen has no time to store anything before.
    pub(super) fn restart(&mut self, store: &mut Store, now: BootTime) {
        if self.frozen_until.is_none() {
            self.remember_hosts(store, true, now);
        }
        let registered = std::mem::take(&mut self.registered);
        *self = Self::new(self.name.clone(), store, std::mem::take(&mut self.known), now);
        self.registered = registered;
    }

    /// Stores what is known of the hosts; `as_it_stops`: nothing more will be given.
    pub(super) fn remember_hosts(&mut self, store: &mut Store, as_it_stops: bool, now: BootTime) {
        self.known = self.farm.last_known(as_it_stops);
        store.note_unlisted(&self.farm, now);
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen_until.is_some()
    }

    /// Whether it would notice, if it were asked now, that its clock stood still.
    pub(super) fn knows_old_things(&mut self, now: BootTime) -> bool {
        now.since(self.last_tick) > self.snapshot(now).frozen_after
    }

    pub(super) fn snapshot(&mut self, now: BootTime) -> Arc<Snapshot> {
        self.farm.snapshot(now)
    }

    pub(super) fn tick(&mut self, now: BootTime) -> Vec<Effect> {
        self.last_tick = now;
        self.farm.tick(now)
    }

    /// Takes in what a host says. What follows from it.
    pub(super) fn hear(&mut self, heard: &Heard<'_>, said: Said) -> Vec<Effect> {
        let Heard { host_id, epoch, measured_at, now, wall_unix_ms } = *heard;
        if !self.farm.is_current(host_id, epoch) {
            return Vec::new();
        }
        match said {
            Said::Load(load, faults) => {
                return self.farm.observe_load(host_id, *load, &faults, measured_at, wall_unix_ms);
            }
            Said::Latency(latency) => self.farm.observe_latency(host_id, latency, 0, now),
            Said::Replicas(replicas) => self.farm.observe_replicas(host_id, replicas),
            Said::Sessions(sessions) => self.farm.observe_sessions(host_id, sessions, now),
            Said::End(goodbye) => _ = self.farm.detach(host_id, epoch, goodbye, now),
        }
        Vec::new()
    }

    /// What a host says waits until the coordinator wakes up.
    pub(super) fn keep_for_later(&mut self, host_id: &HostId, epoch: u64, said: Said) {
        let kind = std::mem::discriminant(&said);
        self.mail.retain(|mail| match mail {
            Mail::Host { host_id: of, epoch: on, said } => {
                of != host_id || *on != epoch || std::mem::discriminant(said) != kind
            }
            Mail::Admin(_) => true,
        });
        self.mail.push(Mail::Host { host_id: host_id.clone(), epoch, said });
    }

    /// An admin's change waits.
    pub(super) fn change_later(&mut self, change: Change) {
        self.mail.push(Mail::Admin(change));
    }

    /// It wakes up: what waited for it, in order. Changes are in force already.
    pub(super) fn thaw(&mut self, now: BootTime) -> Vec<(HostId, u64, Said)> {
        self.frozen_until = None;
        let mut said = Vec::new();
        for mail in std::mem::take(&mut self.mail) {
            match mail {
                Mail::Host { host_id, epoch, said: word } => said.push((host_id, epoch, word)),
                Mail::Admin(change) => change.apply(&mut self.farm, now),
            }
        }
        said
    }

    /// It stands still until then.
    pub(super) fn freeze(&mut self, now: BootTime, duration: Duration) {
        let until = now + duration;
        self.frozen_until = Some(self.frozen_until.map_or(until, |before| before.max(until)));
    }
}
