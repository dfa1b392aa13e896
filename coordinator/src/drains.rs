//! Where does an admin's drain lie, and what if its host is not there?
//!
//! The host keeps it: equal coordinators meet there and each of them hears of it in the next report, a drain holds while no
//! coordinator and no store is there, and any coordinator ends what another one set. So a host that is connected and knows
//! how is asked, and the answer of its disk is what the admin hears. Nothing of it is stored here.
//!
//! A host that is away, that does not answer, or that cannot keep a drain (an agent of 0.1, a reporter) has a **mark** in the
//! store instead. Coordinators hold such a host drained by themselves. As soon as a host that can keep a drain is there, the
//! mark is handed over to it, and is removed once the host has confirmed: a drain is never in neither place.

use std::{sync::Arc, time::Duration};

use usher_placement::farm::DrainMark;
use usher_proto::DrainKept;
use usher_types::{Drain, HostId};

use crate::{farm_command::FarmCommand, links::HostLink, shared::Shared, store::StoreHandle};

/// How long an admin waits for a host's disk. Much longer, and the call's own deadline would pass first.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A mark that a host could not take over is offered again after so long: a full disk is not emptied in a second, and until
/// then the mark holds.
const OFFERED_EVERY: Duration = Duration::from_secs(30);

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
        match shared.links.ask_drain(&host_id, &link, Some(mark.drain.clone()), ANSWER_WITHIN).await {
            Some(Ok(kept)) => match store.delete_drain(host_id.clone()).await {
                Ok(_) => return taken_over(&shared, &host_id, kept, mark).await,
                Err(error) => {
                    tracing::warn!(%error, %host_id, "a host has taken over its drain, but the store keeps it too");
                }
            },
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
