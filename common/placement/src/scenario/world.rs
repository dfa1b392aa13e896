//! The world of a scenario: hosts, coordinators, and everything between them.
//!
//! It is made of the parts that run in production, with a clock and a network that do what the script says. Here it is
//! only decided what follows what: which message arrives where, and in which order. A message takes no time.

mod admin;
mod calls;
mod clock;
mod expects;
mod hosts;
mod looks;
mod streams;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use usher_types::{BootTime, HostId, HostName, PendingPlace, RequestId, Token};

use self::calls::Answered;
use super::{
    Run, RunError,
    coordinator::Coordinator,
    event::{Event, EventKind, Failure},
    machine::Machine,
    store::Store,
    syntax::{Line, Statement, nearest},
};
use crate::decision::{DecisionRecord, ToHost};

/// When a scenario begins, on every boot-time clock: hosts have been up for ten days.
const START: BootTime = BootTime::from_millis(10 * 24 * 3600 * 1000);
/// The same on every wall clock, until it is told to jump: 2026-01-01, ms since 1970 UTC.
const START_UNIX_MS: i64 = 1_767_225_600_000;
/// The coordinator that there always is.
const FIRST: &str = "c1";
const DEFAULT_SEED: u64 = 1;

/// A line that cannot be run: what is wrong, and with which word.
#[derive(Debug)]
pub(super) struct Fault {
    word: String,
    fault: String,
    suggestion: Option<String>,
}

impl Fault {
    fn new(word: &str, fault: String) -> Self {
        Self { word: word.to_owned(), fault, suggestion: None }
    }

    /// A name that stands for nothing.
    fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let suggestion = nearest(word, known);
        Self { suggestion, ..Self::new(word, format!("there is no {what} {word}")) }
    }
}

type Done = Result<(), Fault>;

/// Everything.
#[derive(Debug)]
pub(super) struct World {
    now: BootTime,
    wall_offset_ms: i64,
    rng: Pcg64Mcg,
    store: Store,
    coordinators: Vec<Coordinator>,
    machines: Vec<Machine>,
    by_name: BTreeMap<String, usize>,
    /// Hosts that would not even start: what is said of them changes nothing.
    refused_hosts: BTreeSet<String>,
    /// Pools that any line of the scenario declares.
    declared_pools: BTreeSet<String>,
    /// By the number of the machine whose they are.
    doors: HashMap<usize, bool>,
    next_epoch: u64,
    next_request: u64,
    /// Hosts that have something to say.
    stirred: BTreeSet<usize>,
    /// What coordinators, by their numbers, tell hosts.
    outbox: VecDeque<(usize, ToHost)>,
    answers: BTreeMap<String, Answered>,
    tallies: BTreeMap<String, Vec<Answered>>,
    /// How each login was decided, for answers that are given again; the oldest are forgotten.
    records: HashMap<Token, Arc<DecisionRecord>>,
    recorded: VecDeque<Token>,
    /// Every place that any host was ever told of.
    places: HashMap<RequestId, PendingPlace>,
    line: u32,
    /// Instants at which something happened.
    instants: u64,
    run: Run,
}

impl World {
    pub(super) fn new() -> Self {
        let store = Store::default();
        let first = Coordinator::new(FIRST.to_owned(), &store, Vec::new(), START);
        Self {
            now: START,
            wall_offset_ms: 0,
            rng: Pcg64Mcg::seed_from_u64(DEFAULT_SEED),
            store,
            coordinators: vec![first],
            machines: Vec::new(),
            by_name: BTreeMap::new(),
            refused_hosts: BTreeSet::new(),
            declared_pools: BTreeSet::new(),
            doors: HashMap::new(),
            next_epoch: 0,
            next_request: 0,
            stirred: BTreeSet::new(),
            outbox: VecDeque::new(),
            answers: BTreeMap::new(),
            tallies: BTreeMap::new(),
            records: HashMap::new(),
            recorded: VecDeque::new(),
            places: HashMap::new(),
            line: 0,
            instants: 0,
            run: Run::default(),
        }
    }

