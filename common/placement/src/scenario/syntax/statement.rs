//! What can one line of a scenario say?
//!
//! One variant a verb, with typed fields; what was not written is absent. Names are checked, numbers are not: a report
//! of `cpu=nan` and a pool of `range=0` are sensible things to try on a farm, and it is the farm that must refuse them.
//! Whether a name stands for anything (is there a host `s1`, a placement `p1`?) is not known here either.

use std::time::Duration;

use usher_types::{
    BootId, DrainMode, FailureCause, GatewayId, Goodbye, HostId, HostMarksChange, HostName, OperationName,
    Outcome, PolicyChange, PoolName, ReplicaMark, RequestId, ResourceId, SessionState, UserLimit, Zone,
};

use super::expect::Expect;
use super::repeat::Repeat;

/// What one line says.
#[derive(Clone, PartialEq, Debug)]
pub enum Statement {
    /// `seed 42`: the randomness of everything that follows.
    Seed(u64),
    /// `pool desk weights=30/30/25/15`: makes a pool. Fields that are not named have their defaults.
    Pool {
        /// Its name.
        pool: PoolName,
        /// What differs from the defaults; a profile is in it already.
        change: Box<PolicyChange>,
    },
    /// `pool apply desk range=8`: a new version of a pool's settings. Fields that are not named keep their values.
    PoolApply {
        /// The pool.
        pool: PoolName,
        /// What is to change; a profile is in it already.
        change: Box<PolicyChange>,
        /// The version that the writer read. Absent: the newest.
        version: Option<u64>,
    },
    /// `host s1 pool=desk`: registers a host and connects it.
    Host(Box<NewHost>),
    /// `host set s1 capacity=2`: an admin's marks of a host.
    HostSet {
        /// The host.
        host: HostName,
        /// What is to change.
        change: HostMarksChange,
    },
    /// `report s1 cpu=35`: one report of a host.
    Report(Box<Report>),
    /// `sessions s1 alice:active`: all sessions of a host, instead of those it had.
    Sessions {
        /// The host.
        host: HostName,
        /// The sessions; empty: it has none.
        sessions: Vec<SessionEntry>,
    },
    /// `session s1 +alice -bob`: sessions that come or go, in this order.
    Session {
        /// The host.
        host: HostName,
        /// At least one.
        changes: Vec<SessionChange>,
    },
    /// `latency s1 open_db count=90 mean=12ms`: what one period measured.
    Latency {
        /// The host.
        host: HostName,
        /// What was timed.
        operation: OperationName,
        /// The calls.
        calls: Calls,
    },
    /// `baseline s1 open_db 3ms`: sets how long an operation takes on the host when it is not loaded.
    Baseline {
        /// The host.
        host: HostName,
        /// The operation.
        operation: OperationName,
        /// The time; may be 0, which no host can hold.
        baseline: Duration,
    },
    /// `replica s1 crm path=/data/crm.db`: the host has a copy.
    Replica {
        /// The host.
        host: HostName,
        /// Of what.
        resource: ResourceId,
        /// Where it lies.
        path: Option<String>,
        /// For people.
        title: Option<String>,
    },
    /// `unreplica s1 crm`: the host has no copy any more.
    Unreplica {
        /// The host.
        host: HostName,
        /// Of what.
        resource: ResourceId,
    },
    /// `mark s1 crm out_of_service`: an admin's mark of one copy.
    Mark {
        /// The host.
        host: HostName,
        /// Of what.
        resource: ResourceId,
        /// The mark. Absent: in service again.
        mark: Option<ReplicaMark>,
    },
    /// `drain s1 mode=persistent no_reconnect reason="new disk"`
    Drain {
        /// The host.
        host: HostName,
        /// How long it lasts.
        mode: DrainMode,
        /// Reconnects are refused too.
        no_reconnect: bool,
        /// For people.
        reason: Option<String>,
    },
    /// `undrain s1`
    Undrain(HostName),
    /// `ready s1 yes`, `ready s1 no reason="nologin"`
    Ready {
        /// The host.
        host: HostName,
        /// Whether it can take sessions.
        ready: bool,
        /// Why it cannot.
        reason: Option<String>,
    },
    /// `advance 15s`: the farm's clock.
    Advance(Duration),
    /// `every 5s s1,s2 report`: repeats the hosts' last reports; `every off s1` ends it.
    Every {
        /// At least one.
        hosts: Vec<HostName>,
        /// How often, at least 1 ms. Absent: not any more.
        interval: Option<Duration>,
    },
    /// `disconnect s1`: the host's streams break.
    Disconnect(HostName),
    /// `reconnect s1 boot=B2`
    Reconnect {
        /// The host.
        host: HostName,
        /// The boot that it comes back with. Absent: the one it had.
        boot: Option<BootId>,
    },
    /// `silence s1`: connected, but sends nothing.
    Silence(HostName),
    /// `reboot s1`
    Reboot {
        /// The host.
        host: HostName,
        /// Its new boot. Absent: one that it never had.
        boot: Option<BootId>,
    },
    /// `warming s1 lag=900s`, `warming s1 no`
    Warming {
        /// The host.
        host: HostName,
        /// How far its replicas are behind. Absent: they are current.
        lag: Option<Duration>,
    },
    /// `warmup s1 no`: whether its warm-up is done.
    Warmup {
        /// The host.
        host: HostName,
        /// Whether it is.
        done: bool,
    },
    /// `door s1 open`: what a try of its endpoint finds.
    Door {
        /// The host.
        host: HostName,
        /// Whether it accepts.
        open: bool,
    },
    /// `busy s1 yes`: somebody sets it BUSY on the host itself.
    Busy {
        /// The host.
        host: HostName,
        /// Set, or taken back.
        busy: bool,
    },
    /// `goodbye s1 host_shutdown`: its streams end in order.
    Goodbye {
        /// The host.
        host: HostName,
        /// Why.
        why: Goodbye,
    },
    /// `reporter s1`: it reports by HTTP and cannot be asked.
    Reporter(HostName),
    /// `place desk user=alice as p1`
    Place(Box<Place>),
    /// `failover desk from=s1 cause=busy as p2`
    Failover(Box<Failover>),
    /// `outcome p1 failed cause=refused`: what a gateway says of a login.
    Outcome {
        /// The placement's label.
        label: String,
        /// What became of it.
        outcome: Outcome,
        /// Why it failed, if it did and the gateway said.
        cause: Option<FailureCause>,
        /// Who says so. Absent: the gateway that asked.
        gateway: Option<GatewayId>,
    },
    /// `repeat 30 place desk user=u{n} as burst`
    Repeat(Repeat),
    /// `tally burst`: hosts and how many each got.
    Tally(String),
    /// `show s1`
    Show(String),
    /// `explain p1`
    Explain(String),
    /// `expect p1 host=s1`, `expect s1 state=BUSY`, `expect tally burst s1=10`
    Expect(Expect),
    /// `coordinator c2`: one more, equal to the others.
    Coordinator(String),
    /// `via c2 place ...`: asks this coordinator.
    Via {
        /// The coordinator.
        coordinator: String,
        /// What is asked of it; never another `via`.
        statement: Box<Statement>,
    },
    /// `cut c2 s1`: no stream between these two.
    Cut {
        /// The coordinator.
        coordinator: String,
        /// The host.
        host: HostName,
    },
    /// `join c2 s1`: a stream between these two again.
    Join {
        /// The coordinator.
        coordinator: String,
        /// The host.
        host: HostName,
    },
    /// `freeze c2 40s`: it does nothing for so long, while the others go on.
    Freeze {
        /// The coordinator.
        coordinator: String,
        /// For how long.
        duration: Duration,
    },
    /// `restart c2`
    Restart(String),
    /// `clock wall +1d`: every wall clock jumps.
    ClockWall {
        /// By so much.
        offset_ms: i64,
    },
}

