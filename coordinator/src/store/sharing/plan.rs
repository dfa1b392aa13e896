//! Which transaction makes these changes, given the rows as they are known?

use std::collections::BTreeMap;

use usher_types::HostId;

use super::super::{
    StoreError, VERSIONS_KEPT, Write,
    shared_rows::{Change, table},
    shared_store::{SharedRow, Transaction},
};

/// Rows by key, as they are known.
pub(super) type Rows = BTreeMap<String, SharedRow>;

/// Whether coordinators share what `write` changes; if not, it is this coordinator's own business.
pub(super) fn is_shared(write: &Write) -> bool {
    match write {
        Write::PutPool(..)
        | Write::PutDrain(..)
        | Write::DeleteDrainSetAt(..)
        | Write::PutHostMarks(..)
        | Write::DeleteHostMarks(_)
        | Write::PutReplicaMark(..)
        | Write::DeleteReplicaMark(..)
        | Write::MoveMarks(..)
        | Write::PutBinding(..)
        | Write::Bind { .. }
        | Write::ReplaceShared(_) => true,
        // Each coordinator sees for itself what a host lists.
        Write::AmendReplicaMarks(_)
        | Write::Follow(_)
        | Write::PutOwed(..)
        | Write::DeleteOwed(_)
        | Write::PutCopied(_)
        | Write::PutLastKnown(_)
        | Write::PutLearned(_) => false,
    }
}

/// Rows that one transaction moves to another host: each takes two comparisons and two changes, of the 128 that stores take.
pub(super) const MOVED_AT_ONCE: usize = 25;

/// Begins the key of the row that says for which certificate a host was claimed last.
const CLAIMS: &str = "bound_hosts";

fn claim_key(host: &HostId) -> String {
    format!("{CLAIMS}/{host}")
}

/// What is to be done next.
pub(super) struct Planned {
    pub(super) transaction: Transaction,
    /// More marks are to be moved after it than one transaction takes: plan those anew.
    pub(super) is_part: bool,
}

/// The transaction that makes `writes`, in their order.
///
/// # Errors
/// [`StoreError::Version`], [`StoreError::Bound`] or [`StoreError::Claimed`]: another coordinator was first. [`StoreError::Refused`].
pub(super) fn plan<'a>(
    kind: &'static str,
    rows: &Rows,
    writes: impl IntoIterator<Item = &'a Write>,
) -> Result<Planned, StoreError> {
    let mut plan = Plan { kind, rows, transaction: Transaction::default(), is_part: false };
    writes.into_iter().try_for_each(|write| plan.add(write))?;
    Ok(Planned { transaction: plan.transaction, is_part: plan.is_part })
}

/// Adds changes to a transaction, each only if its row is still as it is known.
pub(super) fn set_as_known(
    kind: &'static str,
    rows: &Rows,
    changes: &[Change],
) -> Result<Transaction, StoreError> {
    let mut plan = Plan { kind, rows, transaction: Transaction::default(), is_part: false };
    for change in changes {
        plan.expect(&change.key());
        plan.set(change)?;
    }
    Ok(plan.transaction)
}

struct Plan<'a> {
    kind: &'static str,
    rows: &'a Rows,
    transaction: Transaction,
    is_part: bool,
}

