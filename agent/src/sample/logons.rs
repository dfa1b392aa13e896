//! How long does a logon take, and what does it cost?
//!
//! A logon is what a session does before its user can work: profiles, a desktop, start-up programs. It begins with the
//! session and is over when the session has gone quiet: when its control group has used, or waited for, less than a tenth
//! of a core over five seconds. Its end is then that of the last busy look before, so the wait for quietness is no part of
//! it. Waiting counts because a storm leaves each of its logons less than that, and none of them is over.
//!
//! * A logon takes half a second at least: looks are no finer, and one of no time has no cost per second.
//! * One that is not quiet after five minutes is not counted. Its user works by then, a build or a query, and its length
//!   is nobody's logon; counted as five minutes, one such session in ten would hide what the other nine say.
//! * One that ends before it is quiet is not counted: the group is gone, and what it used with it.
//! * A session that was not seen from its beginning is none: those from before the agent's start among them.
//!
//! The control group is the session's own. Desktops run beside it, in the user's manager, so the only session of a user is
//! measured by all that the user runs, from when it was first seen; when a second one comes, nobody can tell any more
//! whose the use is, and the first is not counted. Without a group nothing is counted: unknown stays unknown.
//!
//! A logon is in progress now while logind sets its session up, or while it was busy at the last look; one that cannot be
//! measured for as long as a logon takes before anybody has learned better. Each is known by its id, so none is two.
//!
//! Memory and work are bounded: so many are measured at once, each once a second; those over that are told by their age,
//! and what was counted is kept in sums of ten seconds.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use usher_placement::load::CostBounds;
use usher_types::{FinishedLogons, LogonsInProgress};

/// A desktop that shows its start-up programs pauses for a second or two between them, not for this long.
const QUIET_FOR: Duration = Duration::from_secs(5);
/// Share of a core below which a session is quiet. Idle desktops use some hundredths.
const QUIET_CORES: f64 = 0.1;
/// Shortest logon.
const SHORTEST: Duration = Duration::from_millis(500);
/// Longest one; also the longest that is learned from.
pub const LONGEST: Duration = Duration::from_secs(300);
/// A session that is first seen so long after it began was not seen from its beginning.
const LATE: Duration = Duration::from_secs(3);
/// Shortest time between two looks at one group, a little below that between two looks at the sessions.
const STEP: Duration = Duration::from_millis(900);
/// Most that are measured at once: a storm of logins; reading their groups takes some milliseconds.
const MAX_MEASURED: usize = 1024;
/// Most that are known at once.
const MAX_LOGONS: usize = 16_384;
/// For how long ended logons are told.
const TOLD_FOR: Duration = Duration::from_secs(600);
/// They are summed up by as much time.
const SUMMED: Duration = Duration::from_secs(10);

/// A session that may be logging on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// As its source names it.
    pub id: String,
    /// The account's number. Absent: not told.
    pub uid: Option<u32>,
    /// The unit that holds its processes, such as `session-16.scope`. Empty: none.
    pub scope: String,
    /// When it began, on the clock of the looks.
    pub began: Duration,
    /// logind still sets it up.
    pub is_opening: bool,
    /// It is the only session of its user.
    pub is_alone: bool,
}

/// A control group whose use is a logon's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuGroup {
    /// All that the user of this number runs.
    User(u32),
    /// What one session of the user runs, by its unit.
    Session(u32, String),
}

/// What a control group has used since it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuUse {
    /// CPU time.
    pub used: Duration,
    /// Time for which some of its work waited for a CPU; 0 where the kernel does not tell.
    pub waited: Duration,
}

impl CpuUse {
    fn since(self, before: Self) -> Self {
        let used = self.used.saturating_sub(before.used);
        Self { used, waited: self.waited.saturating_sub(before.waited) }
    }
}

/// The logons of one look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogonSample {
    /// How many are in progress, and their mean since the last measurement.
    pub in_progress: LogonsInProgress,
    /// Those of them that are still being set up.
    pub opening: u32,
    /// Those that ended in the last 10 min. Absent: none could be measured yet.
    pub finished: Option<FinishedLogons>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Duration,
    cpu: CpuUse,
}

impl Reading {
    /// Before anything was used.
    fn at(at: Duration) -> Self {
        Self { at, cpu: CpuUse::default() }
    }

    /// Cores used or waited for from this one to a later one. Absent: no time passed.
    fn cores_until(self, later: Self) -> Option<f64> {
        let elapsed = later.at.saturating_sub(self.at);
        let CpuUse { used, waited } = later.cpu.since(self.cpu);
        (!elapsed.is_zero()).then(|| (used + waited).as_secs_f64() / elapsed.as_secs_f64())
    }
}

