//! What makes a host BUSY, and when does it stop to be?
//!
//! Each reason enters at its level and leaves a margin below it (the index: above it): between the two, what it was
//! decides, so that a value that swings around the level does not move users with each swing.
//!
//! | reason | enters | leaves | the level |
//! |---|---|---|---|
//! | availability | index <= threshold | index >= min(100, threshold + exit margin) | 0 = never, 100 = always |
//! | memory | use >= level | use < level - 5 | `off` = never |
//! | cpu | use >= level in every value for 30 s | use < level - 5 | `off` = never |
//! | psi | full >= level in every value for 30 s | full < level - 5 | `off` = never |
//! | mount | the fullest >= level | below it | `off` = never |
//! | errors | failed share > level | at or below it | 100 = never |
//!
//! A value that is not known holds nothing: its reason leaves, and 30 s that had begun begin anew. CPU and PSI wait
//! because one busy interval is what an idle host is for; memory and mounts do not, because they fill up and stay so.
//!
//! The host keeps the latches ([`Latches`]) and sends what they say. Who hears it judges the same values with the same
//! rules ([`judge`]) and takes the host's word for what only time can tell, so that coordinators that started at
//! different times agree. Neither knows what an operator has set; that is added by the caller.

use std::time::Duration;

use usher_types::{BootTime, BusyReasons, CriticalLevel, Load, Memory, Percent, Policy};

/// For how long CPU use or PSI must be critical, seconds: longer than a logon keeps a CPU busy.
const SUSTAINED: Duration = Duration::from_secs(30);
/// How far below its level a resource must fall to leave, points.
const RESOURCE_MARGIN: f64 = 5.0;

/// The values of one host that may make it BUSY. What is not known is absent.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LatchInput {
    /// CPU use.
    pub cpu: Option<Percent>,
    /// Memory in use.
    pub memory: Option<Percent>,
    /// Share of time in which all work waited for a resource.
    pub psi_full: Option<Percent>,
    /// Use of the fullest chosen mount.
    pub fullest_mount: Option<Percent>,
    /// Share of failed calls, 0..=100.
    pub error_share_percent: Option<f64>,
    /// Availability index, 0..=100, not rounded.
    pub availability_index: Option<f64>,
    /// BUSY at or below this index; 0 = off, 100 = always.
    pub threshold_percent: f64,
    /// How far above the threshold the index must rise, points.
    pub exit_margin_percent: f64,
}

impl LatchInput {
    /// The values that stand in a report of load. Those of calls, and the threshold of this host, are the caller's.
    pub fn of_load(load: &Load) -> Self {
        let fuller = |a: Percent, b: Percent| if b > a { b } else { a };
        Self {
            cpu: load.cpu,
            memory: load.memory.map(Memory::used),
            psi_full: load.psi_full,
            fullest_mount: load.mounts.iter().map(|mount| mount.used).reduce(fuller),
            ..Self::default()
        }
    }
}

/// What holds a host BUSY, given its values and what its latches said last (`held`).
///
/// CPU and PSI hold only if they were held: that they have been critical for 30 s, one report cannot show. Of `held`,
/// nothing else survives: a reason leaves as soon as its value says so.
pub fn judge(input: &LatchInput, policy: &Policy, held: BusyReasons) -> BusyReasons {
    let within = |value: Option<Percent>, level: CriticalLevel, margin: f64| {
        value.zip(level.percent()).is_some_and(|(value, level)| value.get() >= level - margin)
    };
    let margin_if = |reason| if held.has(reason) { RESOURCE_MARGIN } else { 0.0 };
    let index_holds = holds_busy(
        input.availability_index,
        input.threshold_percent,
        input.exit_margin_percent,
        held.has(BusyReasons::AVAILABILITY),
    );
    let errors = input.error_share_percent.is_some_and(|share| share > policy.max_error_share_percent);
    let sustained = |reason, value, level| held.has(reason) && within(value, level, RESOURCE_MARGIN);
    BusyReasons::NONE
        .with(BusyReasons::AVAILABILITY, index_holds)
        .with(BusyReasons::MEMORY, within(input.memory, policy.mem_critical, margin_if(BusyReasons::MEMORY)))
        .with(BusyReasons::CPU, sustained(BusyReasons::CPU, input.cpu, policy.cpu_critical))
        .with(BusyReasons::PSI, sustained(BusyReasons::PSI, input.psi_full, policy.psi_critical))
        .with(BusyReasons::MOUNT, within(input.fullest_mount, policy.mount_critical, 0.0))
        .with(BusyReasons::ERRORS, errors)
}

