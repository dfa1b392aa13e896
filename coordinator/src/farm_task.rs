//! The one owner of the farm: takes in what hosts and admins say, one after the other, and publishes what it makes.
//!
//! Everything arrives through one bounded queue. A sender waits while it is full, and of each stream only a few messages
//! are in it at a time, so a host that floods slows itself down and nobody else. Nothing here waits for the disk: what
//! must last is stored by whoever asked, before it comes here.

mod follow;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;
use usher_placement::{
    decision::{HostMessage, ToHost},
    farm::{DrainMark, Effect, Farm, MarkedReplica},
};
use usher_proto::{self as proto, v1::attach_response::Message};
use usher_types::{BootTime, FieldFault, HostId, Load, PoolName, SettingsHash};

use crate::{
    drains,
    farm_command::{Admitted, Drains, FarmCommand, Source},
    placing,
    shared::Shared,
    store::{StoreHandle, Write},
    stored,
};

/// Messages waiting for the farm. Far more than arrive between two turns; a flood waits in its own stream.
pub(crate) const QUEUE: usize = 4096;
/// Messages taken in before anything is published.
const BATCH: usize = 256;
/// Snapshots are at least this far apart: a storm of reports costs a bounded number of them.
const PUBLISH_EVERY: Duration = Duration::from_millis(10);
/// So much after the last instant of a value it is gone: the shortest time that a timer can wait.
const JUST_AFTER: Duration = Duration::from_millis(1);
const TICK_EVERY: Duration = Duration::from_secs(1);
/// How often what is known of the hosts is stored.
const STORE_EVERY: Duration = Duration::from_secs(10);

struct FarmTask {
    farm: Farm,
    shared: Arc<Shared>,
    store: StoreHandle,
    dirty: bool,
    last_store: Option<tokio::task::JoinHandle<()>>,
    /// Up to which revision of the shared store its changes are in force.
    followed: u64,
}

