//! What the script says of hosts: who they are, what they report, what happens to them.

use std::time::Duration;

use usher_availability::{OperationSettings, Operations, PeriodCounts, RejectedSample};
use usher_types::{
    BootId, Endpoint, FieldFault, GatewayId, Goodbye, HostId, HostName, OperationName, PendingPlace, Policy,
    Readiness, Replica, RequestId, Token,
};

use super::{Done, Fault, World, calls};
use crate::scenario::{
    event::EventKind,
    machine::{Every, Identity, Machine, PERIOD, overrides},
    syntax::{Calls, NewHost, Report, Sample, SessionChange, Statement},
};

impl World {
    /// A statement of one host, or of some.
    pub(super) fn host_statement(&mut self, statement: &Statement) -> Done {
        match statement {
            Statement::Report(report) => return self.report(report),
            Statement::Sessions { host, sessions } => {
                let (number, now) = (self.host(host)?, self.now);
                self.machines[number].list_sessions(sessions, now);
                self.sessions_changed(number);
            }
            Statement::Session { host, changes } => return self.change_sessions(host, changes),
            Statement::Latency { host, operation, calls } => return self.latency(host, operation, calls),
            Statement::Baseline { host, operation, baseline } => {
                return self.baseline(host, operation, *baseline);
            }
            Statement::Replica { host, resource, path, title } => {
                let replica =
                    Replica { resource_id: resource.clone(), path: path.clone(), title: title.clone() };
                let number = self.host(host)?;
                let replicas = &mut self.machines[number].replicas;
                replicas.retain(|known| known.resource_id != *resource);
                replicas.push(replica);
                self.tell_replicas(number);
            }
            Statement::Unreplica { host, resource } => {
                let number = self.host(host)?;
                self.machines[number].replicas.retain(|known| known.resource_id != *resource);
                self.tell_replicas(number);
            }
            Statement::Ready { host, ready, reason } => {
                let reason = reason.clone().unwrap_or_default();
                let readiness = if *ready { Readiness::Ready } else { Readiness::NotReady(reason) };
                return self.measure_anew(host, |machine| machine.measurement.readiness = readiness);
            }
            Statement::Warming { host, lag } => {
                return self.measure_anew(host, |machine| machine.measurement.replica_lag = *lag);
            }
            Statement::Warmup { host, done } => {
                return self.measure_anew(host, |machine| machine.measurement.is_warming_up = !done);
            }
            Statement::Door { host, open } => {
                let number = self.host(host)?;
                self.doors.insert(number, *open);
            }
            other => return self.network_statement(other),
        }
        Ok(())
    }

    /// A statement of a host's streams.
    fn network_statement(&mut self, statement: &Statement) -> Done {
        match statement {
            Statement::Every { hosts, interval } => return self.every(hosts, *interval),
            Statement::Silence(host) => {
                let number = self.host(host)?;
                self.machines[number].is_silent = true;
            }
            Statement::Disconnect(host) => {
                let number = self.host(host)?;
                self.end_streams(number, None);
                self.machines[number].is_away = true;
            }
            Statement::Goodbye { host, why } => {
                let number = self.host(host)?;
                self.end_streams(number, Some(*why));
                self.machines[number].is_away = true;
            }
            Statement::Reconnect { host, boot } => return self.reconnect(host, boot.as_ref()),
            Statement::Reboot { host, boot } => {
                let (number, now) = (self.host(host)?, self.now);
                self.end_streams(number, None);
                self.machines[number].reboot(boot.clone(), now);
                self.connect(number);
            }
            Statement::Reporter(host) => {
                let number = self.host(host)?;
                self.machines[number].is_reporter = true;
                self.hello_again(number);
            }
            Statement::Cut { coordinator, host } => {
                let (coordinator, number) = (self.coordinator(coordinator)?, self.host(host)?);
                self.end_stream(number, coordinator, None);
                self.machines[number].cut_from.insert(coordinator);
            }
            Statement::Join { coordinator, host } => {
                let (coordinator, number) = (self.coordinator(coordinator)?, self.host(host)?);
                self.machines[number].cut_from.remove(&coordinator);
                self.connect(number);
            }
            // Every other statement was taken before.
            _ => {}
        }
        Ok(())
    }

    /// A host registers. A name that the script has used before is the same machine with new settings if its id is the
    /// same too, else another machine that is meant by the name from here on.
    pub(super) fn new_host(&mut self, host: &NewHost) -> Done {
        self.check_declared(host)?;
        let (identity, now) = match self.identity(host) {
            Ok(identity) => (identity, self.now),
            Err(faults) => {
                self.refuse_host(&host.host, &faults);
                return Ok(());
            }
        };
        let key = host.host.key().to_owned();
        let known = self.by_name.get(&key).copied();
        let same = known.filter(|number| {
            let machine = &self.machines[*number];
            machine.identity.id == identity.id && host.boot.as_ref().is_none_or(|boot| *boot == machine.boot)
        });
        if let Some(number) = same {
            self.machines[number].restart_agent(identity, now);
            self.machines[number].is_away = false;
            self.hello_again(number);
            return Ok(());
        }
        let number = self.machines.len();
        self.machines.push(Machine::new(identity, host.boot.clone(), self.coordinator_names(), now));
        self.connect(number);
        let admitted = !self.machines[number].streams.is_empty();
        if admitted || known.is_none() {
            self.by_name.insert(key, number);
        }
        Ok(())
    }

