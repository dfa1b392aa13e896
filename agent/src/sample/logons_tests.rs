use super::*;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(1000.0 + seconds)
}

fn begun(id: &str, began: f64) -> Begun {
    Begun {
        id: id.into(),
        uid: Some(1000),
        scope: format!("session-{id}.scope"),
        began: at(began),
        is_opening: false,
        is_alone: false,
    }
}

/// One look, in which every group that is asked for has used this many core-seconds. How many were asked for.
fn look(watch: &mut LogonWatch, now: f64, begun: Vec<Begun>, used: Option<f64>) -> usize {
    look_waiting(watch, now, begun, used.map(|used| (used, 0.0)))
}

/// As [`look`], when they have also waited for so many seconds.
fn look_waiting(watch: &mut LogonWatch, now: f64, begun: Vec<Begun>, cpu: Option<(f64, f64)>) -> usize {
    let due = watch.see(at(now), begun);
    let asked = due.len();
    let cpu = cpu.map(|cpu| {
        let (used, waited) = (Duration::from_secs_f64(cpu.0), Duration::from_secs_f64(cpu.1));
        CpuUse { used, waited }
    });
    watch.take(at(now), due.into_iter().map(|(id, _)| (id, cpu)).collect());
    watch.end_look(at(now));
    asked
}

/// A look each second from `from` to `until`.
fn looks(watch: &mut LogonWatch, from: u32, until: u32, session: &Begun, used: impl Fn(f64) -> f64) {
    for now in from..=until {
        look(watch, f64::from(now), vec![session.clone()], Some(used(f64::from(now))));
    }
}

fn finished(watch: &LogonWatch) -> (u32, f64, f64) {
    let finished = watch.sample().finished.expect("measured");
    (finished.count, finished.seconds, finished.core_seconds.expect("told"))
}

#[test]
fn a_logon_ends_with_its_last_busy_look_before_five_quiet_seconds() {
    let mut watch = LogonWatch::default();
    let session = begun("1", 0.0);
    // Half a core for eight seconds.
    let used = |now: f64| 0.5 * now.min(8.0);
    looks(&mut watch, 0, 8, &session, used);
    assert_eq!(watch.sample().in_progress.now, 1);
    looks(&mut watch, 9, 12, &session, used);
    assert_eq!((finished(&watch).0, watch.sample().in_progress.now), (0, 0), "not known to be over yet");
    looks(&mut watch, 13, 13, &session, used);
    assert_eq!(finished(&watch), (1, 8.0, 4.0));
    looks(&mut watch, 14, 40, &session, |now| now);
    assert_eq!(finished(&watch).0, 1, "work later on is no second logon");
}

#[test]
fn a_logon_that_waits_for_a_cpu_in_a_storm_is_not_over() {
    let mut watch = LogonWatch::default();
    // A twentieth of a core is all that it gets for a minute.
    for now in 0..=70 {
        let now = f64::from(now);
        let busy = now.min(60.0);
        look_waiting(&mut watch, now, vec![begun("1", 0.0)], Some((0.05 * busy, 0.9 * busy)));
        assert_eq!(finished(&watch).0, u32::from(now >= 65.0), "after {now} s");
    }
    assert_eq!(finished(&watch), (1, 60.0, 3.0));
}

#[test]
fn a_pause_within_a_logon_does_not_end_it() {
    let mut watch = LogonWatch::default();
    let used = |now: f64| now.min(3.0) + (now - 7.0).clamp(0.0, 3.0);
    looks(&mut watch, 0, 20, &begun("1", 0.0), used);
    assert_eq!(finished(&watch), (1, 10.0, 6.0));
}

#[test]
fn a_logon_takes_half_a_second_at_least_and_has_what_it_used_until_the_look_after() {
    let mut watch = LogonWatch::default();
    let session = begun("1", 0.0);
    for (now, used) in [(0.02, 0.015), (1.0, 0.05), (2.0, 0.05), (6.5, 0.06)] {
        look(&mut watch, now, vec![session.clone()], Some(used));
    }
    assert_eq!(finished(&watch), (1, 0.5, 0.05));
}

