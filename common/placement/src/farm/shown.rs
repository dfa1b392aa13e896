//! A pool's hosts as the next snapshot shows them.
//!
//! Remembers which have changed since the last one, and what else their columns were computed with: if the settings, the
//! grace or the learned costs change, all of them are computed anew.

use std::sync::Arc;

use usher_types::{BootTime, Policy};

use super::{
    Grace, HostView, Hosts,
    columns::{Light, Zones, with_zones_of},
};
use crate::load::{LearnedCosts, Typical};

/// Logons in progress are referred to an instant at most this many times their length ago: what is left of them stays a
/// number.
const LONGEST_REFERENCE: f64 = 8.0;

/// What the columns were computed with.
#[derive(Debug)]
struct With {
    policy: Arc<Policy>,
    grace: Option<Grace>,
    costs: LearnedCosts,
    typical: Typical,
    since: BootTime,
}

#[derive(Debug, Default)]
pub(super) struct Shown {
    hosts: Hosts,
    zones: Arc<Zones>,
    changed: Vec<usize>,
    moved: bool,
    with: Option<With>,
}

impl Shown {
    /// The host at `position` is another object now, or a new one at the end.
    pub(super) fn changed(&mut self, position: usize) {
        self.changed.push(position);
    }

    /// Hosts have moved to other positions.
    pub(super) fn moved(&mut self) {
        self.moved = true;
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(super) fn zones(&self) -> &Arc<Zones> {
        &self.zones
    }

    /// The instant to which the logons in progress are referred.
    pub(super) fn since(&self) -> BootTime {
        self.with.as_ref().map_or(BootTime::ZERO, |with| with.since)
    }

    /// Shows `views` as they are at `now`.
    pub(super) fn renew(
        &mut self,
        views: &[Arc<HostView>],
        policy: &Arc<Policy>,
        grace: Option<Grace>,
        (costs, typical): (&LearnedCosts, &Typical),
        now: BootTime,
    ) {
        let logon_seconds = costs.logon_seconds.value;
        let holds = |with: &With| {
            Arc::ptr_eq(&with.policy, policy)
                && with.grace == grace
                && (with.costs, with.typical) == (*costs, *typical)
                && now.since(with.since).as_secs_f64() < LONGEST_REFERENCE * logon_seconds
        };
        let all = self.moved || !self.with.as_ref().is_some_and(holds);
        let since = match &self.with {
            Some(with) if !all => with.since,
            _ => now,
        };
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        if all {
            self.moved = false;
            self.with = Some(With { policy: policy.clone(), grace, costs: *costs, typical: *typical, since });
            with_zones_of(&mut self.zones, views.iter());
        } else {
            with_zones_of(&mut self.zones, changed.iter().filter_map(|position| views.get(*position)));
        }
        let light = Light { policy, grace, zones: &self.zones, costs, typical, since, now };
        if all {
            self.hosts.renew_all(views, &light);
        } else if !changed.is_empty() || self.hosts.is_outdated(now) {
            self.hosts.renew(views, &changed, &light);
        }
    }
}