    /// A scenario that declares pools declares them all: a host in another one would be placed by settings that nobody
    /// wrote, in a pool that nobody asks for.
    fn check_declared(&self, host: &NewHost) -> Done {
        match &host.pool {
            Some(pool) if !self.declared_pools.is_empty() && !self.declared_pools.contains(pool.as_str()) => {
                let declared = self.declared_pools.iter().map(String::as_str);
                Err(Fault::unknown("pool", pool.as_str(), declared))
            }
            _ => Ok(()),
        }
    }

    /// Who a host is.
    fn identity(&self, host: &NewHost) -> Result<Identity, Vec<FieldFault>> {
        let mut faults = Vec::new();
        if host.pool.is_none() {
            faults.push(FieldFault::new("pool", "absent", "the name of a pool"));
        }
        let name = match &host.name {
            Some(name) => HostName::new(name).map_err(|error| {
                faults.push(FieldFault::new("host_name", format!("{name:?}"), error.to_string()));
            }),
            None => Ok(host.host.clone()),
        };
        let own = overrides(host).map_err(|wrong| faults.extend(wrong));
        let id = host.id.clone().map_or_else(|| own_id(&host.host), Ok).map_err(|fault| faults.push(fault));
        let zone = host.zone.clone();
        let certificate = host.cert.clone();
        match (host.pool.clone(), name, own, id) {
            (Some(pool), Ok(name), Ok(overrides), Ok(id)) if faults.is_empty() => {
                let called = host.host.clone();
                let memory_bytes = host.memory_gib.map(|gib| u64::from(gib) << 30);
                let cores = host.cores;
                Ok(Identity { called, name, id, pool, zone, certificate, cores, memory_bytes, overrides })
            }
            _ => Err(faults),
        }
    }

    fn refuse_host(&mut self, host: &HostName, faults: &[FieldFault]) {
        let why: Vec<String> = faults.iter().map(ToString::to_string).collect();
        self.emit(EventKind::HostRefused {
            coordinator: None,
            host: host.to_string(),
            code: "INVALID_ARGUMENT",
            reason: "invalid_field",
            why: why.join("; "),
        });
        self.refused_hosts.insert(host.key().to_owned());
    }

    fn report(&mut self, report: &Report) -> Done {
        let (number, now) = (self.host(&report.host)?, self.now);
        let machine = &mut self.machines[number];
        machine.report(report, now);
        machine.is_silent = false;
        if let Some(every) = machine.every.as_mut().filter(|every| every.next <= now) {
            every.next = now + every.interval;
        }
        let host = machine.identity.called.to_string();
        for fault in machine.faults.clone() {
            let (what, why) = ("report".to_owned(), fault.to_string());
            self.emit(EventKind::ValueRefused { host: host.clone(), what, why });
        }
        self.stirred.insert(number);
        Ok(())
    }

    fn change_sessions(&mut self, host: &HostName, changes: &[SessionChange]) -> Done {
        let (number, now) = (self.host(host)?, self.now);
        for change in changes {
            if !self.machines[number].sessions.change(change, now)
                && let SessionChange::Goes(user) = change
            {
                let (host, what) = (host.to_string(), "session".to_owned());
                let why = format!("no session of {user} is there to end");
                self.emit(EventKind::ValueRefused { host, what, why });
            }
            // One after the other: each may end a place.
            self.machines[number].look_at_sessions(now);
        }
        self.sessions_changed(number);
        Ok(())
    }

    fn sessions_changed(&mut self, number: usize) {
        self.tell_sessions(number, None);
        self.stirred.insert(number);
    }

    fn measure_anew(&mut self, host: &HostName, change: impl FnOnce(&mut Machine)) -> Done {
        let (number, now) = (self.host(host)?, self.now);
        let machine = &mut self.machines[number];
        change(machine);
        machine.measure(now);
        self.stirred.insert(number);
        Ok(())
    }

