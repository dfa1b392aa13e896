//! A coordinator's own store in memory, for tests and simulations. Clones are one store, so that a coordinator which is
//! "killed" finds it again as it was.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Aside, Meta, Store, StoreError, Stored, VERSIONS_KEPT, Write, shared_rows::Change};

/// A store in memory.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    stored: Stored,
    aside: Vec<Aside>,
    refuses: bool,
}

impl MemoryStore {
    /// An empty store of the coordinator with this id.
    pub fn new(coordinator_id: &str) -> Self {
        let stored = Stored {
            meta: Meta { coordinator_id: coordinator_id.to_owned(), instance: 0 },
            pools: BTreeMap::new(),
            history: BTreeMap::new(),
            drains: BTreeMap::new(),
            host_marks: BTreeMap::new(),
            replica_marks: BTreeMap::new(),
            bindings: BTreeMap::new(),
            last_known: Vec::new(),
            learned: Vec::new(),
            owed: BTreeMap::new(),
            copied: None,
            quarantined: Vec::new(),
        };
        Self(Arc::new(Mutex::new(Inner { stored, aside: Vec::new(), refuses: false })))
    }

    /// The same store for the next run of its coordinator.
    #[must_use]
    pub fn opened_again(&self) -> Self {
        self.with(|inner| inner.stored.meta.instance += 1);
        self.clone()
    }

    /// Refuses all writes, as a disk that is full, or takes them again.
    pub fn refuse(&self, refuses: bool) {
        self.with(|inner| inner.refuses = refuses);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        // Nothing is done under the lock that could fail half way.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        Ok(self.with(|inner| inner.stored.clone()))
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.with(|inner| {
            if inner.refuses {
                let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                return Err(StoreError::failed("write to", std::path::Path::new("memory"), full));
            }
            writes.iter().for_each(|write| apply(&mut inner.stored, write));
            Ok(())
        })
    }

    fn quarantine(&mut self) -> Result<Vec<Aside>, StoreError> {
        Ok(self.with(|inner| inner.aside.clone()))
    }

    fn set_aside(&mut self, rows: &[Aside]) -> Result<(), StoreError> {
        self.with(|inner| {
            for row in rows {
                inner.aside.retain(|known| (&known.table, &known.key) != (&row.table, &row.key));
                inner.aside.push(row.clone());
            }
        });
        Ok(())
    }

    fn drop_aside(&mut self, table: &str, key: &str) -> Result<bool, StoreError> {
        Ok(self.with(|inner| {
            let before = inner.aside.len();
            inner.aside.retain(|row| (row.table.as_str(), row.key.as_str()) != (table, key));
            inner.aside.len() < before
        }))
    }
}

fn apply(stored: &mut Stored, write: &Write) {
    match write {
        Write::PutPool(name, record) => {
            stored.pools.insert(name.clone(), record.clone());
            let versions = stored.history.entry(name.clone()).or_default();
            let outdated = record.version.saturating_sub(VERSIONS_KEPT);
            versions.retain(|kept| kept.version > outdated && kept.version != record.version);
            versions.push(record.clone());
            versions.sort_by_key(|kept| kept.version);
        }
        Write::PutDrain(host, record) => drop(stored.drains.insert(host.clone(), record.clone())),
        Write::DeleteDrainSetAt(host, set_unix_ms) => {
            if stored.drains.get(host).is_some_and(|drain| drain.set_unix_ms == *set_unix_ms) {
                stored.drains.remove(host);
            }
        }
        Write::PutHostMarks(host, record) => drop(stored.host_marks.insert(host.clone(), record.clone())),
        Write::DeleteHostMarks(host) => drop(stored.host_marks.remove(host)),
        Write::PutReplicaMark(host, resource, record) => {
            stored.replica_marks.insert((host.clone(), resource.clone()), record.clone());
        }
        Write::DeleteReplicaMark(host, resource) => {
            stored.replica_marks.remove(&(host.clone(), resource.clone()));
        }
        Write::AmendReplicaMarks(all) => {
            for (host, resource, gone_unix_ms) in all {
                let mark = stored.replica_marks.get_mut(&(host.clone(), resource.clone()));
                if let Some(mark) = mark.filter(|mark| mark.gone_unix_ms.is_some() != gone_unix_ms.is_some())
                {
                    mark.gone_unix_ms = *gone_unix_ms;
                }
            }
        }
        Write::MoveMarks(from, to) => {
            if let Some(drain) = stored.drains.remove(from) {
                stored.drains.entry(to.clone()).or_insert(drain);
            }
            if let Some(marks) = stored.host_marks.remove(from) {
                stored.host_marks.entry(to.clone()).or_insert(marks);
            }
            let moved: Vec<_> = stored.replica_marks.extract_if(.., |(host, _), _| host == from).collect();
            for ((_, resource), mark) in moved {
                stored.replica_marks.entry((to.clone(), resource)).or_insert(mark);
            }
        }
        Write::PutBinding(certificate, host) | Write::Bind { certificate, host, .. } => {
            stored.bindings.insert(certificate.clone(), host.clone());
        }
        Write::Follow(changes) => changes.iter().for_each(|change| follow(stored, change)),
        Write::ReplaceShared(rows) => {
            let rows = (**rows).clone();
            (stored.pools, stored.history, stored.drains) = (rows.pools, rows.history, rows.drains);
            (stored.host_marks, stored.replica_marks) = (rows.host_marks, rows.replica_marks);
            stored.bindings = rows.bindings;
        }
        Write::PutOwed(number, owed) => drop(stored.owed.insert(*number, owed.clone())),
        Write::DeleteOwed(number) => drop(stored.owed.remove(number)),
        Write::PutCopied(copied) => stored.copied = Some(*copied),
        Write::PutLastKnown(hosts) => stored.last_known.clone_from(hosts),
        Write::PutLearned(all) => {
            for of in all {
                stored.learned.retain(|known| known.pool != of.pool);
                stored.learned.push(of.clone());
            }
        }
    }
}

fn follow(stored: &mut Stored, change: &Change) {
    let mut rows = stored.shared();
    rows.follow(change.clone());
    apply(stored, &Write::ReplaceShared(Box::new(rows)));
}
