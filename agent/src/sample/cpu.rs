//! How busy were the CPUs since the last look?
//!
//! `/proc/stat` counts clock ticks since boot, so a percentage needs two readings: busy ticks over all ticks between
//! them. Busy is user, nice, system, irq, softirq and steal; idle and iowait are not. `guest` and `guest_nice` lie
//! inside user and nice already and are not counted again.
//!
//! Linux lets single counters fall: iowait does so by design, steal on some hypervisors, idle when a CPU goes
//! offline. A fallen counter adds 0. When nothing rose, or idle fell by more than ordinary correction, the two
//! readings are not of one history (live migration, resume): there is no value for this interval, and the new reading
//! is the base of the next. More ticks than the CPUs can have made in the time (a CPU left or came) drop the interval
//! too. There is never a guess: no value is `None`.
//!
//! In a container that may use less than the machine, the share is that of what it may use, by its control group.

use std::path::Path;
use std::time::Duration;

use super::cgroup::{self, CpuShare};
use super::error::SampleError;
use super::fallback::{Read, SysinfoCpu, or_sysinfo};
use super::source::read_text;

/// `USER_HZ`: the kernel shows these counters in 1/100 s on every architecture, whatever its own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// How far idle may fall per CPU by the kernel's own corrections, ticks: 3 s, the bound that the Prometheus node
/// exporter found in the field. Twice as much would hide short live migrations.
const IDLE_CORRECTION_TICKS: u64 = 300;

/// By how much the counted ticks may pass elapsed x CPUs before they are not believed. The two readings and the clock
/// are not taken at one instant, so exactly 1 would drop good intervals on a loaded host; the jumps to be caught are
/// of hundreds.
const PLAUSIBLE_EXCESS: f64 = 2.0;

/// What stands for the number of CPUs where the text does not tell it: as many as Linux can have.
const MOST_CPUS: u64 = 8192;

const STAT: &str = "/proc/stat";

/// The counters of all CPUs together, in ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
    /// Lines of single CPUs; 0 when the text has none.
    cpus: u64,
}

/// What one look at the counters gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuReading {
    /// Busy share since the last look, 0..=100. Absent on the first look and when the counters cannot be compared.
    pub percent: Option<f64>,
    /// Something odd about the counters that an operator should know.
    pub warning: Option<String>,
    /// CPUs that the container may use. Absent: those of the machine, as in `/proc/stat`.
    pub limit_cpus: Option<f64>,
    /// It is sysinfo's, because our own reader made nothing of the counters; the warning says why.
    pub is_sysinfo: bool,
}

/// Remembers the last look.
#[derive(Debug, Default)]
pub struct CpuSampler {
    previous: Option<CpuTimes>,
    /// What a container had used, and may use.
    share: Option<CpuShare>,
    sysinfo: SysinfoCpu,
}

impl CpuSampler {
    /// Takes a new look: `text` is `/proc/stat`, `elapsed` the time since the last one (unused on the first).
    ///
    /// # Errors
    /// When the text has no readable line of all CPUs. The last good look is kept.
    pub fn update(&mut self, text: &str, elapsed: Duration) -> Result<CpuReading, SampleError> {
        let now = parse(text)?;
        Ok(match self.previous.replace(now) {
            Some(before) => compare(&before, &now, elapsed),
            None => CpuReading::default(),
        })
    }

    /// [`CpuSampler::update`] from the file below `root`, or a container's share by its control group.
    ///
    /// # Errors
    /// As there, and when the file, or the use of a limit, cannot be read.
    pub fn read(&mut self, root: &Path, elapsed: Duration) -> Result<CpuReading, SampleError> {
        let (machine, machine_cpus) = self.machine(root, elapsed)?;
        let share = cgroup::cpu_share(root, machine_cpus)?;
        let before = std::mem::replace(&mut self.share, share);
        Ok(match share {
            Some(share) => share_reading(before.as_ref(), &share, elapsed),
            None => machine,
        })
    }

    /// The machine's share, by our own reader or by sysinfo, and its CPUs (0: not told).
    fn machine(&mut self, root: &Path, elapsed: Duration) -> Result<(CpuReading, u64), SampleError> {
        let own = read_text(root, "proc/stat").and_then(|text| self.update(&text, elapsed));
        let own = own.map(|reading| (reading, self.previous.map_or(0, |times| times.cpus)));
        let sysinfo = &mut self.sysinfo;
        let theirs = || {
            let shown = sysinfo.look()?;
            Some((
                CpuReading { percent: shown.percent, is_sysinfo: true, ..CpuReading::default() },
                shown.cpus,
            ))
        };
        let Read { value: (mut reading, cpus), stands_in } = or_sysinfo(root, own, theirs)?;
        match stands_in {
            Some(why) => reading.warning = Some(why),
            None => self.sysinfo.forget(),
        }
        Ok((reading, cpus))
    }
}

