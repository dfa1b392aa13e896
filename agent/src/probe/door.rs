//! Can users still get in?
//!
//! The agent tries the endpoint that it advertises, as the pool's `kind` says, or as the host's own settings say. When
//! the kind or the place changes, what was seen of the old door says nothing of the new one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use usher_types::{DoorKind, Endpoint};

use super::config::DoorConfig;
use super::door_state::DoorState;
use super::tls::TlsClient;
use super::tries::{self, HttpDoor, Place, TryError};
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
    /// Over TLS, by this name; held against the certificates of this file.
    tls: Option<(String, Option<PathBuf>)>,
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
        let DoorConfig { kind, address, path, tls, ca_file, tls_name, interval, deadline } = &settings.door;
        let kind = kind.unwrap_or(*self.pool_kind.borrow());
        if kind == DoorKind::None {
            return None;
        }
        let place = match address {
            Some(address) => Place::parse(address).ok()?,
            None => self.advertised(kind)?,
        };
        let is_secure = *tls && kind == DoorKind::Http;
        let tls =
            is_secure.then(|| (tls_name.clone().unwrap_or_else(|| place.host.clone()), ca_file.clone()));
        let (interval, deadline) = (interval.get(), deadline.get());
        Some(Door { kind, place, path: path.clone(), tls, interval, deadline })
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
        let mut client = None;
        loop {
            tries.tick().await;
            if client.is_none() {
                client = self.prepare(door).await;
            }
            // Without the certificates that it is held against nothing can be said of the door.
            let Some(client) = &client else { continue };
            let tls =
                client.as_ref().zip(door.tls.as_ref()).map(|(client, (name, _))| (client, name.as_str()));
            let started = Instant::now();
            let http = HttpDoor { path: &door.path, tls };
            let result = tries::door(door.kind, &door.place, http, door.deadline).await;
            let word = word(DOOR, started.elapsed(), result.is_ok());
            self.judge(door, &mut state, result);
            if self.events.send(SourceEvent::Calls(vec![word])).await.is_err() {
                return;
            }
        }
    }

    /// What is needed for TLS, if it is. Absent: the certificates cannot be taken, which is told.
    async fn prepare(&self, door: &Door) -> Option<Option<TlsClient>> {
        let Some((_, ca_file)) = door.tls.clone() else { return Some(None) };
        let made = tokio::task::spawn_blocking(move || TlsClient::new(ca_file.as_deref())).await;
        let error = match made {
            Ok(Ok(client)) => return Some(Some(client)),
            Ok(Err(error)) => describe(&error),
            Err(error) => error.to_string(),
        };
        tracing::warn!(error, "the host's own door is not tried");
        self.board.fares(DOOR, word_of(door.kind), Some(format!("not tried: {error}")), None);
        None
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

#[cfg(test)]
#[path = "door_tls_tests.rs"]
mod tls_tests;
