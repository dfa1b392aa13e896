//! `DirectoryService`: what is in the farm?

use std::{collections::HashMap, sync::Arc};

use tonic::{Code, Request, Response, Status};
use usher_availability::{Basis, operation_expansion};
use usher_placement::{
    decision::{Assessment, Inputs, Request as PlacementRequest, assess_pool},
    farm::{HostView, PoolView, Snapshot, state_reason},
};
use usher_proto::{
    error::{self, reason},
    fault::id,
    v1::{self, directory_service_server::DirectoryService},
    write,
};
use usher_types::{BootTime, GatewayId, HostId, PoolName, RequestId, ResourceId, Token};

use super::{invalid, placement::load_terms};
use crate::shared::Shared;

/// Replicas in one answer: about 2 MB at a path of 120 bytes.
const MAX_REPLICAS: usize = 10_000;

/// The service.
pub(crate) struct Directory(pub Arc<Shared>);

/// The error for a name that is not exactly one host's.
pub(super) fn not_one_host(text: &str, ids: &[HostId]) -> Status {
    let shown = usher_proto::fault::cut(text.escape_debug().to_string(), 128);
    if ids.is_empty() {
        let metadata = HashMap::from([("host".to_owned(), shown.clone())]);
        return error::status(
            Code::NotFound,
            reason::UNKNOWN_HOST,
            format!("there is no host {shown}"),
            metadata,
            None,
        );
    }
    let ids: Vec<&str> = ids.iter().map(HostId::as_str).collect();
    let message = format!("host name {shown} is ambiguous, name one of the ids {}", ids.join(", "));
    let metadata = HashMap::from([("ids".to_owned(), ids.join(","))]);
    error::status(Code::FailedPrecondition, reason::AMBIGUOUS_HOST, message, metadata, None)
}

/// A request that changes nothing in how hosts are seen: one login of an unknown user.
fn neutral(pool: &PoolView) -> Option<PlacementRequest> {
    Some(PlacementRequest {
        token: Token { gateway: GatewayId::new("list").ok()?, request_id: RequestId::new("list").ok()? },
        attempt: 1,
        pool: pool.name.clone(),
        resource: None,
        user: None,
        client_zone: None,
        cost: 1,
        exclude: Vec::new(),
        prefer_host: None,
        dry_run: true,
        failover: None,
    })
}

