//! What does a report say, and what in it is wrong?
//!
//! A scenario may write what a broken sensor would send. Every number is checked as a coordinator checks it when it
//! comes over the wire: a wrong one is absent, and is named with its value and what is allowed.

use std::fmt::Display;

use usher_types::{
    BootTime, FieldFault, FinishedLogons, HostOverrides, LogonsInProgress, Memory, MountFullness,
    OwnAvailability, Percent, Policy, UserLimit,
};

use super::Machine;
use crate::scenario::syntax::{Finished, NewHost, Report};

/// Memory of every host: large enough that a hundredth of a percent is a whole number of bytes.
const MEMORY_BYTES: u64 = 1_000_000_000;
/// A host a thousand times the normal one is a mistake of units.
const MAX_CAPACITY: f64 = 1000.0;
/// As on the wire.
const MAX_DEMAND: f64 = 1e6;
const MAX_SECONDS: f64 = 1e12;

#[derive(Default)]
struct Checks(Vec<FieldFault>);

impl Checks {
    fn fault(&mut self, field: &str, value: impl Display, allowed: &str) {
        self.0.push(FieldFault::new(field, value, allowed));
    }

    fn percent(&mut self, field: &str, value: Option<f64>) -> Option<Percent> {
        match Percent::new(value?) {
            Ok(percent) => Some(percent),
            Err(error) => {
                self.fault(field, error.value, error.allowed);
                None
            }
        }
    }

    fn whole(&mut self, field: &str, value: Option<f64>) -> Option<u32> {
        let value = value?;
        if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
            // Checked: it is a whole number in range.
            return Some(value as u32);
        }
        self.fault(field, value, "a whole number, 0..=4294967295");
        None
    }

    fn number(&mut self, field: &str, value: Option<f64>, highest: f64) -> Option<f64> {
        let value = value?;
        if !(0.0..=highest).contains(&value) {
            self.fault(field, value, &format!("0..={highest}"));
            return None;
        }
        Some(value)
    }

    fn finished(&mut self, written: Finished) -> Option<FinishedLogons> {
        let count = self.whole("finished_logons.count", Some(written.count))?;
        let seconds = self.number("finished_logons.seconds", Some(written.seconds), MAX_SECONDS)?;
        let core_seconds = self.number("finished_logons.core_seconds", written.core_seconds, MAX_SECONDS);
        Some(FinishedLogons { count, seconds, core_seconds })
    }

    fn memory(&mut self, percent: Option<f64>) -> Option<Memory> {
        let percent = percent?;
        if !percent.is_finite() || percent < 0.0 {
            self.fault("memory_used_bytes", percent, "0 and more");
            return None;
        }
        // Saturates where a number is beyond everything that memory could be.
        let used = (percent * MEMORY_BYTES as f64 / 100.0).round() as u64;
        let memory = Memory::new(used, MEMORY_BYTES);
        if memory.is_none() {
            let allowed = format!("at most memory_total_bytes ({MEMORY_BYTES}), which is above 0");
            self.fault("memory_used_bytes", used, &allowed);
        }
        memory
    }
}

impl Machine {
    /// Takes over a report: what it says of the host from now on, and what in it is wrong.
    pub(in crate::scenario) fn report(&mut self, report: &Report, now: BootTime) {
        let mut checks = Checks::default();
        self.measurement.cpu = checks.percent("cpu_percent", report.cpu);
        self.measurement.runnable_demand = checks.number("runnable_demand", report.demand, MAX_DEMAND);
        // What a host says now holds for its interval, too.
        self.measurement.logons_in_progress = checks
            .whole("logons_in_progress", report.logons)
            .map(|now| LogonsInProgress { now, mean: f64::from(now) });
        self.measurement.finished_logons = report.finished.and_then(|finished| checks.finished(finished));
        self.measurement.memory = checks.memory(report.mem);
        let users = checks.whole("users", report.users);
        self.measurement.processes = checks.whole("processes", report.procs);
        self.measurement.psi_full = checks.percent("psi_full_percent", report.psi);
        let index = checks.percent("own_availability.index", report.ai);
        self.measurement.own_availability =
            index.map(|index| OwnAvailability { index, source: "scenario".to_owned() });
        self.measurement.mounts.clear();
        for (number, mount) in report.mounts.iter().enumerate() {
            let field = format!("mounts[{number}].used_percent");
            if let Some(used) = checks.percent(&field, Some(mount.used)) {
                let path = mount.path.clone().unwrap_or_else(|| "/".to_owned());
                self.measurement.mounts.push(MountFullness { path, used });
            }
        }
        self.faults = checks.0;
        self.measure(now);
        self.count_users(users, now);
        self.look_at_sessions(now);
        self.has_reported = true;
        self.listed_tokens = report.tokens.clone();
    }
}

/// A host's own settings, as an agent checks its configuration.
///
/// # Errors
/// Every setting that is refused: such an agent does not start.
pub(in crate::scenario) fn overrides(host: &NewHost) -> Result<HostOverrides, Vec<FieldFault>> {
    let mut checks = Checks::default();
    let threshold = checks.percent("threshold", host.threshold);
    if let Some(capacity) = host.capacity.filter(|capacity| !(*capacity > 0.0 && *capacity <= MAX_CAPACITY)) {
        checks.fault("capacity", capacity, "above 0, at most 1000; to exclude the host, drain it");
    }
    if host.max_users == Some(UserLimit::Users(0)) {
        checks.fault("max_users", 0, "at least 1, or unlimited; to exclude the host, drain it");
    }
    if let Some(range) = host.range.filter(|range| !(1.0..=30.0).contains(range)) {
        checks.fault("range", range, Policy::RANGE_ALLOWED);
    }
    if !checks.0.is_empty() {
        return Err(checks.0);
    }
    Ok(HostOverrides { capacity: host.capacity, max_users: host.max_users, threshold, range: host.range })
}