/// A host that joins the farm.
#[derive(Clone, PartialEq, Debug)]
pub struct NewHost {
    /// What the script calls it.
    pub host: HostName,
    /// The name that it announces, as written; it may be one that is refused. Absent: the one that the script uses.
    pub name: Option<String>,
    /// Its pool. Absent: it does not say.
    pub pool: Option<PoolName>,
    /// Where it stands.
    pub zone: Option<Zone>,
    /// Its identity. Absent: one of its own.
    pub id: Option<HostId>,
    /// Its boot. Absent: one of its own.
    pub boot: Option<BootId>,
    /// The name in its certificate. Absent: it has none.
    pub cert: Option<String>,
    /// Logical CPUs. Absent: it does not say.
    pub cores: Option<u32>,
    /// Installed memory, GiB. Absent: it does not say.
    pub memory_gib: Option<u32>,
    /// Its own setting, as written.
    pub capacity: Option<f64>,
    /// Its own setting, as written; may be 0.
    pub max_users: Option<UserLimit>,
    /// Its own setting, percent, as written.
    pub threshold: Option<f64>,
    /// Its own setting, as written.
    pub range: Option<f64>,
}

/// What a host reports, as written: numbers may be negative, huge, fractional, infinite or NaN.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The host.
    pub host: HostName,
    /// Busy share, percent.
    pub cpu: Option<f64>,
    /// Busy time and time of waiting for a CPU, as a share of all CPUs.
    pub demand: Option<f64>,
    /// Logons in progress.
    pub logons: Option<f64>,
    /// Logons that have ended.
    pub finished: Option<Finished>,
    /// Memory in use, percent.
    pub mem: Option<f64>,
    /// Distinct users. Absent: those of its sessions, if it ever listed any.
    pub users: Option<f64>,
    /// Processes.
    pub procs: Option<f64>,
    /// An availability index of its own making.
    pub ai: Option<f64>,
    /// Share of time in which all work waited, percent.
    pub psi: Option<f64>,
    /// Fullness of chosen mounts.
    pub mounts: Vec<Mount>,
    /// The places that it lists. Absent: those that it holds; empty: none.
    pub tokens: Option<Vec<RequestId>>,
}