/// Every host of a pool as it is seen now.
fn host_infos<T>(pool: &PoolView, now: BootTime, each: impl Fn(&Assessment<'_>, usize) -> T) -> Vec<T> {
    let words = pool.words();
    let Some(request) = neutral(pool) else { return Vec::new() };
    let inputs =
        Inputs { pool, words: &words, request: &request, own_places: &[], unwilling: &[], now, seed: 0 };
    let assessment = assess_pool(&inputs);
    (0..pool.hosts.len()).map(|position| each(&assessment, position)).collect()
}

/// How many hosts of each pool are in each state.
pub(crate) fn count_states(snapshot: &Snapshot, now: BootTime) -> Vec<(PoolName, usher_types::HostState)> {
    let states = |pool: &Arc<PoolView>| {
        let name = pool.name.clone();
        host_infos(pool, now, move |assessment, position| (name.clone(), assessment.state(position)))
    };
    snapshot.pools.values().flat_map(states).collect()
}

fn host_info(assessment: &Assessment<'_>, position: usize) -> v1::HostInfo {
    let Inputs { pool, words, now, .. } = *assessment.inputs();
    let (host, word) = (&pool.hosts[position], words[position]);
    let (facts, reading) = (&host.facts, host.reading.as_deref());
    let state = assessment.state(position);
    let availability = host.availability(now);
    let sessions = reading.and_then(|reading| reading.sessions);
    let millis = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    v1::HostInfo {
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        pool: facts.pool.to_string(),
        zone: facts.zone.as_ref().map(ToString::to_string),
        endpoints: facts.endpoints.iter().map(write::endpoint).collect(),
        labels: facts.labels.clone().into_iter().collect(),
        state: v1::HostState::from(state).into(),
        state_reason: state_reason(&pool.state_input(position, word, 1, now), state),
        flags: flags(assessment, host, position),
        r#virtual: facts.is_virtual,
        connected: host.connected,
        agent_version: facts.agent_version.clone(),
        boot_id: facts.boot_id.to_string(),
        load_age_ms: reading.and_then(|reading| reading.age(now)).map(millis),
        cpu_percent: reading.and_then(|reading| reading.cpu_percent),
        memory_percent: reading.and_then(|reading| reading.memory).map(|memory| memory.used().get()),
        memory_used_bytes: reading.and_then(|reading| reading.memory).map(|memory| memory.used_bytes),
        memory_total_bytes: reading.and_then(|reading| reading.memory).map(|memory| memory.total_bytes),
        users: word.users().or(reading.and_then(|reading| reading.users)),
        processes: reading.and_then(|reading| reading.processes),
        sessions_active: sessions.map(|sessions| sessions.active),
        sessions_disconnected: sessions.map(|sessions| sessions.disconnected),
        sessions_lingering: sessions.map(|sessions| sessions.lingering),
        pending_users: word.pending_users(),
        pending_places: word.places(),
        availability_index: availability.index,
        expansion_factor: availability.expansion_factor,
        weighted_load: assessment
            .terms(position)
            .filter(|_| state.is_eligible())
            .map(|terms| load_terms(&terms)),
        capacity: host.capacity(),
        max_users: host.max_users(&pool.policy).finite(),
        drain: host.drain.as_ref().map(|mark| write::drain(&mark.drain)),
        cores: facts.cores,
        cpu_model: facts.cpu_model.clone(),
        collectors: reading
            .map(|reading| reading.collectors.iter().map(write::collector_state).collect())
            .unwrap_or_default(),
        settings_version: reading.and_then(|reading| reading.settings_version),
        replicas: u32::try_from(host.replicas.len()).unwrap_or(u32::MAX),
        uptime_ms: reading.and_then(|reading| reading.uptime).map(millis),
        clock_skew_ms: reading.and_then(|reading| reading.clock_skew_ms),
        rejected_values: host.rejected_values,
    }
}

/// What qualifies a host's numbers.
fn flags(assessment: &Assessment<'_>, host: &HostView, position: usize) -> Vec<String> {
    let mut flags: Vec<String> = Vec::new();
    if assessment.state(position).is_eligible() {
        flags.extend(assessment.host_flags(position).names().map(str::to_owned));
    }
    if host.availability(assessment.inputs().now).basis == Basis::NoData {
        flags.push("no_data".to_owned());
    }
    let stale = host.reading.iter().flat_map(|reading| &reading.stale);
    flags.extend(stale.map(|metric| format!("stale_{metric}")));
    flags
}

impl Directory {
    fn pool_filter(text: Option<&str>) -> Result<Option<PoolName>, Status> {
        text.map(|text| id::<PoolName>("pool", text)).transpose().map_err(invalid)
    }
}

#[tonic::async_trait]
impl DirectoryService for Directory {
    async fn list_hosts(
        &self,
        request: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        let only = Self::pool_filter(request.into_inner().pool.as_deref())?;
        let (snapshot, now) = (self.0.snapshot.load_full(), self.0.now());
        if let Some(pool) = only.as_ref().filter(|pool| !snapshot.pools.contains_key(*pool)) {
            return Err(crate::placing::unknown_pool(pool));
        }
        let pools =
            snapshot.pools.values().filter(|pool| only.as_ref().is_none_or(|only| pool.name == *only));
        let mut hosts: Vec<v1::HostInfo> = pools.flat_map(|pool| host_infos(pool, now, host_info)).collect();
        hosts.sort_by(|a, b| (&a.pool, &a.host_name, &a.host_id).cmp(&(&b.pool, &b.host_name, &b.host_id)));
        let (heard, registered) =
            snapshot.pools.values().next().map_or((0, 0), |pool| (pool.hosts_heard, pool.hosts_registered));
        Ok(Response::new(v1::ListHostsResponse { hosts, hosts_heard: heard, hosts_registered: registered }))
    }

    async fn get_host(
        &self,
        request: Request<v1::GetHostRequest>,
    ) -> Result<Response<v1::GetHostResponse>, Status> {
        let text = request.into_inner().host;
        let (snapshot, now) = (self.0.snapshot.load_full(), self.0.now());
        let (pool, position) = snapshot.find_host(&text).map_err(|ids| not_one_host(&text, &ids))?;
        let host = &pool.hosts[position];
        let info =
            host_infos(pool, now, |assessment, at| (at == position).then(|| host_info(assessment, at)));
        let operations = host.latency.iter().flat_map(|latency| &latency.latency.operations);
        let places = self.0.ledger.on_host(&host.facts.host_id);
        Ok(Response::new(v1::GetHostResponse {
            host: info.into_iter().flatten().next(),
            operations: operations
                .map(|operation| v1::OperationInfo {
                    window: Some(write::operation_window(operation)),
                    expansion_factor: operation_expansion(operation).map(|factor| factor.expansion_factor),
                })
                .collect(),
            pending: places
                .iter()
                .filter_map(|grant| grant.to_place(now))
                .map(|place| write::pending_place(&place))
                .collect(),
            sessions: host.sessions.iter().map(write::session).collect(),
        }))
    }

    async fn list_replicas(
        &self,
        request: Request<v1::ListReplicasRequest>,
    ) -> Result<Response<v1::ListReplicasResponse>, Status> {
        let msg = request.into_inner();
        let only_pool = Self::pool_filter(msg.pool.as_deref())?;
        let only_resource =
            msg.resource.map(|text| id::<ResourceId>("resource", &text)).transpose().map_err(invalid)?;
        let (snapshot, now) = (self.0.snapshot.load_full(), self.0.now());
        let only_host = match &msg.host {
            Some(text) => {
                let (pool, at) = snapshot.find_host(text).map_err(|ids| not_one_host(text, &ids))?;
                Some(pool.hosts[at].facts.host_id.clone())
            }
            None => None,
        };
        if let Some(pool) = only_pool.as_ref().filter(|pool| !snapshot.pools.contains_key(*pool)) {
            return Err(crate::placing::unknown_pool(pool));
        }
        let mut replicas = Vec::new();
        for pool in snapshot.pools.values().filter(|pool| only_pool.as_ref().is_none_or(|p| pool.name == *p))
        {
            let states = host_infos(pool, now, |assessment, position| assessment.state(position));
            for (host, state) in pool.hosts.iter().zip(states) {
                if only_host.as_ref().is_some_and(|only| host.facts.host_id != *only) {
                    continue;
                }
                let held = host.replicas.iter();
                let held = held.filter(|r| only_resource.as_ref().is_none_or(|only| r.resource_id == *only));
                replicas.extend(held.map(|replica| v1::ReplicaInfo {
                    resource_id: replica.resource_id.to_string(),
                    host_id: host.facts.host_id.to_string(),
                    host_name: host.facts.name.to_string(),
                    pool: pool.name.to_string(),
                    path: replica.path.clone(),
                    title: replica.title.clone(),
                    host_state: v1::HostState::from(state).into(),
                }));
                // A farm may hold millions of them, of which the first ten thousand are answered.
                if replicas.len() > 4 * MAX_REPLICAS {
                    keep_first(&mut replicas, MAX_REPLICAS + 1);
                }
            }
        }
        keep_first(&mut replicas, MAX_REPLICAS + 1);
        let truncated = replicas.len() > MAX_REPLICAS;
        replicas.truncate(MAX_REPLICAS);
        Ok(Response::new(v1::ListReplicasResponse { replicas, truncated }))
    }
}

/// Puts them in order and drops all but the first `count`.
fn keep_first(replicas: &mut Vec<v1::ReplicaInfo>, count: usize) {
    replicas.sort_by(|a, b| (&a.resource_id, &a.host_name).cmp(&(&b.resource_id, &b.host_name)));
    replicas.truncate(count);
}

#[cfg(test)]
mod tests {
    use usher_types::{PolicyChange, Replica};

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
        let all = v1::ListReplicasRequest::default();
        let answer = Directory(shared).list_replicas(Request::new(all)).await.unwrap().into_inner();
        assert!(answer.truncated);
        let expected = (0..MAX_REPLICAS).map(|n| (format!("r{:06}", n / 3), ["a", "b", "c"][n % 3]));
        let found = answer.replicas.iter().map(|r| (r.resource_id.clone(), r.host_name.as_str()));
        assert!(found.eq(expected));
    }
}