    /// Runs the lines until one cannot be run.
    pub(super) fn run(mut self, lines: &[Line]) -> Run {
        self.declared_pools = lines.iter().filter_map(|line| declared_pool(&line.statement)).collect();
        for line in lines {
            self.line = line.number;
            if let Err(fault) = self.statement(&line.statement, None) {
                let column = column_of(line, &fault.word);
                let Fault { fault, suggestion, .. } = fault;
                self.run.stopped = Some(RunError { line: line.number, column, fault, suggestion });
                break;
            }
            self.settle();
        }
        self.run
    }

    /// Runs one statement; `via` is the number of the coordinator that it is asked of.
    fn statement(&mut self, statement: &Statement, via: Option<usize>) -> Done {
        if self.is_of_refused_host(statement) {
            return Ok(());
        }
        match statement {
            Statement::Seed(seed) => self.rng = Pcg64Mcg::seed_from_u64(*seed),
            Statement::Pool { pool, change } => self.make_pool(pool, change),
            Statement::PoolApply { pool, change, version } => self.apply_pool(pool, change, *version, via),
            Statement::Host(host) => return self.new_host(host),
            Statement::HostSet { host, change } => return self.set_host(host, change, via),
            Statement::Busy { host, busy } => return self.set_busy(host, *busy, via),
            Statement::Mark { host, resource, mark } => return self.mark(host, resource, *mark, via),
            Statement::Drain { .. } | Statement::Undrain(_) => return self.drain(statement, via),
            Statement::Advance(duration) => return self.advance(*duration),
            Statement::ClockWall { offset_ms } => {
                self.wall_offset_ms = self.wall_offset_ms.saturating_add(*offset_ms);
            }
            Statement::Place(place) => return self.place(place, via),
            Statement::Failover(failover) => return self.failover(failover, via),
            Statement::Outcome { .. } => return self.outcome(statement, via),
            Statement::Repeat(repeat) => return self.repeat(repeat, via),
            Statement::Tally(label) => return self.tally(label),
            Statement::Show(host) => return self.show(host, via),
            Statement::Explain(label) => return self.explain(label),
            Statement::Expect(expect) => return self.expect(expect, via),
            Statement::Via { coordinator, statement } => {
                let number = self.coordinator(coordinator)?;
                return self.statement(statement, Some(number));
            }
            Statement::Coordinator(name) => return self.new_coordinator(name),
            Statement::Freeze { coordinator, duration } => {
                let number = self.coordinator(coordinator)?;
                if !duration.is_zero() {
                    self.coordinators[number].freeze(self.now, *duration);
                }
            }
            Statement::Restart(name) => return self.restart(name),
            other => return self.host_statement(other),
        }
        Ok(())
    }

    fn emit(&mut self, kind: EventKind) {
        let at = self.now.since(START);
        self.run.events.push(Event { line: self.line, at, kind });
    }

    fn fail(&mut self, subject: String, expected: String, found: String) {
        let line = self.line;
        self.emit(EventKind::ExpectationFailed(Failure { line, subject, expected, found }));
    }

    fn wall_unix_ms(&self) -> u64 {
        let passed = i64::try_from(self.now.since(START).as_millis()).unwrap_or(i64::MAX);
        let wall = START_UNIX_MS.saturating_add(passed).saturating_add(self.wall_offset_ms);
        u64::try_from(wall).unwrap_or(0)
    }

    fn draw(&mut self) -> u64 {
        self.rng.random()
    }

    /// What hosts have in their configuration.
    fn coordinator_names(&self) -> Vec<String> {
        self.coordinators.iter().map(|coordinator| coordinator.name.clone()).collect()
    }

    /// The number of a coordinator.
    fn coordinator(&self, name: &str) -> Result<usize, Fault> {
        let names = || self.coordinators.iter().map(|coordinator| coordinator.name.as_str());
        names().position(|known| known == name).ok_or_else(|| Fault::unknown("coordinator", name, names()))
    }

    /// The number of a host.
    fn host(&self, name: &HostName) -> Result<usize, Fault> {
        let known = || self.by_name.keys().map(String::as_str);
        self.by_name.get(name.key()).copied().ok_or_else(|| Fault::unknown("host", name.as_str(), known()))
    }

