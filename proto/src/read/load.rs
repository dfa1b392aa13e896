//! What is a host like now? Lenient by field: what is wrong becomes absent, and is named.

use std::time::Duration;

use usher_types::{
    BusyReasons, CollectorState, Drain, FieldFault, FinishedLogons, HostOverrides, Load, LogonsInProgress,
    Memory, MountFullness, OwnAvailability, Percent, Readiness, SessionCounts, SettingsHash, UserLimit,
};

use super::{ended_place, penalty, pending_place, settings::user_limit, told_outcome};
use crate::{
    enums,
    fault::{Faults, MAX_NAME_BYTES, MAX_TEXT_BYTES, name, nested, path, within},
    v1,
};

/// As many places as one host can sensibly hold; more would only make each report slower for everyone.
const MAX_PLACES: usize = 4095;
/// The protocol's own limit; mounts are chosen one by one.
const MAX_MOUNTS: usize = 64;
/// One for everyone and one for each gateway: a farm has a handful of gateways.
const MAX_PENALTIES: usize = 256;
/// Thirty thousand years: a bound keeps sums finite.
const MAX_SECONDS: f64 = 1e12;
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
        overrides: overrides(&mut faults, &msg),
        readiness: readiness(&mut faults, msg.ready, msg.not_ready_reason),
        uptime: msg.uptime_ms.map(Duration::from_millis),
        latched: latched(msg.latched, msg.availability_latched),
        psi_full: percent(&mut faults, "psi_full_percent", msg.psi_full_percent),
        mounts: entries(&mut faults, "mounts", msg.mounts, MAX_MOUNTS, mount),
        own_availability: nested_or_none(
            &mut faults,
            "own_availability",
            msg.own_availability,
            own_availability,
        ),
        ready_age: msg.ready_age_ms.map(Duration::from_millis),
        is_warming_up: msg.warming_up,
        replica_lag: msg.replica_lag_ms.map(Duration::from_millis),
        drain: msg.drain.map(|drain| host_drain(&mut faults, drain)),
        outcomes: entries(&mut faults, "outcomes", msg.outcomes, MAX_PLACES, told_outcome),
        penalties: entries(&mut faults, "penalties", msg.penalties, MAX_PENALTIES, penalty),
        logons_in_progress: nested_or_none(
            &mut faults,
            "logons_in_progress",
            msg.logons_in_progress,
            logons_in_progress,
        ),
        finished_logons: msg.finished_logons.and_then(|logons| finished_logons(&mut faults, logons)),
        collectors: collectors(&mut faults, msg.collectors),
        pending: entries(&mut faults, "pending", msg.pending, MAX_PLACES, pending_place),
        ended: entries(&mut faults, "ended", msg.ended, MAX_PLACES, ended_place),
        settings_version: msg.settings_version,
        settings_hash: msg.settings_hash.map(SettingsHash),
        streams_held: msg.streams_held,
        coordinators: msg.coordinators.and_then(|count| faults.ok(coordinators(count))),
        held_back_users: msg.held_back_users,
        held_back_places: msg.held_back_places,
        wall_clock_unix_ms: msg.wall_clock_unix_ms,
    };
    (load, faults.into_vec())
}

/// A host that reports says so to one coordinator at least.
fn coordinators(count: u32) -> Result<u32, FieldFault> {
    if count > 0 { Ok(count) } else { Err(FieldFault::new("coordinators", count, "1 and more")) }
}

/// A list cut to `max` entries, without those that are refused.
fn entries<W, T>(
    faults: &mut Faults,
    field: &str,
    mut list: Vec<W>,
    max: usize,
    convert: impl Fn(W) -> Result<T, FieldFault>,
) -> Vec<T> {
    faults.cut_list(field, &mut list, max);
    faults.entries(field, list, convert)
}

/// A message inside the report, or absent and its fault noted.
fn nested_or_none<W, T>(
    faults: &mut Faults,
    field: &str,
    msg: Option<W>,
    convert: impl Fn(W) -> Result<T, FieldFault>,
) -> Option<T> {
    faults.ok(convert(msg?).map_err(|fault| nested(fault, field)))
}