/// What holds one host BUSY, and since when its CPUs and pressure are critical.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Latches {
    held: BusyReasons,
    cpu_since: Option<BootTime>,
    psi_since: Option<BootTime>,
}

impl Latches {
    /// Goes on from what was held before the agent restarted. 30 s that had begun begin anew.
    pub fn resume(held: BusyReasons) -> Self {
        Self { held, ..Self::default() }
    }

    /// Takes in the host's values, measured at `now`, and says what holds it BUSY.
    pub fn update(&mut self, input: &LatchInput, policy: &Policy, now: BootTime) -> BusyReasons {
        let cpu = is_sustained(&mut self.cpu_since, input.cpu, policy.cpu_critical, now);
        let psi = is_sustained(&mut self.psi_since, input.psi_full, policy.psi_critical, now);
        let held = self.held.with(BusyReasons::CPU, cpu).with(BusyReasons::PSI, psi);
        self.held = judge(input, policy, held);
        self.held
    }

    /// What holds it BUSY, as the last values said. Never that somebody set it so.
    pub fn held(&self) -> BusyReasons {
        self.held
    }
}

/// Whether a value has been critical for long enough; `since` remembers from when on it was.
fn is_sustained(
    since: &mut Option<BootTime>,
    value: Option<Percent>,
    level: CriticalLevel,
    now: BootTime,
) -> bool {
    let is_critical = value.zip(level.percent()).is_some_and(|(value, level)| value.get() >= level);
    if !is_critical {
        *since = None;
        return false;
    }
    now.since(*since.get_or_insert(now)) >= SUSTAINED
}