    /// Whether the statement is about a host that was refused as its line was run: nothing follows from what it does.
    fn is_of_refused_host(&self, statement: &Statement) -> bool {
        let host = match statement {
            Statement::Report(report) => &report.host,
            Statement::HostSet { host, .. }
            | Statement::Sessions { host, .. }
            | Statement::Session { host, .. }
            | Statement::Latency { host, .. }
            | Statement::Baseline { host, .. }
            | Statement::Replica { host, .. }
            | Statement::Unreplica { host, .. }
            | Statement::Mark { host, .. }
            | Statement::Drain { host, .. }
            | Statement::Ready { host, .. }
            | Statement::Reconnect { host, .. }
            | Statement::Reboot { host, .. }
            | Statement::Warming { host, .. }
            | Statement::Warmup { host, .. }
            | Statement::Door { host, .. }
            | Statement::Busy { host, .. }
            | Statement::Goodbye { host, .. }
            | Statement::Cut { host, .. }
            | Statement::Join { host, .. }
            | Statement::Undrain(host)
            | Statement::Disconnect(host)
            | Statement::Silence(host)
            | Statement::Reporter(host) => host,
            _ => return false,
        };
        self.is_refused(host)
    }

    fn is_refused(&self, host: &HostName) -> bool {
        self.refused_hosts.contains(host.key()) && !self.by_name.contains_key(host.key())
    }

    /// The number of the host that `text` calls by the script's name, by its own, or by its id.
    fn host_called(&self, text: &str) -> Option<usize> {
        let called = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        self.by_name.get(&called).copied().or_else(|| {
            let found = self.machines.iter().position(|machine| {
                machine.identity.id.as_str() == text || machine.identity.name.matches(text)
            })?;
            let id = &self.machines[found].identity.id;
            if id.as_str() == text { self.machine_of(id) } else { Some(found) }
        })
    }

    /// The script's name of a host; of one that no line made, its id.
    fn name_of(&self, host_id: &HostId) -> String {
        let machine = self.machine_of(host_id).map(|number| &self.machines[number]);
        machine.map_or_else(|| host_id.to_string(), |machine| machine.identity.called.to_string())
    }

    /// The number of the machine with this id; of several, the one that was let in.
    fn machine_of(&self, host_id: &HostId) -> Option<usize> {
        let of_id = |number: &usize| self.machines[*number].identity.id == *host_id;
        let all = || (0..self.machines.len()).filter(of_id);
        let is_registered =
            |number: &usize| self.coordinators.iter().any(|c| c.registered.get(host_id) == Some(number));
        let admitted = || all().find(|number| !self.machines[*number].streams.is_empty());
        admitted().or_else(|| all().find(is_registered)).or_else(|| all().next())
    }

    /// The machine that a coordinator knows under the id of this one. Absent: it knows this one, or none.
    fn impersonated(&self, number: usize, coordinator: usize) -> Option<&Machine> {
        let registered =
            *self.coordinators[coordinator].registered.get(&self.machines[number].identity.id)?;
        (registered != number).then(|| &self.machines[registered])
    }

    /// Why a coordinator does not know a machine whose id is another one's.
    fn id_in_use(&self, number: usize, coordinator: usize) -> Option<String> {
        let other = self.impersonated(number, coordinator)?;
        Some(format!("its id {} is that of {}", other.identity.id, other.identity.called))
    }

    /// The number of a host with this id that has a stream to this coordinator.
    fn connected(&self, host_id: &HostId, coordinator: usize) -> Option<usize> {
        self.machines
            .iter()
            .position(|machine| machine.identity.id == *host_id && machine.streams.contains_key(&coordinator))
    }
}

/// The column of a word in its line, from 1, in characters; that of the statement if the word is not written there.
fn column_of(line: &Line, word: &str) -> u32 {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let stands_alone = |at: &usize| {
        let before = line.text.get(..*at).and_then(|before| before.chars().next_back());
        let behind = line.text.get(at + word.len()..).and_then(|behind| behind.chars().next());
        !before.is_some_and(is_part) && !behind.is_some_and(is_part)
    };
    let places = || line.text.match_indices(word).map(|(at, _)| at);
    let at = places().find(stands_alone).or_else(|| places().next());
    let before = at.and_then(|at| line.text.get(..at)).map_or(0, |before| before.chars().count());
    line.column.saturating_add(u32::try_from(before).unwrap_or(u32::MAX))
}

/// The pool that a statement declares.
fn declared_pool(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Pool { pool, .. } | Statement::PoolApply { pool, .. } => Some(pool.to_string()),
        Statement::Via { statement, .. } => declared_pool(statement),
        _ => None,
    }
}
