//! Can users still get in?
//!
//! The agent tries the endpoint that it advertises, as the pool's `kind` says, or as the host's own settings say. When
//! the kind or the place changes, what was seen of the old door says nothing of the new one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use usher_types::{DoorKind, Endpoint};

use super::config::DoorConfig;
use super::door_state::DoorState;
use super::tries::{self, Place, TryError};
use super::word;
use crate::config::AgentConfig;
use crate::host::SourceEvent;
use crate::sample::describe;
use crate::standing::StandingBoard;

/// The operation that tries of the door count as, and the name of its collector.
pub const DOOR: &str = "door";

/// Tries the host's own door.
#[derive(Debug)]
pub struct DoorWatch {
    /// What the host advertises.
    pub endpoints: Vec<Endpoint>,
    /// The settings in force.
    pub settings: watch::Receiver<Arc<AgentConfig>>,
    /// What the pool says.
    pub pool_kind: watch::Receiver<DoorKind>,
    /// Where it says whether the door is shut.
    pub board: StandingBoard,
    /// Where the tries are counted.
    pub events: mpsc::Sender<SourceEvent>,
}

/// One door and how to try it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Door {
    kind: DoorKind,
    place: Place,
    path: String,
    interval: Duration,
    deadline: Duration,
}

impl DoorWatch {
    /// Tries until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let door = self.door();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.try_again_and_again(door.as_ref()) => return,
                () = self.another(door.as_ref()) => {}
            }
            // What was seen of the old one says nothing of the new one.
            self.board.change(|parts| {
                parts.door_shut = None;
                parts.collectors.remove(DOOR);
            });
        }
    }

    /// What to try now. Absent: nothing.
    fn door(&self) -> Option<Door> {
        let settings = self.settings.borrow();
        let DoorConfig { kind, address, path, interval, deadline } = &settings.door;
        let kind = kind.unwrap_or(*self.pool_kind.borrow());
        if kind == DoorKind::None {
            return None;
        }
        let place = match address {
            Some(address) => Place::parse(address).ok()?,
            None => self.advertised(kind)?,
        };
        Some(Door { kind, place, path: path.clone(), interval: interval.get(), deadline: deadline.get() })
    }

    fn advertised(&self, kind: DoorKind) -> Option<Place> {
        let word = word_of(kind);
        let of_kind = self.endpoints.iter().find(|endpoint| endpoint.kind == word);
        let endpoint = of_kind.or(self.endpoints.first())?;
        Some(Place { host: endpoint.address.clone(), port: endpoint.port })
    }

    /// Waits until the settings or the pool name another door.
    async fn another(&self, door: Option<&Door>) {
        let (mut settings, mut pool_kind) = (self.settings.clone(), self.pool_kind.clone());
        while self.door().as_ref() == door {
            tokio::select! {
                Ok(()) = settings.changed() => {}
                Ok(()) = pool_kind.changed() => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Ends only with the host.
    async fn try_again_and_again(&self, door: Option<&Door>) {
        let Some(door) = door else { return std::future::pending().await };
        let mut tries = interval(door.interval);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = DoorState::default();
        loop {
            tries.tick().await;
            let started = Instant::now();
            let result = tries::door(door.kind, &door.place, &door.path, door.deadline).await;
            let word = word(DOOR, started.elapsed(), result.is_ok());
            self.judge(door, &mut state, result);
            if self.events.send(SourceEvent::Calls(vec![word])).await.is_err() {
                return;
            }
        }
    }

    fn judge(&self, door: &Door, state: &mut DoorState, result: Result<(), TryError>) {
        let was_failing = state.failures() > 0;
        let error = result.err().map(|error| describe(&error));
        let is_shut = state.observe(error.is_none());
        match &error {
            Some(error) if !was_failing => tracing::warn!(error, "the host's own door does not open"),
            None if was_failing => tracing::info!(place = %door.place, "the host's own door opens again"),
            _ => {}
        }
        let shut = error.as_ref().filter(|_| is_shut).map(|error| format!("door: {error}"));
        let seen = error.map(|error| format!("{error} ({} in a row)", state.failures()));
        self.board.change(|parts| parts.door_shut = shut);
        self.board.fares(DOOR, word_of(door.kind), seen, None);
    }
}

/// As endpoints and settings write it.
fn word_of(kind: DoorKind) -> &'static str {
    match kind {
        DoorKind::None => "none",
        DoorKind::Ssh => "ssh",
        DoorKind::Rdp => "rdp",
        DoorKind::Http => "http",
        DoorKind::Tcp => "tcp",
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