/// Whether the index holds a host BUSY.
///
/// * `availability_index`: 0..=100, not rounded. Absent: nothing is known, and nothing holds the host but threshold 100.
/// * `threshold_percent`: BUSY at or below it. 0 turns the rule off, 100 is always BUSY (a hot standby).
/// * `exit_margin_percent`: points above the threshold at which it leaves.
/// * `was_held`: what the latch said before.
///
/// Equality is BUSY: of Domino's three help pages on its threshold, two say "less than or equal".
pub fn holds_busy(
    availability_index: Option<f64>,
    threshold_percent: f64,
    exit_margin_percent: f64,
    was_held: bool,
) -> bool {
    if threshold_percent >= 100.0 {
        return true;
    }
    let Some(index) = availability_index else { return false };
    if threshold_percent <= 0.0 {
        return false;
    }
    index <= threshold_percent || (was_held && index < (threshold_percent + exit_margin_percent).min(100.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_values_of_a_load_are_taken_as_they_stand_in_it() {
        let percent = |value| Percent::new(value).unwrap();
        let mount = |used| usher_types::MountFullness { path: "/".into(), used: percent(used) };
        let load = Load {
            cpu: Some(percent(11.0)),
            memory: Memory::new(22, 100),
            psi_full: Some(percent(33.0)),
            mounts: vec![mount(40.0), mount(44.0), mount(4.0)],
            ..Load::default()
        };
        let input = LatchInput::of_load(&load);
        let values = [input.cpu, input.memory, input.psi_full, input.fullest_mount];
        assert_eq!(values.map(|value| value.map(Percent::get)), [11.0, 22.0, 33.0, 44.0].map(Some));
    }

    #[test]
    fn what_is_held_is_what_the_last_values_said() {
        let mut latches = Latches::default();
        let full = LatchInput { memory: Some(Percent::FULL), ..LatchInput::default() };
        let said = latches.update(&full, &Policy::default(), BootTime::ZERO);
        assert_eq!((said, latches.held()), (BusyReasons::MEMORY, BusyReasons::MEMORY));
    }

    fn run(threshold: f64, margin: f64, indices: &[f64]) -> Vec<bool> {
        let mut held = false;
        let step = |index: &f64| {
            held = holds_busy(Some(*index), threshold, margin, held);
            held
        };
        indices.iter().map(step).collect()
    }

    // rule: state-threshold
    #[test]
    fn case_099_busy_at_equality_off_at_0_always_at_100() {
        assert!(holds_busy(Some(30.0), 30.0, 5.0, false));
        assert!(!holds_busy(Some(0.0), 0.0, 5.0, false));
        assert!(holds_busy(Some(100.0), 100.0, 5.0, false));
        assert!(holds_busy(None, 100.0, 5.0, false));
    }

    // rule: index-formula
    #[test]
    fn case_099_the_index_is_compared_before_it_is_rounded() {
        assert!(holds_busy(Some(29.6), 30.0, 5.0, false));
        assert!(!holds_busy(Some(30.4), 30.0, 5.0, false));
    }

    // rule: state-exit-margin
    #[test]
    fn case_102_an_index_that_swings_moves_the_latch_twice() {
        let held = run(30.0, 5.0, &[31.0, 29.0, 31.0, 29.0, 34.0, 36.0]);
        assert_eq!(held, [false, true, true, true, true, false]);
    }

    // rule: state-exit-margin
    #[test]
    fn leaving_needs_at_most_an_index_of_100() {
        assert_eq!(run(97.0, 5.0, &[96.0, 99.9, 100.0]), [true, true, false]);
    }

    // rule: xf-sparse
    #[test]
    fn nothing_known_clears_the_latch() {
        assert!(!holds_busy(None, 30.0, 5.0, true));
    }

    fn percent(value: f64) -> Option<Percent> {
        Some(Percent::new(value).unwrap())
    }

    fn only(reason: BusyReasons, set: bool) -> BusyReasons {
        BusyReasons::NONE.with(reason, set)
    }

    /// Feeds one value every 10 s and says after which of them the host was BUSY.
    fn over_time(values: &[Option<f64>], input: impl Fn(Option<Percent>) -> LatchInput) -> Vec<bool> {
        let mut latches = Latches::default();
        let mut now = BootTime::ZERO;
        let step = |value: &Option<f64>| {
            now = now + Duration::from_secs(10);
            latches
                .update(&input(value.map(|value| Percent::new(value).unwrap())), &Policy::default(), now)
                .any()
        };
        values.iter().map(step).collect()
    }

    fn memory(memory: Option<Percent>) -> LatchInput {
        LatchInput { memory, ..LatchInput::default() }
    }

    fn cpu(cpu: Option<Percent>) -> LatchInput {
        LatchInput { cpu, ..LatchInput::default() }
    }

    fn psi(psi_full: Option<Percent>) -> LatchInput {
        LatchInput { psi_full, ..LatchInput::default() }
    }

    // rule: state-busy-reasons
    #[test]
    fn case_074_a_host_out_of_memory_is_busy_unless_that_is_off() {
        let full = memory(percent(100.0));
        assert_eq!(judge(&full, &Policy::default(), BusyReasons::NONE), BusyReasons::MEMORY);
        let off = Policy { mem_critical: CriticalLevel::Off, ..Policy::default() };
        assert_eq!(judge(&full, &off, BusyReasons::MEMORY), BusyReasons::NONE);
    }

    // rule: state-memory-margin
    #[test]
    fn memory_leaves_when_strictly_more_than_five_points_lower() {
        let values = [94.9, 95.0, 90.0, 89.9, 90.0, 94.9].map(Some);
        assert_eq!(over_time(&values, memory), [false, true, true, false, false, false]);
        assert_eq!(over_time(&[Some(96.0), None, Some(92.0)], memory), [true, false, false]);
    }

    // rule: state-busy-latched
    #[test]
    fn cpu_and_psi_enter_after_30_s_without_a_pause() {
        for (input, level) in [(cpu as fn(_) -> _, 95.0), (psi, 50.0)] {
            let steady = [Some(level); 4];
            assert_eq!(over_time(&steady, input), [false, false, false, true]);
            let dips = [level, level, level, level - 0.1, level, level, level, level].map(Some);
            assert_eq!(over_time(&dips, input), [false, false, false, false, false, false, false, true]);
            let unknown =
                [Some(level), Some(level), None, Some(level), Some(level), Some(level), Some(level)];
            assert_eq!(over_time(&unknown, input), [false, false, false, false, false, false, true]);
        }
    }

    // rule: state-memory-margin
    #[test]
    fn cpu_and_psi_leave_when_strictly_more_than_five_points_lower_or_unknown() {
        for (input, level) in [(cpu as fn(_) -> _, 95.0), (psi, 50.0)] {
            let mut values = vec![Some(100.0); 4];
            values.extend([Some(level - 5.0), Some(level - 5.1), Some(level)]);
            assert_eq!(over_time(&values, input)[4..], [true, false, false]);
            let mut values = vec![Some(100.0); 4];
            values.extend([None, Some(100.0)]);
            assert_eq!(over_time(&values, input)[4..], [false, false]);
        }
    }

    // rule: state-busy-reasons
    #[test]
    fn a_mount_has_no_margin_and_the_fullest_counts() {
        use usher_types::MountFullness;
        let mount = |used: f64| MountFullness { path: "/".into(), used: Percent::new(used).unwrap() };
        let load = Load { mounts: vec![mount(20.0), mount(98.0), mount(97.0)], ..Load::default() };
        let input = LatchInput::of_load(&load);
        assert_eq!(judge(&input, &Policy::default(), BusyReasons::NONE), BusyReasons::MOUNT);
        let below = LatchInput { fullest_mount: percent(97.9), ..input };
        assert_eq!(judge(&below, &Policy::default(), BusyReasons::MOUNT), BusyReasons::NONE);
    }

    // rule: failed-calls
    #[test]
    fn case_065_too_many_errors_make_it_busy_strictly_above_the_share() {
        for (share, is_busy) in [(Some(90.0), true), (Some(50.1), true), (Some(50.0), false), (None, false)] {
            let input = LatchInput { error_share_percent: share, ..LatchInput::default() };
            let reasons = judge(&input, &Policy::default(), BusyReasons::ERRORS);
            assert_eq!(reasons, only(BusyReasons::ERRORS, is_busy), "{share:?}");
        }
    }

    #[test]
    fn every_level_can_be_off() {
        let off = Policy {
            mem_critical: CriticalLevel::Off,
            cpu_critical: CriticalLevel::Off,
            psi_critical: CriticalLevel::Off,
            mount_critical: CriticalLevel::Off,
            max_error_share_percent: 100.0,
            ..Policy::default()
        };
        let full = LatchInput {
            cpu: percent(100.0),
            memory: percent(100.0),
            psi_full: percent(100.0),
            fullest_mount: percent(100.0),
            error_share_percent: Some(100.0),
            availability_index: Some(0.0),
            ..LatchInput::default()
        };
        let mut latches = Latches::default();
        for second in 0..100 {
            let reasons = latches.update(&full, &off, BootTime::from_millis(1000 * second));
            assert_eq!(reasons, BusyReasons::NONE);
        }
    }

    #[test]
    fn a_restarted_agent_and_a_new_coordinator_take_over_what_was_held() {
        let held = BusyReasons::CPU.with(BusyReasons::USER_SET, true);
        let input = cpu(percent(92.0));
        assert_eq!(judge(&input, &Policy::default(), held), BusyReasons::CPU);
        assert_eq!(judge(&input, &Policy::default(), BusyReasons::NONE), BusyReasons::NONE);
        let mut resumed = Latches::resume(held);
        assert_eq!(resumed.update(&input, &Policy::default(), BootTime::ZERO), BusyReasons::CPU);
    }

    proptest! {
        #[test]
        fn who_hears_every_word_of_a_host_agrees_with_it(
            steps in prop::collection::vec(
                (1u64..20, prop::option::of(80.0..=100.0f64), prop::option::of(20.0..=60.0f64), 0.0..=100.0f64),
                1..60,
            ),
        ) {
            let policy = Policy::default();
            let (mut latches, mut now) = (Latches::default(), BootTime::ZERO);
            for (seconds, busy, pressure, index) in steps {
                now = now + Duration::from_secs(seconds);
                let input = LatchInput {
                    cpu: busy.and_then(percent),
                    memory: busy.and_then(percent),
                    psi_full: pressure.and_then(percent),
                    fullest_mount: busy.and_then(percent),
                    error_share_percent: pressure,
                    availability_index: Some(index),
                    threshold_percent: 30.0,
                    exit_margin_percent: 5.0,
                };
                let held = latches.update(&input, &policy, now);
                prop_assert_eq!(judge(&input, &policy, held), held);
            }
        }
    }
}
