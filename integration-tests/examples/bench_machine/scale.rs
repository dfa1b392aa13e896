//! How small is everything made? One host of the model has 8 cores and its storm takes two minutes; here several hosts
//! share a machine of two processors. Ratios of times are what is compared, so both scales may be chosen freely, as long
//! as all hosts together stay well below the machine.

use std::time::Duration;

/// Hosts.
pub(crate) const HOSTS: usize = 4;
/// Cores of one host, as it says.
pub(crate) const CORES: u32 = 8;
/// Part of a processor that stands for one of its cores: four hosts of eight take 1.28 processors of two.
pub(crate) const CORE: f64 = 0.04;
/// So many times faster than in the model.
pub(crate) const FASTER: f64 = 4.0;
/// Cores that a logon uses at most.
pub(crate) const LOGON_CORES: f64 = 1.5;
/// Logons, within which time of the model, and how often hosts report.
pub(crate) const LOGONS: usize = 20 * HOSTS;
pub(crate) const WITHIN_S: f64 = 120.0;
pub(crate) const REPORT_S: f64 = 15.0;
/// Before the first logon; a pool knows its hosts by then.
pub(crate) const LEAD_IN_S: f64 = 40.0;
/// After the last one; logons that are not done by then count as they stand.
pub(crate) const DRAIN_S: f64 = 400.0;

/// Time of the model as it passes here.
pub(crate) fn here(model_s: f64) -> Duration {
    Duration::from_secs_f64(model_s / FASTER)
}

/// Share of a processor that stands for so many cores.
pub(crate) fn share(cores: f64) -> f64 {
    cores * CORE
}
