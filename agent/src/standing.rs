//! What holds of this machine beside its measured values, and who says so?
//!
//! The try of its own door, the hooks of its operator and the drain given on it each have a part that only they change;
//! the host sees the whole. A part that fails to be learned anew stays as it was: a hook that hangs neither closes a
//! host nor opens it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use usher_placement::host::Standing;
use usher_types::{CollectorState, Drain, OwnAvailability};

use crate::printable::told;

/// The parts.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// Drained by a command on the machine.
    pub drain: Option<Drain>,
    /// Drained by the word of the readiness hook.
    pub hook_drain: Option<Drain>,
    /// Why the readiness hook takes no sessions.
    pub hook_not_ready: Option<String>,
    /// Why its own door does not open.
    pub door_shut: Option<String>,
    /// The warm-up hook is not done.
    pub is_warming_up: bool,
    /// The busy hook says so.
    pub is_busy: bool,
    /// The availability index that a hook delivers.
    pub own_availability: Option<OwnAvailability>,
    /// How far the replicas are behind, as a hook says.
    pub hook_lag: Option<Duration>,
    /// The same, of the one that is furthest behind, as the program that lists resources says.
    pub inventory_lag: Option<Duration>,
    /// How each of them fares, by collector.
    pub collectors: BTreeMap<String, CollectorState>,
}

impl Parts {
    /// The whole. A drain by a person wins over a hook's; a dead door is named before a hook's reason.
    #[must_use]
    pub fn whole(&self) -> Standing {
        Standing {
            not_ready: self.door_shut.clone().or_else(|| self.hook_not_ready.clone()),
            is_warming_up: self.is_warming_up,
            is_busy: self.is_busy,
            own_availability: self.own_availability.clone(),
            replica_lag: self.hook_lag.max(self.inventory_lag),
            drain: self.drain.clone().or_else(|| self.hook_drain.clone()),
            collectors: self.collectors.values().cloned().collect(),
        }
    }
}

/// Where the parts are put together. Clones share it.
#[derive(Debug, Clone)]
pub struct StandingBoard {
    parts: Arc<watch::Sender<Parts>>,
    whole: Arc<watch::Sender<Standing>>,
}

impl Default for StandingBoard {
    fn default() -> Self {
        Self {
            parts: Arc::new(watch::channel(Parts::default()).0),
            whole: Arc::new(watch::channel(Standing::default()).0),
        }
    }
}

impl StandingBoard {
    /// Changes a part; the host hears of it if the whole is another one then.
    pub fn change(&self, change: impl FnOnce(&mut Parts)) {
        // Whoever changes holds the parts until the whole is told, so that the newest whole is told last.
        self.parts.send_modify(|parts| {
            change(parts);
            let whole = parts.whole();
            self.whole.send_if_modified(|told| {
                let is_new = *told != whole;
                *told = whole;
                is_new
            });
        });
    }

    /// Says how a collector fares.
    pub fn fares(&self, name: &str, source: &str, error: Option<String>, warning: Option<String>) {
        let (name, source) = (name.to_owned(), source.to_owned());
        let (error, warning) = (told(error), told(warning));
        self.change(|parts| {
            parts.collectors.insert(name.clone(), CollectorState { name, source, error, warning });
        });
    }

    /// The parts as they are now.
    #[must_use]
    pub fn parts(&self) -> Parts {
        self.parts.borrow().clone()
    }

    /// The whole, for the host.
    #[must_use]
    pub fn whole(&self) -> watch::Receiver<Standing> {
        self.whole.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use usher_types::DrainMode;

    use super::*;

    #[test]
    fn the_host_hears_of_a_change_once_and_of_no_other() {
        let board = StandingBoard::default();
        let mut whole = board.whole();
        board.change(|parts| parts.door_shut = Some("no banner".into()));
        assert!(whole.has_changed().unwrap());
        assert_eq!(whole.borrow_and_update().not_ready.as_deref(), Some("no banner"));
        board.change(|parts| parts.hook_not_ready = Some("database is down".into()));
        assert!(!whole.has_changed().unwrap(), "the door's reason goes before");
        board.change(|parts| parts.door_shut = None);
        assert_eq!(whole.borrow_and_update().not_ready.as_deref(), Some("database is down"));
    }

    #[test]
    fn a_hook_that_drains_and_lets_go_leaves_a_persons_drain_alone() {
        let board = StandingBoard::default();
        let drain = |author: &str| {
            let (mode, author) = (DrainMode::Persistent, author.to_owned());
            Some(Drain { mode, reason: String::new(), author, no_reconnect: false })
        };
        board.change(|parts| parts.hook_drain = drain("hook"));
        board.change(|parts| parts.drain = drain("root"));
        assert_eq!(board.parts().whole().drain, drain("root"));
        board.change(|parts| parts.hook_drain = None);
        assert_eq!(board.parts().whole().drain, drain("root"));
    }
}
