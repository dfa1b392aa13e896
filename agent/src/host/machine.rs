//! What does this machine tell its host, and how often?
//!
//! Three tasks. One measures, every report interval, and looks at the sessions each second in between, so that a login
//! is reported soon after it happened. One hands over timings and ends the periods of the latency window. One looks
//! for resources each minute. A timer that was late never fires twice: after a pause there is one report, not a burst
//! of old ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use usher_placement::host::{Measurement, Occupancy};
use usher_runtime::clock::Clock;
use usher_types::{
    CollectorState, Memory, MountFullness, Percent, Readiness, Replica, ResourceId, Session, SessionState,
};

use super::listing::Listing;
use super::source::SourceEvent;
use crate::config::AgentConfig;
use crate::inventory::{self, InventoryConfig};
use crate::latency::counters::IngestCounters;
use crate::latency::listener::TimingBatch;
use crate::sample::sessions::SessionReader;
use crate::sample::{self, HostSample, SOURCE_DEADLINE, Sampler, SessionSample};

/// How often the sessions are looked at between two measurements.
const SESSIONS_EVERY: Duration = Duration::from_secs(1);
/// How often resources are looked for: replicas come and go by hand or by a nightly copy, not by the second.
const INVENTORY_EVERY: Duration = Duration::from_secs(60);
/// A measurement older than this is made anew when somebody asks for the state.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// How the collectors that are not part of a sample fare.
#[derive(Debug, Clone)]
pub struct OtherCollectors {
    /// Why timings cannot be received, or what of them was lost. Absent: they are not asked for.
    pub latency: Option<(Arc<IngestCounters>, Vec<String>)>,
    /// How the look for resources fares. Absent: not looked yet, or there are none.
    pub inventory: watch::Receiver<Option<CollectorState>>,
}

/// The task that measures.
#[derive(Debug)]
pub struct Measuring {
    /// Takes whole samples.
    pub sampler: Sampler,
    /// Looks at the sessions alone.
    pub sessions: SessionReader,
    /// The settings in force: the mounts may change.
    pub settings: watch::Receiver<Arc<AgentConfig>>,
    /// How often a whole sample is taken.
    pub report_interval: Duration,
    /// Woken when somebody wants the newest state.
    pub refresh: Arc<Notify>,
    /// Collectors beside the sampler.
    pub others: OtherCollectors,
    /// Where it goes.
    pub events: mpsc::Sender<SourceEvent>,
}

/// A look costs a call of logind for each session: on a host of thousands it takes long, and then it comes rarely, so
/// that looking never takes more than a twentieth of the time.
fn rest_after_look(took: Duration) -> Duration {
    SESSIONS_EVERY.max(took.saturating_mul(20))
}

impl Measuring {
    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut reports = interval(self.report_interval);
        let mut looks = interval(SESSIONS_EVERY);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looks_between = self.report_interval > SESSIONS_EVERY;
        let mut measured_at = Instant::now();
        loop {
            let whole = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = reports.tick() => true,
                () = self.refresh.notified() => measured_at.elapsed() > STALE_AFTER,
                _ = looks.tick(), if looks_between => false,
            };
            let started = Instant::now();
            let event = if whole {
                measured_at = started;
                Some(self.measure().await)
            } else {
                let event = self.look().await;
                looks.reset_after(rest_after_look(started.elapsed()));
                event
            };
            if let Some(event) = event
                && self.events.send(event).await.is_err()
            {
                return;
            }
        }
    }

    async fn measure(&mut self) -> SourceEvent {
        // A failure says that nobody reads the settings anew.
        if self.settings.has_changed().unwrap_or(false) {
            let settings = self.settings.borrow_and_update().clone();
            self.sampler.watch_mounts(&settings.mounts);
        }
        let sample = self.sampler.sample().await;
        let occupancy = sample.sessions.as_ref().map_or(Occupancy::Unknown, occupancy);
        let mut values = measurement(sample);
        values.collectors.extend(self.others.states());
        SourceEvent::Measured { values: Box::new(values), occupancy }
    }

    /// A look that fails tells nothing: the next whole sample says that the sessions are unknown.
    async fn look(&mut self) -> Option<SourceEvent> {
        let reading = self.sessions.read(SOURCE_DEADLINE).await.ok()?;
        Some(SourceEvent::Sessions(occupancy(&reading.sample)))
    }
}

impl OtherCollectors {
    fn states(&self) -> impl Iterator<Item = CollectorState> {
        let latency = self.latency.as_ref().map(|(counters, errors)| {
            let counts = counters.snapshot();
            let (rejected, dropped) = (counts.rejected_lines(), counts.dropped);
            let lost = (rejected > 0 || dropped > 0)
                .then(|| format!("{rejected} lines rejected and {dropped} timings dropped since the start"));
            let error = (!errors.is_empty()).then(|| errors.join("; "));
            CollectorState { name: "latency".into(), source: "statsd".into(), error, warning: lost }
        });
        latency.into_iter().chain(self.inventory.borrow().clone())
    }
}

