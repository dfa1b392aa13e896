//! What is known of the farm, kept up with what a coordinator says of it.
//!
//! Each message replaces what was said of its subjects. Ages come in as ages and are kept as instants of our own boot-time
//! clock. What is **known** is the farm as of a bookmark: whole, and of one instant. Between bookmarks it may be half old
//! and half new, and while a coordinator waits for reports itself, it is as old as that says; neither is decided by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use usher_proto::v1::{self, watch_farm_response::Event};
use usher_types::BootTime;

use crate::peers::is_full_view;

/// More hosts, or pools, than any farm has: what says so is no coordinator.
const MOST_HOSTS: usize = 100_000;
const MOST_POOLS: usize = 10_000;

/// A host as it was told of, with the large parts that are not told each time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) told: v1::WatchedHost,
    /// When its last report was measured, by our clock. Absent: nobody knows.
    pub(crate) measured_at: Option<BootTime>,
    /// When its availability was.
    pub(crate) timed_at: BootTime,
}

/// The farm as of an instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) farm: String,
    pub(crate) as_of: BootTime,
    pub(crate) hosts_heard: u32,
    pub(crate) hosts_registered: u32,
    pub(crate) pools: BTreeMap<String, v1::WatchedPool>,
    pub(crate) hosts: BTreeMap<Arc<str>, Arc<Host>>,
}

impl Known {
    /// Whether the coordinator that told of it heard most of it.
    pub(crate) fn is_full(&self) -> bool {
        is_full_view(self.hosts_heard, self.hosts_registered)
    }
}

/// A message that no coordinator would send.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum Nonsense {
    #[error("it is of farm {0:?}, not of ours")]
    OtherFarm(String),
    #[error("it tells of more hosts or pools than a farm has")]
    TooMuch,
    #[error("it tells of a change before it has told of the farm")]
    NoStart,
    #[error("its message is of no kind")]
    Empty,
    #[error("it tells of a host without saying who that is")]
    Nobody,
}

/// What a message was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Part of something.
    Part,
    /// The farm is known up to here. `stale`: as it was before the coordinator waited for reports.
    Bookmark { stale: bool },
}

/// The farm while it is being told of.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    known: Known,
    instance: Option<String>,
    revision: u64,
    /// Ours. Absent: whatever farm comes first.
    farm: Option<String>,
}

impl Mirror {
    pub(crate) fn new(farm: Option<String>) -> Self {
        Self { farm, ..Self::default() }
    }

    /// Where another stream could go on: the revision, and whose it is.
    pub(crate) fn resume(&self) -> Option<(u64, String)> {
        Some((self.revision, self.instance.clone()?)).filter(|(revision, _)| *revision > 0)
    }

    /// The farm as of the last bookmark, which must be what came last.
    pub(crate) fn known(&self) -> Known {
        self.known.clone()
    }

    /// Forgets where it was: the next stream begins anew.
    pub(crate) fn forget(&mut self) {
        (self.instance, self.revision) = (None, 0);
    }

    /// Takes in a message that came at `now`.
    ///
    /// # Errors
    /// [`Nonsense`]; then the mirror is good for nothing until it is told anew.
    pub(crate) fn take(&mut self, message: v1::WatchFarmResponse, now: BootTime) -> Result<Taken, Nonsense> {
        let held = Duration::from_millis(message.held_ms);
        let taken = match message.event.ok_or(Nonsense::Empty)? {
            Event::Start(start) => {
                let ours = self.farm.get_or_insert_with(|| start.farm.clone());
                if *ours != start.farm {
                    return Err(Nonsense::OtherFarm(start.farm));
                }
                self.known = Known { farm: start.farm, ..Known::default() };
                (self.instance, self.revision) = (Some(start.instance_id), 0);
                return Ok(Taken::Part);
            }
            _ if self.instance.is_none() => return Err(Nonsense::NoStart),
            Event::Changes(changes) => {
                self.change(changes, now, held)?;
                Taken::Part
            }
            Event::Bookmark(bookmark) => {
                self.known.as_of = now;
                self.known.hosts_heard = bookmark.hosts_heard;
                self.known.hosts_registered = bookmark.hosts_registered;
                Taken::Bookmark { stale: bookmark.stale }
            }
        };
        self.revision = message.revision;
        Ok(taken)
    }

    fn change(&mut self, changes: v1::FarmChanges, now: BootTime, held: Duration) -> Result<(), Nonsense> {
        for pool in changes.pools {
            self.known.pools.insert(pool.pool.clone(), pool);
        }
        for host in changes.hosts {
            self.change_host(host, now, held)?;
        }
        for host_id in changes.gone_hosts {
            self.known.hosts.remove(host_id.as_str());
        }
        for pool in changes.gone_pools {
            self.known.pools.remove(&pool);
            self.known
                .hosts
                .retain(|_, host| host.told.facts.as_ref().is_none_or(|facts| facts.pool != pool));
        }
        if self.known.hosts.len() > MOST_HOSTS || self.known.pools.len() > MOST_POOLS {
            return Err(Nonsense::TooMuch);
        }
        Ok(())
    }

    fn change_host(
        &mut self,
        mut told: v1::WatchedHost,
        now: BootTime,
        held: Duration,
    ) -> Result<(), Nonsense> {
        let before = self.known.hosts.get(told.host_id.as_str());
        if told.facts.is_none() {
            told.facts = before.and_then(|before| before.told.facts.clone());
        }
        if told.replicas.is_none() {
            told.replicas = before.and_then(|before| before.told.replicas.clone());
        }
        if told.host_id.is_empty() || told.facts.is_none() {
            return Err(Nonsense::Nobody);
        }
        let ago = |age_ms: u64| now.before(Duration::from_millis(age_ms).saturating_add(held));
        let host = Host {
            measured_at: told.load_age_ms.map(ago),
            timed_at: ago(told.availability.as_ref().map_or(0, |availability| availability.age_ms)),
            told,
        };
        self.known.hosts.insert(host.told.host_id.as_str().into(), Arc::new(host));
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
