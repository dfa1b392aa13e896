//! What holds of every value that was accepted.

use usher_proto::{ExpectSession, OutcomeNotice, SessionsPage};
use usher_types::{
    CriticalLevel, Drain, EndedPlace, Endpoint, FailureCause, Hello, HostMarks, HostOverrides, Latency, Load,
    Outcome, Penalty, PendingLimit, PendingPlace, Policy, ToldOutcome, UserLimit,
};

fn at_least_0(number: f64) {
    assert!(number.is_finite() && number >= 0.0, "{number}");
}

pub(crate) fn name(text: &str) {
    assert!((1..=256).contains(&text.len()) && !text.chars().any(char::is_control), "{text:?}");
}

pub(crate) fn endpoint(endpoint: &Endpoint) {
    name(&endpoint.kind);
    name(&endpoint.address);
    assert!(endpoint.port > 0);
}

pub(crate) fn hello(hello: &Hello) {
    assert!((1..=32).contains(&hello.endpoints.len()) && hello.labels.len() <= 64);
    hello.endpoints.iter().for_each(endpoint);
    assert!(hello.cores != Some(0) && hello.memory_bytes != Some(0));
    assert!((100..=3_600_000).contains(&hello.report_interval.as_millis()));
    assert!((100..=300_000).contains(&hello.latency_period.as_millis()));
}

pub(crate) fn load(load: &Load) {
    load.runnable_demand.iter().copied().for_each(at_least_0);
    assert!(load.memory.is_none_or(|memory| memory.used_bytes <= memory.total_bytes));
    overrides(&load.overrides);
    if let Some(logons) = load.logons_in_progress {
        at_least_0(logons.mean);
    }
    if let Some(finished) = load.finished_logons {
        at_least_0(finished.seconds);
        finished.core_seconds.iter().copied().for_each(at_least_0);
    }
    assert!(load.mounts.len() <= 64 && load.collectors.len() <= 64 && load.penalties.len() <= 256);
    assert!(load.mounts.iter().all(|mount| (1..=1024).contains(&mount.path.len())));
    for list in [load.outcomes.len(), load.pending.len(), load.ended.len()] {
        assert!(list <= 4095);
    }
    load.own_availability.iter().for_each(|own| name(&own.source));
    load.drain.iter().for_each(drain);
    load.outcomes.iter().for_each(told_outcome);
    load.penalties.iter().for_each(penalty);
    load.pending.iter().for_each(pending_place);
    load.ended.iter().for_each(ended_place);
}

fn overrides(own: &HostOverrides) {
    assert!(own.capacity.is_none_or(|capacity| capacity > 0.0 && capacity <= 1000.0));
    assert!(own.range.is_none_or(|range| (1.0..=30.0).contains(&range)));
    assert!(own.max_users != Some(UserLimit::Users(0)));
}

pub(crate) fn host_marks(marks: &HostMarks) {
    overrides(&marks.over(HostOverrides::default()));
}

pub(crate) fn latency(latency: &Latency) {
    assert!(latency.operations.len() <= 1024);
    for operation in &latency.operations {
        for number in [operation.ok, operation.failed, operation.too_long, operation.sum_us] {
            at_least_0(number);
        }
        for number in [operation.min_us, operation.baseline_us].into_iter().flatten() {
            assert!(number.is_finite() && number > 0.0, "{number}");
        }
    }
}

pub(crate) fn sessions_page(page: &SessionsPage) {
    for session in &page.sessions {
        name(&session.id);
        name(&session.user);
    }
}

pub(crate) fn drain(drain: &Drain) {
    assert!(drain.reason.len() <= 1024 && drain.author.len() <= 256);
}

pub(crate) fn pending_place(place: &PendingPlace) {
    assert!(place.attempt >= 1 && (1..=100).contains(&place.cost) && place.counted_users <= place.cost);
    assert!(place.left.as_secs() <= 86_400);
    place.user.iter().for_each(|user| name(user));
    endpoint(&place.endpoint);
}

pub(crate) fn ended_place(place: &EndedPlace) {
    assert!(place.attempt >= 1);
    endpoint(&place.endpoint);
}

pub(crate) fn cause(outcome: Outcome, cause: Option<FailureCause>) {
    assert!(cause.is_none() || outcome == Outcome::Failed, "{outcome:?} has a cause");
}

pub(crate) fn told_outcome(told: &ToldOutcome) {
    cause(told.outcome, told.cause);
}

pub(crate) fn outcome_notice(notice: &OutcomeNotice) {
    cause(notice.outcome, notice.cause);
}

pub(crate) fn penalty(penalty: &Penalty) {
    assert!(penalty.times >= 1 && penalty.left.as_secs() <= 86_400);
}

pub(crate) fn expect_session(expect: &ExpectSession) {
    pending_place(&expect.place);
    assert!(expect.max_users != UserLimit::Users(0) && expect.max_pending != PendingLimit::Logons(0));
}

pub(crate) fn policy(policy: &Policy) {
    let weights = policy.weights;
    let shares =
        [weights.cpu_percent, weights.memory_percent, weights.users_percent, weights.processes_percent];
    shares.into_iter().for_each(at_least_0);
    assert!((shares.iter().sum::<f64>() - 100.0).abs() < 0.02, "{shares:?}");
    for number in [policy.users_full_scale, policy.min_possible_us, policy.max_possible_us] {
        at_least_0(number);
    }
    assert!(policy.min_possible_us > 0.0 && policy.min_possible_us <= policy.max_possible_us);
    assert!((1.0..=30.0).contains(&policy.range));
    for percent in [policy.threshold_percent, policy.exit_margin_percent, policy.max_error_share_percent] {
        assert!((0.0..=100.0).contains(&percent));
    }
    for level in [policy.mem_critical, policy.cpu_critical, policy.psi_critical, policy.mount_critical] {
        assert!(level == CriticalLevel::Off || level.percent().is_some_and(|p| p > 0.0 && p <= 100.0));
    }
    assert!(policy.max_users != UserLimit::Users(0) && policy.max_pending != PendingLimit::Logons(0));
    assert!((1_000..=86_400_000).contains(&policy.reservation_ttl.as_millis()));
}