/// The measured values of a sample, as the host takes them.
pub(crate) fn measurement(sample: HostSample) -> Measurement {
    Measurement {
        cpu: sample.cpu_percent.and_then(|percent| Percent::new(percent).ok()),
        runnable_demand: sample.runnable_demand,
        memory: sample.memory.and_then(|memory| Memory::new(memory.used_bytes, memory.total_bytes)),
        processes: sample.processes,
        readiness: sample.not_ready.map_or(Readiness::Ready, Readiness::NotReady),
        uptime: sample.uptime,
        psi_full: sample.psi_full_percent.and_then(|percent| Percent::new(percent).ok()),
        mounts: sample.mounts.into_iter().filter_map(mount).collect(),
        collectors: sample
            .collectors
            .into_iter()
            .map(|state| CollectorState {
                name: state.name.to_owned(),
                source: state.source.to_owned(),
                error: state.error,
                warning: state.warning,
            })
            .collect(),
        ..Measurement::default()
    }
}

fn mount(seen: sample::MountUse) -> Option<MountFullness> {
    Some(MountFullness { path: seen.path, used: Percent::new(seen.used_percent).ok()? })
}

/// Who is on the host, as the host takes it.
pub(crate) fn occupancy(sample: &SessionSample) -> Occupancy {
    let session = |seen: &sample::SessionSeen| Session {
        id: seen.id.clone(),
        user: seen.user.clone(),
        state: match seen.state {
            sample::SessionState::Active => SessionState::Active,
            sample::SessionState::Disconnected => SessionState::Disconnected,
            sample::SessionState::Lingering => SessionState::Lingering,
        },
        age: seen.age,
    };
    Occupancy::Listed(sample.sessions.iter().map(session).collect())
}

/// Hands over timings and ends the periods, until `stop`.
pub async fn run_periods(
    period: Duration,
    mut timings: mpsc::Receiver<TimingBatch>,
    events: mpsc::Sender<SourceEvent>,
    stop: CancellationToken,
) {
    let mut periods = interval(period);
    periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is that of the start.
    periods.tick().await;
    let mut listening = true;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            _ = periods.tick() => SourceEvent::PeriodEnded,
            batch = timings.recv(), if listening => match batch {
                Some(batch) => SourceEvent::Calls(batch),
                None => {
                    listening = false;
                    continue;
                }
            },
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// The task that looks for resources.
#[derive(Debug)]
pub struct InventoryLooks {
    /// What to look for.
    pub config: InventoryConfig,
    /// Root of the file system.
    pub root: PathBuf,
    /// Where the list goes.
    pub list: watch::Sender<Option<Arc<Listing<Replica>>>>,
    /// How it fares.
    pub state: watch::Sender<Option<CollectorState>>,
    /// Stamps lists.
    pub clock: Arc<dyn Clock>,
}

impl InventoryLooks {
    /// Looks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut looks = interval(INVENTORY_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            let (config, root) = (self.config.clone(), self.root.clone());
            // A dead mount holds the look, and with it the next ones; the old list stays.
            let scan = tokio::select! {
                () = stop.cancelled() => return,
                scan = tokio::task::spawn_blocking(move || inventory::scan(&config, &root)) => scan,
            };
            match scan {
                Ok(Ok(scan)) => self.found(scan),
                Ok(Err(error)) => self.fares(Some(sample::describe(&error)), None),
                Err(error) => self.fares(Some(error.to_string()), None),
            }
        }
    }

    fn found(&self, mut scan: inventory::Scan) {
        let line = |lines: &[String]| match lines {
            [] => None,
            [only] => Some(only.clone()),
            [first, rest @ ..] => Some(format!("{first} (and {} more)", rest.len())),
        };
        let mut replicas = Vec::with_capacity(scan.replicas.len());
        for found in scan.replicas {
            match ResourceId::new(&found.resource_id) {
                Ok(resource_id) => {
                    replicas.push(Replica { resource_id, path: found.path, title: found.title })
                }
                // What cannot be an id, such as a path with a line feed, cannot be asked for either.
                Err(error) => scan.errors.push(error.to_string()),
            }
        }
        let (error, warning) = (line(&scan.errors), line(&scan.warnings));
        let before = self.list.borrow().clone();
        if before.as_ref().is_none_or(|before| before.items != replicas) {
            if before.is_some() || !replicas.is_empty() {
                tracing::info!(replicas = replicas.len(), "the host's resources changed");
            }
            let list = Listing::after(before.as_deref(), replicas, 0, self.clock.now());
            self.list.send_replace(Some(Arc::new(list)));
        }
        self.fares(error, warning);
    }

    fn fares(&self, error: Option<String>, warning: Option<String>) {
        if let Some(error) = &error {
            tracing::debug!(error, "the look for resources");
        }
        let is_asked_for = self.config != InventoryConfig::default();
        self.state.send_replace(is_asked_for.then(|| CollectorState {
            name: "inventory".into(),
            source: "config".into(),
            error,
            warning,
        }));
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
