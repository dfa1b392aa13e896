//! What is a host like now? Lenient by field: what is wrong becomes absent, and is named.

use std::time::Duration;

use usher_types::{
    CollectorState, FieldFault, HostOverrides, Load, Memory, Percent, Readiness, SessionCounts, UserLimit,
};

use super::{ended_place, pending_place, settings::user_limit};
use crate::{
    fault::{Faults, MAX_NAME_BYTES, MAX_TEXT_BYTES, name, within},
    v1,
};

/// As many places as one host can sensibly hold; more would only make each report slower for everyone.
const MAX_PLACES: usize = 4095;
/// Collectors are part of the agent's program: there are fewer than ten.
const MAX_COLLECTORS: usize = 64;
/// A run queue of a million per CPU is beyond any machine; a bound keeps sums finite.
const MAX_RUNNABLE_DEMAND: f64 = 1e6;
/// A host a thousand times the normal one is a mistake of units.
const MAX_CAPACITY: f64 = 1000.0;

/// What a host is like now, and what of its report was refused or cut.
pub fn load(msg: v1::Load) -> (Load, Vec<FieldFault>) {
    let mut faults = Faults::default();
    let load = Load {
        sequence: msg.sequence,
        incarnation_ms: msg.incarnation_ms,
        tick_echo: msg.tick_echo,
        cpu: percent(&mut faults, "cpu_percent", msg.cpu_percent),
        runnable_demand: msg
            .runnable_demand
            .and_then(|demand| faults.ok(within("runnable_demand", demand, 0.0..=MAX_RUNNABLE_DEMAND))),
        memory: memory(&mut faults, msg.memory_used_bytes, msg.memory_total_bytes),
        users: msg.users,
        sessions: sessions(&mut faults, &msg),
        processes: msg.processes,
        readiness: readiness(&mut faults, msg.ready, msg.not_ready_reason),
        uptime: msg.uptime_ms.map(Duration::from_millis),
        availability_latched: msg.availability_latched,
        overrides: HostOverrides {
            capacity: msg.capacity.and_then(|capacity| faults.ok(checked_capacity(capacity))),
            max_users: msg.max_users.and_then(|limit| faults.ok(checked_limit(limit))),
            threshold: percent(&mut faults, "threshold_percent", msg.threshold_percent),
            range: msg.range.and_then(|range| faults.ok(within("range", range, 1.0..=30.0))),
        },
        collectors: collectors(&mut faults, msg.collectors),
        pending: {
            let mut list = msg.pending;
            faults.cut_list("pending", &mut list, MAX_PLACES);
            faults.entries("pending", list, pending_place)
        },
        ended: {
            let mut list = msg.ended;
            faults.cut_list("ended", &mut list, MAX_PLACES);
            faults.entries("ended", list, ended_place)
        },
        settings_version: msg.settings_version,
        streams_held: msg.streams_held,
        wall_clock_unix_ms: msg.wall_clock_unix_ms,
    };
    (load, faults.into_vec())
}

fn percent(faults: &mut Faults, field: &str, value: Option<f64>) -> Option<Percent> {
    let checked = Percent::new(value?).map_err(|error| FieldFault::new(field, error.value, error.allowed));
    faults.ok(checked)
}

/// The total alone says nothing about the load and is no fault; the use alone cannot be weighed.
fn memory(faults: &mut Faults, used_bytes: Option<u64>, total_bytes: Option<u64>) -> Option<Memory> {
    let used_bytes = used_bytes?;
    let total = total_bytes.unwrap_or(0);
    let checked = Memory::new(used_bytes, total).ok_or_else(|| {
        let allowed = match total_bytes {
            Some(total) => format!("at most memory_total_bytes ({total}), which is above 0"),
            None => "only together with memory_total_bytes".to_owned(),
        };
        FieldFault::new("memory_used_bytes", used_bytes, allowed)
    });
    faults.ok(checked)
}

