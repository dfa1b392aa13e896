//! What else do users need, and does it answer?
//!
//! Each probe has its own timer and waits for nobody. Settings that are read anew replace the probes only when they
//! name others.

use std::sync::Arc;

use futures::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::config::{ProbeConfig, ProbeKind};
use super::tls::TlsClient;
use super::tries::{self, HttpUrl, Place, TryError};
use super::word;
use crate::config::{AgentConfig, until};
use crate::host::SourceEvent;
use crate::program;
use crate::sample::describe;
use crate::standing::StandingBoard;

/// Runs the probes that the settings name, until `stop`.
pub async fn run_probes(
    mut settings: watch::Receiver<Arc<AgentConfig>>,
    board: StandingBoard,
    events: mpsc::Sender<SourceEvent>,
    stop: CancellationToken,
) {
    loop {
        let probes = settings.borrow_and_update().probes.clone();
        let running = join_all(probes.iter().map(|probe| try_again_and_again(probe, &board, &events)));
        tokio::select! {
            () = stop.cancelled() => return,
            _ = running, if !probes.is_empty() => return,
            () = until(&mut settings, |now| now.probes != probes) => {}
        }
        board.change(|parts| {
            for probe in &probes {
                parts.collectors.remove(&collector(probe));
            }
        });
    }
}

fn collector(probe: &ProbeConfig) -> String {
    format!("probe {}", probe.name)
}

/// Ends only with the host.
async fn try_again_and_again(probe: &ProbeConfig, board: &StandingBoard, events: &mpsc::Sender<SourceEvent>) {
    let mut tries = interval(probe.interval.get());
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let prepared = prepare(probe).await;
    let mut last = None;
    loop {
        tries.tick().await;
        let started = Instant::now();
        let result = match &prepared {
            Ok(prepared) => prepared.attempt(probe).await.map_err(|error| describe(&error)),
            Err(error) => Err(error.clone()),
        };
        let word = word(&probe.name, started.elapsed(), result.is_ok());
        if last.as_ref() != Some(&result) {
            if let Err(error) = &result {
                tracing::warn!(probe = probe.name, error, "a probe fails");
            }
            board.fares(&collector(probe), source(probe.kind), result.clone().err(), None);
            last = Some(result);
        }
        if events.send(SourceEvent::Calls(vec![word])).await.is_err() {
            return;
        }
    }
}

fn source(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Tcp => "tcp",
        ProbeKind::Tls => "tls",
        ProbeKind::Http => "http",
        ProbeKind::Command => "command",
    }
}

/// What is made once of a probe's settings.
#[derive(Debug)]
enum Prepared {
    Tcp(Place),
    Tls(Place, TlsClient),
    Http(HttpUrl, Option<TlsClient>),
    Command,
}

async fn prepare(probe: &ProbeConfig) -> Result<Prepared, String> {
    let client = async || {
        let ca_file = probe.ca_file.clone();
        let made = tokio::task::spawn_blocking(move || TlsClient::new(ca_file.as_deref())).await;
        made.map_err(|error| error.to_string())?.map_err(|error| describe(&error))
    };
    Ok(match probe.kind {
        ProbeKind::Tcp => Prepared::Tcp(Place::parse(&probe.target)?),
        ProbeKind::Tls => Prepared::Tls(Place::parse(&probe.target)?, client().await?),
        ProbeKind::Http => {
            let url = HttpUrl::parse(&probe.target)?;
            let client = if url.is_secure { Some(client().await?) } else { None };
            Prepared::Http(url, client)
        }
        ProbeKind::Command => Prepared::Command,
    })
}

impl Prepared {
    async fn attempt(&self, probe: &ProbeConfig) -> Result<(), TryError> {
        let limit = probe.deadline.get();
        match self {
            Self::Tcp(place) => {
                tries::within(limit, place, async { tries::connect(place).await.map(drop) }).await
            }
            Self::Tls(place, client) => {
                let attempt = async {
                    tries::handshake(place, &place.host, client, tries::connect(place).await?).await.map(drop)
                };
                tries::within(limit, place, attempt).await
            }
            Self::Http(url, client) => tries::page(url, client.as_ref(), limit).await,
            Self::Command => {
                let status = program::run(&probe.command, limit, 0).await?.status;
                let program = probe.command.first().cloned().unwrap_or_default();
                if status.success() { Ok(()) } else { Err(TryError::Exit { program, status }) }
            }
        }
    }
}

#[cfg(test)]
#[path = "named_tests.rs"]
mod tests;