/// Reads the line of all CPUs. Kernels before 2.6.11 have no steal column: it is then 0.
///
/// # Errors
/// When the line is missing, has less than seven columns or one that is not a whole number.
pub fn parse(text: &str) -> Result<CpuTimes, SampleError> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .ok_or_else(|| SampleError::malformed(STAT, "no line of all CPUs"))?;
    let columns = line
        .split_ascii_whitespace()
        .take(8)
        .map(str::parse::<u64>)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| SampleError::malformed(STAT, format!("line of all CPUs: {error}")))?;
    let (&[user, nice, system, idle, iowait, irq, softirq], rest) = columns
        .split_first_chunk::<7>()
        .ok_or_else(|| SampleError::malformed(STAT, "line of all CPUs has less than 7 columns"))?;
    let is_single = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let steal = rest.first().copied().unwrap_or(0);
    let cpus = text.lines().filter(is_single).count() as u64;
    Ok(CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal, cpus })
}

/// A container's use between two looks, of what it may use now.
fn share_reading(before: Option<&CpuShare>, now: &CpuShare, elapsed: Duration) -> CpuReading {
    let possible = elapsed.as_secs_f64() * now.cpus;
    let used = before.and_then(|before| now.used.checked_sub(before.used)).map(|used| used.as_secs_f64());
    // A quota is kept on average, so a short interval may pass it; the machine's CPUs bound it in truth.
    let percent = used
        .filter(|&used| possible > 0.0 && used <= possible * PLAUSIBLE_EXCESS)
        .map(|used| (100.0 * used / possible).clamp(0.0, 100.0));
    let is_odd = before.is_some() && percent.is_none() && possible > 0.0;
    let warning =
        is_odd.then(|| "CPU counters of the container jumped: no value for this interval".to_owned());
    CpuReading { percent, warning, limit_cpus: Some(now.cpus), is_sysinfo: false }
}

