//! How does the agent tell somebody on its machine how it fares?
//!
//! As JSON with the names of the reports. What is not known is left out. Counts are since the agent's start, windows as
//! they are reported; together they answer "was my timing taken, and if not, why".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use usher_availability::PeriodCounts;
use usher_types::{BootTime, CollectorState, Drain, Load, OperationWindow, Readiness};

use super::streams::{Stream, held_back_for, service_json, unanswered};
use crate::coordinators::{Coordinator, ServiceStatus};
use crate::host::{HostHandle, HostStatus};
use crate::latency::counters::IngestCounters;
use crate::latency::listener::TimingBatch;
use crate::latency::statsd::RejectReason;
use crate::standing::Parts;

/// Where the parts of a status come from.
#[derive(Debug)]
pub(crate) struct StatusSource {
    pub(crate) host: HostHandle,
    /// What came of the services that DNS is asked for.
    pub(crate) services: watch::Receiver<Arc<[ServiceStatus]>>,
    /// What became of timings, and why some sockets are not open. Absent: timings are not asked for.
    pub(crate) timings: Option<(Arc<IngestCounters>, Vec<String>)>,
    /// Says how many timings wait.
    pub(crate) timings_queue: mpsc::WeakSender<TimingBatch>,
    pub(crate) clock: Arc<dyn usher_runtime::clock::Clock>,
    pub(crate) started: BootTime,
}

impl StatusSource {
    /// The whole status.
    pub(crate) fn json(&self, status: HostStatus, parts: &Parts) -> Value {
        let hello = &self.host.hello;
        let running = self.clock.now().since(self.started);
        let load = status.load.as_ref();
        known([
            ("version", Some(json!(hello.agent_version))),
            ("host_name", Some(json!(hello.host_name.as_str()))),
            ("host_id", Some(json!(hello.host_id.to_string()))),
            ("pool", Some(json!(hello.pool.as_str()))),
            ("running_seconds", Some(seconds(running))),
            ("ready", load.map(|load| json!(load.readiness == Readiness::Ready))),
            ("not_ready_reason", load.and_then(not_ready)),
            ("drain", parts.drain.as_ref().or(parts.hook_drain.as_ref()).map(drain)),
            ("load", load.map(load_json)),
            ("collectors", load.map(|load| load.collectors.iter().map(collector).collect())),
            ("timings", Some(self.timings_json(&status))),
            ("operations", Some(operations(&status))),
            ("streams", Some(self.streams(&status, |stream, now| stream.json(now)).into())),
            ("services", self.services()),
            ("queues", Some(self.queues(&status))),
            ("held_back", Some(json!(self.held_back(&status)))),
        ])
    }

    /// The stream to each coordinator, judged by `judge`.
    fn streams<T>(&self, status: &HostStatus, judge: impl Fn(Stream<'_>, BootTime) -> T) -> Vec<T> {
        let coordinators = self.host.streams_held.list();
        let report = self.host.load.borrow().clone();
        let now = self.clock.now();
        let name = |number| coordinators.iter().find(|known| known.number == number);
        let stream = |known: &Coordinator| {
            let Coordinator { number, target, origin } = known;
            let number = *number;
            let held = self.host.streams_held.status(number);
            let is_unheard = status.unheard.contains(target);
            // The last report may be of a moment in which one was not heard that is heard now.
            let report = report.as_deref().filter(|_| is_unheard);
            let stream = Stream {
                coordinator: target,
                origin,
                same_as: held.same_as.and_then(name).map(|same| same.target.as_str()),
                is_open: self.host.streams_held.to(number) > 0,
                is_unheard,
                status: held,
                held_back: held_back_for(number, report),
            };
            judge(stream, now)
        };
        coordinators.iter().map(stream).collect()
    }

    /// Absent: the settings name no service.
    fn services(&self) -> Option<Value> {
        let services = self.services.borrow();
        (!services.is_empty()).then(|| services.iter().map(service_json).collect())
    }

    fn queues(&self, status: &HostStatus) -> Value {
        let timings = self.timings_queue.upgrade().map(|queue| queue.max_capacity() - queue.capacity());
        known([
            ("commands", Some(json!(status.commands_waiting))),
            ("events", Some(json!(status.events_waiting))),
            ("session_checks", Some(json!(status.checks_waiting))),
            ("timing_datagrams", timings.map(|waiting| json!(waiting))),
        ])
    }

    fn timings_json(&self, status: &HostStatus) -> Value {
        let counts = self.timings.as_ref().map(|(counters, _)| counters.snapshot());
        let lines = counts.map(|counts| {
            let rejected: BTreeMap<_, _> = RejectReason::ALL
                .iter()
                .map(|reason| (reason.as_str(), counts.rejected_for(*reason)))
                .collect();
            json!({
                "accepted": counts.accepted,
                "below_resolution": counts.below_resolution,
                "rejected": rejected,
                "dropped": counts.dropped,
                "truncated_datagrams": counts.truncated_datagrams,
                "receive_errors": counts.receive_errors,
            })
        });
        known([
            ("lines", lines),
            ("errors", self.timings.as_ref().map(|(_, errors)| json!(errors)).filter(|e| e != &json!([]))),
            ("refused_calls", Some(json!(status.refused))),
            ("overflow_calls", Some(json!(status.overflow_calls))),
        ])
    }

    /// What the host knows and does not tell, or was told and does not count.
    fn held_back(&self, status: &HostStatus) -> Vec<String> {
        let dropped = self.timings.as_ref().map_or(0, |(counters, _)| counters.snapshot().dropped);
        let told = [
            (status.unlisted_sessions > 0)
                .then(|| format!("{} sessions are counted and not listed", status.unlisted_sessions)),
            (status.overflow_calls > 0).then(|| {
                format!("{} calls of names beyond the cap are not in the index", status.overflow_calls)
            }),
            (dropped > 0).then(|| format!("{dropped} timings were dropped: the agent could not keep up")),
            status
                .book_is_unkept
                .then(|| "places: the book cannot be written, nobody is admitted".to_owned()),
            status.load.is_none().then(|| "reports: the host was not measured yet".to_owned()),
            (self.host.streams_held.count() == 0).then(|| "reports: no coordinator is attached".to_owned()),
        ];
        let silent = self.streams(status, |stream, now| stream.silence(now));
        let services: Vec<_> = self.services.borrow().iter().map(unanswered).collect();
        told.into_iter().chain(silent).chain(services).flatten().collect()
    }
}

/// An object of the fields that have a value.
pub(super) fn known<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect::<Map<_, _>>())
}

