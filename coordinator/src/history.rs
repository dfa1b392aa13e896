//! The decisions of the last minutes, kept so that each can be explained to the last term.
//!
//! A record holds what the decision was made from, not what it came to: the explanation is computed when somebody asks,
//! by the same functions. Records share the snapshots they were made on, and snapshots share what did not change from one
//! to the next; what a record keeps alive by itself is counted against the bound on memory. One task owns them; placements
//! hand theirs over without waiting.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use usher_placement::{
    decision::{Excluded, Request},
    farm::{CellWord, HostView, PoolView, Reading},
};
use usher_types::{BootTime, DecisionId, HostId, PoolName};

/// Whichever limit is reached first ends a record.
const KEEP: Duration = Duration::from_secs(600);
const MAX_RECORDS: usize = 10_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Records on their way to the task.
const QUEUE: usize = 4096;

/// What was said to a host within a decision, and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Consent {
    pub host_name: String,
    pub answer: &'static str,
}

/// One decision and everything that it depended on.
#[derive(Debug)]
pub(crate) struct DecisionRecord {
    pub id: DecisionId,
    pub sequence: u64,
    pub decided_at: BootTime,
    pub decided_unix_ms: u64,
    pub pool: Arc<PoolView>,
    pub words: Vec<CellWord>,
    pub request: Request,
    pub own_places: Vec<HostId>,
    pub unwilling: Vec<(HostId, Excluded)>,
    pub seed: u64,
    pub consents: Vec<Consent>,
    /// What the gateway was told: the host, or the reason of the refusal.
    pub answered: Result<HostId, &'static str>,
}

impl DecisionRecord {
    /// Roughly what it holds in memory that a record on the pool as it was `before` does not hold.
    fn bytes(&self, before: Option<&Arc<PoolView>>) -> usize {
        let named = self.request.exclude.iter();
        let named = named.chain(self.request.failover.iter().flat_map(|failover| &failover.tried));
        let texts: usize = named.map(|host| host.len() + size_of::<String>()).sum();
        let own = size_of::<Self>() + self.words.len() * size_of::<CellWord>() + texts + 512;
        own + unshared_bytes(&self.pool, before)
    }
}

/// Of a session, a replica, an operation or a collector with its texts.
const LIST_ENTRY_BYTES: usize = 160;
/// Of a snapshot's own lists, for each host.
const POINTERS_BYTES: usize = 16;

/// Roughly what keeps `pool` from being freed costs, beyond what the pool as it was `before` holds anyway. A host is
/// made anew with each of its reports; lists that did not change meanwhile are shared.
fn unshared_bytes(pool: &Arc<PoolView>, before: Option<&Arc<PoolView>>) -> usize {
    if before.is_some_and(|before| Arc::ptr_eq(before, pool)) {
        return 0;
    }
    let list = |entries: usize| entries * LIST_ENTRY_BYTES;
    let host_bytes = |(position, host): (usize, &Arc<HostView>)| {
        let old = before.and_then(|before| before.hosts.get(position));
        if old.is_some_and(|old| Arc::ptr_eq(old, host)) {
            return 0;
        }
        let mut bytes = size_of::<HostView>();
        if let Some(reading) = &host.reading {
            bytes += size_of::<Reading>() + list(reading.collectors.len());
        }
        if let Some(latency) = &host.latency
            && !old.and_then(|old| old.latency.as_ref()).is_some_and(|old| Arc::ptr_eq(old, latency))
        {
            bytes += list(1 + latency.latency.operations.len());
        }
        if !old.is_some_and(|old| Arc::ptr_eq(&old.sessions, &host.sessions)) {
            // Once as listed, once in the index by user.
            bytes += 2 * list(host.sessions.len());
        }
        if !old.is_some_and(|old| Arc::ptr_eq(&old.replicas, &host.replicas)) {
            bytes += list(host.replicas.len());
        }
        bytes
    };
    let hosts: usize = pool.hosts.iter().enumerate().map(host_bytes).sum();
    size_of::<PoolView>() + SESSION_SHARDS_BYTES + pool.hosts.len() * POINTERS_BYTES + hosts
}

/// Of the pointers to the shards of the index of sessions.
const SESSION_SHARDS_BYTES: usize = 2048;

enum Command {
    Keep(Box<DecisionRecord>),
    Find(u64, oneshot::Sender<Option<Arc<DecisionRecord>>>),
}

/// Hands records to the task that keeps them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    commands: mpsc::Sender<Command>,
    kept: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep(_) => "Keep",
            Self::Find(..) => "Find",
        })
    }
}