fn compare(before: &CpuTimes, now: &CpuTimes, elapsed: Duration) -> CpuReading {
    let dropped = |why: &str| CpuReading {
        warning: Some(format!("CPU counters {why}: no value for this interval")),
        ..CpuReading::default()
    };
    let cpus = before.cpus.max(now.cpus);
    if before.idle.saturating_sub(now.idle) > IDLE_CORRECTION_TICKS.saturating_mul(cpus.max(1)) {
        return dropped("fell");
    }
    let rise = |field: fn(&CpuTimes) -> u64| field(now).saturating_sub(field(before)) as f64;
    let busy = rise(|t| t.user)
        + rise(|t| t.nice)
        + rise(|t| t.system)
        + rise(|t| t.irq)
        + rise(|t| t.softirq)
        + rise(|t| t.steal);
    let total = busy + rise(|t| t.idle) + rise(|t| t.iowait);
    if total == 0.0 {
        // Two looks within one tick are no fault, so they get no warning.
        return if before == now { CpuReading::default() } else { dropped("fell") };
    }
    let most_cpus = if cpus > 0 { cpus } else { MOST_CPUS } as f64;
    if total > elapsed.as_secs_f64() * most_cpus * TICKS_PER_SECOND * PLAUSIBLE_EXCESS + most_cpus {
        return dropped("jumped");
    }
    let warning = (now.steal < before.steal).then(|| "steal counter unreliable: it fell".to_owned());
    let percent = Some((100.0 * busy / total).clamp(0.0, 100.0));
    CpuReading { percent, warning, ..CpuReading::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn readings(texts: &[&str]) -> Vec<CpuReading> {
        let mut sampler = CpuSampler::default();
        texts.iter().map(|text| sampler.update(text, SECOND).expect("readable")).collect()
    }

    fn last_percent(texts: &[&str]) -> f64 {
        readings(texts).last().and_then(|reading| reading.percent).expect("a value")
    }

    #[test]
    fn case_001_identical_counters_give_no_value() {
        let same = "cpu 1000 0 500 8000 0 0 0 0 0 0\n";
        assert_eq!(readings(&[same, same])[1], CpuReading::default());
    }

    #[test]
    fn case_002_the_first_look_gives_no_value() {
        assert_eq!(readings(&["cpu 900000 0 100000 9000000 0 0 0 0 0 0\n"])[0].percent, None);
    }

    #[test]
    fn case_003_iowait_that_falls_adds_nothing() {
        let percent =
            last_percent(&["cpu 1000 0 500 8000 400 0 100 0 0 0", "cpu 1060 0 520 8130 390 0 100 0 0 0"]);
        assert!((percent - 38.095).abs() < 0.01, "{percent}");
    }

    #[test]
    fn case_005_steal_that_runs_backwards_is_flagged_and_adds_nothing() {
        let looks = readings(&[
            "cpu 900 0 200 50000 0 0 0 4100000000 0 0",
            "cpu 903 0 202 50095 0 0 0 3400000000 0 0",
        ]);
        assert_eq!(looks[1].percent, Some(5.0));
        assert_eq!(looks[1].warning.as_deref(), Some("steal counter unreliable: it fell"));
    }

    #[test]
    fn case_007_a_jump_of_the_total_drops_one_interval() {
        let looks = readings(&[
            "cpu 9000 0 1000 190000 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n",
            "cpu 9010 0 1002 452000 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu3 1\n",
            "cpu 9040 0 1012 452260 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu3 1\n",
        ]);
        assert_eq!(looks[1].percent, None);
        let percent = looks[2].percent.expect("a value");
        assert!((percent - 13.333).abs() < 0.01, "{percent}");
    }

    #[test]
    fn case_008_guest_time_is_not_counted_twice() {
        let percent = last_percent(&["cpu 1000 0 100 8900 0 0 0 0 0 0", "cpu 1400 0 120 9480 0 0 0 0 400 0"]);
        assert!((percent - 42.0).abs() < 1e-9, "{percent}");
    }

    #[test]
    fn an_idle_counter_of_two_to_the_64_costs_two_intervals_only() {
        let looks = readings(&[
            "cpu 100 0 0 100 0 0 0 0",
            "cpu 110 0 0 18446744073709551615 0 0 0 0",
            "cpu 120 0 0 180 0 0 0 0",
            "cpu 130 0 0 270 0 0 0 0",
        ]);
        let percents: Vec<_> = looks.iter().map(|reading| reading.percent).collect();
        assert_eq!(percents, [None, None, None, Some(10.0)]);
        assert!(CpuSampler::default().update("cpu 1 0 0 18446744073709551616 0 0 0 0", SECOND).is_err());
    }

    #[test]
    fn case_018_a_container_is_measured_by_what_it_may_use() {
        let stat = |ticks: u64| {
            let cpus: String = (0..32).map(|cpu| format!("cpu{cpu} 1 0 0 1 0 0 0 0\n")).collect();
            format!("cpu {} 0 0 {} 0 0 0 0\n{cpus}", ticks * 640, ticks * 2560)
        };
        let mut sampler = CpuSampler::default();
        let mut look = |seconds: u64, used_us: u64| {
            let (stat, usage) = (stat(seconds), format!("usage_usec {used_us}\n"));
            let root = tree(&[
                ("proc/stat", stat.as_str()),
                ("sys/fs/cgroup/cpu.max", "500000 100000\n"),
                ("sys/fs/cgroup/cpu.stat", usage.as_str()),
            ]);
            sampler.read(root.path(), SECOND).unwrap()
        };
        let first = look(1, 1_000_000);
        assert_eq!((first.percent, first.limit_cpus), (None, Some(5.0)));
        assert_eq!(look(2, 6_000_000).percent, Some(100.0));
        assert_eq!(look(3, 7_000_000).percent, Some(20.0));
        let reset = look(4, 5);
        assert_eq!(reset.percent, None);
        assert!(reset.warning.is_some());
        assert_eq!(look(5, 2_500_005).percent, Some(50.0));
    }

    #[test]
    fn case_009_counters_of_another_history_cost_one_interval_only() {
        let looks = readings(&[
            "cpu 8000 0 900 320000 3000 0 60 190 0 0",
            "cpu 8010 0 902 150000 3000 0 60 0 0 0",
            "cpu 8030 0 912 150070 3000 0 60 0 0 0",
        ]);
        assert_eq!(looks[1].percent, None);
        assert_eq!(looks[2].percent, Some(30.0));
    }

    #[test]
    fn counters_that_all_fell_give_no_value_and_a_new_base() {
        let looks = readings(&[
            "cpu 100 100 100 100 100 100 100 100",
            "cpu 10 10 10 10 10 10 10 10",
            "cpu 20 10 10 20 10 10 10 10",
        ]);
        assert_eq!(looks[1].percent, None);
        assert!(looks[1].warning.is_some());
        assert_eq!(looks[2].percent, Some(50.0));
    }

    #[test]
    fn a_bad_text_is_an_error_and_keeps_the_base() {
        let mut sampler = CpuSampler::default();
        sampler.update("cpu 0 0 0 0 0 0 0 0", SECOND).expect("readable");
        for bad in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 x 4 5 6 7 8", "cpu -1 2 3 4 5 6 7"] {
            assert!(sampler.update(bad, SECOND).is_err(), "{bad:?}");
        }
        assert_eq!(sampler.update("cpu 1 0 0 3 0 0 0 0", SECOND).expect("readable").percent, Some(25.0));
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut sampler = CpuSampler::default();
        assert_eq!(sampler.read(Path::new("/"), Duration::ZERO).expect("readable").percent, None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(cpu[0-9]{0,3}|[ \\-]|[0-9]{1,21}|\n|x){0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_two_looks_give_a_percentage_or_nothing(
            first in proptest::array::uniform8(any::<u64>()),
            second in proptest::array::uniform8(any::<u64>()),
        ) {
            let line = |times: [u64; 8]| times.iter().fold("cpu ".to_owned(), |text, tick| format!("{text} {tick}"));
            let mut sampler = CpuSampler::default();
            sampler.update(&line(first), SECOND).expect("readable");
            if let Some(percent) = sampler.update(&line(second), SECOND).expect("readable").percent {
                prop_assert!((0.0..=100.0).contains(&percent));
            }
        }
    }
}
