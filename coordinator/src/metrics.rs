//! What does an operator read off `/metrics`, and conclude?
//!
//! Every series says in its help text what one unit counts and what it means when it moves. Labels are bounded: pools
//! that hosts have registered in, states, reasons and field names that our own code spells; never a host, a user, a
//! gateway or anything else that a caller writes. What the farm can tell at any moment (hosts by state, live places) is
//! asked for when somebody looks, so it cannot drift from the truth as counted-up gauges do.

mod durations;
mod farm;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};
use usher_types::PoolName;

use self::durations::Durations;
use self::farm::Farm;
pub use self::farm::FarmFigures;

/// Media type of what [`Metrics::encode`] gives.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Label value of a call that named no pool that we know: callers must not be able to make series.
const NO_POOL: &str = "";

/// What a host said when it was asked for its consent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ConsentAnswer {
    /// It gave the place.
    Admitted,
    /// It did not.
    Refused,
    /// It did not answer in time.
    Silent,
}

impl ConsentAnswer {
    const ALL: [Self; 3] = [Self::Admitted, Self::Refused, Self::Silent];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Silent => "silent",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PoolReason {
    pool: String,
    reason: &'static str,
}

macro_rules! one_label {
    ($name:ident, $label:ident) => {
        #[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
        struct $name {
            $label: &'static str,
        }
    };
}
one_label!(ByCause, cause);
one_label!(ByReason, reason);
one_label!(ByAnswer, answer);
one_label!(ByKind, kind);
one_label!(ByField, field);

/// Every series of a coordinator. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    series: Arc<Series>,
}

struct Series {
    registry: Registry,
    farm: Farm,
    placements: Family<PoolReason, Counter>,
    /// The counters of `placements` that were used before: found without its lock, since every login counts here.
    placements_by_reason: papaya::HashMap<String, papaya::HashMap<&'static str, Counter>>,
    place_seconds: Durations,
    failovers: Family<ByCause, Counter>,
    redirects: Family<ByReason, Counter>,
    placed_blind: Counter,
    consents: Family<ByAnswer, Counter>,
    consents_by_answer: [Counter; 3],
    reports: Family<ByKind, Counter>,
    values_rejected: Family<ByField, Counter>,
    marks_changed: Family<ByKind, Counter>,
    streams_open: Gauge,
    dropped: Family<ByKind, Counter>,
    store_commit_seconds: Histogram,
    store_commit_failures: Counter,
    store_rows_quarantined: Counter,
    policy_file_broken: Gauge,
    store_failing: Gauge,
    store_connected: Gauge,
    store_revision: Gauge,
    store_owed: Gauge,
    calls_shed: Counter,
    calls_denied: Counter,
    deadlines_exceeded: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// A fresh set. `version` and `commit` are those of the build.
    pub fn new(version: &'static str, commit: &'static str) -> Self {
        let mut all = Registry::default();
        all.register(
            "usher_coordinator",
            "Always 1; its labels say which build runs. Two values in one farm mean an upgrade under way",
            Info::new([("version", version), ("commit", commit)]),
        );
        let registry = all.sub_registry_with_prefix("usher_coordinator");
        let farm = Farm::default();
        registry.register_collector(Box::new(farm.clone()));
        let consents = Family::<ByAnswer, Counter>::default();
        let mut series = Series {
            registry: Registry::default(),
            farm,
            placements: Family::default(),
            placements_by_reason: papaya::HashMap::new(),
            place_seconds: Durations::new(&PLACE_BUCKETS),
            failovers: Family::default(),
            redirects: Family::default(),
            placed_blind: Counter::default(),
            consents_by_answer: ConsentAnswer::ALL
                .map(|answer| consents.get_or_create_owned(&ByAnswer { answer: answer.as_str() })),
            consents,
            reports: Family::default(),
            values_rejected: Family::default(),
            marks_changed: Family::default(),
            streams_open: Gauge::default(),
            dropped: Family::default(),
            store_commit_seconds: Histogram::new(COMMIT_BUCKETS),
            store_commit_failures: Counter::default(),
            store_rows_quarantined: Counter::default(),
            policy_file_broken: Gauge::default(),
            store_failing: Gauge::default(),
            store_connected: Gauge::default(),
            store_revision: Gauge::default(),
            store_owed: Gauge::default(),
            calls_shed: Counter::default(),
            calls_denied: Counter::default(),
            deadlines_exceeded: Counter::default(),
        };
        register_farm(registry, &series);
        register_machinery(registry, &series);
        series.registry = all;
        Self { series: Arc::new(series) }
    }

    /// Where the farm's figures come from; asked at each scrape, from any thread. The first one stays.
    pub fn set_farm(&self, figures: impl Fn() -> FarmFigures + Send + Sync + 'static) {
        // Set twice only by a bug of ours, and harmless: both would tell of the same farm.
        let _ = self.series.farm.source.set(Box::new(figures));
    }