impl History {
    /// The handle, and the task to be run.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (commands, queue) = mpsc::channel(QUEUE);
        let kept = Arc::new(AtomicUsize::new(0));
        (Self { commands, kept: kept.clone() }, keep(queue, kept))
    }

    /// Keeps a record. False: the queue was full, the decision cannot be explained.
    pub(crate) fn keep(&self, record: DecisionRecord) -> bool {
        self.commands.try_send(Command::Keep(Box::new(record))).is_ok()
    }

    /// The record of a decision, if it is still kept.
    pub(crate) async fn find(&self, sequence: u64) -> Option<Arc<DecisionRecord>> {
        let (answer, found) = oneshot::channel();
        self.commands.send(Command::Find(sequence, answer)).await.ok()?;
        found.await.ok()?
    }

    /// Records kept now.
    pub(crate) fn len(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// How long a decision can be explained, for people.
pub(crate) fn retention() -> String {
    format!(
        "{} min, {MAX_RECORDS} decisions or {} MiB, whichever ends first",
        KEEP.as_secs() / 60,
        MAX_BYTES >> 20
    )
}

#[derive(Default)]
struct Kept {
    records: VecDeque<(Arc<DecisionRecord>, usize)>,
    bytes: usize,
    /// The newest record's view of each pool: what the next one shares with it is counted already.
    newest: HashMap<PoolName, Arc<PoolView>>,
}

impl Kept {
    fn push(&mut self, record: DecisionRecord) {
        let before = self.newest.insert(record.pool.name.clone(), record.pool.clone());
        let bytes = record.bytes(before.as_ref());
        let now = record.decided_at;
        self.bytes += bytes;
        self.records.push_back((Arc::new(record), bytes));
        let over = |kept: &Self| {
            kept.records.len() > MAX_RECORDS
                || kept.bytes > MAX_BYTES
                || kept.records.front().is_some_and(|(first, _)| now.since(first.decided_at) > KEEP)
        };
        while over(self) {
            let Some((_, bytes)) = self.records.pop_front() else { break };
            self.bytes -= bytes;
        }
    }

    fn find(&self, sequence: u64) -> Option<Arc<DecisionRecord>> {
        // Decisions made at the same time may arrive out of order, so they are only nearly sorted.
        self.records
            .iter()
            .rev()
            .find(|(record, _)| record.sequence == sequence)
            .map(|(record, _)| record.clone())
    }
}

async fn keep(mut queue: mpsc::Receiver<Command>, count: Arc<AtomicUsize>) {
    let mut kept = Kept::default();
    while let Some(command) = queue.recv().await {
        match command {
            Command::Keep(record) => {
                kept.push(*record);
                count.store(kept.records.len(), Ordering::Relaxed);
            }
            // Whoever asked may be gone.
            Command::Find(sequence, answer) => drop(answer.send(kept.find(sequence))),
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_placement::{farm::Farm, reservation::Ledger};
    use usher_types::Load;

    use super::*;
    use crate::placing::testing::{hello, request};

    fn record(sequence: u64, pool: &Arc<PoolView>, exclude: Vec<String>) -> DecisionRecord {
        DecisionRecord {
            id: DecisionId::new(format!("c.1-{sequence}")).unwrap(),
            sequence,
            decided_at: BootTime::from_millis(sequence),
            decided_unix_ms: 0,
            pool: pool.clone(),
            words: pool.words(),
            request: Request { exclude, ..request("r") },
            own_places: Vec::new(),
            unwilling: Vec::new(),
            seed: 0,
            consents: Vec::new(),
            answered: Err("ALL_OFFLINE"),
        }
    }

    #[test]
    fn what_a_record_keeps_alive_counts_against_the_bound() {
        let now = BootTime::from_millis(1);
        let mut farm = Farm::new(Arc::new(Ledger::new()), now);
        let hosts: Vec<_> = (0..500).map(|n| hello(&format!("h{n}"))).collect();
        for hello in &hosts {
            farm.attach(hello, None, false).unwrap();
        }
        let mut kept = Kept::default();
        let mut sequence = 0;
        let mut keep = |kept: &mut Kept, farm: &mut Farm| {
            sequence += 1;
            let pool = farm.snapshot(now).pools[&hosts[0].pool].clone();
            let before = kept.bytes;
            kept.push(record(sequence, &pool, Vec::new()));
            kept.bytes - before
        };
        let first = keep(&mut kept, &mut farm);
        let same = keep(&mut kept, &mut farm);
        farm.observe_load(&hosts[3].host_id, Load::default(), &[], now, 0);
        let one_host_more = keep(&mut kept, &mut farm);
        for hello in &hosts {
            farm.observe_load(&hello.host_id, Load::default(), &[], now, 0);
        }
        let all_hosts_anew = keep(&mut kept, &mut farm);
        let host = size_of::<HostView>() + size_of::<Reading>();
        assert!(first > 500 * size_of::<HostView>(), "{first}");
        assert!(same < 500 * 16, "{same}");
        let pointers = 500 * POINTERS_BYTES + SESSION_SHARDS_BYTES + size_of::<PoolView>();
        assert!((host..host + 2000).contains(&(one_host_more - same - pointers)), "{one_host_more}");
        assert!(all_hosts_anew > 500 * host, "{all_hosts_anew}");
    }

    #[test]
    fn requests_of_any_size_stay_within_the_bound() {
        let mut farm = Farm::new(Arc::new(Ledger::new()), BootTime::ZERO);
        let host = hello("a");
        farm.attach(&host, None, false).unwrap();
        let pool = farm.snapshot(BootTime::ZERO).pools[&host.pool].clone();
        let mut kept = Kept::default();
        let long = vec!["x".repeat(256); 1024];
        for sequence in 0..400 {
            kept.push(record(sequence, &pool, long.clone()));
        }
        assert!(kept.records.len() < MAX_BYTES / (1024 * 256), "{} records", kept.records.len());
        assert!(kept.find(399).is_some() && kept.find(0).is_none(), "the oldest goes first");
    }
}
