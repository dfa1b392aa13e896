//! What does this machine tell its host, and how often?
//!
//! Two tasks. One measures, every report interval, and looks at the sessions each second in between, and at once when
//! logind says that somebody came or went, so that a login is reported soon after it happened. One hands over timings and
//! ends the periods of the latency window. A timer that was late never fires twice: after a pause there is one report, not
//! a burst of old ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use usher_placement::host::{Measurement, Occupancy};
use usher_types::{CollectorState, Memory, MountFullness, Percent, Readiness, Session, SessionState};

use super::source::SourceEvent;
use crate::config::AgentConfig;
use crate::latency::counters::IngestCounters;
use crate::latency::listener::TimingBatch;
use crate::sample::logind_signals::SessionNews;
use crate::sample::{self, HostSample, SOURCE_DEADLINE, Sampler, SessionSample};

/// How often the sessions are looked at between two measurements.
const SESSIONS_EVERY: Duration = Duration::from_secs(1);
/// How soon they are looked at again while logind sets one up, which it does not announce the end of; and for how long
/// after its last word. No look comes sooner after another, however much logind says: many logins are then one report.
const SESSIONS_SOON: Duration = Duration::from_millis(100);
const NEWS_LAST: Duration = Duration::from_secs(3);
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
    /// Takes whole samples, and looks at the sessions alone.
    pub sampler: Sampler,
    /// The settings in force: the mounts and whose sessions count may change.
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

/// Looking never takes more than a twentieth of the time, however many sessions there are and however often they change.
fn rest_after_look(took: Duration, least: Duration) -> Duration {
    least.max(took.saturating_mul(20))
}

impl Measuring {
    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut reports = interval(self.report_interval);
        let mut looks = interval(SESSIONS_EVERY);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looks_between = self.report_interval > SESSIONS_EVERY;
        let news = self.sampler.sessions().news();
        let mut listener = JoinSet::new();
        self.listen(&mut listener);
        let (mut measured_at, mut news_at, mut rested_at) = (Instant::now(), None, Instant::now());
        loop {
            let whole = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = reports.tick() => true,
                () = self.refresh.notified() => measured_at.elapsed() > STALE_AFTER,
                () = came_after(rested_at, &news) => {
                    news_at = Some(Instant::now());
                    false
                }
                _ = looks.tick(), if looks_between => false,
            };
            if self.follow_settings() {
                self.listen(&mut listener);
            }
            let started = Instant::now();
            let (event, opening) = if whole {
                measured_at = started;
                let (event, opening) = self.measure().await;
                (Some(event), opening)
            } else {
                self.look().await
            };
            let took = started.elapsed();
            rested_at = Instant::now() + rest_after_look(took, SESSIONS_SOON);
            let is_lively = news_at.is_some_and(|at: Instant| at.elapsed() < NEWS_LAST);
            if opening > 0 && is_lively {
                looks.reset_after(rest_after_look(took, SESSIONS_SOON));
            } else if !whole {
                looks.reset_after(rest_after_look(took, SESSIONS_EVERY));
            }
            if let Some(event) = event
                && self.events.send(event).await.is_err()
            {
                return;
            }
        }
    }

    /// Hears of reasons to look, in the place of whoever listened before.
    fn listen(&mut self, listener: &mut JoinSet<()>) {
        listener.abort_all();
        if let Some(listening) = self.sampler.sessions().listen() {
            listener.spawn(listening);
        }
    }

    /// Whether whose sessions count has changed.
    fn follow_settings(&mut self) -> bool {
        // A failure says that nobody reads the settings anew.
        if !self.settings.has_changed().unwrap_or(false) {
            return false;
        }
        let settings = self.settings.borrow_and_update().clone();
        self.sampler.watch_mounts(&settings.mounts);
        self.sampler.sessions().configure(&settings.sessions)
    }

    /// A whole sample, and how many sessions are being set up.
    async fn measure(&mut self) -> (SourceEvent, u32) {
        let sample = self.sampler.sample().await;
        let occupancy = sample.sessions.as_ref().map_or(Occupancy::Unknown, occupancy);
        let opening = sample.sessions.as_ref().map_or(0, opening);
        let mut values = measurement(sample);
        values.collectors.extend(self.others.states());
        (SourceEvent::Measured { values: Box::new(values), occupancy }, opening)
    }

    /// A look that fails tells nothing: the next whole sample says that the sessions are unknown.
    async fn look(&mut self) -> (Option<SourceEvent>, u32) {
        let Ok(reading) = self.sampler.sessions().read(SOURCE_DEADLINE).await else { return (None, 0) };
        let sample = reading.sample;
        let logons = sample.logons.map(|logons| logons.in_progress.now);
        (Some(SourceEvent::Sessions { occupancy: occupancy(&sample), logons }), opening(&sample))
    }
}

/// Waits for a reason to look, and until then in any case.
async fn came_after(rested_at: Instant, news: &SessionNews) {
    sleep_until(rested_at).await;
    news.came().await;
}

fn opening(sample: &SessionSample) -> u32 {
    sample.logons.map_or(0, |logons| logons.opening)
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
    let logons = sample.sessions.as_ref().and_then(|sessions| sessions.logons);
    Measurement {
        logons_in_progress: logons.map(|logons| logons.in_progress),
        finished_logons: logons.and_then(|logons| logons.finished),
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
    // Ends stay where they were: a late one would otherwise move all that follow.
    periods.set_missed_tick_behavior(MissedTickBehavior::Skip);
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

#[cfg(test)]
#[path = "machine_sessions_tests.rs"]
mod sessions_tests;
#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
