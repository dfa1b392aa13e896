//! What admins do: settings of pools, settings and drains of hosts, marks of replicas.
//!
//! A change is asked of one coordinator, which may refuse it; once it is stored it is in force everywhere, at a frozen
//! coordinator when that wakes up.

use usher_types::{
    Drain, FieldFault, HostMarksChange, HostName, PolicyChange, PoolName, ReplicaMark, ResourceId,
};

use super::{Done, Fault, World};
use crate::{
    farm::{ApplyRefused, PoolApply},
    scenario::{event::EventKind, store::Change, syntax::Statement},
};

impl World {
    pub(super) fn make_pool(&mut self, pool: &PoolName, change: &PolicyChange) {
        let apply = PoolApply { must_be_new: true, ..PoolApply::of(change.clone()) };
        self.put_pool(pool, &apply, None);
    }

    pub(super) fn apply_pool(
        &mut self,
        pool: &PoolName,
        change: &PolicyChange,
        version: Option<u64>,
        via: Option<usize>,
    ) {
        let apply = PoolApply { expected: version, ..PoolApply::of(change.clone()) };
        self.put_pool(pool, &apply, via);
    }

    fn put_pool(&mut self, pool: &PoolName, apply: &PoolApply, via: Option<usize>) {
        let what = format!("pool {pool}");
        let Some(asked) = self.who_answers(via) else { return self.nobody_answers(what) };
        match self.coordinators[asked].farm.prepare_pool(pool, apply, false) {
            Ok(record) => {
                let version = record.version;
                self.change(Change::Pool(Box::new(record)));
                self.emit(EventKind::PoolApplied { pool: pool.to_string(), version });
            }
            Err(refused) => {
                let (code, reason) = match refused {
                    ApplyRefused::Fields(_) | ApplyRefused::Exists { .. } => {
                        ("INVALID_ARGUMENT", "invalid_field")
                    }
                    ApplyRefused::Version { .. } => ("FAILED_PRECONDITION", "policy_version"),
                    ApplyRefused::InProgress => ("ABORTED", "policy_version"),
                };
                self.emit(EventKind::ChangeRefused { what, code, reason, why: refused.to_string() });
            }
        }
    }

    /// The coordinator that an admin asks. Absent: it is frozen, or all are.
    fn who_answers(&self, via: Option<usize>) -> Option<usize> {
        let awake = |number: &usize| !self.coordinators[*number].is_frozen();
        match via {
            Some(number) => Some(number).filter(awake),
            None => (0..self.coordinators.len()).find(awake),
        }
    }

    fn nobody_answers(&mut self, what: String) {
        let why = "the coordinator is frozen and does not answer".to_owned();
        self.emit(EventKind::ChangeRefused { what, code: "DEADLINE_EXCEEDED", reason: "frozen", why });
    }

    /// Stores a change, and puts it in force everywhere.
    fn change(&mut self, change: Change) {
        self.store.keep(&change);
        let now = self.now;
        for number in 0..self.coordinators.len() {
            let coordinator = &mut self.coordinators[number];
            if coordinator.is_frozen() {
                coordinator.change_later(change.clone());
                continue;
            }
            change.clone().apply(&mut coordinator.farm, now);
            for host in self.hosts_of(&change) {
                self.tell_settings(host, number);
            }
        }
    }

    /// The hosts that must be told of a change.
    fn hosts_of(&self, change: &Change) -> Vec<usize> {
        let concerned = |number: &usize| {
            let identity = &self.machines[*number].identity;
            match change {
                Change::Pool(record) => identity.pool == record.name,
                Change::Drain(host_id, _) | Change::Marks(host_id, _) => identity.id == *host_id,
                Change::Replica(..) => false,
            }
        };
        (0..self.machines.len()).filter(concerned).collect()
    }

    pub(super) fn set_host(&mut self, host: &HostName, change: &HostMarksChange, via: Option<usize>) -> Done {
        let number = self.host(host)?;
        let (what, id) = (format!("host {host}"), self.machines[number].identity.id.clone());
        let Some(asked) = self.who_answers(via) else {
            self.nobody_answers(what);
            return Ok(());
        };
        self.check_identity(host, number, asked)?;
        let Some(before) = self.coordinators[asked].farm.marks_of(&id) else {
            self.no_such_host(what);
            return Ok(());
        };
        match change.apply_to(&before) {
            Ok(marks) => self.change(Change::Marks(id, marks)),
            Err(faults) => {
                let why: Vec<String> = faults.iter().map(FieldFault::to_string).collect();
                let (code, reason) = ("INVALID_ARGUMENT", "invalid_field");
                self.emit(EventKind::ChangeRefused { what, code, reason, why: why.join("; ") });
            }
        }
        Ok(())
    }

    pub(super) fn set_busy(&mut self, host: &HostName, busy: bool, via: Option<usize>) -> Done {
        self.set_host(host, &HostMarksChange { busy: Some(busy), ..HostMarksChange::default() }, via)
    }

    /// What is said of a machine whose id is another one's would be in force for that one.
    fn check_identity(&self, host: &HostName, number: usize, asked: usize) -> Done {
        match self.id_in_use(number, asked) {
            Some(why) => Err(Fault::new(host.as_str(), format!("host {host} is not registered: {why}"))),
            None => Ok(()),
        }
    }

    fn no_such_host(&mut self, what: String) {
        let why = "it is not registered".to_owned();
        self.emit(EventKind::ChangeRefused { what, code: "NOT_FOUND", reason: "invalid_field", why });
    }

    pub(super) fn drain(&mut self, statement: &Statement, via: Option<usize>) -> Done {
        let (host, drain) = match statement {
            Statement::Drain { host, mode, no_reconnect, reason } => {
                let (reason, author) = (reason.clone().unwrap_or_default(), String::new());
                (host, Some(Drain { mode: *mode, reason, author, no_reconnect: *no_reconnect }))
            }
            Statement::Undrain(host) => (host, None),
            _ => return Ok(()),
        };
        let number = self.host(host)?;
        let (what, id) = (format!("host {host}"), self.machines[number].identity.id.clone());
        let Some(asked) = self.who_answers(via) else {
            self.nobody_answers(what);
            return Ok(());
        };
        self.check_identity(host, number, asked)?;
        let farm = &self.coordinators[asked].farm;
        let mark = drain.map(|drain| farm.drain_mark(&id, drain));
        match mark {
            Some(None) => self.no_such_host(what),
            Some(mark) => self.change(Change::Drain(id, mark)),
            None => self.change(Change::Drain(id, None)),
        }
        Ok(())
    }

    pub(super) fn mark(
        &mut self,
        host: &HostName,
        resource: &ResourceId,
        mark: Option<ReplicaMark>,
        via: Option<usize>,
    ) -> Done {
        let number = self.host(host)?;
        let Some(asked) = self.who_answers(via) else {
            self.nobody_answers(format!("mark {host} {resource}"));
            return Ok(());
        };
        self.check_identity(host, number, asked)?;
        let id = self.machines[number].identity.id.clone();
        self.change(Change::Replica(id, resource.clone(), mark));
        Ok(())
    }
}