    /// A Place or Failover was answered. `pool`: absent if we have none of that name. `reason`: of the choice
    /// (`LOWEST_LOAD`) or of the refusal (`MAX_USERS`), in the spelling of the wire.
    pub fn place_answered(&self, pool: Option<&PoolName>, reason: &'static str, took: Duration) {
        let pool = pool.map_or(NO_POOL, PoolName::as_str);
        let pools = self.series.placements_by_reason.pin();
        let known = pools.get(pool);
        let known = known.unwrap_or_else(|| pools.get_or_insert_with(pool.to_owned(), Default::default));
        let reasons = known.pin();
        let counter = reasons.get_or_insert_with(reason, || {
            self.series.placements.get_or_create_owned(&PoolReason { pool: pool.to_owned(), reason })
        });
        counter.inc();
        self.series.place_seconds.observe(took);
    }

    /// A gateway called Failover. `cause`: `busy`, `unreachable`, `refused`, `auth`, `other`.
    pub fn failover_asked(&self, cause: &'static str) {
        self.series.failovers.get_or_create(&ByCause { cause }).inc();
    }

    /// A login got another host than the one it failed over from, belongs to or has its session on. `reason`: what spoke
    /// against that one, in our own words.
    pub fn login_redirected(&self, reason: &'static str) {
        self.series.redirects.get_or_create(&ByReason { reason }).inc();
    }

    /// A login was sent to a host whose agent is lost.
    pub fn placed_blind(&self) {
        self.series.placed_blind.inc();
    }

    /// A host was asked for its consent.
    pub fn consent_answered(&self, answer: ConsentAnswer) {
        self.series.consents_by_answer[answer as usize].inc();
    }

    /// An agent's message was taken. `kind`: as in the wire's oneof, `load`.
    pub fn report_taken(&self, kind: &'static str) {
        self.series.reports.get_or_create(&ByKind { kind }).inc();
    }

    /// A value of an agent's message was dropped. `field`: as our code spells it, never the sender's text.
    pub fn value_rejected(&self, field: &'static str) {
        self.series.values_rejected.get_or_create(&ByField { field }).inc();
    }

    /// An admin has changed what holds of a host or a replica. `kind`: `drain`, `undrain`, `host`, `replica`, `baselines`.
    pub fn marked(&self, kind: &'static str) {
        self.series.marks_changed.get_or_create(&ByKind { kind }).inc();
    }

    /// Something was dropped. `kind`: `decision` (the queue of the history was full), `hello` (a second one), `unknown`
    /// (a message of a later protocol).
    pub fn something_dropped(&self, kind: &'static str) {
        self.series.dropped.get_or_create(&ByKind { kind }).inc();
    }

    /// An agent's stream is open until the answer is dropped.
    pub fn stream_opened(&self) -> OpenStream {
        self.series.streams_open.inc();
        OpenStream { metrics: self.clone() }
    }

    /// A commit of the store ended.
    pub fn store_committed(&self, took: Duration, succeeded: bool) {
        self.series.store_commit_seconds.observe(took.as_secs_f64());
        if !succeeded {
            self.series.store_commit_failures.inc();
        }
    }

    /// A row of the store could not be read and was moved aside.
    pub fn store_row_quarantined(&self) {
        self.series.store_rows_quarantined.inc();
    }

    /// Whether the disk refuses what is to be stored. Whether that is news.
    pub fn store_fails(&self, fails: bool) -> bool {
        self.series.store_failing.set(i64::from(fails)) != i64::from(fails)
    }

    /// Whether the last commit failed.
    pub fn is_store_failing(&self) -> bool {
        self.series.store_failing.get() != 0
    }

    /// How the shared store is: whether it answers, up to which revision it is followed, and how many changes it is owed.
    pub fn store_link(&self, is_connected: bool, revision: u64, owed: usize) {
        self.series.store_connected.set(i64::from(is_connected));
        self.series.store_revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
        self.series.store_owed.set(i64::try_from(owed).unwrap_or(i64::MAX));
    }

    /// The file that the settings of pools come from was read: whether it is in force.
    pub fn policy_file_read(&self, is_in_force: bool) {
        self.series.policy_file_broken.set(i64::from(!is_in_force));
    }

    /// A call was refused because too many were under way.
    pub fn call_shed(&self) {
        self.series.calls_shed.inc();
    }

    /// A call was refused for want of a role or an identity.
    pub fn call_denied(&self) {
        self.series.calls_denied.inc();
    }

    /// A call was cut off at its deadline.
    pub fn deadline_exceeded(&self) {
        self.series.deadlines_exceeded.inc();
    }

    /// Everything, in the text form of Prometheus ([`CONTENT_TYPE`]).
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(8 * 1024);
        // Writing to a string fails only if a formatter of ours does.
        if let Err(error) = prometheus_text::encode(&mut text, &self.series.registry) {
            tracing::error!(%error, "failed to encode the metrics");
        }
        text
    }
}

/// Counts as one open stream while it lives.
#[derive(Debug)]
#[must_use = "the stream counts as closed once this is dropped"]
pub struct OpenStream {
    metrics: Metrics,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.series.streams_open.dec();
    }
}