/// Runs the farm until `no_more_calls`: until then places may be given, and what was given is stored. From `shutdown` on time
/// stands still for it: hosts that are cut off by the shutdown are not gone.
pub(crate) async fn run(
    farm: Farm,
    shared: Arc<Shared>,
    store: StoreHandle,
    mut commands: mpsc::Receiver<FarmCommand>,
    shutdown: CancellationToken,
    no_more_calls: CancellationToken,
) {
    let mut task = FarmTask { farm, shared, store, dirty: true, last_store: None, followed: 0 };
    task.publish();
    let mut batch = Vec::with_capacity(BATCH);
    let mut ticks = interval(TICK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stores = interval(STORE_EVERY);
    stores.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut publish_at = Instant::now();
    loop {
        let expiry = task.next_expiry();
        tokio::select! {
            biased;
            () = no_more_calls.cancelled() => break,
            _ = ticks.tick(), if !shutdown.is_cancelled() => task.tick(),
            _ = stores.tick() => task.store_last_known(false),
            () = sleep_until(publish_at), if task.dirty => {
                task.publish();
                publish_at = Instant::now() + PUBLISH_EVERY;
            }
            () = sleep_until(expiry.unwrap_or(publish_at)), if expiry.is_some() => task.publish(),
            taken = commands.recv_many(&mut batch, BATCH) => {
                if taken == 0 {
                    break;
                }
                for command in batch.drain(..) {
                    task.handle(command);
                }
            }
        }
    }
    // The store's own errors are logged where they happen.
    if let Some(storing) = task.last_store.take() {
        let _ = storing.await;
    }
    task.store_last_known(true);
    if let Some(storing) = task.last_store.take() {
        let _ = storing.await;
    }
}

impl FarmTask {
    fn publish(&mut self) {
        self.dirty = false;
        let now = self.shared.now();
        self.shared.snapshot.store(self.farm.snapshot(now));
    }

    /// When a value that stands for a wrong one is believed no more. Nobody may rank by it after that, whether or not
    /// anything else happens.
    fn next_expiry(&self) -> Option<Instant> {
        let left = self.farm.values_until()?.since(self.shared.now());
        Some(Instant::now() + left + JUST_AFTER)
    }

    fn tick(&mut self) {
        let now = self.shared.now();
        let effects = self.farm.tick(now);
        self.shared.last_tick_us.store(now.as_micros(), Ordering::Release);
        self.act(effects);
        self.tell_of_successes(now);
        // Ages count on by themselves; only what changed is published.
        self.publish();
    }

    /// Lets each stream tell its host, with the next tick, when a place on another host of the pool last became a session.
    fn tell_of_successes(&self, now: BootTime) {
        for (host_id, link) in self.shared.links.all() {
            if let Some(age) = self.farm.confirmed_elsewhere(&host_id, now) {
                link.confirmed_elsewhere(now.before(age));
            }
        }
    }

    fn act(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::EndPlace { host_id, token, attempt, reason } => {
                    // After whatever was told of the place before.
                    let end = HostMessage::End { token, attempt, reason };
                    placing::tell(&self.shared, vec![ToHost { host_id, message: end }]);
                }
                Effect::StateChanged { host_id, from, to, reason } => {
                    tracing::info!(%host_id, %from, %to, reason, "host changed its state");
                }
                Effect::MarkExpired { host_id, resource_id } => {
                    tracing::info!(%host_id, %resource_id, "the mark of a replica that is gone was forgotten");
                    self.write_later(Write::DeleteReplicaMark(host_id, resource_id));
                }
                Effect::SettingsDiffer { pool, ours, hosts, theirs } => {
                    settings_differ(&pool, ours, hosts, &theirs);
                }
                Effect::Thawed { after } => {
                    tracing::warn!(
                        after_s = after.as_secs_f64(),
                        "the coordinator was frozen; placements wait for fresh reports"
                    );
                }
            }
        }
    }

    fn handle(&mut self, command: FarmCommand) {
        self.dirty = true;
        match command {
            FarmCommand::Attach { hello, certificate_name, old_is_dead, answer } => {
                let attached = self.farm.attach(&hello, certificate_name.as_deref(), old_is_dead);
                let settings = |attached| {
                    let settings = self.settings_of(&hello.host_id, &hello.agent_version);
                    let waiting = self.farm.settings_of(&hello.host_id).and_then(|settings| settings.drain);
                    Admitted { attached, drain: waiting.cloned(), settings }
                };
                // Whoever asked may be gone; its stream then ends by itself.
                let _ = answer.send(attached.map(settings));
            }
            FarmCommand::Unbind { certificate } => self.farm.unbind(&certificate),
            FarmCommand::Detach { host_id, stream_epoch, goodbye } => {
                self.farm.detach(&host_id, stream_epoch, goodbye, self.shared.now());
            }
            FarmCommand::Load { from, load, faults } => self.observe_load(&from, *load, &faults),
            FarmCommand::Latency { from, latency, faults } => {
                if self.is_current(&from) {
                    self.farm.observe_latency(&from.host_id, latency, faults, from.measured_at);
                }
            }
            FarmCommand::Replicas { from, replicas } => {
                if self.is_current(&from) {
                    self.farm.observe_replicas(&from.host_id, replicas);
                }
            }
            FarmCommand::Sessions { from, sessions } => {
                if self.is_current(&from) {
                    self.farm.observe_sessions(&from.host_id, sessions, from.measured_at);
                }
            }
            FarmCommand::Follow(followed) => self.follow(followed),
            admin => self.handle_admin(admin),
        }
    }

    fn handle_admin(&mut self, command: FarmCommand) {
        match command {
            FarmCommand::PreparePool { name, apply, dry_run, answer } => {
                let before = self.farm.pool_record(&name).cloned();
                let prepared = self.farm.prepare_pool(&name, &apply, dry_run);
                if let Err(Ok(_)) = answer.send(prepared.map(|record| (record, before)))
                    && !dry_run
                {
                    self.farm.abandon_pool(&name);
                }
            }
            FarmCommand::CommitPool { record, answer } => {
                let name = record.name.clone();
                self.farm.commit_pool(*record);
                // Decisions use the new version before anybody is told that it is in force.
                self.publish();
                self.send_settings(&name);
                let _ = answer.send(());
            }
            FarmCommand::AbandonPool(name) => self.farm.abandon_pool(&name),
            FarmCommand::ListPools(answer) => {
                let pools = self.farm.pool_records().map(|(record, hosts)| (record.clone(), hosts)).collect();
                let _ = answer.send(pools);
            }
            FarmCommand::DrainMark { host_id, drain, answer } => {
                let mark = self.farm.drain_mark(&host_id, drain);
                let before = self.drains_of(&host_id).mark;
                let _ = answer.send(mark.map(|mark| (mark, before)));
            }
            FarmCommand::SetDrain { revision, answer, .. } if self.has_followed(revision) => {
                let _ = answer.send(());
            }
            FarmCommand::SetDrain { host_id, mark, answer, .. } => {
                self.farm.set_drain(&host_id, Some(mark.clone()));
                self.publish();
                self.send_settings_to(&host_id);
                self.offer_drain(&host_id, Some(mark));
                let _ = answer.send(());
            }
            FarmCommand::EndDrain { host_id, mark, revision, answer } => {
                let is_it = self.drains_of(&host_id).mark.as_ref() == Some(&*mark);
                if is_it && !self.has_followed(revision) {
                    self.farm.set_drain(&host_id, None);
                    self.publish();
                    self.send_settings_to(&host_id);
                }
                let _ = answer.send(self.drains_of(&host_id).mark);
            }
            FarmCommand::DrainsOf { host_id, answer } => {
                let _ = answer.send(self.drains_of(&host_id));
            }
            FarmCommand::DrainKept { host_id, holds, instead_of } => {
                self.farm.drain_kept(&host_id, holds.map(|drain| *drain), instead_of.as_deref());
                self.publish();
                self.send_settings_to(&host_id);
            }
            FarmCommand::MarksOf { host_id, answer } => {
                let _ = answer.send(self.farm.marks_of(&host_id));
            }
            FarmCommand::SetMarks { revision, answer, .. } if self.has_followed(revision) => {
                let _ = answer.send(());
            }
            FarmCommand::SetMarks { host_id, marks, answer, .. } => {
                // A host that was replaced a moment ago has given its marks to the one in its place.
                let _ = self.farm.set_marks(&host_id, marks);
                self.publish();
                self.send_settings_to(&host_id);
                let _ = answer.send(());
            }
            FarmCommand::MarkReplica { host_id, resource_id, mark, revision, answer } => {
                if self.has_followed(revision) {
                    let _ = answer.send(mark);
                    return;
                }
                let before = self.farm.mark_replica(&host_id, &resource_id, mark, self.shared.now());
                self.publish();
                let _ = answer.send(before);
            }
            _ => {}
        }
    }

    fn drains_of(&self, host_id: &HostId) -> Drains {
        let own = self.farm.own_drain(host_id).cloned();
        let mark = self.farm.settings_of(host_id).and_then(|settings| settings.drain).cloned();
        Drains { mark, own, may_be_unheard: self.farm.may_be_drained_unheard(host_id) }
    }

    /// A host that is there takes its drain over.
    fn offer_drain(&self, host_id: &HostId, mark: Option<DrainMark>) {
        let link = self.shared.links.get(host_id).filter(|link| link.keeps_drain());
        if let Some((mark, link)) = mark.zip(link) {
            let (shared, store) = (self.shared.clone(), self.store.clone());
            tokio::spawn(drains::hand_over(shared, store, host_id.clone(), link, mark));
        }
    }

    fn is_current(&self, from: &Source) -> bool {
        self.farm.is_current(&from.host_id, from.stream_epoch)
    }

    fn observe_load(&mut self, from: &Source, load: Load, faults: &[FieldFault]) {
        if !self.is_current(from) {
            // Its host was let in again through another stream, or replaced: this one would report to nobody.
            self.shared.links.end(&from.host_id, from.stream_epoch);
            return;
        }
        let wall = self.shared.clock.wall_unix_ms();
        let effects = self.farm.observe_load(&from.host_id, load, faults, from.measured_at, wall);
        self.act(effects);
    }

    fn send_settings(&self, pool: &PoolName) {
        for host_id in self.farm.hosts_of(pool) {
            self.send_settings_to(host_id);
        }
    }

    fn send_settings_to(&self, host_id: &HostId) {
        let snapshot = self.shared.snapshot.load();
        let Ok((pool, position)) = snapshot.find_host(host_id.as_str()) else { return };
        if let Some(settings) = self.settings_of(host_id, &pool.hosts[position].facts.agent_version) {
            self.shared.links.send(host_id, Message::PoolSettings(settings));
        }
    }

    /// The settings that a host must have now, in words that its agent understands.
    fn settings_of(&self, host_id: &HostId, agent_version: &str) -> Option<proto::v1::PoolSettings> {
        let settings = self.farm.settings_of(host_id)?;
        let told = proto::PoolSettings {
            pool: settings.record.name.clone(),
            version: settings.record.version,
            policy: settings.record.policy.clone(),
            drain: settings.drain.map(|mark| mark.drain.clone()),
            marks: (!settings.marks.is_empty()).then_some(*settings.marks),
            hash: Some(settings.hash),
        };
        Some(proto::write::pool_settings_for(agent_version, &told))
    }

    /// Writes what nobody waits for.
    fn write_later(&self, write: Write) {
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.write(vec![write]).await {
                tracing::warn!(%error, "cannot store what has changed by itself");
            }
        });
    }

    /// Stores what is known of the hosts, unless the store is still busy with the last time. `as_it_stops`: no place is
    /// given any more.
    fn store_last_known(&mut self, as_it_stops: bool) {
        if self.last_store.as_ref().is_some_and(|storing| !storing.is_finished()) {
            return;
        }
        let now_unix_ms = self.shared.clock.wall_unix_ms();
        let known: Vec<_> = self
            .farm
            .last_known(as_it_stops)
            .into_iter()
            .map(|known| stored::host_to_store(known, now_unix_ms))
            .collect();
        let gone = |marked: MarkedReplica| {
            let since = marked.unlisted_for.map(|ago| now_unix_ms.saturating_sub(stored::millis(ago)));
            (marked.host_id, marked.resource_id, since)
        };
        let gone = self.farm.replica_marks(self.shared.now()).map(gone).collect();
        let learned = self.farm.learned();
        let store = self.store.clone();
        self.last_store = Some(tokio::spawn(async move {
            let writes =
                vec![Write::PutLastKnown(known), Write::AmendReplicaMarks(gone), Write::PutLearned(learned)];
            if let Err(error) = store.write(writes).await {
                tracing::warn!(%error, "cannot store what is known of the hosts");
            }
        }));
    }
}

