//! Who holds what, and may be sent to for it.

use std::collections::HashMap;

use tonic::{Code, Status};
use usher_placement::farm::PoolView;
use usher_proto::{
    error::{self, reason},
    fault::id,
    read, v1,
};
use usher_types::{BootTime, HostState, PoolName, Replica, ResourceId};

use super::{each_host, only_host, pool_filter, wanted_pools};
use crate::{grpc::invalid, shared::Shared};

/// Replicas in one answer: about 2 MB at a path of 120 bytes.
const MAX_REPLICAS: usize = 10_000;

/// The replicas that a request asks for.
pub(super) fn list(
    shared: &Shared,
    msg: v1::ListReplicasRequest,
) -> Result<v1::ListReplicasResponse, Status> {
    let only_pool = pool_filter(msg.pool.as_deref())?;
    let only_resource =
        msg.resource.map(|text| id::<ResourceId>("resource", &text)).transpose().map_err(invalid)?;
    let (snapshot, now) = shared.look();
    let only_host = only_host(&snapshot, msg.host.as_deref())?;
    let mut replicas = Vec::new();
    for pool in wanted_pools(&snapshot, only_pool.as_ref())? {
        let states = states(pool, now);
        for (position, host) in pool.hosts.iter().enumerate() {
            if only_host.as_ref().is_some_and(|only| host.facts.host_id != *only) {
                continue;
            }
            let held = host.replicas.iter();
            let held = held.filter(|r| only_resource.as_ref().is_none_or(|only| r.resource_id == *only));
            replicas.extend(held.map(|replica| info(pool, position, states[position], replica)));
            // A farm may hold millions of them, of which the first ten thousand are answered.
            if replicas.len() > 4 * MAX_REPLICAS {
                keep_first(&mut replicas, MAX_REPLICAS + 1);
            }
        }
    }
    keep_first(&mut replicas, MAX_REPLICAS + 1);
    let truncated = replicas.len() > MAX_REPLICAS;
    replicas.truncate(MAX_REPLICAS);
    Ok(v1::ListReplicasResponse { replicas, truncated })
}

/// Every host that holds one resource.
pub(super) fn locate(
    shared: &Shared,
    msg: v1::LocateResourceRequest,
) -> Result<v1::LocateResourceResponse, Status> {
    let wanted = read::locate_resource(msg).map_err(|faults| error::invalid_fields(&faults))?;
    let (snapshot, now) = shared.look();
    let mut replicas = Vec::new();
    for pool in wanted_pools(&snapshot, wanted.pool.as_ref())? {
        let Some(holders) = pool.replicas.get(&wanted.resource) else { continue };
        let states = states(pool, now);
        let held = holders.iter().filter_map(|position| {
            let at = *position as usize;
            let replica = pool.hosts[at].replicas.iter().find(|held| held.resource_id == wanted.resource)?;
            Some(info(pool, at, states[at], replica))
        });
        replicas.extend(held);
    }
    if replicas.is_empty() {
        return Err(held_by_nobody(&wanted.resource, wanted.pool.as_ref()));
    }
    replicas.sort_by(|a, b| (&a.pool, &a.host_name, &a.host_id).cmp(&(&b.pool, &b.host_name, &b.host_id)));
    Ok(v1::LocateResourceResponse { replicas })
}

fn held_by_nobody(resource: &ResourceId, pool: Option<&PoolName>) -> Status {
    let of = pool.map(|pool| format!(" of pool {pool}")).unwrap_or_default();
    let message = format!("no host{of} holds resource {:?}", resource.as_str());
    let metadata = HashMap::from([("resource".to_owned(), resource.to_string())]);
    error::status(Code::NotFound, reason::UNKNOWN_RESOURCE, message, metadata, None)
}

fn states(pool: &PoolView, now: BootTime) -> Vec<HostState> {
    each_host(pool, now, |assessment, position| assessment.state(position))
}

fn info(pool: &PoolView, position: usize, state: HostState, replica: &Replica) -> v1::ReplicaInfo {
    let facts = &pool.hosts[position].facts;
    let mark = pool.replica_mark(position, &replica.resource_id);
    v1::ReplicaInfo {
        resource_id: replica.resource_id.to_string(),
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        pool: pool.name.to_string(),
        path: replica.path.clone(),
        title: replica.title.clone(),
        host_state: v1::HostState::from(state).into(),
        mark: mark.map(|mark| v1::ReplicaMark::from(mark).into()),
    }
}

/// Puts them in order and drops all but the first `count`.
fn keep_first(replicas: &mut Vec<v1::ReplicaInfo>, count: usize) {
    replicas.sort_by(|a, b| (&a.resource_id, &a.host_name).cmp(&(&b.resource_id, &b.host_name)));
    replicas.truncate(count);
}

#[cfg(test)]
mod tests {
    use usher_types::{HostId, PolicyChange, Replica, ReplicaMark};

    use super::*;
    use crate::placing::testing;

    #[tokio::test]
    async fn of_more_replicas_than_fit_the_first_are_answered_in_order() {
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("b", 1), ("a", 1), ("c", 1)]);
        for host in ["a", "b", "c"] {
            let replica = |n: usize| Replica {
                resource_id: ResourceId::new(format!("r{n:06}")).unwrap(),
                path: None,
                title: None,
            };
            farm.observe_replicas(&HostId::new(host).unwrap(), (0..30_000).rev().map(replica).collect());
        }
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        let answer = list(&shared, v1::ListReplicasRequest::default()).unwrap();
        assert!(answer.truncated);
        let expected = (0..MAX_REPLICAS).map(|n| (format!("r{:06}", n / 3), ["a", "b", "c"][n % 3]));
        let found = answer.replicas.iter().map(|r| (r.resource_id.clone(), r.host_name.as_str()));
        assert!(found.eq(expected));
    }

    #[tokio::test]
    async fn a_resource_is_located_with_the_marks_of_its_replicas() {
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("b", 1), ("a", 1), ("c", 1)]);
        let mail = ResourceId::new("mail").unwrap();
        let replica = Replica { resource_id: mail.clone(), path: None, title: Some("Mail".to_owned()) };
        for host in ["a", "b"] {
            farm.observe_replicas(&HostId::new(host).unwrap(), vec![replica.clone()]);
        }
        let b = HostId::new("b").unwrap();
        farm.mark_replica(&b, &mail, Some(ReplicaMark::OutOfService), testing::NOW);
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        let asked = |resource: &str, pool: Option<&str>| v1::LocateResourceRequest {
            resource: resource.to_owned(),
            pool: pool.map(str::to_owned),
        };
        let found = locate(&shared, asked("mail", None)).unwrap().replicas;
        let marks: Vec<_> = found.iter().map(|r| (r.host_name.as_str(), r.mark)).collect();
        assert_eq!(marks, [("a", None), ("b", Some(v1::ReplicaMark::OutOfService.into()))]);
        assert_eq!(list(&shared, v1::ListReplicasRequest::default()).unwrap().replicas, found);
        assert_eq!(locate(&shared, asked("nothing", None)).unwrap_err().code(), Code::NotFound);
        assert_eq!(locate(&shared, asked("mail", Some("nowhere"))).unwrap_err().code(), Code::NotFound);
        assert_eq!(locate(&shared, asked("", None)).unwrap_err().code(), Code::InvalidArgument);
    }
}
