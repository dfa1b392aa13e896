//! How is a checked value put on the wire?
//!
//! Nothing here can fail: the types hold only what the wire can carry, and durations are written in whole
//! milliseconds.

mod load;
mod place;
mod settings;

use std::time::Duration;

use usher_types::{Endpoint, Goodbye, Hello, Latency, OperationWindow, Replica, Session};

pub use self::{
    load::{
        busy_latches, collector_state, finished_logons, load, load_with, logons_in_progress, mount_fullness,
        own_availability,
    },
    place::{
        end_place, ended_place, expect_session, outcome_notice, penalty, pending_place, place_answer, token,
        told_outcome,
    },
    settings::{
        critical_level, drain, field_change, host_marks, host_marks_change, pending_limit, policy,
        policy_change, pool_settings, pool_settings_for, set_drain, set_drain_answer, user_limit, weights,
    },
};
use crate::{
    PROTOCOL_VERSION,
    messages::{InventoryPage, ResetBaselines, SessionCheck, SessionsPage, Tick},
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
        reporter: hello.is_reporter,
        // Of the program that sends it, not of the host: whoever answers SetDrain says so.
        keeps_drain: false,
        held_instance_ids: Vec::new(),
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
        baseline_provisional: operation.baseline_is_provisional,
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

/// Which session a coordinator asks for.
pub fn session_check(check: &SessionCheck) -> v1::SessionCheck {
    v1::SessionCheck {
        check_id: check.check_id,
        session_id: check.session_id.clone(),
        user: check.user.clone(),
    }
}

/// The beat of a stream.
pub fn tick(tick: Tick) -> v1::Tick {
    v1::Tick {
        tick: tick.tick,
        reconnect_spread_ms: tick.reconnect_spread.map(ms_u32),
        confirmed_elsewhere_ms: tick.confirmed_elsewhere.map(ms),
    }
}

/// What a host is to forget.
pub fn reset_baselines(reset: &ResetBaselines) -> v1::ResetBaselines {
    v1::ResetBaselines { operation: reset.operation.as_ref().map(ToString::to_string) }
}
