//! How is a checked value put on the wire?
//!
//! Nothing here can fail: the types hold only what the wire can carry, and durations are written in whole
//! milliseconds.

use std::time::Duration;

use usher_types::{
    CollectorState, Drain, EndedPlace, Endpoint, Goodbye, Hello, Latency, Load, OperationWindow,
    PendingPlace, Percent, Policy, PolicyChange, Readiness, Replica, Session, Token, UserLimit, Weights,
    WeightsChange,
};

use crate::{
    PROTOCOL_VERSION,
    messages::{
        EndPlace, ExpectSession, InventoryPage, OutcomeNotice, PlaceAnswer, PoolSettings, SessionCheck,
        SessionsPage,
    },
    v1,
};

/// Whole milliseconds; saturates.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn ms_u32(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Who a host is, in this build's protocol version.
pub fn hello(hello: &Hello) -> v1::Hello {
    v1::Hello {
        protocol_version: PROTOCOL_VERSION,
        agent_version: hello.agent_version.clone(),
        host_id: hello.host_id.to_string(),
        boot_id: hello.boot_id.to_string(),
        stream_epoch: hello.stream_epoch,
        incarnation_ms: hello.incarnation_ms,
        host_name: hello.host_name.to_string(),
        endpoints: hello.endpoints.iter().map(endpoint).collect(),
        labels: hello.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        pool: hello.pool.to_string(),
        zone: hello.zone.as_ref().map(ToString::to_string),
        cores: hello.cores,
        memory_bytes: hello.memory_bytes,
        cpu_model: hello.cpu_model.clone(),
        report_interval_ms: ms_u32(hello.report_interval),
        latency_period_ms: ms_u32(hello.latency_period),
        r#virtual: hello.is_virtual,
    }
}

/// Where clients reach a host.
pub fn endpoint(endpoint: &Endpoint) -> v1::Endpoint {
    v1::Endpoint {
        kind: endpoint.kind.clone(),
        address: endpoint.address.clone(),
        port: endpoint.port.into(),
    }
}

/// Which place is meant.
pub fn token(token: &Token) -> v1::Token {
    v1::Token { gateway: token.gateway.to_string(), request_id: token.request_id.to_string() }
}

/// What a host is like now.
pub fn load(load: &Load) -> v1::Load {
    let (ready, not_ready_reason) = match &load.readiness {
        Readiness::Ready => (true, None),
        Readiness::NotReady(reason) => (false, Some(reason.clone())),
    };
    v1::Load {
        sequence: load.sequence,
        incarnation_ms: load.incarnation_ms,
        tick_echo: load.tick_echo,
        cpu_percent: load.cpu.map(Percent::get),
        runnable_demand: load.runnable_demand,
        memory_used_bytes: load.memory.map(|memory| memory.used_bytes),
        memory_total_bytes: load.memory.map(|memory| memory.total_bytes),
        users: load.users,
        sessions_active: load.sessions.map(|sessions| sessions.active),
        sessions_disconnected: load.sessions.map(|sessions| sessions.disconnected),
        sessions_lingering: load.sessions.map(|sessions| sessions.lingering),
        processes: load.processes,
        ready: Some(ready),
        not_ready_reason,
        uptime_ms: load.uptime.map(ms),
        availability_latched: load.availability_latched,
        collectors: load.collectors.iter().map(collector_state).collect(),
        pending: load.pending.iter().map(pending_place).collect(),
        ended: load.ended.iter().map(ended_place).collect(),
        settings_version: load.settings_version,
        capacity: load.overrides.capacity,
        max_users: load.overrides.max_users.map(user_limit),
        threshold_percent: load.overrides.threshold.map(Percent::get),
        range: load.overrides.range,
        streams_held: load.streams_held,
        wall_clock_unix_ms: load.wall_clock_unix_ms,
    }
}