impl Plan<'_> {
    fn add(&mut self, write: &Write) -> Result<(), StoreError> {
        match write {
            Write::PutPool(name, record) => {
                let pool = Change::Pool(name.clone(), Some(record.clone()));
                let current = match self.now(&pool.key()) {
                    Some(Change::Pool(_, Some(known))) => known.version,
                    _ => 0,
                };
                // A row that cannot be read does not say its version; it is replaced as it is.
                if current != 0 && current + 1 != record.version {
                    return Err(StoreError::Version { pool: name.clone(), current });
                }
                self.expect(&pool.key());
                self.set(&pool)?;
                self.set(&Change::Version(name.clone(), record.version, Some(record.clone())))?;
                match record.version.checked_sub(VERSIONS_KEPT) {
                    Some(outdated) if outdated > 0 => {
                        self.set(&Change::Version(name.clone(), outdated, None))
                    }
                    _ => Ok(()),
                }
            }
            Write::PutDrain(host, record) => self.set(&Change::Drain(host.clone(), Some(record.clone()))),
            Write::DeleteDrainSetAt(host, set_unix_ms) => self.end_drain(host, *set_unix_ms),
            Write::PutHostMarks(host, record) => {
                self.set(&Change::HostMarks(host.clone(), Some(record.clone())))
            }
            Write::DeleteHostMarks(host) => self.set(&Change::HostMarks(host.clone(), None)),
            Write::PutReplicaMark(host, resource, record) => {
                // Since when its host does not list it each coordinator sees for itself.
                let record = super::super::ReplicaMarkRecord { gone_unix_ms: None, ..record.clone() };
                self.set(&Change::ReplicaMark(host.clone(), resource.clone(), Some(record)))
            }
            Write::DeleteReplicaMark(host, resource) => {
                self.set(&Change::ReplicaMark(host.clone(), resource.clone(), None))
            }
            Write::MoveMarks(from, to) => self.move_marks(from, to),
            Write::PutBinding(certificate, host) => {
                self.set(&Change::Binding(certificate.clone(), Some(host.clone())))
            }
            Write::Bind { certificate, host, replaces } => self.bind(certificate, host, replaces.as_ref()),
            _ => Ok(()),
        }
    }

    /// A row as this transaction will have found it. Absent: there is none, or it cannot be read.
    fn now(&self, key: &str) -> Option<Change> {
        let value = match self.transaction.changes.get(key) {
            Some(changed) => changed.as_deref(),
            None => self.rows.get(key).map(|row| row.value.as_slice()),
        }?;
        Change::from_row(key, Some(value)).ok().flatten()
    }

    fn expect(&mut self, key: &str) {
        let revision = self.rows.get(key).map_or(0, |row| row.revision);
        self.transaction.expected.insert(key.to_owned(), revision);
    }

    fn set(&mut self, change: &Change) -> Result<(), StoreError> {
        let value = change.value().transpose();
        let value = value.map_err(|error| StoreError::Refused { kind: self.kind, why: error.to_string() })?;
        self.transaction.changes.insert(change.key(), value);
        Ok(())
    }

    fn end_drain(&mut self, host: &HostId, set_unix_ms: u64) -> Result<(), StoreError> {
        let ended = Change::Drain(host.clone(), None);
        let key = ended.key();
        let is_that_one = match self.now(&key) {
            Some(Change::Drain(_, Some(drain))) => drain.set_unix_ms == set_unix_ms,
            // A row that cannot be read has left in force what was before it; it would put that in force again.
            _ => self.rows.contains_key(&key) && !self.transaction.changes.contains_key(&key),
        };
        if !is_that_one {
            return Ok(());
        }
        self.expect(&key);
        self.set(&ended)
    }

    fn bind(
        &mut self,
        certificate: &str,
        host: &HostId,
        replaces: Option<&HostId>,
    ) -> Result<(), StoreError> {
        let bond = Change::Binding(certificate.to_owned(), Some(host.clone()));
        let before = match self.now(&bond.key()) {
            Some(Change::Binding(_, Some(bound))) if bound != *host => Some(bound),
            _ => None,
        };
        if let Some(bound) = before.as_ref().filter(|bound| Some(*bound) != replaces) {
            return Err(StoreError::Bound { certificate: certificate.to_owned(), host: bound.clone() });
        }
        self.claim(certificate, host)?;
        if let Some(key) = before.map(|before| claim_key(&before))
            && self.claimed(&key).as_deref() == Some(certificate)
        {
            self.expect(&key);
            self.transaction.changes.insert(key, None);
        }
        self.expect(&bond.key());
        self.set(&bond)
    }

    /// Claims a host for a certificate. Bonds of two certificates to one host are two rows that know nothing of each other: what
    /// makes one transaction exclude the other is this third one, which both change. It is only as true as the bond that it
    /// names, since a restore replaces bonds and no claims; so that bond is compared as well.
    fn claim(&mut self, certificate: &str, host: &HostId) -> Result<(), StoreError> {
        let first = format!("{}/", table::BINDINGS);
        let bonds = self.rows.range(first.clone()..).take_while(|(key, _)| key.starts_with(&first));
        let other = bonds
            .filter_map(|(key, row)| Change::from_row(key, Some(&row.value)).ok().flatten())
            .find_map(|bond| match bond {
                Change::Binding(other, Some(bound)) if bound == *host && other != certificate => Some(other),
                _ => None,
            });
        if let Some(certificate) = other {
            return Err(StoreError::Claimed { host: host.clone(), certificate });
        }
        let key = claim_key(host);
        if let Some(other) = self.claimed(&key).filter(|other| other != certificate) {
            self.expect(&Change::Binding(other, None).key());
        }
        self.expect(&key);
        self.transaction.changes.insert(key, Some(certificate.as_bytes().to_vec()));
        Ok(())
    }

    /// The certificate that a claim names.
    fn claimed(&self, key: &str) -> Option<String> {
        self.rows.get(key).and_then(|row| String::from_utf8(row.value.clone()).ok())
    }

    fn move_marks(&mut self, from: &HostId, to: &HostId) -> Result<(), StoreError> {
        let mut moved = vec![
            (format!("{}/{from}", table::DRAINS), format!("{}/{to}", table::DRAINS)),
            (format!("{}/{from}", table::HOST_MARKS), format!("{}/{to}", table::HOST_MARKS)),
        ];
        let first = format!("{}/{from}/", table::REPLICA_MARKS);
        let replicas = self.rows.keys().filter_map(|key| key.strip_prefix(&first));
        moved.extend(replicas.map(|resource| {
            (format!("{first}{resource}"), format!("{}/{to}/{resource}", table::REPLICA_MARKS))
        }));
        moved.retain(|(old, _)| self.rows.contains_key(old));
        self.is_part |= moved.len() > MOVED_AT_ONCE;
        for (old, new) in moved.into_iter().take(MOVED_AT_ONCE) {
            let Some(row) = self.rows.get(&old) else { continue };
            self.expect(&old);
            self.expect(&new);
            self.transaction.changes.insert(old, None);
            if !self.rows.contains_key(&new) {
                self.transaction.changes.insert(new, Some(row.value.clone()));
            }
        }
        Ok(())
    }
}