#[derive(Debug)]
struct Logon {
    began: Duration,
    is_opening: bool,
    /// Absent: it cannot be measured.
    group: Option<CpuGroup>,
    /// What the group had used before.
    used_before: Option<CpuUse>,
    /// Those of the last [`QUIET_FOR`], and one before.
    readings: VecDeque<Reading>,
    /// The end of the last busy step.
    busy_until: Reading,
    is_busy: bool,
}

impl Logon {
    fn is_in_progress(&self, now: Duration) -> bool {
        let is_young = || now.saturating_sub(self.began).as_secs_f64() < CostBounds::LOGON_SECONDS.prior;
        self.is_opening || if self.group.is_some() { self.is_busy } else { is_young() }
    }

    fn is_due(&self, now: Duration) -> bool {
        // The last is of the beginning before the group was read.
        let is_fresh = |last: &Reading| now.saturating_sub(last.at) < STEP;
        self.used_before.is_none() || !self.readings.back().is_some_and(is_fresh)
    }

    /// Takes in what its group has used. Its seconds and core-seconds, once it is over.
    fn take(&mut self, now: Duration, cpu: CpuUse) -> Option<(f64, f64)> {
        let is_own = matches!(self.group, Some(CpuGroup::Session(..)));
        if self.used_before.is_none() && !is_own {
            // What the user's other processes used before is not this session's.
            let first = Reading::at(now);
            (self.readings, self.busy_until) = (VecDeque::from([first]), first);
        }
        let before = *self.used_before.get_or_insert(if is_own { CpuUse::default() } else { cpu });
        let reading = Reading { at: now, cpu: cpu.since(before) };
        let cores = self.readings.back()?.cores_until(reading)?;
        self.is_busy = cores >= QUIET_CORES;
        if self.is_busy {
            self.busy_until = reading;
        }
        self.readings.push_back(reading);
        let is_old = |reading: &Reading| now.saturating_sub(reading.at) >= QUIET_FOR;
        while self.readings.get(1).is_some_and(is_old) {
            self.readings.pop_front();
        }
        let first = self.readings.front().filter(|first| is_old(first))?;
        let is_quiet = first.cores_until(reading).is_some_and(|cores| cores < QUIET_CORES);
        (is_quiet && !self.is_opening).then(|| self.cost(reading))
    }

    fn cost(&self, last: Reading) -> (f64, f64) {
        let ended = self.busy_until.at.max(self.began + SHORTEST);
        let at_end = self.readings.iter().find(|reading| reading.at >= ended).copied().unwrap_or(last);
        ((ended - self.began).as_secs_f64(), at_end.cpu.used.as_secs_f64())
    }
}

/// Logons that ended within some seconds.
#[derive(Debug, Default)]
struct Sum {
    since: Duration,
    count: u32,
    seconds: f64,
    core_seconds: f64,
}

/// Follows the logons of a host from look to look.
#[derive(Debug, Default)]
pub struct LogonWatch {
    logons: BTreeMap<String, Logon>,
    looked_at: Option<Duration>,
    ended: VecDeque<Sum>,
    /// Some group could be read, so that no ended logon means none.
    has_measured: bool,
    /// Since the last measurement: when it was, and the time of all logons together.
    interval: Option<(Duration, f64)>,
}

impl LogonWatch {
    /// Takes in the sessions that began lately, at most [`LONGEST`] ago. `now` is of the clock that they began on. The
    /// groups whose use since their beginning is to be read now.
    pub fn see(&mut self, now: Duration, begun: Vec<Begun>) -> Vec<(String, CpuGroup)> {
        let looked_at = self.looked_at;
        let mut before = std::mem::take(&mut self.logons);
        let mut measured = before.values().filter(|logon| logon.group.is_some()).count();
        for seen in begun {
            if let Some(mut logon) = before.remove(&seen.id) {
                logon.is_opening = seen.is_opening;
                if !seen.is_alone && matches!(logon.group, Some(CpuGroup::User(_))) {
                    logon.group = None;
                }
                self.logons.insert(seen.id, logon);
            } else if looked_at.is_none_or(|looked_at| seen.began + LATE > looked_at)
                && self.logons.len() < MAX_LOGONS
            {
                let is_seen_from_begin = now.saturating_sub(seen.began) <= LATE;
                let group = (is_seen_from_begin && measured < MAX_MEASURED).then(|| group(&seen)).flatten();
                measured += usize::from(group.is_some());
                self.logons.insert(seen.id.clone(), begin(&seen, group, now));
            }
        }
        let due = |(id, logon): (&String, &Logon)| {
            let group = logon.group.as_ref().filter(|_| logon.is_due(now))?;
            Some((id.clone(), group.clone()))
        };
        self.logons.iter().filter_map(due).collect()
    }