    fn latency(&mut self, host: &HostName, operation: &OperationName, calls: &Calls) -> Done {
        let (number, now) = (self.host(host)?, self.now);
        let (counts, in_flight, mut refused) = match calls {
            Calls::Samples(samples) => {
                let (counts, refused) = self.count_samples(number, samples);
                (counts, None, refused)
            }
            Calls::Aggregate { count, mean_us, min_us, failed, too_long, in_flight, oldest } => {
                let ok = count.unwrap_or(0.0);
                // Without a mean the shortest one is all that is known of them.
                let mean_us = mean_us.or(*min_us).unwrap_or(0.0);
                let counts = PeriodCounts {
                    ok,
                    failed: failed.unwrap_or(0.0),
                    too_long: too_long.unwrap_or(0.0),
                    sum_us: if ok == 0.0 { 0.0 } else { ok * mean_us },
                    min_us: *min_us,
                };
                (counts, in_flight.map(|count| (count, *oldest)), Vec::new())
            }
        };
        let machine = &mut self.machines[number];
        if let Some((count, oldest)) = in_flight {
            if count.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&count) {
                // Checked: it is a whole number in range.
                let set =
                    machine.core.operations_mut().set_in_flight(operation.as_str(), count as u32, oldest);
                refused.extend(set.err());
            } else {
                refused.push(RejectedSample::BadCounts);
            }
        }
        refused.extend(machine.core.amend_period(operation.as_str(), counts, now).err());
        // What one period measured is known when it ends; the next one is as long as any.
        machine.next_period = now + PERIOD;
        self.refuse_calls(host, &format!("latency {operation}"), refused);
        self.tell_latency(number, None);
        Ok(())
    }

    /// The counts of single calls, by the rules by which an agent counts them, and those that it does not count.
    fn count_samples(&self, number: usize, samples: &[Sample]) -> (PeriodCounts, Vec<RejectedSample>) {
        let policy = self.policy_of(number);
        let settings = OperationSettings {
            periods: 1,
            min_possible_us: policy.min_possible_us,
            max_possible_us: policy.max_possible_us,
            ..OperationSettings::default()
        };
        let mut counted = Operations::new(settings);
        let mut refused = Vec::new();
        for sample in samples {
            let taken = match sample.failed {
                true => counted.record_failure("calls", 1.0),
                false => counted.record("calls", sample.micros, 1.0),
            };
            refused.extend(taken.err());
        }
        counted.end_period(self.now);
        let counts =
            counted.window(self.now).first().map_or_else(PeriodCounts::default, |window| PeriodCounts {
                ok: window.ok,
                failed: window.failed,
                too_long: window.too_long,
                sum_us: window.sum_us,
                min_us: window.min_us,
            });
        (counts, refused)
    }

    fn refuse_calls(&mut self, host: &HostName, what: &str, refused: Vec<RejectedSample>) {
        for why in refused {
            let (host, what, why) = (host.to_string(), what.to_owned(), why.to_string());
            self.emit(EventKind::ValueRefused { host, what, why });
        }
    }

    fn baseline(&mut self, host: &HostName, operation: &OperationName, baseline: Duration) -> Done {
        let (number, now) = (self.host(host)?, self.now);
        let micros = baseline.as_secs_f64() * 1e6;
        let set = self.machines[number].core.set_baseline(operation.as_str(), micros, now);
        self.refuse_calls(host, &format!("baseline {operation}"), set.err().into_iter().collect());
        self.tell_latency(number, None);
        Ok(())
    }

    fn every(&mut self, hosts: &[HostName], interval: Option<Duration>) -> Done {
        for host in hosts {
            if self.is_refused(host) {
                continue;
            }
            let (number, now) = (self.host(host)?, self.now);
            let machine = &mut self.machines[number];
            machine.every = interval.map(|interval| Every { interval, next: now + interval });
            machine.is_silent &= interval.is_none();
        }
        Ok(())
    }

    fn reconnect(&mut self, host: &HostName, boot: Option<&BootId>) -> Done {
        let (number, now) = (self.host(host)?, self.now);
        let machine = &mut self.machines[number];
        if let Some(boot) = boot.filter(|boot| **boot != machine.boot) {
            machine.reboot(Some(boot.clone()), now);
        }
        (machine.is_away, machine.is_silent) = (false, false);
        self.hello_again(number);
        Ok(())
    }

    /// The host opens new streams in place of those that it has.
    fn hello_again(&mut self, number: usize) {
        for coordinator in 0..self.coordinators.len() {
            self.machines[number].end_stream(coordinator);
        }
        self.connect(number);
    }

    fn end_streams(&mut self, number: usize, goodbye: Option<Goodbye>) {
        let streams: Vec<usize> = self.machines[number].streams.keys().copied().collect();
        for coordinator in streams {
            self.end_stream(number, coordinator, goodbye);
        }
    }

    pub(super) fn policy_of(&self, number: usize) -> Policy {
        let pool = &self.machines[number].identity.pool;
        self.store.pools.get(pool).map(|record| record.policy.clone()).unwrap_or_default()
    }

    /// A place that nobody ever gave.
    pub(super) fn made_up_place(&self, number: usize, request_id: RequestId) -> PendingPlace {
        let machine = &self.machines[number];
        let gateway: GatewayId = calls::default_gateway();
        PendingPlace {
            token: Token { gateway, request_id },
            attempt: 1,
            content_hash: 0,
            pool: machine.identity.pool.clone(),
            endpoint: Endpoint {
                kind: "ssh".to_owned(),
                address: machine.identity.name.to_string(),
                port: 22,
            },
            user: None,
            cost: 1,
            counted_users: 1,
            left: self.policy_of(number).reservation_ttl,
            connected: false,
            admitted: false,
        }
    }
}

/// An id of its own for a host that is given none.
fn own_id(host: &HostName) -> Result<HostId, FieldFault> {
    let wrong = |error: usher_types::IdError| FieldFault::new("host_id", host, error.to_string());
    HostId::new(format!("id-{}", host.key())).map_err(wrong)
}