fn sessions(faults: &mut Faults, msg: &v1::Load) -> Option<SessionCounts> {
    match (msg.sessions_active, msg.sessions_disconnected, msg.sessions_lingering) {
        (Some(active), Some(disconnected), Some(lingering)) => {
            Some(SessionCounts { active, disconnected, lingering })
        }
        (None, None, None) => None,
        _ => {
            let allowed = "active, disconnected and lingering together, or none of them";
            faults.push(FieldFault::new("sessions_*", "some are absent", allowed));
            None
        }
    }
}

fn readiness(faults: &mut Faults, ready: Option<bool>, reason: Option<String>) -> Readiness {
    match ready {
        Some(false) => {
            let reason = reason.unwrap_or_default();
            Readiness::NotReady(faults.cut_text("not_ready_reason", reason, MAX_TEXT_BYTES))
        }
        Some(true) | None => Readiness::Ready,
    }
}

/// Absent and 0 differ: absent is a normal host, 0 is a mistake that must be named.
fn checked_capacity(capacity: f64) -> Result<f64, FieldFault> {
    if capacity > 0.0 && capacity <= MAX_CAPACITY {
        Ok(capacity)
    } else {
        let allowed = format!("above 0, at most {MAX_CAPACITY}; to exclude the host, drain it");
        Err(FieldFault::new("capacity", capacity, allowed))
    }
}

fn checked_limit(msg: v1::UserLimit) -> Result<UserLimit, FieldFault> {
    match user_limit("max_users", msg)? {
        UserLimit::Users(0) => Err(FieldFault::new("max_users", 0, "at least 1, or unlimited")),
        limit => Ok(limit),
    }
}

