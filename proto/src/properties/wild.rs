//! Messages that no honest peer sends.

use proptest::{collection::vec, option, prelude::*};

use super::reports::load;
use crate::{v1, write};

/// Any number at all: NaN, infinite, negative, subnormal, huge.
pub(super) fn wild() -> impl Strategy<Value = f64> {
    let any = proptest::num::f64::ANY;
    prop_oneof![any, any, Just(0.0), Just(-0.0), Just(100.0), Just(f64::MAX)]
}

/// What a host says beyond 0.1, with nothing in it right.
#[derive(Debug)]
pub(super) struct Words {
    numbers: [f64; 6],
    text: String,
    numeral: (i32, u32, u64),
    latched: Option<Vec<String>>,
}

impl Words {
    fn over(self, msg: &mut v1::Load) {
        let [psi, used, index, mean, seconds, core_seconds] = self.numbers;
        let (number, count, long) = self.numeral;
        msg.psi_full_percent = Some(psi);
        msg.mounts.push(v1::MountFullness { path: self.text.clone(), used_percent: used });
        msg.own_availability = Some(v1::OwnAvailability { index, source: self.text.clone() });
        msg.logons_in_progress = Some(v1::LogonsInProgress { now: count, mean });
        msg.finished_logons = Some(v1::FinishedLogons { count, seconds, core_seconds: Some(core_seconds) });
        msg.drain = Some(v1::Drain { mode: number, reason: self.text.clone(), ..Default::default() });
        msg.latched = self.latched.map(|reasons| v1::BusyLatches { reasons });
        msg.penalties.push(v1::Penalty { gateway: None, cause: number, left_ms: long, times: count });
        if let Some(told) = msg.outcomes.first_mut() {
            (told.outcome, told.cause, told.age_ms) = (number, Some(number), long);
        }
    }
}

fn wild_words() -> impl Strategy<Value = Words> {
    let latched = option::of(vec("availability|cpu|CPU|[a-z]{0,9}", 0..4));
    let numbers = [wild(), wild(), wild(), wild(), wild(), wild()];
    (numbers, ".{0,1500}", (-1..8_i32, any::<u32>(), any::<u64>()), latched)
        .prop_map(|(numbers, text, numeral, latched)| Words { numbers, text, numeral, latched })
}

pub(super) fn wild_load() -> impl Strategy<Value = v1::Load> {
    let floats =
        [option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild())];
    let limit = option::of(prop_oneof![
        Just(v1::UserLimit { limit: None }),
        any::<bool>().prop_map(|flag| v1::UserLimit { limit: Some(v1::user_limit::Limit::Unlimited(flag)) }),
        (0..3_u32).prop_map(|users| v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) }),
    ]);
    let place = (load(), any::<(u32, u32, u32, u64, bool)>());
    let host = wild_words();
    (floats, any::<[Option<u64>; 3]>(), any::<[Option<u32>; 3]>(), limit, place, ".{0,3000}", host).prop_map(
        |(floats, longs, counts, max_users, (load, wrong), text, host)| {
            let mut msg = write::load(&load);
            host.over(&mut msg);
            [msg.cpu_percent, msg.runnable_demand, msg.capacity, msg.threshold_percent, msg.range] = floats;
            [msg.memory_used_bytes, msg.memory_total_bytes, msg.uptime_ms] = longs;
            [msg.sessions_active, msg.sessions_disconnected, msg.sessions_lingering] = counts;
            msg.max_users = max_users;
            msg.ready = Some(wrong.4);
            msg.not_ready_reason = Some(text);
            if let Some(place) = msg.pending.first_mut() {
                (place.attempt, place.cost, place.counted_users, place.left_ms) =
                    (wrong.0, wrong.1, wrong.2, wrong.3);
            }
            msg
        },
    )
}

fn wild_level() -> impl Strategy<Value = v1::CriticalLevel> {
    prop_oneof![
        Just(v1::CriticalLevel { level: None }),
        any::<bool>().prop_map(|off| v1::CriticalLevel { level: Some(v1::critical_level::Level::Off(off)) }),
        wild().prop_map(|percent| v1::CriticalLevel {
            level: Some(v1::critical_level::Level::Percent(percent))
        }),
    ]
}

/// The numbers that a policy has beyond 0.1.
pub(super) fn wild_policy() -> impl Strategy<Value = v1::Policy> {
    let levels = [wild_level(), wild_level(), wild_level(), wild_level()];
    let logons = prop_oneof![Just(None), (0..3_u32).prop_map(Some)];
    (levels, wild(), any::<Option<u64>>(), logons, [-1..5_i32, -1..5_i32, -1..5_i32]).prop_map(
        |([mem, cpu, psi, mount], error_share, max_replica_lag_ms, logons, [names, mode, blind])| {
            v1::Policy {
                mem_critical: Some(mem),
                cpu_critical: Some(cpu),
                psi_critical: Some(psi),
                mount_critical: Some(mount),
                max_error_share_percent: Some(error_share),
                max_replica_lag_ms,
                max_pending: logons
                    .map(|logons| v1::PendingLimit { limit: Some(v1::pending_limit::Limit::Logons(logons)) }),
                user_names: Some(names),
                max_pending_mode: Some(mode),
                when_blind: Some(blind),
                ..Default::default()
            }
        },
    )
}

pub(super) fn wild_marks() -> impl Strategy<Value = v1::HostMarks> {
    (option::of(wild()), option::of(wild()), option::of(wild()), option::of(0..3_u32), any::<bool>())
        .prop_map(|(capacity, threshold_percent, range, users, busy)| v1::HostMarks {
            capacity,
            threshold_percent,
            range,
            max_users: users.map(|users| v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) }),
            busy,
        })
}

pub(super) fn wild_operation() -> impl Strategy<Value = v1::OperationWindow> {
    ("[a-c ]{0,2}", [wild(), wild(), wild(), wild()], option::of(wild()), option::of(wild())).prop_map(
        |(name, [ok, failed, too_long, sum_us], min_us, baseline_us)| v1::OperationWindow {
            name,
            ok,
            failed,
            too_long,
            sum_us,
            min_us,
            baseline_us,
            ..Default::default()
        },
    )
}