    /// Takes in what those groups have used. Absent: a group that cannot be read, which is not there yet, or never will.
    pub fn take(&mut self, now: Duration, readings: Vec<(String, Option<CpuUse>)>) {
        for (id, cpu) in readings {
            let Some(logon) = self.logons.get_mut(&id) else { continue };
            let is_late = now.saturating_sub(logon.began) > LATE;
            let Some(cpu) = cpu else {
                if !logon.is_opening && is_late {
                    logon.group = None;
                }
                continue;
            };
            self.has_measured = true;
            if logon.used_before.is_none() && is_late && matches!(logon.group, Some(CpuGroup::User(_))) {
                logon.group = None;
                continue;
            }
            if let Some((seconds, core_seconds)) = logon.take(now, cpu) {
                self.logons.remove(&id);
                self.count(now, seconds, core_seconds);
            }
        }
    }

    /// Ends a look: the time since the last one is theirs who are in progress.
    pub fn end_look(&mut self, now: Duration) {
        let looked_at = self.looked_at.unwrap_or(now);
        let in_progress = self.logons.values().filter(|logon| logon.is_in_progress(now));
        let times = in_progress.map(|logon| now.saturating_sub(logon.began.max(looked_at)).as_secs_f64());
        let time: f64 = times.sum();
        self.interval.get_or_insert((now, 0.0)).1 += time;
        self.looked_at = Some(now);
    }

    /// As at the last look.
    #[must_use]
    pub fn sample(&self) -> LogonSample {
        let now = self.looked_at.unwrap_or_default();
        let in_progress = self.logons.values().filter(|logon| logon.is_in_progress(now)).count();
        let opening = self.logons.values().filter(|logon| logon.is_opening).count();
        let mean = self.interval.and_then(|(since, time)| {
            let elapsed = now.saturating_sub(since).as_secs_f64();
            (elapsed > 0.0).then(|| time / elapsed)
        });
        let mean = mean.unwrap_or(in_progress as f64);
        LogonSample {
            in_progress: LogonsInProgress { now: whole(in_progress), mean },
            opening: whole(opening),
            finished: self.has_measured.then(|| self.finished(now)),
        }
    }

    /// A measurement was taken at the last look: another interval begins.
    pub fn end_interval(&mut self) {
        self.interval = self.looked_at.map(|looked_at| (looked_at, 0.0));
    }

    fn count(&mut self, now: Duration, seconds: f64, core_seconds: f64) {
        let is_told = |sum: &Sum| now.saturating_sub(sum.since) <= TOLD_FOR;
        while self.ended.front().is_some_and(|sum| !is_told(sum)) {
            self.ended.pop_front();
        }
        if self.ended.back().is_none_or(|sum| now.saturating_sub(sum.since) >= SUMMED) {
            self.ended.push_back(Sum { since: now, ..Sum::default() });
        }
        if let Some(sum) = self.ended.back_mut() {
            sum.count = sum.count.saturating_add(1);
            sum.seconds += seconds;
            sum.core_seconds += core_seconds;
        }
    }

    fn finished(&self, now: Duration) -> FinishedLogons {
        let told = self.ended.iter().filter(|sum| now.saturating_sub(sum.since) <= TOLD_FOR);
        let none = FinishedLogons { core_seconds: Some(0.0), ..FinishedLogons::default() };
        let all = told.fold(none, |all, sum| FinishedLogons {
            count: all.count.saturating_add(sum.count),
            seconds: all.seconds + sum.seconds,
            core_seconds: Some(all.core_seconds.unwrap_or_default() + sum.core_seconds),
        });
        // Logons without any use are a counter that stands still.
        let core_seconds = all.core_seconds.filter(|used| all.count == 0 || *used > 0.0);
        FinishedLogons { core_seconds, ..all }
    }
}

fn begin(seen: &Begun, group: Option<CpuGroup>, now: Duration) -> Logon {
    // What all of a user's processes used is known from now on only, what a session used from its beginning.
    let since = if matches!(group, Some(CpuGroup::Session(..))) { seen.began.min(now) } else { now };
    let first = Reading::at(since);
    Logon {
        began: seen.began.min(now),
        is_opening: seen.is_opening,
        group,
        used_before: None,
        readings: VecDeque::from([first]),
        busy_until: first,
        is_busy: true,
    }
}

fn group(seen: &Begun) -> Option<CpuGroup> {
    let uid = seen.uid?;
    if seen.is_alone {
        return Some(CpuGroup::User(uid));
    }
    (!seen.scope.is_empty()).then(|| CpuGroup::Session(uid, seen.scope.clone()))
}

fn whole(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "logons_tests.rs"]
mod tests;
