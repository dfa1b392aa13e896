//! Do values survive the wire, and does no message of any peer do harm?

mod reports;
mod settings;
mod values;
mod wild;

use proptest::{collection::vec, option, prelude::*};
use usher_types::{BusyReasons, HostMarks, PendingLimit, Policy, PolicyChange, UserLimit};

use self::{
    reports::{hello, latency, load},
    settings::{expect_session, host_marks, host_marks_change, policy, pool_settings, tick},
    values::outcome_notice,
    wild::{wild, wild_load, wild_marks, wild_operation, wild_policy},
};
use crate::{read, v1, write};

/// The message as the peer gets it.
fn over_the_wire<M: prost::Message + Default>(msg: &M) -> M {
    M::decode(msg.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn a_load_comes_back_as_it_was_sent(load in load()) {
        prop_assert_eq!(read::load(over_the_wire(&write::load(&load))), (load, Vec::new()));
    }

    #[test]
    fn a_hello_comes_back_as_it_was_sent(hello in hello()) {
        prop_assert_eq!(read::hello(over_the_wire(&write::hello(&hello))), Ok(hello));
    }

    #[test]
    fn a_report_means_the_same_to_a_coordinator_of_0_1(load in load()) {
        let msg = write::load(&load);
        let says = load.latched.is_some_and(|held| held.has(BusyReasons::AVAILABILITY));
        prop_assert_eq!(msg.availability_latched, says);
        let old = v1::Load { latched: None, ..msg };
        let expected = says.then_some(BusyReasons::AVAILABILITY);
        prop_assert_eq!(read::load(old).0.latched, expected);
    }

    #[test]
    fn settings_and_marks_come_back_as_they_were_sent(settings in pool_settings()) {
        prop_assert_eq!(read::pool_settings(over_the_wire(&write::pool_settings(&settings))), Ok(settings));
    }

    #[test]
    fn a_change_of_marks_comes_back_as_it_was_sent(change in host_marks_change(), before in host_marks()) {
        let msg = over_the_wire(&write::host_marks_change("app1", &change));
        prop_assert_eq!(read::host_marks_change(msg), Ok(("app1".to_owned(), change)));
        let marks = change.apply_to(&before).unwrap();
        prop_assert_eq!(read::host_marks(over_the_wire(&write::host_marks(&marks))), Ok(marks));
    }

    #[test]
    fn what_a_host_is_told_comes_back_as_it_was_sent(
        expect in expect_session(), notice in outcome_notice(), tick in tick(),
    ) {
        prop_assert_eq!(read::expect_session(over_the_wire(&write::expect_session(&expect))), Ok(expect));
        prop_assert_eq!(read::outcome_notice(over_the_wire(&write::outcome_notice(&notice))), Ok(notice));
        prop_assert_eq!(read::tick(over_the_wire(&write::tick(tick))), tick);
    }

    #[test]
    fn no_marks_of_any_peer_yield_a_number_that_is_none(msg in wild_marks()) {
        if let Ok(marks) = read::host_marks(msg) {
            prop_assert!(marks.capacity.is_none_or(|capacity| capacity > 0.0 && capacity <= 1000.0));
            prop_assert!(marks.range.is_none_or(|range| (1.0..=30.0).contains(&range)));
            prop_assert!(marks.max_users != Some(UserLimit::Users(0)));
            prop_assert_eq!(read::host_marks(write::host_marks(&marks)), Ok(marks));
        }
        let request = v1::SetHostMarksRequest { host: "a".to_owned(), marks: Some(msg), ..Default::default() };
        let from_nothing = read::host_marks_change(request).and_then(|(_, change)| change.apply_to(&HostMarks::default()));
        if !msg.busy {
            prop_assert_eq!(from_nothing.ok(), read::host_marks(msg).ok());
        }
    }

    #[test]
    fn a_latency_window_comes_back_as_it_was_sent(latency in latency()) {
        prop_assert_eq!(read::latency(over_the_wire(&write::latency(&latency))), (latency, Vec::new()));
    }

    #[test]
    fn a_policy_comes_back_as_it_was_sent(policy in policy()) {
        let change = read::policy_change(over_the_wire(&write::policy(&policy))).unwrap();
        prop_assert_eq!(&change, &PolicyChange::of(&policy));
        prop_assert_eq!(change.apply_to(&Policy::default()).unwrap(), policy);
    }

    #[test]
    fn no_load_of_any_peer_yields_a_number_that_is_none(msg in wild_load()) {
        let (load, _) = read::load(msg);
        prop_assert!(load.cpu.is_none_or(|cpu| (0.0..=100.0).contains(&cpu.get())));
        prop_assert!(load.overrides.threshold.is_none_or(|value| (0.0..=100.0).contains(&value.get())));
        prop_assert!(load.runnable_demand.is_none_or(|demand| demand.is_finite() && demand >= 0.0));
        prop_assert!(load.overrides.capacity.is_none_or(|capacity| capacity.is_finite() && capacity > 0.0));
        prop_assert!(load.overrides.range.is_none_or(|range| (1.0..=30.0).contains(&range)));
        prop_assert!(load.overrides.max_users != Some(UserLimit::Users(0)));
        prop_assert!(load.memory.is_none_or(|memory| memory.used_bytes <= memory.total_bytes));
        for place in &load.pending {
            prop_assert!(place.attempt >= 1 && (1..=100).contains(&place.cost));
            prop_assert!(place.counted_users <= place.cost);
        }
        prop_assert!(load.logons_in_progress.is_none_or(|logons| logons.mean.is_finite() && logons.mean >= 0.0));
        if let Some(finished) = load.finished_logons {
            prop_assert!(finished.seconds.is_finite() && finished.seconds >= 0.0);
            prop_assert!(finished.core_seconds.is_none_or(|seconds| seconds.is_finite() && seconds >= 0.0));
        }
        prop_assert!(load.drain.is_some(), "a drain is never lost");
        prop_assert!(load.penalties.iter().all(|penalty| penalty.times >= 1));
        prop_assert!(load.mounts.iter().all(|mount| (1..=1024).contains(&mount.path.len())));
        // What was taken is taken again without a fault: nothing half-checked passed.
        prop_assert_eq!(read::load(write::load(&load)), (load, Vec::new()));
    }

    #[test]
    fn no_latency_of_any_peer_yields_a_number_that_is_none(operations in vec(wild_operation(), 0..8)) {
        let (latency, _) = read::latency(v1::Latency { operations, ..Default::default() });
        for operation in &latency.operations {
            for number in [operation.ok, operation.failed, operation.too_long, operation.sum_us] {
                prop_assert!(number.is_finite() && number >= 0.0);
            }
            for number in [operation.min_us, operation.baseline_us].into_iter().flatten() {
                prop_assert!(number.is_finite() && number > 0.0);
            }
        }
        prop_assert_eq!(read::latency(write::latency(&latency)), (latency, Vec::new()));
    }

    #[test]
    fn no_policy_of_any_peer_yields_a_number_that_is_none(
        numbers in any::<[Option<u32>; 4]>(),
        floats in [option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild())],
        weights in [option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild())],
    ) {
        let [method, baseline, affinity, user_match] = numbers.map(|number| number.map(|n| (n % 7) as i32 - 1));
        let [users_full_scale, range, min_possible_us, max_possible_us] = floats;
        let [cpu_percent, memory_percent, users_percent, processes_percent] = weights;
        let msg = v1::Policy {
            method, baseline, affinity, user_match,
            users_full_scale, range, min_possible_us, max_possible_us,
            weights: Some(v1::Weights { cpu_percent, memory_percent, users_percent, processes_percent }),
            ..Default::default()
        };
        if let Ok(policy) = read::policy_change(msg).and_then(|change| change.apply_to(&Policy::default())) {
            for number in [policy.users_full_scale, policy.range, policy.min_possible_us, policy.max_possible_us] {
                prop_assert!(number.is_finite());
            }
            prop_assert!(policy.weights.cpu_percent.is_finite() && policy.weights.users_percent.is_finite());
        }
    }

    #[test]
    fn no_level_of_any_peer_holds_a_host_busy_for_ever(msg in wild_policy()) {
        if let Ok(policy) = read::policy_change(msg).and_then(|change| change.apply_to(&Policy::default())) {
            for level in [policy.mem_critical, policy.cpu_critical, policy.psi_critical, policy.mount_critical] {
                prop_assert!(level.percent().is_none_or(|percent| percent > 0.0 && percent <= 100.0));
            }
            prop_assert!((0.0..=100.0).contains(&policy.max_error_share_percent));
            prop_assert!(policy.max_pending != PendingLimit::Logons(0));
            let change = read::policy_change(write::policy(&policy)).unwrap();
            prop_assert_eq!(change.apply_to(&Policy::default()), Ok(policy));
        }
    }
}
