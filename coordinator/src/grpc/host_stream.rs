//! What do a host and its coordinator say to each other, once the host has introduced itself?
//!
//! One task for each stream. It ticks, takes what comes in its order, and hands it on to the farm one after the other, so a
//! host that floods waits for itself. It ends when the host says good-bye, when another stream has taken its place, when
//! the host sends what nobody can read, or when the coordinator goes down, and says why.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Streaming};
use usher_placement::farm::Ticks;
use usher_proto::{
    read,
    v1::{self, attach_request, attach_response::Message},
};
use usher_runtime::{net::check_target, shutdown::SHUTDOWN_DEADLINE};
use usher_types::{FieldFault, Goodbye, HostId, Replica, Session};

use super::{
    order::{Kind, Order},
    pace::Pace,
    pages::Pages,
};
use crate::{
    farm_command::{FarmCommand, Source},
    links::HostLink,
    shared::Shared,
    stored,
};

/// After so long one that goes down is gone for certain, and may be back.
const BACK_IN_MS: u32 = SHUTDOWN_DEADLINE.as_millis() as u32;
/// Most other coordinators that a host may say it has streams to: as many as an agent has.
const MOST_OTHERS: usize = 16;
const TICK_EVERY: Duration = Duration::from_secs(1);
/// With its first tick a host takes all the places for told that were given while it was away: decisions that were made
/// just before it came back are through by then.
const FIRST_TICK: Duration = Duration::from_millis(50);

/// Ticks tell a host that it is heard, and one that is heard keeps no share free for this coordinator. So they end before a
/// silent host is OFFLINE here and its share may be given, by the time in which hosts miss them (2.5 s) and half a second
/// for the way: where only the way from the host is broken, it cannot know otherwise. A host that reports more often than
/// twice in a second is OFFLINE before it can miss anything.
fn ticks_without_reports(interval: Duration) -> Duration {
    let before_offline = interval.saturating_mul(3).saturating_sub(Duration::from_secs(2));
    before_offline.max(interval.saturating_add(Duration::from_millis(500)))
}

/// One host's stream, after its introduction.
pub(super) struct HostStream {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Arc<HostLink>,
    pub(super) host_id: HostId,
    pub(super) interval: Duration,
    pub(super) ticks: Ticks,
    pub(super) told_spread_ms: u32,
    pub(super) order: Order,
    pub(super) pace: Pace,
    pub(super) turns: Arc<Semaphore>,
    pub(super) replicas: Pages<Replica>,
    pub(super) sessions: Pages<Session>,
}

impl HostStream {
    pub(super) async fn run(mut self, incoming: Streaming<v1::AttachRequest>, shutdown: CancellationToken) {
        let _open = self.shared.metrics.stream_opened();
        tracing::info!(host_id = %self.host_id, stream_epoch = self.link.stream_epoch, "host attached");
        let goodbye = self.serve(incoming, shutdown).await;
        self.shared.links.close(&self.host_id, &self.link);
        self.link.finish();
        let stream_epoch = self.link.stream_epoch;
        let detach = FarmCommand::Detach { host_id: self.host_id.clone(), stream_epoch, goodbye };
        // The farm task ends before the streams do when the process stops.
        let _ = self.shared.farm.send(detach).await;
        tracing::info!(host_id = %self.host_id, stream_epoch, ?goodbye, "host detached");
    }