#[test]
fn a_session_that_never_goes_quiet_is_not_counted_and_not_in_progress_for_ever() {
    let mut watch = LogonWatch::default();
    let session = begun("1", 0.0);
    looks(&mut watch, 0, 299, &session, |now| now);
    assert_eq!(watch.sample().in_progress.now, 1);
    // Who lists the sessions leaves out those older than that.
    look(&mut watch, 301.0, vec![], None);
    assert_eq!((finished(&watch).0, watch.sample().in_progress.now), (0, 0));
}

#[test]
fn a_session_that_ends_before_it_is_quiet_is_not_counted() {
    let mut watch = LogonWatch::default();
    looks(&mut watch, 0, 2, &begun("1", 0.0), |now| now);
    look(&mut watch, 3.0, vec![], None);
    assert_eq!(finished(&watch).0, 0);
}

#[test]
fn sessions_from_before_the_start_are_no_logons_and_young_ones_are_in_progress_by_their_age() {
    let mut watch = LogonWatch::default();
    let sessions = || vec![begun("old", -100.0), begun("young", -10.0)];
    assert_eq!(look(&mut watch, 0.0, sessions(), Some(1.0)), 0);
    assert_eq!(watch.sample().in_progress.now, 1);
    for now in 1..=30 {
        look(&mut watch, f64::from(now), sessions(), Some(1.0));
    }
    let sample = watch.sample();
    assert_eq!((sample.in_progress.now, sample.finished), (0, None), "nothing was measured");
}

#[test]
fn without_a_control_group_nothing_is_counted_and_unknown_stays_unknown() {
    let mut watch = LogonWatch::default();
    let session = begun("1", 0.0);
    for now in 0..=30 {
        look(&mut watch, f64::from(now), vec![session.clone()], None);
        let expected = u32::from(now < 20);
        assert_eq!(watch.sample().in_progress.now, expected, "after {now} s");
    }
    assert_eq!(watch.sample().finished, None);
    let nameless = Begun { scope: String::new(), ..begun("2", 30.0) };
    assert_eq!(look(&mut watch, 31.0, vec![nameless], Some(1.0)), 0);
}

#[test]
fn the_only_session_of_a_user_is_measured_by_all_that_the_user_runs_from_then_on() {
    let mut watch = LogonWatch::default();
    let session = Begun { is_alone: true, ..begun("1", 0.0) };
    assert_eq!(watch.see(at(0.1), vec![session.clone()]), [("1".into(), CpuGroup::User(1000))]);
    // The user's manager had run for days.
    let cpu = CpuUse { used: Duration::from_secs(5000), waited: Duration::from_secs(70) };
    watch.take(at(0.1), vec![("1".into(), Some(cpu))]);
    watch.end_look(at(0.1));
    looks(&mut watch, 1, 10, &session, |now| 5000.0 + now.min(4.0));
    assert_eq!(finished(&watch), (1, 4.0, 4.0));
}

#[test]
fn a_second_session_of_the_user_makes_the_first_one_s_cost_unknown() {
    let mut watch = LogonWatch::default();
    let first = Begun { is_alone: true, ..begun("1", 0.0) };
    looks(&mut watch, 0, 2, &first, |now| now);
    let both = |now: f64| {
        let second = begun("2", 2.5);
        (now, vec![Begun { is_alone: false, ..first.clone() }, second])
    };
    for now in 3..=15 {
        let (now, sessions) = both(f64::from(now));
        look(&mut watch, now, sessions, Some((now - 2.5).min(2.5)));
    }
    let (count, seconds, _) = finished(&watch);
    assert_eq!((count, seconds), (1, 2.5), "the second alone");
}

#[test]
fn a_session_that_is_set_up_is_one_logon_before_and_after() {
    let mut watch = LogonWatch::default();
    let opening = Begun { is_opening: true, ..begun("1", 0.0) };
    look(&mut watch, 0.1, vec![opening.clone()], None);
    let sample = watch.sample();
    assert_eq!((sample.in_progress.now, sample.opening), (1, 1));
    // One that takes long to be set up is in progress and waits for its group.
    look(&mut watch, 10.0, vec![opening], None);
    assert_eq!(watch.sample().in_progress.now, 1);
    look(&mut watch, 11.0, vec![begun("1", 0.0)], Some(3.0));
    let sample = watch.sample();
    assert_eq!((sample.in_progress.now, sample.opening), (1, 0));
}