/// What happens to logins and to agents' messages.
fn register_farm(registry: &mut Registry, series: &Series) {
    registry.register(
        "placements",
        "Place and Failover calls answered, by the reason of the choice or of the refusal. \
         MAX_USERS growing: the pool is full; ALL_OFFLINE or STALE: look at the hosts' streams",
        series.placements.clone(),
    );
    registry.register(
        "place_duration_seconds",
        "Time from a Place or Failover call to its answer, consent of the host included. \
         Without consents it stays far below a millisecond",
        series.place_seconds.clone(),
    );
    registry.register(
        "failovers",
        "Failover calls, by what the gateway says went wrong. \
         unreachable or refused growing: hosts look well to us and not to their clients",
        series.failovers.clone(),
    );
    registry.register(
        "redirects",
        "Logins that got another host than the one they failed over from, belong to or have their session on, by what spoke \
         against that one. maxusers or busy growing: users do not get where they expect to be",
        series.redirects.clone(),
    );
    registry.register(
        "placed_blind",
        "Logins sent to a host whose agent is lost, because its own door took a connection. \
         Any growth: most agents of a pool cannot be heard; look at the network before the hosts",
        series.placed_blind.clone(),
    );
    registry.register(
        "consents",
        "Answers of hosts that were asked for their consent to a place. \
         silent growing: agents are slow or cut off, and placements take up to a second",
        series.consents.clone(),
    );
    registry.register(
        "reports",
        "Messages taken from agents, by kind. load should grow by hosts / report interval each second",
        series.reports.clone(),
    );
    registry.register(
        "report_values_rejected",
        "Values in agents' messages that could not be true and were dropped, by field. \
         Growing: a broken sensor, or an agent of another version",
        series.values_rejected.clone(),
    );
    registry.register(
        "marks_changed",
        "Changes that operators made to hosts and replicas, by kind. Growing although nobody is at work: a script is",
        series.marks_changed.clone(),
    );
    registry.register(
        "dropped",
        "What was dropped instead of being taken in, by kind. decision growing: too little CPU, some decisions cannot be \
         explained; unknown: an agent of a later version; hello: a faulty agent",
        series.dropped.clone(),
    );
}

/// What happens to streams, the store and calls as such.
fn register_machinery(registry: &mut Registry, series: &Series) {
    registry.register(
        "streams_open",
        "Agents' streams open now. Below the number of hosts that are up: agents cannot reach this coordinator",
        series.streams_open.clone(),
    );
    registry.register(
        "store_commit_duration_seconds",
        "Time of one durable commit of the store, failed ones included. Above 0.1: the disk is slow or shared",
        series.store_commit_seconds.clone(),
    );
    registry.register(
        "store_commit_failures",
        "Commits of the store that the disk refused; what they held is not on disk. Any growth: \
         the disk is full or broken, and pool settings or drains may be lost at a restart",
        series.store_commit_failures.clone(),
    );
    registry.register(
        "policy_file_broken",
        "1 if the file that the settings of pools come from had a fault when it was read last; those of before are in force. \
         Always 0 where they come from the store",
        series.policy_file_broken.clone(),
    );
    registry.register(
        "store_rows_quarantined",
        "Rows of the store that could not be read at the start and were moved aside. \
         Not 0: the file was damaged; check pools and drains",
        series.store_rows_quarantined.clone(),
    );
    registry.register(
        "store_failing",
        "1 while the disk refuses what is to be stored: changes are refused, placements go on. Make room, or look at the disk; \
         no restart is needed",
        series.store_failing.clone(),
    );
    registry.register(
        "store_connected",
        "1 while the shared store answers, 0 while it does not, or if there is none. 0 with store.kind = \"etcd\": nothing can be \
         changed, look at etcd",
        series.store_connected.clone(),
    );
    registry.register(
        "store_revision",
        "Revision of the shared store that is in force here; 0 without one. Far behind that of the other coordinators: this one \
         does not hear what they change",
        series.store_revision.clone(),
    );
    registry.register(
        "store_owed",
        "Changes that hosts made while the shared store was away and that it is yet to be told. Not 0 while it is connected: \
         look at the log",
        series.store_owed.clone(),
    );
    registry.register(
        "calls_shed",
        "Calls refused because limits.max_concurrent_calls were under way. Growing: too little CPU, or a \
         gateway that calls in a loop",
        series.calls_shed.clone(),
    );
    registry.register(
        "calls_denied",
        "Calls refused with PERMISSION_DENIED, or for a bad usher-gateway name. Growing: a certificate with the wrong role or \
         farm is in use, or somebody is trying",
        series.calls_denied.clone(),
    );
    registry.register(
        "deadlines_exceeded",
        "Calls cut off at their deadline; they granted nothing. Growing: clients wait too briefly, or the \
         coordinator is overloaded",
        series.deadlines_exceeded.clone(),
    );
}

/// From what a placement without consents takes to beyond the second that consents may take, in seconds.
const PLACE_BUCKETS: [f64; 12] = [2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 0.02, 0.1, 0.25, 0.5, 1.0];
/// From a good SSD to a disk that stalls, in seconds.
const COMMIT_BUCKETS: [f64; 10] = [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0];
