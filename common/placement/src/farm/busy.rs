//! What makes a host BUSY?
//!
//! The host latches what it measures itself, and sends what it holds; a coordinator judges the numbers that it has now
//! with that as their history. So all coordinators agree inside the margins, and none of them holds a host for a number
//! that is over. Of a host that keeps no latches (a reporter) each coordinator keeps its own.

use usher_availability::{LatchInput, judge};
use usher_types::{BootTime, BusyReasons, CriticalLevel, Memory, Percent, Policy};

use super::HostView;

impl HostView {
    /// What makes it BUSY at `now`.
    pub fn busy_reasons(&self, policy: &Policy, now: BootTime) -> BusyReasons {
        let held = self.reading.as_ref().map_or(BusyReasons::NONE, |reading| reading.latched);
        let holds = judge(&self.latch_input(policy, now), policy, held);
        holds.with(BusyReasons::USER_SET, self.marks.busy)
    }

    /// The numbers that may make it BUSY.
    pub(super) fn latch_input(&self, policy: &Policy, now: BootTime) -> LatchInput {
        let reading = self.reading.as_deref();
        LatchInput {
            cpu: reading.and_then(|reading| reading.cpu_percent).and_then(|cpu| Percent::new(cpu).ok()),
            memory: reading.and_then(|reading| reading.memory).map(Memory::used),
            psi_full: reading.and_then(|reading| reading.psi_full),
            fullest_mount: self.fullest_mount().map(|(used, _)| used),
            error_share_percent: self.error_share_percent(now),
            availability_index: self.availability(now).index,
            threshold_percent: self.threshold_percent(policy),
            exit_margin_percent: policy.exit_margin_percent,
        }
    }

    /// Share of its calls that failed or took too long. Absent: too few calls to say, or too long ago.
    pub fn error_share_percent(&self, now: BootTime) -> Option<f64> {
        self.fresh_latency(now)?.error_share_percent
    }

    /// The fullest of its chosen mounts, and where it is mounted.
    pub fn fullest_mount(&self) -> Option<(Percent, &str)> {
        let mounts = self.reading.as_ref()?.mounts.iter();
        let fullest = mounts.max_by(|a, b| a.used.get().total_cmp(&b.used.get()))?;
        Some((fullest.used, &fullest.path))
    }

    /// Why it is BUSY, for people: each reason with its number and its limit.
    pub(super) fn busy_text(&self, policy: &Policy, now: BootTime) -> String {
        let input = self.latch_input(policy, now);
        let held = self.busy_reasons(policy, now);
        let text = |reason: BusyReasons| match reason {
            BusyReasons::AVAILABILITY => availability_text(&input),
            BusyReasons::MEMORY => Some(measured("memory", input.memory, policy.mem_critical, "")),
            BusyReasons::CPU => Some(measured("cpu", input.cpu, policy.cpu_critical, " for 30 s")),
            BusyReasons::PSI => Some(measured("psi full", input.psi_full, policy.psi_critical, " for 30 s")),
            BusyReasons::MOUNT => {
                let (used, path) = self.fullest_mount()?;
                Some(measured(&format!("mount {path}"), Some(used), policy.mount_critical, ""))
            }
            BusyReasons::ERRORS => {
                let share = input.error_share_percent?;
                let allowed = round(policy.max_error_share_percent);
                Some(format!("errors {} % of calls, limit {allowed}", round(share)))
            }
            _ => Some("set busy by an admin".to_owned()),
        };
        let texts: Vec<String> =
            REASONS.into_iter().filter(|reason| held.has(*reason)).filter_map(text).collect();
        texts.join("; ")
    }
}

/// In the order in which they are told.
const REASONS: [BusyReasons; 7] = [
    BusyReasons::AVAILABILITY,
    BusyReasons::MEMORY,
    BusyReasons::CPU,
    BusyReasons::PSI,
    BusyReasons::MOUNT,
    BusyReasons::ERRORS,
    BusyReasons::USER_SET,
];

fn availability_text(input: &LatchInput) -> Option<String> {
    if input.threshold_percent >= 100.0 {
        return Some("threshold 100: hot standby".to_owned());
    }
    let index = input.availability_index?;
    Some(format!("availability index {index:.1}, threshold {}", round(input.threshold_percent)))
}

/// `memory 97 %, limit 95`.
fn measured(what: &str, value: Option<Percent>, level: CriticalLevel, long: &str) -> String {
    let value = value.map_or("not known".to_owned(), |value| format!("{} %", round(value.get())));
    let limit = level.percent().map_or("off".to_owned(), round);
    format!("{what} {value}{long}, limit {limit}")
}

/// To one digit after the point, and without it where it is 0.
fn round(percent: f64) -> String {
    ((percent * 10.0).round() / 10.0).to_string()
}
