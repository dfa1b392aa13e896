//! Where does an admin's drain lie, and what if its host is not there?
//!
//! The host keeps it: equal coordinators meet there and each of them hears of it in the next report, a drain holds while no
//! coordinator and no store is there, and any coordinator ends what another one set. So a host that is connected and knows
//! how is asked, and the answer of its disk is what the admin hears. Nothing of it is stored here.
//!
//! A host that is away, that does not answer, or that cannot keep a drain (an agent of 0.1, a reporter) has a **mark** in the
//! store instead. Coordinators hold such a host drained by themselves. As soon as a host that can keep a drain is there, the
//! mark is handed over to it, and is removed once the host has confirmed: a drain is never in neither place. It is handed over
//! once: from then on the host's word counts, also if the store cannot be told yet, or a drain that was ended on the host would
//! come back.
//!
//! Coordinators that share a store set and end marks at the same time. So a mark is never removed for what it says of a host, but
//! only as the very one that was seen: one that was set since, through another coordinator, stays, and who wanted to end the one
//! before it is told.

use std::{sync::Arc, time::Duration};

use usher_placement::farm::DrainMark;
use usher_proto::DrainKept;
use usher_types::{Drain, HostId};

use crate::{
    farm_command::FarmCommand,
    links::HostLink,
    shared::Shared,
    store::{DrainRecord, StoreError, StoreHandle, Write},
};

/// How long an admin waits for a host's disk. Much longer, and the call's own deadline would pass first.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A mark that a host could not take over is offered again after so long: a full disk is not emptied in a second, and until
/// then the mark holds.
const OFFERED_EVERY: Duration = Duration::from_secs(30);
/// How often the store is asked again to forget a mark that was handed over: for a day, which is time to see to a disk.
const REMOVED_WITHIN: usize = 24 * 60 * 2;

/// Hands the mark of a host over to it, if there is one, while its stream is open.
pub(crate) async fn hand_over(
    shared: Arc<Shared>,
    store: StoreHandle,
    host_id: HostId,
    link: Arc<HostLink>,
    mark: DrainMark,
) {
    let mut told = false;
    loop {
        // Looked for before the host has it: one that is found later may have been set anew, in the same words.
        let set_unix_ms = stored_at(&store, &host_id, &mark).await;
        match shared.links.ask_drain(&host_id, &link, Some(mark.drain.clone()), ANSWER_WITHIN).await {
            Some(Ok(kept)) => {
                let is_gone = remove(&store, &host_id, &mark, set_unix_ms).await;
                taken_over(&shared, &host_id, kept, mark.clone()).await;
                if !is_gone {
                    remove_later(&store, &host_id, &mark, set_unix_ms).await;
                }
                return;
            }
            Some(Err(why)) if !told => {
                told = true;
                tracing::error!(%host_id, why, "a host cannot keep its drain; the coordinator holds it drained");
            }
            Some(Err(_)) | None => {}
        }
        tokio::select! {
            () = link.ended.cancelled() => return,
            () = tokio::time::sleep(OFFERED_EVERY) => {}
        }
        // Ended or changed meanwhile: whoever did that says it to the host, or begins anew.
        if mark_of(&shared, &host_id).is_none_or(|now| *now != mark) || link.is_closed() {
            return;
        }
    }
}

/// When the mark that is stored of a host was set, milliseconds since 1970 UTC. Absent: another one is stored, or none.
pub(crate) async fn stored_at(store: &StoreHandle, host_id: &HostId, mark: &DrainMark) -> Option<u64> {
    let stored = store.drain_of(host_id).await;
    let record = stored.inspect_err(|error| tracing::warn!(%error, "cannot read the drains")).ok()??;
    is_of(&record, mark).then_some(record.set_unix_ms)
}

fn is_of(record: &DrainRecord, mark: &DrainMark) -> bool {
    record.drain == mark.drain && record.boot_id == mark.boot_id
}

/// What has become of a mark that was to be ended.
pub(crate) struct Ended {
    /// In which revision of the shared store.
    pub revision: Option<u64>,
    /// What was set in its place meanwhile.
    pub instead: Option<Drain>,
}

/// Ends the mark that was seen in the store.
///
/// # Errors
/// [`StoreError`]: it is as it was, unless that is not known.
pub(crate) async fn end_stored(
    store: &StoreHandle,
    host_id: &HostId,
    mark: &DrainMark,
) -> Result<Ended, StoreError> {
    let mut ended = Ended { revision: None, instead: None };
    match store.drain_of(host_id).await? {
        Some(record) if is_of(&record, mark) => {
            ended.revision = store.delete_drain(host_id.clone(), record.set_unix_ms).await?.revision;
            ended.instead = store.drain_of(host_id).await?.map(|newer| newer.drain);
        }
        other => ended.instead = other.map(|newer| newer.drain),
    }
    Ok(ended)
}

/// Removes a mark that was handed over. Whether it is gone for certain.
async fn remove(store: &StoreHandle, host_id: &HostId, mark: &DrainMark, set_unix_ms: Option<u64>) -> bool {
    let set_unix_ms = match set_unix_ms {
        Some(set_unix_ms) => Some(set_unix_ms),
        // While the shared store is away only the copy is read, which is written a moment after a mark is in force.
        None => stored_at(store, host_id, mark).await,
    };
    let Some(set_unix_ms) = set_unix_ms else { return false };
    match store.write_or_owe(vec![Write::DeleteDrainSetAt(host_id.clone(), set_unix_ms)]).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, %host_id, "a host has taken over its drain, but the store keeps it too");
            false
        }
    }
}

