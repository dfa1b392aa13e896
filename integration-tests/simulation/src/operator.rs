//! The operator of the farm: changes settings, drains hosts, and looks at what each coordinator lists.
//!
//! Their links are never broken, so whatever they cannot see is the coordinators' fault, or their absence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{interval, sleep};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use usher_proto::error::error_info;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

use crate::agent::POOL;
use crate::invariants::{HostView, Sighting, Violation};
use crate::network::channel;
use crate::plan::{PLACE_TTL, coordinator, host, rng};
use crate::world::{Asked, State, World, now};

/// How often each coordinator is asked for its list.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const CALL: Duration = Duration::from_secs(2);
/// When all must say the same of the places that were taken last: gateways take them 35 s after the healing.
const ASK_AGAIN: Duration = Duration::from_secs(38);

/// Runs the operator's node.
///
/// # Errors
/// None: it is a node's software.
pub async fn run(world: Arc<World>) -> turmoil::Result {
    for index in 0..world.plan.coordinators {
        tokio::spawn(watch(world.clone(), index));
    }
    tokio::spawn(change(world.clone()));
    ask_again(world).await;
    std::future::pending().await
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL);
    request
}

/// Looks at the list of one coordinator again and again.
async fn watch(world: Arc<World>, index: usize) {
    let channel = channel(&coordinator(index));
    let mut looks = interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let starts = world.state().coordinators[index].starts;
        let mut directory = DirectoryServiceClient::new(channel.clone());
        let Ok(list) = directory.list_hosts(request(v1::ListHostsRequest::default())).await else { continue };
        let mut admin = AdminServiceClient::new(channel.clone());
        let pool = admin.get_pool(request(v1::GetPoolRequest { pool: POOL.to_owned() })).await;
        let pool = pool.ok().and_then(|pool| pool.into_inner().pool);
        let mut state = world.state();
        // A list that crossed a restart is of nobody's.
        if state.coordinators[index].starts == starts {
            take_list(&world, &mut state, index, list.into_inner(), pool);
        }
    }
}

fn take_list(
    world: &World,
    state: &mut State,
    index: usize,
    list: v1::ListHostsResponse,
    pool: Option<v1::PoolInfo>,
) {
    let now = now();
    state.count("lists");
    let pool_version = pool.as_ref().map_or(0, |pool| pool.version);
    let mut views = BTreeMap::new();
    for info in list.hosts {
        let Some(at) = world.host_named(&info.host_id) else { continue };
        let is_offline = info.state() == v1::HostState::Offline;
        // A host that was heard since the start has an age.
        let sighting = Sighting { is_offline, is_heard: info.connected || info.load_age_ms.is_some() };
        let said_goodbye = state.machines[at].said_goodbye;
        let broken = state.grace.look(index, at, sighting, said_goodbye, now);
        state.broke(broken);
        let view = HostView {
            is_connected: info.connected,
            state: info.state().as_str_name().trim_start_matches("HOST_STATE_").to_owned(),
            users: info.users,
            places: info.pending_places,
            drain: drains(&info),
            settings: info.settings_version,
            pool_version,
        };
        if state.is_quiet {
            let name = format!("drain of {}", host(at));
            let is_drained = (!view.drain.is_empty()).to_string();
            check_kept(state, &name, &is_drained, index, now);
        }
        views.insert(at, view);
    }
    if let Some(policy) = pool.and_then(|pool| pool.policy)
        && state.is_quiet
    {
        let value = policy.users_full_scale.unwrap_or_default().to_string();
        check_kept(state, "users_full_scale", &value, index, now);
    }
    state.views.listed(index, now, views);
}

/// Settings have a second to be in force everywhere, and a healed store some more to be heard of.
fn check_kept(state: &mut State, name: &str, value: &str, index: usize, now: Duration) {
    let Some(quiet_since) = state.quiet_since else { return };
    if now.saturating_sub(quiet_since) < Duration::from_secs(40) {
        return;
    }
    let broken = state.kept.look(name, value, &coordinator(index), now);
    state.broke(broken);
}

fn drains(info: &v1::HostInfo) -> String {
    let drain = |drain: &v1::Drain| format!("{} {}", drain.author, drain.reason);
    let (admin, own) = (info.drain.as_ref().map(drain), info.host_drain.as_ref().map(drain));
    admin.into_iter().chain(own).collect::<Vec<_>>().join(", ")
}

