//! What changes by itself: time passes.

use std::time::Duration;

use usher_types::{BootTime, EndReason, HostId, HostState};

use super::{Effect, Farm, Grace, StateInput, state_of, state_reason};

/// Forgetting takes a look at everything that is remembered. With more places than these, a storm's, it happens only now
/// and then: each look would cost more than what came since the last.
const MANY_REMEMBERED: usize = 20_000;
const SWEEP_MANY_EVERY: Duration = Duration::from_secs(10);

impl Farm {
    /// Time has come to `now`; to be called each second. Announces hosts that changed their state, ends the places of
    /// those that are gone, and begins a grace if the clock stood still.
    pub fn tick(&mut self, now: BootTime) -> Vec<Effect> {
        let mut effects = Vec::new();
        let gap = now.since(self.last_tick);
        self.last_tick = now;
        self.expire_values(now);
        let was_frozen = gap > self.frozen_after();
        if was_frozen {
            self.begin_grace(now);
            effects.push(Effect::Thawed { after: gap });
        }
        if self.grace.is_some_and(|grace| !grace.holds(now)) {
            self.grace = None;
            self.pools.values_mut().for_each(|pool| pool.dirty = true);
        }
        let ids: Vec<HostId> = self.hosts.keys().cloned().collect();
        for host_id in ids {
            if let Some(effect) = self.announce(&host_id, now) {
                effects.push(effect);
            }
            self.end_places_if_offline(&host_id, now);
        }
        self.retire_displaced();
        self.pause_replica_marks(gap, was_frozen);
        effects.extend(self.expire_replica_marks(now));
        effects.extend(self.compare_settings(now));
        self.ledger.forget_hosts(|host_id| self.hosts.contains_key(host_id), now);
        if self.ledger.remembered() <= MANY_REMEMBERED || now.since(self.last_sweep) >= SWEEP_MANY_EVERY {
            self.ledger.sweep(now);
            self.last_sweep = now;
        }
        self.learn(now);
        effects
    }

    fn begin_grace(&mut self, now: BootTime) {
        let gone: Vec<bool> = self.hosts.values().map(|host| self.is_gone(host)).collect();
        for (host, gone) in self.hosts.values_mut().zip(gone) {
            host.was_alive = !gone;
        }
        self.grace = Some(Grace { began: now });
        self.pools.values_mut().for_each(|pool| pool.dirty = true);
    }

    /// Each time, and not only when the host goes: a placement that was decided just before may still add one. Those that
    /// were given although nothing was heard of the host need not be heard of to live on.
    ///
    /// Their users may be on the host all the same. Until it says how many there are, they are held against its limits: or
    /// every time to live of a long silence would give the same free places out again.
    fn end_places_if_offline(&mut self, host_id: &HostId, now: BootTime) {
        let Some(host) = self.hosts.get_mut(host_id) else { return };
        if host.last_state != HostState::Offline {
            return;
        }
        let (mut users, mut places) = (0u32, 0u32);
        for grant in self.ledger.on_host(host_id) {
            let counted = grant.counted_users();
            let has_ended = if !grant.blind {
                grant.end(EndReason::HostLost, now)
            } else {
                now > grant.ends_at && grant.end(EndReason::Expired, now)
            };
            if has_ended {
                (users, places) = (users.saturating_add(counted), places.saturating_add(1));
            }
        }
        if places > 0 {
            host.view.unheard_users = host.view.unheard_users.saturating_add(users);
            host.view.unheard_places = host.view.unheard_places.saturating_add(places);
            self.publish(host_id);
        }
    }

    fn announce(&mut self, host_id: &HostId, now: BootTime) -> Option<Effect> {
        let grace = self.grace;
        let host = self.hosts.get_mut(host_id)?;
        let pool = self.pools.get_mut(&host.view.facts.pool)?;
        let input = StateInput {
            host: &host.view,
            word: host.cell.load(),
            adds_users: 1,
            policy: &pool.policy,
            grace,
            now,
        };
        let to = state_of(&input);
        let from = host.last_state;
        if to == from {
            return None;
        }
        let reason = state_reason(&input, to);
        host.last_state = to;
        pool.dirty = true;
        Some(Effect::StateChanged { host_id: host_id.clone(), from, to, reason })
    }
}