fn collectors(faults: &mut Faults, mut list: Vec<v1::CollectorState>) -> Vec<CollectorState> {
    faults.cut_list("collectors", &mut list, MAX_COLLECTORS);
    let named = faults.entries("collectors", list, |collector| {
        Ok((name("name", collector.name)?, collector.source, collector.error, collector.warning))
    });
    let mut taken = Vec::with_capacity(named.len());
    for (name, source, error, warning) in named {
        let field = |part: &str| format!("collectors.{name}.{part}");
        let source = faults.cut_text(&field("source"), source, MAX_NAME_BYTES);
        let error = error.map(|text| faults.cut_text(&field("error"), text, MAX_TEXT_BYTES));
        let warning = warning.map(|text| faults.cut_text(&field("warning"), text, MAX_TEXT_BYTES));
        taken.push(CollectorState { name, source, error, warning });
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(faults: &[FieldFault]) -> Vec<&str> {
        faults.iter().map(|fault| fault.field.as_str()).collect()
    }

    #[test]
    fn case_001_a_cpu_that_is_nan_is_absent_and_named() {
        let (load, faults) =
            load(v1::Load { cpu_percent: Some(f64::NAN), users: Some(3), ..Default::default() });
        assert_eq!((load.cpu, load.users), (None, Some(3)));
        assert_eq!(faults[0].to_string(), "cpu_percent = NaN: allowed 0..=100");
    }

    #[test]
    fn case_014_more_memory_used_than_there_is_is_inconsistent() {
        let (load, faults) = load(v1::Load {
            memory_total_bytes: Some(65_595_448),
            memory_used_bytes: Some(15_000_000_000),
            processes: Some(10),
            ..Default::default()
        });
        assert_eq!((load.memory, load.processes), (None, Some(10)));
        assert_eq!(fields(&faults), ["memory_used_bytes"]);
        assert!(faults[0].to_string().contains("15000000000"), "{}", faults[0]);
        assert!(faults[0].to_string().contains("65595448"), "{}", faults[0]);
    }

    #[test]
    fn case_072_a_cpu_of_354_percent_is_dropped_and_named() {
        let (load, faults) = load(v1::Load { cpu_percent: Some(354.0), ..Default::default() });
        assert_eq!(load.cpu, None);
        assert_eq!(faults, [FieldFault::new("cpu_percent", 354, "0..=100")]);
    }

    #[test]
    fn case_097_an_absent_capacity_and_a_capacity_of_0_are_told_apart() {
        use prost::Message as _;
        let capacity_of = |capacity: Option<f64>| {
            let bytes = v1::Load { capacity, ..Default::default() }.encode_to_vec();
            load(v1::Load::decode(bytes.as_slice()).unwrap())
        };
        let (absent, faults) = capacity_of(None);
        assert_eq!((absent.overrides.capacity, faults), (None, Vec::new()));
        let (zero, faults) = capacity_of(Some(0.0));
        assert_eq!((zero.overrides.capacity, fields(&faults)), (None, vec!["capacity"]));
        let (one, faults) = capacity_of(Some(1.0));
        assert_eq!((one.overrides.capacity, faults), (Some(1.0), Vec::new()));
        let json = |capacity| serde_json::to_value(v1::Load { capacity, ..Default::default() }).unwrap();
        assert!(json(None).get("capacity").is_none());
        assert_eq!(json(Some(0.0))["capacity"], 0.0);
    }

    #[test]
    fn overrides_out_of_their_range_are_dropped_one_by_one() {
        let (load, faults) = load(v1::Load {
            capacity: Some(f64::INFINITY),
            max_users: Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(0)) }),
            threshold_percent: Some(20.0),
            range: Some(31.0),
            ..Default::default()
        });
        assert_eq!(load.overrides.threshold, Some(Percent::new(20.0).unwrap()));
        assert_eq!(
            load.overrides,
            HostOverrides { threshold: load.overrides.threshold, ..Default::default() }
        );
        assert_eq!(fields(&faults), ["capacity", "max_users", "range"]);
    }

    #[test]
    fn a_wrong_entry_is_left_out_and_the_others_stay() {
        let good = v1::PendingPlace {
            token: Some(v1::Token { gateway: "gw".to_owned(), request_id: "r1".to_owned() }),
            attempt: 1,
            pool: "desk".to_owned(),
            endpoint: Some(v1::Endpoint { kind: "ssh".to_owned(), address: "a".to_owned(), port: 22 }),
            cost: 1,
            counted_users: 1,
            ..Default::default()
        };
        let bad = v1::PendingPlace { cost: 101, ..good.clone() };
        let (load, faults) = load(v1::Load { pending: vec![bad, good], ..Default::default() });
        assert_eq!(load.pending.len(), 1);
        assert_eq!(faults, [FieldFault::new("pending[0].cost", 101, "1..=100")]);
    }

    #[test]
    fn lists_and_texts_are_cut_and_named() {
        let collector = v1::CollectorState {
            name: "cpu".to_owned(),
            source: "proc".to_owned(),
            error: Some("é".repeat(1000)),
            warning: None,
        };
        let (load, faults) = load(v1::Load {
            ready: Some(false),
            not_ready_reason: Some("x".repeat(2000)),
            collectors: vec![collector; 65],
            pending: vec![v1::PendingPlace::default(); 8193],
            ..Default::default()
        });
        assert_eq!(load.readiness, Readiness::NotReady("x".repeat(1024)));
        assert_eq!(load.collectors.len(), 64);
        assert_eq!(load.collectors[0].error, Some("é".repeat(512)));
        let fields = fields(&faults);
        for field in ["not_ready_reason", "collectors", "collectors.cpu.error", "pending"] {
            assert!(fields.contains(&field), "{field} not in {fields:?}");
        }
    }

    #[test]
    fn sessions_are_counted_by_all_their_states_or_not_at_all() {
        let (load, faults) = load(v1::Load { sessions_active: Some(3), ..Default::default() });
        assert_eq!(load.sessions, None);
        assert_eq!(fields(&faults), ["sessions_*"]);
    }
}
