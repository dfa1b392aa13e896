//! What the farm can tell at any moment, asked for when somebody looks.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use usher_types::{HostState, PoolName};

/// What the farm looks like at one moment.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct FarmFigures {
    /// Registered hosts by pool and state. States without a host may be left out.
    pub hosts: BTreeMap<(PoolName, HostState), u64>,
    /// Hosts that each reason holds BUSY, by pool and reason; a host may have several.
    pub busy: BTreeMap<(PoolName, &'static str), u64>,
    /// Hosts of which a number is not known, by pool.
    pub incomplete: BTreeMap<PoolName, u64>,
    /// Hosts that have had other settings than this coordinator's for long, by pool.
    pub foreign_settings: BTreeMap<PoolName, u64>,
    /// Replicas that admins have marked, by pool and mark.
    pub replica_marks: BTreeMap<(PoolName, &'static str), u64>,
    /// Places given out and neither seen as sessions nor ended.
    pub reservations: u64,
    /// Decisions that `Explain` can still answer.
    pub decisions: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PoolState {
    pool: String,
    state: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PoolReason {
    pool: String,
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfPool {
    pool: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PoolMark {
    pool: String,
    mark: &'static str,
}

pub(super) type FigureSource = Box<dyn Fn() -> FarmFigures + Send + Sync>;

/// Asks the farm for its figures when somebody looks.
#[derive(Clone, Default)]
pub(super) struct Farm {
    pub(super) source: Arc<OnceLock<FigureSource>>,
}

impl fmt::Debug for Farm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Farm").finish_non_exhaustive()
    }
}

impl Collector for Farm {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(source) = self.source.get() else { return Ok(()) };
        let figures = source();
        let mut family = encoder.encode_descriptor(
            "hosts",
            "Registered hosts by pool and state. OFFLINE or UNKNOWN growing: hosts or their agents are down.",
            None,
            MetricType::Gauge,
        )?;
        for ((pool, state), hosts) in &figures.hosts {
            let labels = PoolState { pool: pool.as_str().to_owned(), state: state.as_str() };
            gauge(*hosts).encode(family.encode_family(&labels)?)?;
        }
        encode_marks(&figures, &mut encoder)?;
        let reservations = encoder.encode_descriptor(
            "reservations",
            "Places given out and neither seen as sessions nor ended. Growing without logins: logins fail on the way.",
            None,
            MetricType::Gauge,
        )?;
        gauge(figures.reservations).encode(reservations)?;
        let decisions = encoder.encode_descriptor(
            "decisions_kept",
            "Decisions that Explain can still answer. Far below the calls of the last 10 minutes: the history is cut.",
            None,
            MetricType::Gauge,
        )?;
        gauge(figures.decisions).encode(decisions)
    }
}

fn encode_marks(figures: &FarmFigures, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut busy = encoder.encode_descriptor(
        "hosts_busy",
        "Hosts that each reason holds BUSY, by pool and reason. memory or mount growing: hosts fill up; \
         user_set: somebody has set them so.",
        None,
        MetricType::Gauge,
    )?;
    for ((pool, reason), hosts) in &figures.busy {
        let labels = PoolReason { pool: pool.as_str().to_owned(), reason };
        gauge(*hosts).encode(busy.encode_family(&labels)?)?;
    }
    let mut incomplete = encoder.encode_descriptor(
        "hosts_incomplete",
        "Hosts of which a number is not known and stands for the pool's median. Not 0: a collector fails there.",
        None,
        MetricType::Gauge,
    )?;
    for (pool, hosts) in &figures.incomplete {
        let labels = OfPool { pool: pool.as_str().to_owned() };
        gauge(*hosts).encode(incomplete.encode_family(&labels)?)?;
    }
    let mut foreign = encoder.encode_descriptor(
        "settings_mismatch_hosts",
        "Hosts that have had other settings of their pool than this coordinator's for long. Not 0: another coordinator has \
         another file or store; usherctl pool show names the hosts.",
        None,
        MetricType::Gauge,
    )?;
    for (pool, hosts) in &figures.foreign_settings {
        let labels = OfPool { pool: pool.as_str().to_owned() };
        gauge(*hosts).encode(foreign.encode_family(&labels)?)?;
    }
    let mut marks = encoder.encode_descriptor(
        "replica_marks",
        "Replicas that admins have taken out of service, by pool and mark. Not 0 for long: somebody has forgotten one.",
        None,
        MetricType::Gauge,
    )?;
    for ((pool, mark), replicas) in &figures.replica_marks {
        let labels = PoolMark { pool: pool.as_str().to_owned(), mark };
        gauge(*replicas).encode(marks.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(value: u64) -> ConstGauge {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
