//! What does a host say that never changes?
//!
//! Exactly the values that it was given, a value that was not given is absent. For tests and benchmarks, in which every
//! number must be known beforehand.

use std::str::FromStr;
use std::time::Duration;

use usher_placement::host::{Measurement, Occupancy};
use usher_types::{Memory, Percent};

use super::{MEMORY_BYTES, OPERATION, collectors};
use crate::latency::listener::OwnedTiming;

/// The baseline of a fixed host with an expansion factor.
pub(crate) const BASELINE_US: f64 = 10_000.0;
/// Calls in each period: enough to be compared.
const CALLS: f64 = 100.0;

/// The values of one fixed host, as in `cpu=35,mem=55,users=10,procs=70,ai-xf=4`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FixedValues {
    /// Percent.
    pub cpu: Option<Percent>,
    /// Percent.
    pub memory: Option<Percent>,
    /// Distinct users.
    pub users: Option<u32>,
    /// Processes.
    pub processes: Option<u32>,
    /// Mean latency over its baseline, >= 1. Absent: it tells no latency.
    pub expansion_factor: Option<f64>,
}

impl FromStr for FixedValues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut values = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not key=value"))?;
            let bad = |allowed: &str| format!("{key} = {value:?} is not allowed, must be {allowed}");
            let percent = || value.parse().ok().and_then(|value| Percent::new(value).ok());
            match key {
                "cpu" => values.cpu = Some(percent().ok_or_else(|| bad("0..=100"))?),
                "mem" => values.memory = Some(percent().ok_or_else(|| bad("0..=100"))?),
                "users" => values.users = Some(value.parse().map_err(|_| bad("a whole number"))?),
                "procs" => values.processes = Some(value.parse().map_err(|_| bad("a whole number"))?),
                "ai-xf" => {
                    let factor = value.parse().ok().filter(|factor| (1.0..=1000.0).contains(factor));
                    values.expansion_factor = Some(factor.ok_or_else(|| bad("1..=1000"))?);
                }
                _ => return Err(format!("{key:?} is not known here: cpu, mem, users, procs, ai-xf")),
            }
        }
        Ok(values)
    }
}

impl FixedValues {
    pub(super) fn measurement(&self, uptime: Duration) -> Measurement {
        let used_bytes = |percent: Percent| (MEMORY_BYTES as f64 * percent.get() / 100.0) as u64;
        Measurement {
            cpu: self.cpu,
            memory: self.memory.and_then(|percent| Memory::new(used_bytes(percent), MEMORY_BYTES)),
            processes: self.processes,
            uptime: Some(uptime),
            collectors: collectors(),
            ..Measurement::default()
        }
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        self.users.map_or(Occupancy::Unknown, Occupancy::Counted)
    }

    /// The calls of one period. Absent: it tells no latency.
    pub(super) fn calls(&self) -> Option<OwnedTiming> {
        let duration_us = self.expansion_factor? * BASELINE_US;
        Some(OwnedTiming { name: OPERATION.to_owned(), duration_us, weight: CALLS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_067_the_values_of_the_worked_example_are_told_exactly() {
        let values: FixedValues = "cpu=35,mem=55,users=10,procs=70".parse().unwrap();
        let measured = values.measurement(Duration::ZERO);
        assert_eq!((measured.cpu.unwrap().get(), measured.processes), (35.0, Some(70)));
        assert!((measured.memory.unwrap().used().get() - 55.0).abs() < 1e-6);
        assert_eq!(values.occupancy(), Occupancy::Counted(10));
        assert_eq!(values.calls(), None);
    }

    #[test]
    fn what_is_not_given_is_unknown_and_not_zero() {
        let values: FixedValues = "users=0".parse().unwrap();
        let measured = values.measurement(Duration::ZERO);
        assert_eq!((measured.cpu, measured.memory, measured.processes), (None, None, None));
        assert_eq!(values.occupancy(), Occupancy::Counted(0));
        assert_eq!(FixedValues::default().occupancy(), Occupancy::Unknown);
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for bad in [
            "cpu=101",
            "cpu=nan",
            "mem=-1",
            "users=1.5",
            "procs=x",
            "ai-xf=0.5",
            "ai-xf=inf",
            "load=3",
            "cpu",
        ] {
            let error = bad.parse::<FixedValues>().unwrap_err();
            assert!(error.contains(bad.split('=').next().unwrap()), "{bad}: {error}");
        }
    }
}