/// Changes settings and drains, each time through another coordinator.
async fn change(world: Arc<World>) {
    let mut rng = rng(world.plan.seed, "operator");
    let channels: Vec<Channel> =
        (0..world.plan.coordinators).map(|index| channel(&coordinator(index))).collect();
    sleep(Duration::from_millis(500)).await;
    let policy = || v1::Policy {
        reservation_ttl_ms: Some(u64::try_from(PLACE_TTL.as_millis()).unwrap_or_default()),
        ..v1::Policy::default()
    };
    let mut number = 0.0;
    while !apply(&world, &channels[0], v1::Policy { users_full_scale: Some(number), ..policy() }).await {
        sleep(Duration::from_secs(1)).await;
    }
    loop {
        sleep(Duration::from_secs_f64(rng.random_range(2.0..12.0))).await;
        if world.state().is_quiet {
            break;
        }
        let channel = channels[rng.random_range(0..channels.len())].clone();
        if rng.random_bool(0.5) {
            number += 1.0;
            apply(&world, &channel, v1::Policy { users_full_scale: Some(number), ..v1::Policy::default() })
                .await;
        } else {
            let index = rng.random_range(0..world.plan.limits.len());
            let is_drained = rng.random_bool(0.4);
            drain(&world, channel, index, is_drained, &mut rng).await;
        }
    }
    // Whoever was drained at the end is let in again, so that the farm can be looked at as a whole; some stay.
    for index in 0..world.plan.limits.len() {
        if index % 2 == 0 {
            sleep(Duration::from_secs(16)).await;
            drain(&world, channels[index % channels.len()].clone(), index, false, &mut rng).await;
        }
    }
}

/// Whether it was acknowledged.
async fn apply(world: &World, channel: &Channel, policy: v1::Policy) -> bool {
    let value = policy.users_full_scale.unwrap_or_default().to_string();
    world.state().kept.asked("users_full_scale", &value);
    let message = v1::ApplyPoolRequest { pool: POOL.to_owned(), policy: Some(policy), ..Default::default() };
    let answer = AdminServiceClient::new(channel.clone()).apply_pool(request(message)).await;
    changed(&mut world.state(), "users_full_scale", &value, answer.map(drop));
    world.state().kept.is_acknowledged("users_full_scale", &value)
}

async fn drain(world: &World, channel: Channel, index: usize, is_drained: bool, rng: &mut StdRng) {
    let (name, value) = (format!("drain of {}", host(index)), is_drained.to_string());
    world.state().kept.asked(&name, &value);
    let mut admin = AdminServiceClient::new(channel);
    let answer = if is_drained {
        let message = v1::DrainHostRequest {
            host: host(index),
            // A boot would end the other kind.
            mode: v1::DrainMode::Persistent.into(),
            reason: format!("work {}", rng.random_range(0..1000)),
            no_reconnect: false,
        };
        admin.drain_host(request(message)).await.map(drop)
    } else {
        admin.undrain_host(request(v1::UndrainHostRequest { host: host(index) })).await.map(drop)
    };
    changed(&mut world.state(), &name, &value, answer);
}

fn changed(state: &mut State, name: &str, value: &str, answer: Result<(), Status>) {
    let said = match answer {
        Ok(()) => {
            state.kept.acknowledged(name, value, now());
            state.count("changes_acknowledged");
            "done".to_owned()
        }
        Err(status) => {
            state.count("changes_refused");
            // A refusal with a reason is one; anything else may have been done before the answer was lost.
            if let Some(info) = error_info(&status)
                && !matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
            {
                state.kept.refused(name, value);
                info.reason
            } else {
                format!("{:?} {}", status.code(), status.message())
            }
        }
    };
    state.event(format!("{name} shall be {value}: {said}"));
}

/// Asks every coordinator for every place that is held, as its gateway would: all must give what was given.
async fn ask_again(world: Arc<World>) {
    let quiet_since = loop {
        sleep(Duration::from_millis(500)).await;
        if let Some(since) = world.state().quiet_since {
            break since;
        }
    };
    sleep((quiet_since + ASK_AGAIN).saturating_sub(now())).await;
    let asked: Vec<(String, Asked)> =
        world.state().asked.iter().map(|(token, asked)| (token.clone(), asked.clone())).collect();
    for (token, asked) in asked {
        for index in 0..world.plan.coordinators {
            let mut again = request(v1::PlaceRequest { attempt: 1, ..asked.request.clone() });
            // Letters and digits.
            let name = asked.gateway.parse().expect("a gateway's name is a header's value");
            again.metadata_mut().insert("usher-gateway", name);
            let answer = PlacementServiceClient::new(channel(&coordinator(index))).place(again).await;
            let placed = answer.ok().and_then(|answer| answer.into_inner().placement);
            let given = placed.as_ref().and_then(|placed| world.host_named(&placed.host_id));
            let mut state = world.state();
            state.count("places_asked_for_again");
            if given != Some(asked.host) {
                let what = format!(
                    "{token} has its place on {}, {} says {:?}",
                    host(asked.host),
                    coordinator(index),
                    placed.map(|placed| placed.host_name)
                );
                state.broke([Violation::new("one_host", now(), what)]);
            }
        }
    }
}
