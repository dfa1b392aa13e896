//! What became of it, for people and for documents?

use serde::Serialize;
use usher_integration_tests::bench::{Bound, Goal, print_goals};
use usher_integration_tests::chaos::{Fault, Findings};

use super::load::{Call, Caller, End};

/// What one fault did.
#[derive(Debug, Serialize)]
pub(crate) struct FaultLine {
    /// Its name.
    pub(crate) fault: &'static str,
    /// Whom it struck.
    pub(crate) victim: String,
    /// How long it lasted, seconds.
    pub(crate) lasted_s: f64,
    /// From its end until every coordinator heard every host again. Absent: it did not, within the time.
    pub(crate) whole_after_s: Option<f64>,
    /// What callers saw from its beginning to the next one's.
    #[serde(flatten)]
    pub(crate) seen: Seen,
    /// Moments at which a host was above its limit.
    pub(crate) limits_passed: usize,
    /// Tokens on two hosts for more than a second.
    pub(crate) doubled: usize,
    /// Places that their host forgot.
    pub(crate) lost: usize,
}

/// What callers saw in some time.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Seen {
    /// Calls through the library that began in it, and how many of them failed.
    pub(crate) calls_library: usize,
    pub(crate) failed_library: usize,
    /// Likewise of the raw caller.
    pub(crate) calls_raw: usize,
    pub(crate) failed_raw: usize,
    /// Answers of the library without any coordinator.
    pub(crate) local: usize,
    /// Answers on the word of doors, without agents.
    pub(crate) blind: usize,
    /// The slowest answer of the library, seconds.
    pub(crate) slowest_library_s: f64,
    /// The longest time between two answers of the library, seconds.
    pub(crate) gap_library_s: f64,
    /// As above, of the raw caller.
    pub(crate) gap_raw_s: f64,
    /// From the beginning until the last call that failed or took more than a second, seconds: of the library, ...
    pub(crate) settled_library_s: f64,
    /// ... and of the raw caller.
    pub(crate) settled_raw_s: f64,
}

/// A call that takes longer is felt.
const SLOW_MS: u64 = 1000;

impl Seen {
    /// Of the calls that began from `from_ms` until `until_ms`.
    pub(crate) fn of(calls: &[Call], from_ms: u64, until_ms: u64) -> Self {
        let within: Vec<&Call> =
            calls.iter().filter(|call| (from_ms..until_ms).contains(&call.began_ms)).collect();
        let mut seen = Self::default();
        for call in &within {
            let is_failed = matches!(call.end, End::Failed(_));
            let (calls, failed) = match call.caller {
                Caller::Library => (&mut seen.calls_library, &mut seen.failed_library),
                Caller::Raw => (&mut seen.calls_raw, &mut seen.failed_raw),
            };
            *calls += 1;
            *failed += usize::from(is_failed);
            if let End::Placed { is_local, is_blind, .. } = call.end {
                seen.local += usize::from(is_local);
                seen.blind += usize::from(is_blind);
            }
        }
        let of = |caller: Caller| within.iter().filter(move |call| call.caller == caller).copied();
        let slowest = of(Caller::Library).map(|call| call.answered_ms - call.began_ms).max();
        seen.slowest_library_s = seconds(slowest.unwrap_or(0));
        seen.gap_library_s = gap(of(Caller::Library), from_ms);
        seen.gap_raw_s = gap(of(Caller::Raw), from_ms);
        seen.settled_library_s = settled(of(Caller::Library), from_ms);
        seen.settled_raw_s = settled(of(Caller::Raw), from_ms);
        seen
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// The longest time between two answers.
fn gap<'a>(calls: impl Iterator<Item = &'a Call>, from_ms: u64) -> f64 {
    let mut answers: Vec<u64> =
        calls.filter(|call| !matches!(call.end, End::Failed(_))).map(|call| call.answered_ms).collect();
    answers.push(from_ms);
    answers.sort_unstable();
    seconds(answers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0))
}

fn settled<'a>(calls: impl Iterator<Item = &'a Call>, from_ms: u64) -> f64 {
    let bad = |call: &&Call| matches!(call.end, End::Failed(_)) || call.answered_ms - call.began_ms > SLOW_MS;
    calls.filter(bad).map(|call| seconds(call.answered_ms.saturating_sub(from_ms))).fold(0.0, f64::max)
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    /// Replays the schedule.
    pub(crate) seed: u64,
    pub(crate) quick: bool,
    pub(crate) seconds: f64,
    pub(crate) hosts: usize,
    pub(crate) calls_per_second_library: u32,
    pub(crate) calls_per_second_raw: u32,
    /// Calls that were made in the last hundredth of the time in which they were due, or the machine is too slow for the
    /// figures to be believed: the share of all that were due.
    pub(crate) calls_made_share: f64,
    pub(crate) total: Seen,
    /// Lines that hosts wrote, places that were looked at, and those given without asking their host.
    pub(crate) log_lines: usize,
    pub(crate) places_checked: usize,
    /// Those that were held for more than a second.
    pub(crate) places_judged: usize,
    pub(crate) places_never_asked: usize,
    pub(crate) longest_on_two_hosts_s: f64,
    /// Why calls failed, the raw caller's too, most frequent first.
    pub(crate) failures: Vec<(String, usize)>,
    /// What the checker found, in words; at most 20 of each kind.
    pub(crate) findings: Vec<String>,
    pub(crate) faults: Vec<FaultLine>,
    pub(crate) goals: Vec<Goal>,
}