/// Logons that have ended: `finished=12/180/240`, how many, their seconds and their core-seconds, as written.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Finished {
    /// How many.
    pub count: f64,
    /// Seconds that they took, together.
    pub seconds: f64,
    /// CPU time that they took, together.
    pub core_seconds: Option<f64>,
}

/// How full a mount is: `mount=98`, `mount=/home:98,/var:20`.
#[derive(Clone, PartialEq, Debug)]
pub struct Mount {
    /// Where it is mounted. Absent: not said.
    pub path: Option<String>,
    /// Share in use, percent, as written.
    pub used: f64,
}

/// A session: `alice`, `alice:disconnected`, `alice:active:2h`.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionEntry {
    /// Login name; not empty.
    pub user: String,
    /// What it is doing; `active` if not said.
    pub state: SessionState,
    /// Its age. Absent: not said.
    pub age: Option<Duration>,
}

/// A session that comes or goes.
#[derive(Clone, PartialEq, Debug)]
pub enum SessionChange {
    /// `+alice`, `+alice:disconnected`: a new one.
    Comes(SessionEntry),
    /// `-alice`: one of this user ends.
    Goes(String),
}

/// The calls of one operation in one period.
#[derive(Clone, PartialEq, Debug)]
pub enum Calls {
    /// Their counts and times; numbers as written.
    Aggregate {
        /// Successful ones.
        count: Option<f64>,
        /// Their mean time, microseconds.
        mean_us: Option<f64>,
        /// The shortest one, microseconds.
        min_us: Option<f64>,
        /// Failed ones.
        failed: Option<f64>,
        /// Those that took too long.
        too_long: Option<f64>,
        /// Those that are not finished.
        in_flight: Option<f64>,
        /// Age of the oldest of these.
        oldest: Option<Duration>,
    },
    /// Each for itself: `samples=12ms,11ms,30s:failed`. May be empty.
    Samples(Vec<Sample>),
}

/// One call.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Sample {
    /// How long it took, microseconds, as written: may be 0, negative, infinite or NaN.
    pub micros: f64,
    /// It failed.
    pub failed: bool,
}

/// What `place` and `failover` have in common.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The pool to choose in.
    pub pool: PoolName,
    /// Login name, as written; may be empty.
    pub user: Option<String>,
    /// What the user opens.
    pub resource: Option<ResourceId>,
    /// The gateway's id of the login. Absent: one of its own.
    pub request: Option<RequestId>,
    /// Where the client comes from.
    pub zone: Option<Zone>,
    /// Users that it counts as, as written; may be out of range.
    pub cost: Option<u32>,
    /// The how-manieth try, as written; may be 0.
    pub attempt: Option<u32>,
    /// Who asks. Absent: the usual one.
    pub gateway: Option<GatewayId>,
    /// How long the gateway waits; 0: not at all.
    pub deadline: Option<Duration>,
    /// What the script calls the answer.
    pub label: Option<String>,
}

/// A login that needs a host.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The login.
    pub call: Call,
    /// Names or ids of hosts that are no candidates.
    pub exclude: Vec<String>,
    /// Name or id of the home server.
    pub prefer: Option<String>,
    /// Reserve nothing.
    pub dry_run: bool,
}

/// A login whose host does not work out.
#[derive(Clone, PartialEq, Debug)]
pub struct Failover {
    /// The login.
    pub call: Call,
    /// Name or id of the host that does not.
    pub from: String,
    /// Names or ids of hosts that were tried before.
    pub tried: Vec<String>,
    /// Why. Absent: not said.
    pub cause: Option<FailureCause>,
    /// The request whose place failed.
    pub failed: Option<RequestId>,
}