/// How a collector fares.
pub fn collector_state(state: &CollectorState) -> v1::CollectorState {
    v1::CollectorState {
        name: state.name.clone(),
        source: state.source.clone(),
        error: state.error.clone(),
        warning: state.warning.clone(),
    }
}

/// A live place.
pub fn pending_place(place: &PendingPlace) -> v1::PendingPlace {
    v1::PendingPlace {
        token: Some(token(&place.token)),
        attempt: place.attempt,
        content_hash: place.content_hash,
        pool: place.pool.to_string(),
        endpoint: Some(endpoint(&place.endpoint)),
        user: place.user.clone(),
        cost: place.cost,
        counted_users: place.counted_users,
        left_ms: ms(place.left),
        connected: place.connected,
        admitted: place.admitted,
    }
}

/// A place that ended.
pub fn ended_place(place: &EndedPlace) -> v1::EndedPlace {
    v1::EndedPlace {
        token: Some(token(&place.token)),
        attempt: place.attempt,
        reason: v1::EndReason::from(place.reason).into(),
        ended_ago_ms: ms(place.ended_ago),
        content_hash: place.content_hash,
        pool: place.pool.to_string(),
        endpoint: Some(endpoint(&place.endpoint)),
    }
}

/// The whole window of every operation.
pub fn latency(latency: &Latency) -> v1::Latency {
    v1::Latency {
        sequence: latency.sequence,
        incarnation_ms: latency.incarnation_ms,
        window_ms: ms(latency.window),
        operations: latency.operations.iter().map(operation_window).collect(),
        overflow_calls: latency.overflow_calls,
    }
}

/// One operation over the window.
pub fn operation_window(operation: &OperationWindow) -> v1::OperationWindow {
    v1::OperationWindow {
        name: operation.name.to_string(),
        ok: operation.ok,
        failed: operation.failed,
        too_long: operation.too_long,
        sum_us: operation.sum_us,
        min_us: operation.min_us,
        in_flight: operation.in_flight,
        oldest_in_flight_ms: operation.oldest_in_flight.map(ms),
        baseline_us: operation.baseline_us,
        baseline_age_ms: operation.baseline_age.map(ms),
        baseline_samples: operation.baseline_samples,
    }
}

/// A page of what a host serves.
pub fn inventory_page(page: &InventoryPage) -> v1::InventoryPage {
    v1::InventoryPage {
        generation: page.generation,
        page: page.page,
        last: page.last,
        replicas: page.replicas.iter().map(replica).collect(),
    }
}

/// One host's copy of a resource.
pub fn replica(replica: &Replica) -> v1::Replica {
    v1::Replica {
        resource_id: replica.resource_id.to_string(),
        path: replica.path.clone(),
        title: replica.title.clone(),
    }
}

/// A page of a host's sessions.
pub fn sessions_page(page: &SessionsPage) -> v1::SessionsPage {
    v1::SessionsPage {
        generation: page.generation,
        page: page.page,
        last: page.last,
        sessions: page.sessions.iter().map(session).collect(),
        unlisted_sessions: page.unlisted_sessions,
    }
}

/// A session.
pub fn session(session: &Session) -> v1::Session {
    v1::Session {
        id: session.id.clone(),
        user: session.user.clone(),
        state: v1::SessionState::from(session.state).into(),
        age_ms: session.age.map(ms),
    }
}

/// Why a stream ends.
pub fn goodbye(reason: Goodbye) -> v1::Goodbye {
    v1::Goodbye { reason: v1::GoodbyeReason::from(reason).into() }
}

/// A host's answer to a place that it was asked for.
pub fn place_answer(answer: &PlaceAnswer) -> v1::PlaceAnswer {
    v1::PlaceAnswer {
        token: Some(token(&answer.token)),
        attempt: answer.attempt,
        refused: answer.answer.err().map(|reason| v1::RefusalReason::from(reason).into()),
    }
}