impl Document {
    /// Prints it for people.
    pub(crate) fn print(&self) {
        println!("seed {}, {} hosts, {:.0} s", self.seed, self.hosts, self.seconds);
        println!("{}", heading());
        for line in &self.faults {
            println!("{}", line.row());
        }
        let all = &self.total;
        println!(
            "library: {} calls, {} failed, {} local, {} blind; raw: {} calls, {} failed",
            all.calls_library, all.failed_library, all.local, all.blind, all.calls_raw, all.failed_raw
        );
        println!(
            "{} lines of hosts, {} places looked at, {} of them given without asking the host",
            self.log_lines, self.places_checked, self.places_never_asked
        );
        for (reason, times) in &self.failures {
            println!("failed {times} times: {reason}");
        }
        for finding in &self.findings {
            println!("BROKEN: {finding}");
        }
        print_goals(&self.goals);
    }
}

/// Over the rows of faults.
fn heading() -> String {
    format!(
        "{:<34} {:<12} {:>5} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7}",
        "FAULT",
        "AT",
        "S",
        "LIBRARY",
        "FAILED",
        "RAW",
        "FAILED",
        "LOCAL",
        "BLIND",
        "LIMIT",
        "TWO",
        "LOST",
        "GAP S",
        "SETTLED",
        "WHOLE S"
    )
}

impl FaultLine {
    /// For people.
    fn row(&self) -> String {
        let seen = &self.seen;
        let whole = self.whole_after_s.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1}"));
        format!(
            "{:<34} {:<12} {:>5.0} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6} {:>5} {:>4} {:>4} {:>7.1} {:>7.1} {:>7}",
            self.fault,
            self.victim,
            self.lasted_s,
            seen.calls_library,
            seen.failed_library,
            seen.calls_raw,
            seen.failed_raw,
            seen.local,
            seen.blind,
            self.limits_passed,
            self.doubled,
            self.lost,
            seen.gap_library_s,
            seen.settled_library_s,
            whole
        )
    }
}

/// Coordinators that hear no host may give of their share without asking. They are one of three for a few seconds of a
/// minute.
const NEVER_ASKED: f64 = 0.05;
/// A machine that stands still for the deadline of a call leaves some without an answer. Whoever decides alone although
/// others are well does so for all of them.
const LOCAL_BESIDE: f64 = 0.002;

/// What is promised, held against what was seen.
pub(crate) fn goals(total: &Seen, found: &Findings, faults: &[FaultLine], made_share: f64) -> Vec<Goal> {
    let is_believed = made_share >= 0.95;
    let count = |id, what, figure: usize| {
        Goal::amount(id, what, Bound::AtMost(0.0), "calls", (figure as f64, 0.0), is_believed)
    };
    // There is one fault that leaves nobody to ask, and its time lasts until everybody hears everybody again.
    let all_dead = faults.iter().filter(|line| line.fault == Fault::KillAll.name());
    let beside = total.local.saturating_sub(all_dead.map(|line| line.seen.local).sum());
    let never_asked = found.never_asked as f64 / found.places.max(1) as f64;
    let longest = |of: fn(&FaultLine) -> f64| faults.iter().map(of).fold(0.0, f64::max);
    let gap = longest(|line| line.seen.gap_library_s);
    // What did not become whole took longer than anybody waits.
    let whole = longest(|line| line.whole_after_s.unwrap_or(f64::MAX));
    vec![
        count("library_failed", "calls through the library that failed", total.failed_library),
        count("limits_passed", "moments at which a host was above its limit", found.limits_passed.len()),
        count("token_on_two_hosts", "tokens on two hosts for more than a second", found.doubled.len()),
        count("places_lost", "places that their host forgot, held for more than a second", found.lost.len()),
        Goal::amount(
            "local_beside",
            "share of calls that were decided without a coordinator while some could answer",
            Bound::AtMost(LOCAL_BESIDE),
            "",
            (beside as f64 / total.calls_library.max(1) as f64, 0.0),
            is_believed,
        ),
        Goal::amount(
            "never_asked",
            "share of places that were given without asking their host",
            Bound::AtMost(NEVER_ASKED),
            "",
            (never_asked, 0.0),
            is_believed,
        ),
        Goal::amount(
            "library_gap",
            "longest time without an answer through the library",
            Bound::AtMost(6.0),
            "s",
            (gap, 0.0),
            is_believed,
        ),
        Goal::amount(
            "whole_after",
            "from the end of a fault until everybody heard everybody",
            Bound::AtMost(60.0),
            "s",
            (whole, 0.0),
            is_believed,
        ),
    ]
}
