//! How much CPU did work ask for, got or not?
//!
//! A busy share ends at 100 %, where a host begins to differ from one that is ten times overloaded. The scheduler also
//! counts how long tasks that could run waited for a CPU. Both together, over the time that the CPUs had, are the
//! demand: 0.5 is half busy, 1 is just full, 3 is three times what the host can do.
//!
//! The busy part is that of `/proc/stat`, which is exact in any interval; `/proc/schedstat` adds a task's running time
//! only when it leaves the CPU. The waiting part is the latter's, in nanoseconds since boot for each CPU. A CPU that
//! came or left in between does not take part; a counter that fell makes the interval none. Kernels built without the
//! counters give no demand, which is no failure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::error::SampleError;
use super::source::read_optional_text;

const SCHEDSTAT: &str = "/proc/schedstat";

/// Layouts before this one count in ticks, or otherwise; it came with Linux 2.6.
const FIRST_VERSION: u64 = 15;

/// More than this on average is a broken counter: it would take as many tasks as Linux has numbers for.
const MOST_WAITING: f64 = 1e5;

/// Time that tasks waited for each CPU since boot, by its number, nanoseconds.
pub type Waits = BTreeMap<u32, u64>;

/// Remembers the last look.
#[derive(Debug, Default)]
pub struct DemandSampler {
    previous: Option<Waits>,
}

impl DemandSampler {
    /// Takes a new look: `text` is `/proc/schedstat`, `elapsed` the time since the last one (unused on the first). The
    /// time that was waited for a CPU, over elapsed x CPUs, >= 0. Absent on the first look and when the looks cannot be
    /// compared.
    ///
    /// # Errors
    /// When the text cannot be read. The last good look is kept.
    pub fn update(&mut self, text: &str, elapsed: Duration) -> Result<Option<f64>, SampleError> {
        let now = parse(text)?;
        let before = self.previous.replace(now.clone());
        Ok(before.and_then(|before| waited(&before, &now, elapsed)))
    }

    /// [`DemandSampler::update`] from the file below `root`; absent also where there is none.
    ///
    /// # Errors
    /// As there, and when the file is there and cannot be read.
    pub fn read(&mut self, root: &Path, elapsed: Duration) -> Result<Option<f64>, SampleError> {
        match read_optional_text(root, "proc/schedstat")? {
            Some(text) => self.update(&text, elapsed),
            None => Ok(None),
        }
    }
}

/// Reads the text of `/proc/schedstat`.
///
/// # Errors
/// When its version is not known, or a CPU's line does not have nine whole numbers.
pub fn parse(text: &str) -> Result<Waits, SampleError> {
    let version = text.lines().find_map(|line| line.strip_prefix("version "));
    if let Some(version) = version
        && version.trim().parse::<u64>().is_ok_and(|version| version < FIRST_VERSION)
    {
        return Err(SampleError::malformed(SCHEDSTAT, format!("version {} is too old", version.trim())));
    }
    let mut waits = Waits::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let mut words = rest.split_ascii_whitespace();
        let malformed = || SampleError::malformed(SCHEDSTAT, "a line of a CPU has no nine whole numbers");
        let cpu: u32 = words.next().and_then(|word| word.parse().ok()).ok_or_else(malformed)?;
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| malformed())?;
        let &[.., _ran, waited, _slices] = numbers.as_slice() else { return Err(malformed()) };
        if numbers.len() != 9 || waits.insert(cpu, waited).is_some() {
            return Err(malformed());
        }
    }
    if waits.is_empty() {
        return Err(SampleError::malformed(SCHEDSTAT, "has no line of a CPU"));
    }
    Ok(waits)
}

/// Waiting tasks per CPU on average between two looks, >= 0.
#[must_use]
pub fn waited(before: &Waits, now: &Waits, elapsed: Duration) -> Option<f64> {
    let (mut sum_ns, mut cpus) = (0.0, 0_u32);
    for (cpu, waited_ns) in now {
        let Some(earlier_ns) = before.get(cpu) else { continue };
        sum_ns += waited_ns.checked_sub(*earlier_ns)? as f64;
        cpus += 1;
    }
    let possible_ns = elapsed.as_nanos() as f64 * f64::from(cpus);
    let waiting = sum_ns / possible_ns;
    (possible_ns > 0.0 && waiting <= MOST_WAITING).then_some(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn text(waits_ns: &[(u32, u64)]) -> String {
        let line =
            |(cpu, waited_ns): &(u32, u64)| format!("cpu{cpu} 0 0 0 0 0 0 5 {waited_ns} 7\ndomain0 3 0 1\n");
        let lines: String = waits_ns.iter().map(line).collect();
        format!("version 15\ntimestamp 4295000000\n{lines}")
    }

    fn second_look(looks: [&[(u32, u64)]; 2]) -> Option<f64> {
        let mut sampler = DemandSampler::default();
        assert_eq!(sampler.update(&text(looks[0]), SECOND).unwrap(), None, "the first look gives no value");
        sampler.update(&text(looks[1]), SECOND).unwrap()
    }

    #[test]
    fn waiting_is_counted_over_the_time_of_all_cpus() {
        let looks: [&[_]; 2] = [&[(0, 0), (1, 500)], &[(0, 1_000_000_000), (1, 500)]];
        assert_eq!(second_look(looks), Some(0.5));
    }

    #[test]
    fn case_007_a_cpu_that_came_or_left_does_not_take_part() {
        let looks: [&[_]; 2] = [&[(0, 0), (1, 0), (3, 0)], &[(0, 1_000_000_000), (2, u64::MAX), (3, 0)]];
        assert_eq!(second_look(looks), Some(0.5));
    }

    #[test]
    fn case_009_counters_of_another_history_give_no_value() {
        assert_eq!(second_look([&[(0, 10)], &[(0, 9)]]), None);
        assert_eq!(second_look([&[(0, 0)], &[(0, u64::MAX)]]), None);
        assert_eq!(second_look([&[(0, 0)], &[(1, 5)]]), None);
        assert_eq!(waited(&parse(&text(&[(0, 0)])).unwrap(), &Waits::from([(0, 1)]), Duration::ZERO), None);
    }

    #[test]
    fn a_text_that_cannot_be_believed_is_an_error() {
        let many = text(&[(0, 1), (0, 2)]);
        let bad = [
            "",
            "version 15\n",
            "version 14\ncpu0 0 0 0 0 0 0 1 2 3\n",
            "cpu0 1 2 3\n",
            "cpux 1\n",
            "cpu0 0 0 0 0 0 0 1 -2 3\n",
            "cpu0 0 0 0 0 0 0 0 1 2 3\n",
            &many,
        ];
        for bad in bad {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_kernel_without_the_counters_is_no_failure() {
        assert_eq!(DemandSampler::default().read(tree(&[]).path(), SECOND).unwrap(), None);
        DemandSampler::default().read(Path::new("/"), SECOND).unwrap();
    }

    proptest! {
        #[test]
        fn any_two_looks_give_a_demand_or_nothing(
            first in proptest::collection::btree_map(0..9_u32, any::<u64>(), 0..9),
            second in proptest::collection::btree_map(0..9_u32, any::<u64>(), 0..9),
            millis in 0..5000_u64,
        ) {
            let demand = waited(&first, &second, Duration::from_millis(millis));
            prop_assert!(demand.is_none_or(|demand| demand.is_finite() && demand >= 0.0));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(version [0-9]{1,20}\n)?(cpu[0-9 ]{0,60}\n){0,3}.{0,20}") {
            let _ = parse(&text);
        }
    }
}
