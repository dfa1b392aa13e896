//! Every kind of message that is read, with valid ones to start from.

use std::fmt::Debug;

use prost::Message;
use serde::Serialize;
use usher_proto::{error, fault::FieldFault, read, v1, write};
use usher_types::{GatewayId, HostMarks, Policy, PolicyChange};

use crate::{corpus, ranges};

pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Encodings of valid messages.
    pub(crate) corpus: Vec<Vec<u8>>,
    /// Whether the message was accepted. Panics if what was accepted, or how it was refused, is wrong.
    pub(crate) feed: fn(&[u8]) -> bool,
}

fn encoded<M: Message>(messages: Vec<M>) -> Vec<Vec<u8>> {
    messages.iter().map(Message::encode_to_vec).collect()
}

/// The message, if it is one. Any that is must have a JSON form.
fn decoded<M: Message + Default + Serialize>(bytes: &[u8]) -> Option<M> {
    let msg = M::decode(bytes).ok()?;
    assert!(serde_json::to_string(&msg).is_ok());
    Some(msg)
}

/// A refusal is short, printable, and fits an answer.
fn check_faults(faults: &[FieldFault]) {
    assert!(faults.len() <= 257, "{} faults", faults.len());
    for fault in faults {
        let text = fault.to_string();
        assert!(!text.is_empty() && text.len() <= 2000, "{} bytes", text.len());
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    let status = error::invalid_fields(faults);
    assert!(status.message().len() <= 2000 && status.details().len() < 6 * 1024);
}

/// One fault or many.
trait Refusal {
    fn check(&self);
}

impl Refusal for FieldFault {
    fn check(&self) {
        check_faults(std::slice::from_ref(self));
    }
}

impl Refusal for Vec<FieldFault> {
    fn check(&self) {
        assert!(!self.is_empty(), "a refusal without a reason");
        check_faults(self);
    }
}

/// A report is always taken; what is left of it must pass a second time without a fault.
fn report<M, T>(bytes: &[u8], read: fn(M) -> (T, Vec<FieldFault>), write: fn(&T) -> M, check: fn(&T)) -> bool
where
    M: Message + Default + Serialize,
    T: PartialEq + Debug,
{
    let Some(msg) = decoded(bytes) else { return false };
    let (taken, faults) = read(msg);
    check_faults(&faults);
    check(&taken);
    let (again, faults) = read(over_the_wire(&write(&taken)));
    assert_eq!((again, faults), (taken, Vec::new()));
    true
}

/// A message is taken whole or refused; what was taken must pass a second time as it is.
fn whole<M, T, E>(bytes: &[u8], read: fn(M) -> Result<T, E>, write: fn(&T) -> M, check: fn(&T)) -> bool
where
    M: Message + Default + Serialize,
    T: PartialEq + Debug,
    E: Refusal + PartialEq + Debug,
{
    let Some(msg) = decoded(bytes) else { return false };
    match read(msg) {
        Ok(taken) => {
            check(&taken);
            assert_eq!(read(over_the_wire(&write(&taken))), Ok(taken));
            true
        }
        Err(refused) => {
            refused.check();
            false
        }
    }
}

/// A request is taken whole or refused; nobody here writes it.
fn request<M, T, E>(bytes: &[u8], read: impl Fn(M) -> Result<T, E>, check: impl Fn(&T)) -> bool
where
    M: Message + Default + Serialize,
    E: Refusal,
{
    let Some(msg) = decoded(bytes) else { return false };
    match read(msg) {
        Ok(taken) => {
            check(&taken);
            true
        }
        Err(refused) => {
            refused.check();
            false
        }
    }
}

fn over_the_wire<M: Message + Default>(msg: &M) -> M {
    M::decode(msg.encode_to_vec().as_slice()).expect("what was encoded decodes")
}

/// A change is taken with any number in it: only applied to settings it must be in range.
fn check_change(change: &PolicyChange) {
    match change.apply_to(&Policy::default()) {
        Ok(policy) => {
            ranges::policy(&policy);
            let written = read::policy_change(over_the_wire(&write::policy(&policy)));
            assert_eq!(written.and_then(|change| change.apply_to(&Policy::default())), Ok(policy));
        }
        Err(refused) => check_faults(&refused),
    }
}

macro_rules! targets {
    ($($name:ident: $corpus:expr => $feed:expr;)+) => {
        vec![$(Target { name: stringify!($name), corpus: encoded($corpus), feed: $feed }),+]
    };
}

pub(crate) fn targets() -> Vec<Target> {
    let mut targets = from_hosts();
    targets.extend(to_hosts());
    targets.extend(from_callers());
    targets
}

fn from_hosts() -> Vec<Target> {
    targets! {
        hello: corpus::hellos() => |bytes| whole(bytes, read::hello, write::hello, ranges::hello);
        load: corpus::loads() => |bytes| report(bytes, read::load, write::load, ranges::load);
        latency: corpus::latencies() => |bytes| report(bytes, read::latency, write::latency, ranges::latency);
        inventory_page: corpus::inventory_pages() =>
            |bytes| report(bytes, read::inventory_page, write::inventory_page, |_| ());
        sessions_page: corpus::sessions_pages() =>
            |bytes| report(bytes, read::sessions_page, write::sessions_page, ranges::sessions_page);
        set_drain_answer: corpus::set_drain_answers() => |bytes| {
            let read = |msg| Ok::<_, FieldFault>(read::set_drain_answer(msg));
            whole(bytes, read, write::set_drain_answer, |_| ())
        };
        goodbye: corpus::goodbyes() =>
            |bytes| whole(bytes, read::goodbye, |reason| write::goodbye(*reason), |_| ());
        place_answer: corpus::place_answers() =>
            |bytes| whole(bytes, read::place_answer, write::place_answer, |answer| assert!(answer.attempt >= 1));
        ended_place: corpus::ended_places() =>
            |bytes| whole(bytes, read::ended_place, write::ended_place, ranges::ended_place);
        told_outcome: corpus::told_outcomes() =>
            |bytes| whole(bytes, read::told_outcome, write::told_outcome, ranges::told_outcome);
        penalty: corpus::penalties() => |bytes| whole(bytes, read::penalty, write::penalty, ranges::penalty);
        endpoint: corpus::endpoints() =>
            |bytes| whole(bytes, read::endpoint, write::endpoint, ranges::endpoint);
    }
}

fn to_hosts() -> Vec<Target> {
    targets! {
        pool_settings: corpus::pool_settings() => |bytes| {
            whole(bytes, read::pool_settings, write::pool_settings, |settings| {
                ranges::policy(&settings.policy);
                settings.marks.iter().for_each(ranges::host_marks);
                // Whatever is in force can be told to an agent of 0.1 too.
                let old = over_the_wire(&write::pool_settings_for("0.1.0", settings));
                assert!(read::pool_settings(old).is_ok());
            })
        };
        expect_session: corpus::expect_sessions() =>
            |bytes| whole(bytes, read::expect_session, write::expect_session, ranges::expect_session);
        pending_place: corpus::pending_places() =>
            |bytes| whole(bytes, read::pending_place, write::pending_place, ranges::pending_place);
        end_place: corpus::end_places() =>
            |bytes| whole(bytes, read::end_place, write::end_place, |end| assert!(end.attempt >= 1));
        outcome_notice: corpus::outcome_notices() =>
            |bytes| whole(bytes, read::outcome_notice, write::outcome_notice, ranges::outcome_notice);
        session_check: corpus::session_checks() =>
            |bytes| whole(bytes, read::session_check, write::session_check, |_| ());
        tick: corpus::ticks() => |bytes| {
            whole(bytes, |msg| Ok::<_, FieldFault>(read::tick(msg)), |tick| write::tick(*tick), |_| ())
        };
        reset_baselines: corpus::reset_baselines() =>
            |bytes| whole(bytes, read::reset_baselines, write::reset_baselines, |_| ());
        set_drain: corpus::set_drains() =>
            |bytes| whole(bytes, read::set_drain, write::set_drain, |set| set.drain.iter().for_each(ranges::drain));
        drain: corpus::drains() => |bytes| whole(bytes, read::drain, write::drain, ranges::drain);
        host_marks: corpus::host_marks() =>
            |bytes| whole(bytes, read::host_marks, write::host_marks, ranges::host_marks);
    }
}

fn from_callers() -> Vec<Target> {
    let mut list = targets! {
        policy: corpus::policies() => |bytes| request(bytes, read::policy_change, check_change);
        apply_pool: corpus::apply_pools() =>
            |bytes| request(bytes, read::apply_pool, |apply| check_change(&apply.change));
        set_host_marks: corpus::set_host_marks() => |bytes| {
            request(bytes, read::host_marks_change, |(host, change)| {
                ranges::name(host);
                match change.apply_to(&HostMarks::default()) {
                    Ok(marks) => ranges::host_marks(&marks),
                    Err(refused) => check_faults(&refused),
                }
            })
        };
        mark_replica: corpus::mark_replicas() =>
            |bytes| request(bytes, read::mark_replica, |mark| ranges::name(&mark.host));
        pool_history: corpus::pool_histories() =>
            |bytes| request(bytes, read::pool_history, |asked| assert!((1..=1000).contains(&asked.limit)));
        diff_pool: corpus::diff_pools() => |bytes| request(bytes, read::diff_pool, |_| ());
        get_baselines: corpus::get_baselines() =>
            |bytes| request(bytes, read::get_baselines, |host| ranges::name(host));
        reset_baselines_request: corpus::reset_baselines_requests() =>
            |bytes| request(bytes, read::reset_baselines_request, |(host, _)| ranges::name(host));
        locate_resource: corpus::locate_resources() => |bytes| request(bytes, read::locate_resource, |_| ());
        list_decisions: corpus::list_decisions() => |bytes| {
            request(bytes, read::list_decisions, |filter| {
                assert!((1..=1000).contains(&filter.limit));
                filter.user.iter().chain(&filter.host).for_each(|text| ranges::name(text));
            })
        };
        list_sessions: corpus::list_sessions() => |bytes| {
            request(bytes, read::list_sessions, |filter| {
                filter.user.iter().chain(&filter.host).for_each(|text| ranges::name(text));
            })
        };
        report_outcome: corpus::report_outcomes() => |bytes| {
            let gateway = GatewayId::new("gw").expect("a gateway's name");
            let read = |msg| read::report_outcome(gateway.clone(), msg);
            request(bytes, read, |report| ranges::cause(report.outcome, report.cause))
        };
        place: corpus::places() => |bytes| request(bytes, place_parts, |_| ());
    };
    list.push(Target {
        name: "error details",
        corpus: vec![error::invalid_fields(&[FieldFault::new("range", 120, "1..=30")]).details().to_vec()],
        feed: |bytes| {
            let status = tonic::Status::with_details(tonic::Code::Internal, "x", bytes.to_vec().into());
            error::retry_after(&status);
            error::field_violations(&status);
            error::error_info(&status).is_some()
        },
    });
    list
}

/// The parts of a question for a place that are read here.
fn place_parts(msg: v1::PlaceRequest) -> Result<(), FieldFault> {
    assert!(read::attempt_or_first(msg.attempt) >= 1);
    let cost = read::cost_or_one(msg.cost)?;
    assert!((1..=100).contains(&cost));
    if let Some(user) = read::user_or_none(msg.user)? {
        ranges::name(&user);
    }
    Ok(())
}