/// Once for each change of it: an alert that is repeated every second hides the next one.
fn settings_differ(pool: &PoolName, ours: SettingsHash, hosts: usize, theirs: &BTreeSet<SettingsHash>) {
    if theirs.is_empty() {
        tracing::info!(%pool, %ours, "every host of the pool has this coordinator's settings again");
        return;
    }
    let theirs = theirs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tracing::error!(
        %pool, %ours, theirs, hosts,
        "hosts of the pool have other settings than this coordinator's: another coordinator gives them; usherctl pool show \
         says which hosts"
    );
}

#[cfg(test)]
mod tests {
    use usher_types::{PolicyChange, ReplicaMark, ResourceId};

    use super::*;
    use crate::{
        metrics::Metrics,
        placing::testing,
        store::{ReplicaMarkRecord, STORE_FILE},
    };

    #[tokio::test]
    async fn a_mark_that_the_farm_forgets_is_forgotten_on_disk_too() {
        let folder = tempfile::tempdir().unwrap();
        let store =
            StoreHandle::open(&folder.path().join(STORE_FILE), Metrics::new("0", "none")).await.unwrap();
        let (host_id, resource) = (HostId::new("a").unwrap(), |id: &str| ResourceId::new(id).unwrap());
        for id in ["old", "young"] {
            let (mark, author) = (ReplicaMark::OutOfService, "ann".to_owned());
            let record = ReplicaMarkRecord { mark, author, set_unix_ms: 1, gone_unix_ms: Some(1) };
            store.write(vec![Write::PutReplicaMark(host_id.clone(), resource(id), record)]).await.unwrap();
        }
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1)]);
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        let task =
            FarmTask { farm, shared, store: store.clone(), dirty: false, last_store: None, followed: 0 };
        task.act(vec![Effect::MarkExpired { host_id, resource_id: resource("old") }]);
        let forgotten = async {
            loop {
                let left = store.load().await.unwrap().replica_marks;
                if left.keys().all(|(_, left)| *left == resource("young")) {
                    break left.len();
                }
            }
        };
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), forgotten).await.unwrap(), 1);
    }
}
