//! Who else is there, and how is the store?

use tonic::Status;
use usher_proto::v1;

use super::{Admin, not_stored};
use crate::{
    VERSION,
    grpc::placement::timestamp,
    store::{LinkState, Presence, StoreStatus},
};

impl Admin {
    pub(super) async fn coordinators(&self) -> Result<v1::ListCoordinatorsResponse, Status> {
        let quarantined = self.store.quarantine().await.map_err(not_stored)?.len();
        let own = &self.shared.coordinator_id;
        let mut known = self.store.coordinators();
        if !known.iter().any(|known| known.coordinator_id == *own) {
            // It shares nothing, or could not say yet that it is there.
            known.push(Presence {
                coordinator_id: own.clone(),
                instance_id: self.shared.instance_id.clone(),
                address: self.shared.config.listen.to_string(),
                version: VERSION.to_owned(),
                started_unix_ms: 0,
            });
        }
        known.sort_by(|one, other| one.coordinator_id.cmp(&other.coordinator_id));
        Ok(v1::ListCoordinatorsResponse {
            coordinators: known.into_iter().map(|known| info(known, own)).collect(),
            store: Some(store_info(self.store.status(), quarantined)),
        })
    }
}

fn info(known: Presence, own: &str) -> v1::CoordinatorInfo {
    v1::CoordinatorInfo {
        is_asked: known.coordinator_id == own,
        coordinator_id: known.coordinator_id,
        instance_id: known.instance_id,
        address: known.address,
        version: known.version,
        started: Some(known.started_unix_ms).filter(|at| *at > 0).map(timestamp),
    }
}

fn store_info(status: StoreStatus, quarantined: usize) -> v1::StoreInfo {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let link = |link| match link {
        LinkState::Connected => v1::StoreLink::Connected,
        LinkState::Away => v1::StoreLink::Away,
        LinkState::Unusable => v1::StoreLink::Unusable,
    };
    let StoreStatus { kind, shared } = status;
    v1::StoreInfo {
        kind: kind.to_owned(),
        link: shared.as_ref().map(|shared| link(shared.link).into()),
        since: shared.as_ref().map(|shared| timestamp(shared.since_unix_ms)),
        revision: shared.as_ref().map(|shared| shared.revision).filter(|revision| *revision > 0),
        owed: shared.as_ref().map_or(0, |shared| count(shared.owed)),
        last_error: shared.and_then(|shared| shared.last_error),
        quarantined: count(quarantined),
    }
}