pub(super) fn seconds(duration: Duration) -> Value {
    json!(duration.as_secs_f64())
}

fn not_ready(load: &Load) -> Option<Value> {
    match &load.readiness {
        Readiness::NotReady(reason) => Some(json!(reason)),
        Readiness::Ready => None,
    }
}

fn drain(drain: &Drain) -> Value {
    json!({
        "mode": drain.mode,
        "reason": drain.reason,
        "author": drain.author,
        "no_reconnect": drain.no_reconnect,
    })
}

fn collector(state: &CollectorState) -> Value {
    known([
        ("name", Some(json!(state.name))),
        ("source", Some(json!(state.source))),
        ("error", state.error.as_ref().map(|error| json!(error))),
        ("warning", state.warning.as_ref().map(|warning| json!(warning))),
    ])
}

fn load_json(load: &Load) -> Value {
    let sessions = load.sessions.map(|sessions| {
        json!({
            "active": sessions.active,
            "disconnected": sessions.disconnected,
            "lingering": sessions.lingering,
        })
    });
    let busy: Option<Vec<_>> = load.latched.map(|latched| latched.names().collect());
    known([
        ("cpu_percent", load.cpu.map(|cpu| json!(cpu.get()))),
        ("runnable_demand", load.runnable_demand.map(|demand| json!(demand))),
        ("memory_used_bytes", load.memory.map(|memory| json!(memory.used_bytes))),
        ("memory_total_bytes", load.memory.map(|memory| json!(memory.total_bytes))),
        ("users", load.users.map(|users| json!(users))),
        ("sessions", sessions),
        ("processes", load.processes.map(|processes| json!(processes))),
        ("psi_full_percent", load.psi_full.map(|psi| json!(psi.get()))),
        ("busy_reasons", busy.map(|busy| json!(busy))),
        ("warming_up", Some(json!(load.is_warming_up))),
        ("pending_places", Some(json!(load.pending.len()))),
        ("settings_version", load.settings_version.map(|version| json!(version))),
    ])
}

/// Each with what was counted since the start, the window that is reported, and the baseline.
fn operations(status: &HostStatus) -> Value {
    let windows: BTreeMap<_, _> = status.window.iter().map(|window| (&window.name, window)).collect();
    let operation = |(name, total): &(usher_types::OperationName, PeriodCounts)| {
        let window = windows.get(name);
        known([
            ("name", Some(json!(name.as_str()))),
            ("total", Some(counts(total.ok, total.failed, total.too_long, total.sum_us, total.min_us))),
            ("window", window.map(|w| counts(w.ok, w.failed, w.too_long, w.sum_us, w.min_us))),
            ("in_flight", window.map(|window| json!(window.in_flight))),
            ("oldest_in_flight_seconds", window.and_then(|window| window.oldest_in_flight).map(seconds)),
            ("baseline", window.and_then(|window| baseline(window))),
        ])
    };
    status.totals.iter().map(operation).collect()
}

fn counts(ok: f64, failed: f64, too_long: f64, sum_us: f64, min_us: Option<f64>) -> Value {
    let mean_us = (ok > 0.0).then(|| sum_us / ok);
    known([
        ("ok", Some(json!(ok))),
        ("failed", Some(json!(failed))),
        ("too_long", Some(json!(too_long))),
        ("sum_us", Some(json!(sum_us))),
        ("mean_us", mean_us.map(|mean| json!(mean))),
        ("min_us", min_us.map(|min| json!(min))),
    ])
}

fn baseline(window: &OperationWindow) -> Option<Value> {
    let baseline_us = window.baseline_us?;
    Some(known([
        ("baseline_us", Some(json!(baseline_us))),
        ("age_seconds", window.baseline_age.map(seconds)),
        ("samples", Some(json!(window.baseline_samples))),
        ("provisional", Some(json!(window.baseline_is_provisional))),
    ]))
}