async fn remove_later(store: &StoreHandle, host_id: &HostId, mark: &DrainMark, set_unix_ms: Option<u64>) {
    for _ in 0..REMOVED_WITHIN {
        tokio::time::sleep(OFFERED_EVERY).await;
        if remove(store, host_id, mark, set_unix_ms).await {
            return;
        }
        if set_unix_ms.is_none() {
            // It was not stored at all, as the one that a host had kept whose place this one has taken.
            return;
        }
    }
    tracing::error!(%host_id, "the store keeps a drain that the host has taken over: a restart offers it again");
}

async fn taken_over(shared: &Shared, host_id: &HostId, kept: DrainKept, mark: DrainMark) {
    tracing::info!(%host_id, author = mark.drain.author, "a host has taken over its drain");
    let holds = kept.holds.map(Box::new);
    let command =
        FarmCommand::DrainKept { host_id: host_id.clone(), holds, instead_of: Some(Box::new(mark)) };
    // Without a farm the process ends.
    let _ = shared.farm.send(command).await;
}

/// The mark of a host, as of the last snapshot.
fn mark_of(shared: &Shared, host_id: &HostId) -> Option<Arc<DrainMark>> {
    let snapshot = shared.snapshot.load();
    let (pool, position) = snapshot.find_host(host_id.as_str()).ok()?;
    pool.hosts[position].drain.clone()
}

/// Asks a host that is connected and keeps its drain. Absent: there is none, or it is silent.
pub(crate) async fn ask(
    shared: &Shared,
    host_id: &HostId,
    drain: Option<Drain>,
) -> Option<Result<DrainKept, String>> {
    let link = shared.links.get(host_id).filter(|link| link.keeps_drain())?;
    shared.links.ask_drain(host_id, &link, drain, ANSWER_WITHIN).await
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use futures::StreamExt;
    use tokio::sync::mpsc;
    use usher_proto::{SetDrainAnswer, v1::attach_response::Message};
    use usher_types::{DrainMode, PolicyChange};

    use super::*;
    use crate::{
        links::HostOutput,
        metrics::Metrics,
        placing::testing,
        store::{MemoryStore, Store, Stored},
    };

    /// A disk that can be read and takes no ends of drains.
    struct Full(MemoryStore);

    impl Store for Full {
        fn load(&mut self) -> Result<Stored, StoreError> {
            self.0.load()
        }

        fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
            if writes.iter().any(|write| matches!(write, Write::DeleteDrainSetAt(..))) {
                return Err(StoreError::Closed { path: PathBuf::from("full") });
            }
            self.0.commit(writes)
        }
    }

    fn mark() -> DrainMark {
        let (reason, author) = ("disk".to_owned(), "ann".to_owned());
        let drain = Drain { mode: DrainMode::Persistent, reason, author, no_reconnect: false };
        DrainMark { drain, boot_id: None }
    }

    fn record(set_unix_ms: u64) -> DrainRecord {
        DrainRecord { drain: mark().drain, boot_id: None, set_unix_ms }
    }

    fn host() -> HostId {
        HostId::new("a").unwrap()
    }

    /// A store with a mark in it, which is handed over to a host whose words come out.
    async fn handing_over(
        store: impl Store + 'static,
    ) -> (Arc<Shared>, StoreHandle, HostOutput, mpsc::Receiver<FarmCommand>) {
        let store = StoreHandle::inline(Path::new("memory"), Metrics::new("0", "none"), store);
        store.put_drain(host(), record(1)).await.unwrap();
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1)]);
        farm.set_drain(&host(), Some(mark()));
        let (shared, commands) = testing::shared_in_time(&mut farm, ledger);
        let (link, output) = HostLink::new(1, 8);
        shared.links.open(host(), link.clone());
        tokio::spawn(hand_over(shared.clone(), store.clone(), host(), link, mark()));
        (shared, store, output, commands)
    }

    async fn asked(output: &mut HostOutput) -> u64 {
        let asked = output.next().await.unwrap().unwrap().message;
        let Some(Message::SetDrain(asked)) = asked else { panic!("{asked:?}") };
        asked.nonce
    }

    /// The host keeps the drain that it was asked to keep.
    fn keeps(shared: &Shared, nonce: u64) {
        let kept = DrainKept { before: None, holds: Some(mark().drain) };
        shared.links.drain_answered(&host(), SetDrainAnswer { nonce, outcome: Ok(kept) });
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_has_taken_its_drain_over_is_not_asked_again_though_the_store_takes_nothing() {
        let (shared, store, mut output, mut commands) = handing_over(Full(MemoryStore::new("c"))).await;
        keeps(&shared, asked(&mut output).await);
        let told = commands.recv().await;
        assert!(matches!(&told, Some(FarmCommand::DrainKept { instead_of: Some(_), .. })), "{told:?}");
        let again = tokio::time::timeout(Duration::from_secs(600), output.next()).await;
        assert!(again.is_err(), "or a drain that was ended on the host comes back: {again:?}");
        assert_eq!(store.load().await.unwrap().drains.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_was_set_while_an_older_one_was_handed_over_stays_stored() {
        for newer in [None, Some(record(2))] {
            let (shared, store, mut output, mut commands) = handing_over(MemoryStore::new("c")).await;
            let nonce = asked(&mut output).await;
            if let Some(newer) = &newer {
                store.put_drain(host(), newer.clone()).await.unwrap();
            }
            keeps(&shared, nonce);
            commands.recv().await.unwrap();
            assert_eq!(store.load().await.unwrap().drains.get(&host()), newer.as_ref());
        }
    }
}