fn overrides(faults: &mut Faults, msg: &v1::Load) -> HostOverrides {
    HostOverrides {
        capacity: msg.capacity.and_then(|capacity| faults.ok(checked_capacity(capacity))),
        max_users: msg.max_users.and_then(|limit| faults.ok(checked_limit(limit))),
        threshold: percent(faults, "threshold_percent", msg.threshold_percent),
        range: msg.range.and_then(|range| faults.ok(within("range", range, 1.0..=30.0))),
    }
}

/// An agent of 0.1 has one latch and can only say that it holds: if it does not, nothing tells the agent from one that
/// has no latches. Words of a newer agent are ignored; whoever reads them must not take them for "nothing holds it".
fn latched(msg: Option<v1::BusyLatches>, availability: bool) -> Option<BusyReasons> {
    match msg {
        Some(latches) => Some(
            latches
                .reasons
                .iter()
                .filter_map(|name| BusyReasons::named(name))
                .fold(BusyReasons::NONE, |held, reason| held.with(reason, true)),
        ),
        None => availability.then_some(BusyReasons::AVAILABILITY),
    }
}

fn mount(msg: v1::MountFullness) -> Result<MountFullness, FieldFault> {
    let used = checked_percent("used_percent", msg.used_percent)?;
    Ok(MountFullness { path: path("path", msg.path)?, used })
}

fn own_availability(msg: v1::OwnAvailability) -> Result<OwnAvailability, FieldFault> {
    Ok(OwnAvailability { index: checked_percent("index", msg.index)?, source: name("source", msg.source)? })
}

/// A host that says it is drained is drained, even if it does not say how long: that only the host itself must know.
fn host_drain(faults: &mut Faults, mut msg: v1::Drain) -> Drain {
    let reason = faults.cut_text("drain.reason", std::mem::take(&mut msg.reason), MAX_TEXT_BYTES);
    let author = faults.cut_text("drain.author", std::mem::take(&mut msg.author), MAX_NAME_BYTES);
    let mode = faults.ok(enums::drain_mode("drain.mode", msg.mode)).unwrap_or_default();
    Drain { mode, reason, author, no_reconnect: msg.no_reconnect }
}

fn logons_in_progress(msg: v1::LogonsInProgress) -> Result<LogonsInProgress, FieldFault> {
    Ok(LogonsInProgress { now: msg.now, mean: within("mean", msg.mean, 0.0..=f64::from(u32::MAX))? })
}

/// Without their CPU time the others still say how long a logon takes.
fn finished_logons(faults: &mut Faults, msg: v1::FinishedLogons) -> Option<FinishedLogons> {
    let seconds = faults.ok(within("finished_logons.seconds", msg.seconds, 0.0..=MAX_SECONDS))?;
    let core_seconds = msg
        .core_seconds
        .and_then(|seconds| faults.ok(within("finished_logons.core_seconds", seconds, 0.0..=MAX_SECONDS)));
    Some(FinishedLogons { count: msg.count, seconds, core_seconds })
}

fn percent(faults: &mut Faults, field: &str, value: Option<f64>) -> Option<Percent> {
    faults.ok(checked_percent(field, value?))
}