#[test]
fn what_a_user_runs_tells_nothing_of_a_logon_whose_begin_it_missed() {
    let mut watch = LogonWatch::default();
    let opening = Begun { is_opening: true, is_alone: true, ..begun("1", 0.0) };
    look(&mut watch, 0.1, vec![opening], None);
    let session = Begun { is_alone: true, ..begun("1", 0.0) };
    for now in 6..=30 {
        look(&mut watch, f64::from(now), vec![session.clone()], Some(9.0));
        assert_eq!(watch.sample().in_progress.now, u32::from(now < 20), "after {now} s");
    }
    assert_eq!(finished(&watch).0, 0);
}

#[test]
fn the_mean_weighs_each_logon_with_its_time_in_the_interval() {
    let mut watch = LogonWatch::default();
    look(&mut watch, 0.0, vec![], None);
    watch.end_interval();
    let session = begun("1", 1.5);
    let used = |now: f64| (now - 1.5).clamp(0.0, 2.5);
    looks(&mut watch, 2, 5, &session, used);
    let in_progress = watch.sample().in_progress;
    assert_eq!((in_progress.now, in_progress.mean), (0, 0.5), "2.5 of 5 seconds");
    watch.end_interval();
    looks(&mut watch, 6, 9, &session, used);
    assert_eq!(watch.sample().in_progress.mean, 0.0);
}

#[test]
fn ended_logons_are_told_for_ten_minutes() {
    let mut watch = LogonWatch::default();
    looks(&mut watch, 0, 10, &begun("1", 0.0), |now| now.min(2.0));
    let session = begun("2", 300.0);
    looks(&mut watch, 300, 320, &session, |now| (now - 300.0).min(4.0));
    assert_eq!(finished(&watch), (2, 6.0, 6.0));
    look(&mut watch, 700.0, vec![], None);
    assert_eq!(finished(&watch), (1, 4.0, 4.0));
    look(&mut watch, 1000.0, vec![], None);
    assert_eq!(finished(&watch), (0, 0.0, 0.0));
}

#[test]
fn a_storm_is_measured_up_to_a_bound_and_each_group_once_a_second() {
    let mut watch = LogonWatch::default();
    let storm: Vec<_> = (0..2000).map(|n| begun(&n.to_string(), 0.0)).collect();
    assert_eq!(look(&mut watch, 0.5, storm.clone(), Some(0.4)), MAX_MEASURED);
    assert_eq!(watch.sample().in_progress.now, 2000);
    for tenth in 6..=13 {
        assert_eq!(look(&mut watch, f64::from(tenth) / 10.0, storm.clone(), Some(0.5)), 0);
    }
    assert_eq!(look(&mut watch, 1.5, storm.clone(), Some(1.5)), MAX_MEASURED);
    for now in 2..=30 {
        look(&mut watch, f64::from(now), storm.clone(), Some(1.5));
    }
    let (count, seconds, _) = finished(&watch);
    assert_eq!((count as usize, seconds / f64::from(count)), (MAX_MEASURED, 1.5));
    assert!(watch.logons.len() == 2000 - MAX_MEASURED && watch.ended.len() == 1);
    look(&mut watch, 31.0, vec![], None);
    assert!(watch.logons.is_empty());
}

#[test]
fn clocks_and_counters_that_go_back_end_nothing_and_break_nothing() {
    let mut watch = LogonWatch::default();
    let session = begun("1", 0.0);
    for (now, used) in [(1.0, 5.0), (0.5, 6.0), (2.0, 1.0), (3.0, 0.0), (2.5, 9.0)] {
        look(&mut watch, now, vec![session.clone()], Some(used));
    }
    assert_eq!(finished(&watch).0, 0);
    assert!(watch.sample().in_progress.mean.is_finite());
    // One that begins after now, as where the two clocks differ.
    look(&mut watch, 4.0, vec![begun("2", 9.0)], Some(1.0));
    assert_eq!(watch.sample().in_progress.now, 1);
}