    async fn serve(
        &mut self,
        mut incoming: Streaming<v1::AttachRequest>,
        shutdown: CancellationToken,
    ) -> Option<Goodbye> {
        let mut ticks = interval_at(Instant::now() + FIRST_TICK, TICK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = self.link.ended.clone();
        let mut heard = Instant::now();
        loop {
            // A host that floods is read no faster than it may speak; the rest waits on its own side.
            let paused_until = self.pace.reads_at();
            let is_paused = paused_until > Instant::now();
            let message = tokio::select! {
                biased;
                () = ended.cancelled() => return None,
                () = shutdown.cancelled() => {
                    self.shared.links.note_others();
                    let reason = "the coordinator is shutting down".to_owned();
                    let back_in_ms = Some(BACK_IN_MS);
                    self.link.send(Message::GoElsewhere(v1::GoElsewhere { reason, back_in_ms }));
                    return None;
                }
                _ = ticks.tick() => {
                    if heard.elapsed() > ticks_without_reports(self.interval) {
                        continue;
                    }
                    let tick = self.next_tick();
                    if !self.link.send(Message::Tick(tick)) {
                        return None;
                    }
                    continue;
                }
                () = sleep_until(paused_until), if is_paused => continue,
                message = incoming.next(), if !is_paused => message,
            };
            heard = Instant::now();
            match message {
                Some(Ok(v1::AttachRequest { message: Some(message) })) => match self.take(message).await {
                    Taken::On => {}
                    Taken::Goodbye(goodbye) => return Some(goodbye),
                    Taken::Stopped => return None,
                },
                // A message of a later version of the protocol.
                Some(Ok(v1::AttachRequest { message: None })) => {
                    self.shared.metrics.something_dropped("unknown")
                }
                Some(Err(status)) => {
                    tracing::debug!(host_id = %self.host_id, %status, "a host's stream broke");
                    // Of a message that is too long the host must hear, or it sends it again and again.
                    if status.code() == Code::OutOfRange {
                        tracing::warn!(host_id = %self.host_id, why = status.message(), "a message is refused");
                        self.shared.metrics.something_dropped("oversize");
                        self.link.refuse(status);
                    }
                    return None;
                }
                None => return None,
            }
        }
    }

    async fn take(&mut self, message: attach_request::Message) -> Taken {
        use attach_request::Message as In;
        match message {
            In::Load(load) => {
                self.pace.reported(Instant::now());
                return self.take_load(load).await;
            }
            In::Latency(latency) => {
                self.pace.reported(Instant::now());
                if !self.order.is_next(Kind::Latency, latency.sequence, latency.incarnation_ms) {
                    self.shared.metrics.something_dropped("late");
                    return Taken::On;
                }
                let (latency, faults) = read::latency(latency);
                self.count("latency", &faults);
                let Some(from) = self.source(None).await else { return Taken::Stopped };
                return self.send(FarmCommand::Latency { from, latency, faults: faults.len() }).await;
            }
            In::InventoryPage(page) => {
                let (page, faults) = read::inventory_page(page);
                self.count("inventory", &faults);
                if let Some(replicas) =
                    self.replicas.take(page.generation, page.page, page.last, page.replicas)
                {
                    let Some(from) = self.source(None).await else { return Taken::Stopped };
                    return self.send(FarmCommand::Replicas { from, replicas }).await;
                }
            }
            In::SessionsPage(page) => {
                let (page, faults) = read::sessions_page(page);
                self.count("sessions", &faults);
                if let Some(sessions) =
                    self.sessions.take(page.generation, page.page, page.last, page.sessions)
                {
                    let Some(from) = self.source(None).await else { return Taken::Stopped };
                    return self.send(FarmCommand::Sessions { from, sessions }).await;
                }
            }
            In::PlaceAnswer(answer) => match read::place_answer(answer) {
                Ok(answer) => {
                    self.shared.links.consent(&self.host_id, &answer.token, answer.attempt, answer.answer);
                    self.heard();
                }
                Err(fault) => self.count("place_answer", &[fault]),
            },
            In::SessionCheckAnswer(answer) => {
                self.shared.links.session_checked(&self.host_id, answer.check_id, answer.exists);
            }
            In::SetDrainAnswer(answer) => {
                self.shared.links.drain_answered(&self.host_id, read::set_drain_answer(answer));
            }
            In::Pong(pong) => self.link.pong(pong.nonce),
            In::Goodbye(goodbye) => match read::goodbye(goodbye) {
                Ok(goodbye) => return Taken::Goodbye(goodbye),
                Err(fault) => self.count("goodbye", &[fault]),
            },
            // A stream introduces itself once; a second Hello changes nothing.
            In::Hello(_) => self.shared.metrics.something_dropped("hello"),
        }
        Taken::On
    }

    async fn take_load(&mut self, mut load: v1::Load) -> Taken {
        if !self.order.is_next(Kind::Load, load.sequence, load.incarnation_ms) {
            self.shared.metrics.something_dropped("late");
            return Taken::On;
        }
        let mut others = std::mem::take(&mut load.other_coordinators);
        others.retain(|other| check_target(other, true).is_ok());
        others.truncate(MOST_OTHERS);
        self.link.set_others(others);
        let (load, faults) = read::load(load);
        self.count("load", &faults);
        let Some(from) = self.source(load.tick_echo).await else { return Taken::Stopped };
        self.send(FarmCommand::Load { from, load: Box::new(load), faults }).await
    }

    /// A host that answers is not silent any more.
    fn heard(&self) {
        let snapshot = self.shared.snapshot.load();
        if let Ok((pool, position)) = snapshot.find_host(self.host_id.as_str()) {
            let cell = &pool.members.cells[position];
            if cell.load().is_silent() {
                cell.set_silent(false);
            }
        }
    }

    fn next_tick(&mut self) -> v1::Tick {
        let now = self.shared.now();
        v1::Tick {
            tick: self.ticks.next(now),
            reconnect_spread_ms: self.changed_spread(),
            confirmed_elsewhere_ms: self
                .link
                .last_confirmed_elsewhere()
                .map(|at| stored::millis(now.since(at))),
        }
    }

    /// The first agents of a farm attach when it is small: as it grows, they must know that they come back among many.
    fn changed_spread(&mut self) -> Option<u32> {
        let spread_ms = self.shared.reconnect_spread_ms();
        (std::mem::replace(&mut self.told_spread_ms, spread_ms) != spread_ms).then_some(spread_ms)
    }

    /// When a message came, and its turn, which may have to be waited for. Absent once the process stops.
    async fn source(&self, tick_echo: Option<u64>) -> Option<Source> {
        let measured_at = self.ticks.measured_at(tick_echo, self.shared.now(), self.interval);
        let (host_id, stream_epoch) = (self.host_id.clone(), self.link.stream_epoch);
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        Some(Source { host_id, stream_epoch, measured_at, turn })
    }

    async fn send(&self, command: FarmCommand) -> Taken {
        if self.shared.farm.send(command).await.is_ok() { Taken::On } else { Taken::Stopped }
    }

    fn count(&self, kind: &'static str, faults: &[FieldFault]) {
        self.shared.metrics.report_taken(kind);
        for fault in faults {
            self.shared.metrics.value_rejected(counted_field(kind, &fault.field));
            tracing::debug!(host_id = %self.host_id, kind, %fault, "a value of a report was refused");
        }
    }
}

/// Fields whose faults are counted apart: sensors break one by one.
const COUNTED_FIELDS: [&str; 19] = [
    "cpu_percent",
    "runnable_demand",
    "memory_used_bytes",
    "capacity",
    "max_users",
    "threshold_percent",
    "range",
    "sessions_*",
    "collectors",
    "pending",
    "ended",
    "psi_full_percent",
    "mounts",
    "own_availability",
    "replica_lag_ms",
    "drain",
    "outcomes",
    "penalties",
    "logons_in_progress",
];

/// As the metric names a fault of `field` in a message of this kind: never by the sender's words, which may stand in
/// the path of a field.
fn counted_field(kind: &'static str, field: &str) -> &'static str {
    let outer = field.split(['[', '.']).next().unwrap_or_default();
    COUNTED_FIELDS.into_iter().find(|counted| *counted == outer).unwrap_or(kind)
}

/// What follows from a message.
enum Taken {
    On,
    Goodbye(Goodbye),
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_host_misses_its_ticks_before_it_is_offline_here() {
        for seconds in [1, 2, 5, 3600] {
            let interval = Duration::from_secs(seconds);
            let offline = interval * 3 + Duration::from_secs(1);
            let misses = ticks_without_reports(interval) + Duration::from_millis(2500);
            assert!(misses <= offline && ticks_without_reports(interval) > interval, "{seconds} s");
        }
    }
}