fn checked_percent(field: &str, value: f64) -> Result<Percent, FieldFault> {
    Percent::new(value).map_err(|error| FieldFault::new(field, error.value, error.allowed))
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
    fn a_host_that_does_not_say_how_many_coordinators_it_has_keeps_nothing_for_them() {
        let (old, faults) = load(v1::Load { streams_held: 2, ..Default::default() });
        assert_eq!((old.coordinators, old.held_back_users, old.held_back_places), (None, 0, 0));
        assert!(faults.is_empty());
        let (wrong, faults) =
            load(v1::Load { coordinators: Some(0), held_back_users: 3, ..Default::default() });
        assert_eq!((wrong.coordinators, wrong.held_back_users), (None, 3));
        assert_eq!(fields(&faults), ["coordinators"]);
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

    #[test]
    fn latches_are_those_that_the_host_names_and_unknown_words_are_ignored() {
        let latched = |msg: v1::Load| load(msg).0.latched;
        let named = |reasons: &[&str]| v1::Load {
            latched: Some(v1::BusyLatches { reasons: reasons.iter().map(ToString::to_string).collect() }),
            ..Default::default()
        };
        let held = latched(named(&["mount", "a word of a newer agent", "user_set"])).unwrap();
        assert_eq!(held.names().collect::<Vec<_>>(), ["mount", "user_set"]);
        assert_eq!(latched(named(&[])), Some(BusyReasons::NONE), "it keeps latches, and none holds");
        assert_eq!(latched(v1::Load::default()), None, "it keeps none");
    }

    #[test]
    fn a_host_of_0_1_can_only_say_that_its_availability_holds_it() {
        let old = v1::Load { availability_latched: true, ..Default::default() };
        assert_eq!(load(old).0.latched, Some(BusyReasons::AVAILABILITY));
        let both = v1::Load {
            availability_latched: true,
            latched: Some(v1::BusyLatches::default()),
            ..Default::default()
        };
        assert_eq!(load(both).0.latched, Some(BusyReasons::NONE), "the list is the newer word");
    }

    #[test]
    fn a_host_that_is_drained_stays_so_however_it_says_it() {
        let drain = v1::Drain { mode: 0, reason: "x".repeat(2000), ..Default::default() };
        let (load, faults) = load(v1::Load { drain: Some(drain), ..Default::default() });
        assert_eq!(load.drain.map(|drain| drain.reason.len()), Some(1024));
        assert_eq!(fields(&faults), ["drain.reason", "drain.mode"]);
    }

    #[test]
    fn what_is_wrong_in_a_part_of_a_report_costs_that_part() {
        let mount = |path: &str, used_percent| v1::MountFullness { path: path.to_owned(), used_percent };
        let (load, faults) = load(v1::Load {
            psi_full_percent: Some(101.0),
            mounts: vec![mount("/", f64::NAN), mount("", 5.0), mount("/srv", 98.5)],
            own_availability: Some(v1::OwnAvailability { index: 50.0, source: String::new() }),
            logons_in_progress: Some(v1::LogonsInProgress { now: 1, mean: -0.5 }),
            finished_logons: Some(v1::FinishedLogons {
                count: 2,
                seconds: 9.0,
                core_seconds: Some(f64::INFINITY),
            }),
            penalties: vec![v1::Penalty::default()],
            outcomes: vec![v1::ToldOutcome::default()],
            ready_age_ms: Some(5000),
            ..Default::default()
        });
        assert_eq!(load.mounts.iter().map(|mount| mount.path.as_str()).collect::<Vec<_>>(), ["/srv"]);
        assert_eq!(
            load.finished_logons.map(|finished| (finished.count, finished.core_seconds)),
            Some((2, None))
        );
        assert_eq!((load.psi_full, &load.own_availability, load.logons_in_progress), (None, &None, None));
        assert_eq!(load.ready_age, Some(Duration::from_secs(5)));
        let expected = [
            "psi_full_percent",
            "mounts[0].used_percent",
            "mounts[1].path",
            "own_availability.source",
            "outcomes[0].outcome",
            "penalties[0].cause",
            "logons_in_progress.mean",
            "finished_logons.core_seconds",
        ];
        assert_eq!(fields(&faults), expected);
    }

    #[test]
    fn lists_of_a_report_have_bounds() {
        let token = Some(v1::Token { gateway: "gw".to_owned(), request_id: "r1".to_owned() });
        let told = v1::ToldOutcome { token, outcome: 1, ..Default::default() };
        let (load, faults) = load(v1::Load {
            mounts: vec![v1::MountFullness { path: "/".to_owned(), used_percent: 1.0 }; 65],
            penalties: vec![v1::Penalty { cause: 1, times: 1, ..Default::default() }; 257],
            outcomes: vec![told; 4096],
            ..Default::default()
        });
        assert_eq!((load.mounts.len(), load.penalties.len(), load.outcomes.len()), (64, 256, 4095));
        for field in ["mounts", "penalties", "outcomes"] {
            assert!(fields(&faults).contains(&field), "{field}");
        }
    }
}
