//! What travels between hosts and coordinators, and when a stream opens or ends.
//!
//! A host that changed says so to every coordinator at once; what follows from it goes back to hosts, which may change
//! them again. [`World::settle`] lets that go on until nobody has anything left to say.

use usher_types::{BootTime, Load, ToldOutcome};

use super::{Fault, World};
use crate::{
    decision::{HostMessage, ToHost},
    farm::{AttachRefused, Effect},
    host::{HeldBack, Limits, VersionedSettings},
    scenario::{
        coordinator::{Heard, Said},
        event::EventKind,
        machine::{REPORT_INTERVAL, Stream},
    },
};

/// Rounds after which talk that does not end is cut: a report is answered by an end of a place, which is answered by a
/// report, which says nothing new.
const MOST_ROUNDS: usize = 1000;

impl World {
    /// Until nobody has anything left to say.
    pub(super) fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            self.deliver();
            if self.stirred.is_empty() {
                return;
            }
            for machine in std::mem::take(&mut self.stirred) {
                self.send_load(machine);
            }
        }
    }

    /// What coordinators said arrives at hosts.
    pub(super) fn deliver(&mut self) {
        while let Some((coordinator, ToHost { host_id, message })) = self.outbox.pop_front() {
            if let HostMessage::Expect(place) = &message {
                self.places.insert(place.token.request_id.clone(), place.clone());
            }
            // Without a stream it is lost: a host that connects is told all its places.
            let Some(number) = self.connected(&host_id, coordinator) else { continue };
            let now = self.now;
            let machine = &mut self.machines[number];
            if machine.is_reporter {
                continue;
            }
            let changed = match message {
                HostMessage::Expect(place) => {
                    // A place that is only told is refused if it has ended here; the report says that.
                    let _ = machine.core.expect(coordinator, &place, false, Limits::default(), now);
                    true
                }
                HostMessage::End { token, attempt, reason } => machine.core.end(&token, attempt, reason, now),
                HostMessage::Outcome { token, outcome, cause, succeeded_elsewhere } => {
                    let age = std::time::Duration::ZERO;
                    let told = ToldOutcome { token, outcome, cause, age, succeeded_elsewhere };
                    machine.core.outcome(&told, now)
                }
            };
            if changed {
                self.stirred.insert(number);
            }
        }
    }

    /// The host says how it is, to every coordinator that it reaches.
    fn send_load(&mut self, number: usize) {
        self.open_streams(number);
        let (now, wall) = (self.now, self.wall_unix_ms());
        let Some((load, report)) = self.machines[number].report_now(now, wall) else { return };
        self.tell_ended(number, &load);
        if self.machines[number].is_silent {
            return;
        }
        let load = self.with_listed_tokens(number, load);
        let faults = self.machines[number].faults.clone();
        let streams: Vec<usize> = self.machines[number].streams.keys().copied().collect();
        for coordinator in streams {
            let HeldBack { users, places } = report.held_back_from(coordinator);
            let load = Load { held_back_users: users, held_back_places: places, ..load.clone() };
            self.say(number, coordinator, Said::Load(Box::new(load), faults.clone()));
        }
    }

    fn tell_ended(&mut self, number: usize, load: &Load) {
        let host = self.machines[number].identity.called.to_string();
        for (token, reason) in self.machines[number].newly_ended(load) {
            let reservation = token.request_id.to_string();
            self.emit(EventKind::PlaceEnded { host: host.clone(), reservation, reason });
        }
    }

    /// A report whose line says which places it lists lists these, whatever its host knows.
    fn with_listed_tokens(&mut self, number: usize, mut load: Load) -> Load {
        let Some(listed) = self.machines[number].listed_tokens.take() else { return load };
        let held = std::mem::take(&mut load.pending);
        for request_id in listed {
            let known = held.iter().find(|place| place.token.request_id == request_id);
            let place = known.or_else(|| self.places.get(&request_id)).cloned();
            load.pending.push(place.unwrap_or_else(|| self.made_up_place(number, request_id)));
        }
        load
    }

    /// The host says something on one stream.
    pub(super) fn say(&mut self, number: usize, coordinator: usize, said: Said) {
        let (now, wall_unix_ms) = (self.now, self.wall_unix_ms());
        let machine = &mut self.machines[number];
        let host_id = machine.identity.id.clone();
        let Some(stream) = machine.streams.get_mut(&coordinator) else { return };
        let (epoch, echo) = (stream.epoch, stream.newest_tick);
        let said = numbered(said, stream, echo);
        if self.coordinators[coordinator].is_frozen() {
            return self.coordinators[coordinator].keep_for_later(&host_id, epoch, said);
        }
        let measured_at = stream.ticks.measured_at(echo, now, REPORT_INTERVAL);
        let heard = Heard { host_id: &host_id, epoch, measured_at, now, wall_unix_ms };
        let effects = self.coordinators[coordinator].hear(&heard, said);
        self.act(coordinator, effects);
    }

    /// What a frozen coordinator finds when it wakes up: as old as the last tick that it had sent.
    pub(super) fn hear_late(&mut self, coordinator: usize) {
        let (now, wall_unix_ms) = (self.now, self.wall_unix_ms());
        for (host_id, epoch, said) in self.coordinators[coordinator].thaw(now) {
            let stream = self.connected(&host_id, coordinator);
            let stream = stream.and_then(|number| self.machines[number].streams.get(&coordinator));
            let measured_at = match (&said, stream) {
                (Said::Load(load, _), Some(stream)) => {
                    stream.ticks.measured_at(load.tick_echo, now, REPORT_INTERVAL)
                }
                _ => now,
            };
            let heard = Heard { host_id: &host_id, epoch, measured_at, now, wall_unix_ms };
            let effects = self.coordinators[coordinator].hear(&heard, said);
            self.act(coordinator, effects);
        }
        for number in 0..self.machines.len() {
            self.open_streams(number);
            self.tell_settings(number, coordinator);
        }
    }

    /// Does what follows from what a coordinator heard.
    pub(super) fn act(&mut self, coordinator: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::EndPlace { host_id, token, attempt, reason } => {
                    let message = HostMessage::End { token, attempt, reason };
                    self.outbox.push_back((coordinator, ToHost { host_id, message }));
                }
                Effect::MarkExpired { host_id, resource_id } => {
                    self.store.forget_mark(&host_id, &resource_id);
                    let (host, resource) = (self.name_of(&host_id), resource_id.to_string());
                    self.emit(EventKind::MarkExpired { host, resource });
                }
                Effect::Thawed { after } => {
                    let coordinator = self.coordinators[coordinator].name.clone();
                    self.emit(EventKind::Thawed { coordinator, after_s: after.as_secs_f64() });
                }
                // Only time changes states, and the clock tells of that.
                Effect::StateChanged { .. } | Effect::SettingsDiffer { .. } => {}
            }
        }
    }

    /// Opens the streams that the host can have and has not, without a word if one is refused: an agent tries again and
    /// again.
    pub(super) fn open_streams(&mut self, number: usize) {
        for coordinator in 0..self.coordinators.len() {
            let machine = &self.machines[number];
            if !machine.is_silent
                && machine.reaches(coordinator)
                && !machine.streams.contains_key(&coordinator)
            {
                let _ = self.attach(number, coordinator);
            }
        }
    }

    /// The same, and whoever refuses is heard.
    pub(super) fn connect(&mut self, number: usize) {
        let mut refused: Vec<(String, AttachRefused)> = Vec::new();
        for coordinator in 0..self.coordinators.len() {
            let machine = &self.machines[number];
            if machine.reaches(coordinator)
                && !machine.streams.contains_key(&coordinator)
                && let Err(why) = self.attach(number, coordinator)
            {
                refused.push((self.coordinators[coordinator].name.clone(), why));
            }
        }
        for (coordinator, why) in refused {
            let (code, reason) = match why {
                AttachRefused::InUse { .. } | AttachRefused::OtherHost { .. } => {
                    ("ALREADY_EXISTS", "host_id_in_use")
                }
                AttachRefused::OlderStream(_) => ("ABORTED", "host_id_in_use"),
                AttachRefused::OtherCertificate { .. } | AttachRefused::OtherName { .. } => {
                    ("PERMISSION_DENIED", "identity_mismatch")
                }
            };
            let coordinator = (self.coordinators.len() > 1).then_some(coordinator);
            let host = self.machines[number].identity.called.to_string();
            self.emit(EventKind::HostRefused { coordinator, host, code, reason, why: why.to_string() });
        }
    }

    fn attach(&mut self, number: usize, coordinator: usize) -> Result<(), AttachRefused> {
        if self.coordinators[coordinator].is_frozen() {
            // Nobody lets it in before that coordinator wakes up.
            return Ok(());
        }
        self.next_epoch += 1;
        let hello = self.machines[number].hello(self.next_epoch, self.now);
        let certificate = self.machines[number].identity.certificate.clone();
        let farm = &mut self.coordinators[coordinator].farm;
        let attached = match farm.attach(&hello, certificate.as_deref(), false) {
            Err(AttachRefused::InUse { stream_epoch, .. })
                if !self.answers_ping(coordinator, stream_epoch) =>
            {
                self.coordinators[coordinator].farm.attach(&hello, certificate.as_deref(), true)?
            }
            other => other?,
        };
        if let Some(replaced) = attached.replaced_stream {
            for machine in &mut self.machines {
                if machine.streams.get(&coordinator).is_some_and(|stream| stream.epoch == replaced) {
                    machine.end_stream(coordinator);
                }
            }
        }
        if let Some(certificate) = attached.bind {
            self.store.bindings.insert(certificate, hello.host_id.clone());
        }
        if let Some(retired) = attached.retired {
            self.store.move_marks(&retired, &hello.host_id);
        }
        if attached.drain_ended.is_some() {
            self.store.end_drain(&hello.host_id);
        }
        let stream = Stream { epoch: hello.stream_epoch, ..Stream::default() };
        self.machines[number].open_stream(coordinator, stream);
        self.coordinators[coordinator].registered.insert(hello.host_id, number);
        self.welcome(number, coordinator);
        Ok(())
    }

    /// Whether whoever has this stream answers on it.
    fn answers_ping(&self, coordinator: usize, stream_epoch: u64) -> bool {
        self.machines.iter().any(|machine| {
            let stream = machine.streams.get(&coordinator);
            !machine.is_silent && stream.is_some_and(|stream| stream.epoch == stream_epoch)
        })
    }

    /// The host is told its settings and its places, and tells everything.
    fn welcome(&mut self, number: usize, coordinator: usize) {
        self.tell_settings(number, coordinator);
        let (now, host_id) = (self.now, self.machines[number].identity.id.clone());
        for place in self.coordinators[coordinator].ledger.to_tell(&host_id, now) {
            let host_id = host_id.clone();
            self.outbox.push_back((coordinator, ToHost { host_id, message: HostMessage::Expect(place) }));
        }
        // The first tick comes with the welcome, after all the places.
        self.deliver();
        self.machines[number].core.tick_heard(coordinator, now);
        let machine = &self.machines[number];
        let replicas = machine.replicas.clone();
        if !replicas.is_empty() {
            self.say(number, coordinator, Said::Replicas(replicas));
        }
        self.tell_sessions(number, Some(coordinator));
        self.tell_latency(number, Some(coordinator));
        if self.machines[number].is_measured {
            self.stirred.insert(number);
        }
    }

    /// The settings in force at a coordinator, for one host.
    pub(super) fn tell_settings(&mut self, number: usize, coordinator: usize) {
        let machine = &mut self.machines[number];
        if machine.is_reporter || !machine.streams.contains_key(&coordinator) {
            return;
        }
        let farm = &self.coordinators[coordinator].farm;
        let Some(settings) = farm.settings_of(&machine.identity.id) else { return };
        let told = VersionedSettings {
            version: settings.record.version,
            policy: settings.record.policy.clone(),
            hash: Some(settings.hash),
            marks: *settings.marks,
        };
        machine.core.settings_told(coordinator, told, self.now);
    }

    /// The sessions, to one coordinator or to all.
    pub(super) fn tell_sessions(&mut self, number: usize, only: Option<usize>) {
        let machine = &self.machines[number];
        if machine.sessions.are_listed && !machine.is_silent {
            let sessions = machine.core.session_list().sessions;
            self.say_to(number, only, &Said::Sessions(sessions));
        }
    }

    /// The window of latencies, likewise.
    pub(super) fn tell_latency(&mut self, number: usize, only: Option<usize>) {
        let machine = &self.machines[number];
        let latency = machine.core.latency(self.now);
        if !latency.operations.is_empty() && !machine.is_silent {
            self.say_to(number, only, &Said::Latency(latency));
        }
    }

    /// The replicas, to all coordinators.
    pub(super) fn tell_replicas(&mut self, number: usize) {
        if !self.machines[number].is_silent {
            let replicas = self.machines[number].replicas.clone();
            self.say_to(number, None, &Said::Replicas(replicas));
        }
    }

    fn say_to(&mut self, number: usize, only: Option<usize>, said: &Said) {
        let streams: Vec<usize> = self.machines[number].streams.keys().copied().collect();
        for coordinator in streams.into_iter().filter(|on| only.is_none_or(|only| only == *on)) {
            self.say(number, coordinator, said.clone());
        }
    }

    /// A stream ends.
    pub(super) fn end_stream(
        &mut self,
        number: usize,
        coordinator: usize,
        goodbye: Option<usher_types::Goodbye>,
    ) {
        self.say(number, coordinator, Said::End(goodbye));
        self.machines[number].end_stream(coordinator);
        let machine = &mut self.machines[number];
        if machine.core.reach_changed(self.now) && !machine.streams.is_empty() {
            self.stirred.insert(number);
        }
    }

    /// A new coordinator, to which every host connects.
    pub(super) fn new_coordinator(&mut self, name: &str) -> Result<(), Fault> {
        if self.coordinator(name).is_ok() {
            return Err(Fault::new(name, format!("there is a coordinator {name} already")));
        }
        let new = crate::scenario::coordinator::Coordinator::new(
            name.to_owned(),
            &self.store,
            Vec::new(),
            self.now,
        );
        self.coordinators.push(new);
        let names = self.coordinator_names();
        for number in 0..self.machines.len() {
            self.machines[number].configure(names.clone());
            self.open_streams(number);
        }
        Ok(())
    }

    /// A coordinator stops and starts anew; hosts come back with their next report.
    pub(super) fn restart(&mut self, name: &str) -> Result<(), Fault> {
        let number = self.coordinator(name)?;
        self.coordinators[number].restart(&mut self.store, self.now);
        for machine in &mut self.machines {
            machine.end_stream(number);
        }
        Ok(())
    }

    /// The tick of a coordinator reaches the hosts, with what it knows of successes elsewhere.
    pub(super) fn send_ticks(&mut self, coordinator: usize, now: BootTime) {
        for number in 0..self.machines.len() {
            let host_id = self.machines[number].identity.id.clone();
            let Some(stream) = self.machines[number].streams.get_mut(&coordinator) else { continue };
            stream.newest_tick = Some(stream.ticks.next(now));
            self.machines[number].core.tick_heard(coordinator, now);
            let elsewhere = self.coordinators[coordinator].farm.confirmed_elsewhere(&host_id, now);
            if let Some(age) = elsewhere
                && self.machines[number].core.confirmed_elsewhere(age, now)
            {
                self.stirred.insert(number);
            }
        }
    }
}

/// What belongs to one stream.
fn numbered(mut said: Said, stream: &mut Stream, echo: Option<u64>) -> Said {
    stream.sequence += 1;
    match &mut said {
        Said::Load(load, _) => (load.sequence, load.tick_echo) = (stream.sequence, echo),
        Said::Latency(latency) => latency.sequence = stream.sequence,
        _ => {}
    }
    said
}