/// A place that a host is told of, or asked for.
pub fn expect_session(expect: &ExpectSession) -> v1::ExpectSession {
    v1::ExpectSession {
        place: Some(pending_place(&expect.place)),
        ask: expect.ask,
        max_users: expect.max_users.finite(),
    }
}

/// A place that ended at the coordinator.
pub fn end_place(end: &EndPlace) -> v1::EndPlace {
    v1::EndPlace {
        token: Some(token(&end.token)),
        attempt: end.attempt,
        reason: v1::EndReason::from(end.reason).into(),
    }
}

/// What a gateway said of a login.
pub fn outcome_notice(notice: &OutcomeNotice) -> v1::OutcomeNotice {
    v1::OutcomeNotice { token: Some(token(&notice.token)), outcome: v1::Outcome::from(notice.outcome).into() }
}

/// Which session a coordinator asks for.
pub fn session_check(check: &SessionCheck) -> v1::SessionCheck {
    v1::SessionCheck {
        check_id: check.check_id,
        session_id: check.session_id.clone(),
        user: check.user.clone(),
    }
}

/// The settings of a host's pool.
pub fn pool_settings(settings: &PoolSettings) -> v1::PoolSettings {
    v1::PoolSettings {
        pool: settings.pool.to_string(),
        version: settings.version,
        policy: Some(policy(&settings.policy)),
        drain: settings.drain.as_ref().map(drain),
    }
}

/// A drain.
pub fn drain(drain: &Drain) -> v1::Drain {
    v1::Drain {
        mode: v1::DrainMode::from(drain.mode).into(),
        reason: drain.reason.clone(),
        author: drain.author.clone(),
        no_reconnect: drain.no_reconnect,
    }
}

/// A pool's settings, with every field present.
pub fn policy(policy: &Policy) -> v1::Policy {
    policy_change(&PolicyChange::of(policy))
}

/// What an operator wants to change; fields that are not changed are not set.
pub fn policy_change(change: &PolicyChange) -> v1::Policy {
    v1::Policy {
        method: change.method.map(|method| v1::Method::from(method).into()),
        weights: change.weights.map(weights_change),
        users_full_scale: change.users_full_scale,
        range: change.range,
        threshold_percent: change.threshold_percent,
        exit_margin_percent: change.exit_margin_percent,
        max_users: change.max_users.map(user_limit),
        baseline: change.baseline.map(|baseline| v1::Baseline::from(baseline).into()),
        min_possible_us: change.min_possible_us,
        max_possible_us: change.max_possible_us,
        predict: change.predict,
        affinity: change.affinity.map(|affinity| v1::Affinity::from(affinity).into()),
        allow_unknown: change.allow_unknown,
        reservation_ttl_ms: change.reservation_ttl_ms,
        user_match: change.user_match.map(|user_match| v1::UserMatch::from(user_match).into()),
        shared_accounts: change.shared_accounts.clone().map(|names| v1::SharedAccounts { names }),
    }
}

/// The weights of a pool.
pub const fn weights(weights: Weights) -> v1::Weights {
    v1::Weights {
        cpu_percent: Some(weights.cpu_percent),
        memory_percent: Some(weights.memory_percent),
        users_percent: Some(weights.users_percent),
        processes_percent: Some(weights.processes_percent),
    }
}

const fn weights_change(change: WeightsChange) -> v1::Weights {
    v1::Weights {
        cpu_percent: change.cpu_percent,
        memory_percent: change.memory_percent,
        users_percent: change.users_percent,
        processes_percent: change.processes_percent,
    }
}

/// A limit on users.
pub const fn user_limit(limit: UserLimit) -> v1::UserLimit {
    let limit = match limit {
        UserLimit::Unlimited => v1::user_limit::Limit::Unlimited(true),
        UserLimit::Users(users) => v1::user_limit::Limit::Users(users),
    };
    v1::UserLimit { limit: Some(limit) }
}
