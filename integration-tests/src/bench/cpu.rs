//! How much processor time did it take?
//!
//! The scheduler's own account of each thread, in nanoseconds. `utime` and `stime` of a process are no finer than a
//! hundredth of a second. What the whole machine did is only known in such ticks, which is enough to see that somebody
//! else was at work.

use std::collections::HashMap;
use std::time::Duration;

/// Processor time of some processes from here on, by thread: one that ends in between is not missed in what follows.
#[derive(Debug, Clone)]
pub struct CpuTime {
    pids: Vec<u32>,
    threads: HashMap<(u32, u32), u64>,
}

impl CpuTime {
    /// From now on.
    pub fn of(pids: &[u32]) -> Self {
        let threads = pids.iter().flat_map(|pid| threads(*pid)).collect();
        Self { pids: pids.to_vec(), threads }
    }

    /// Spent since then. A thread that has ended counts up to its last look only.
    pub fn spent(&self) -> Duration {
        self.spent_by(self.pids.iter().flat_map(|pid| threads(*pid)))
    }

    /// Spent since then, and from now on again. Whoever does so often misses little of threads that end.
    pub fn take(&mut self) -> Duration {
        let now: HashMap<_, _> = self.pids.iter().flat_map(|pid| threads(*pid)).collect();
        let spent = self.spent_by(now.iter().map(|(id, ns)| (*id, *ns)));
        self.threads = now;
        spent
    }

    fn spent_by(&self, now: impl Iterator<Item = ((u32, u32), u64)>) -> Duration {
        let spent = now.map(|(id, ns)| ns.saturating_sub(self.threads.get(&id).copied().unwrap_or(0)));
        Duration::from_nanos(spent.sum())
    }
}

/// Nanoseconds on a processor of each thread of a process.
fn threads(pid: u32) -> Vec<((u32, u32), u64)> {
    let folder = format!("/proc/{pid}/task");
    let Ok(tasks) = std::fs::read_dir(&folder) else { return Vec::new() };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| {
        let text = std::fs::read_to_string(format!("{folder}/{id}/schedstat")).ok()?;
        Some(((pid, id), text.split_whitespace().next()?.parse().ok()?))
    })
    .collect()
}

/// Processor time of children of a process that have ended, in hundredths of a second.
pub fn reaped_children(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: state, 10 numbers, utime, stime, cutime, cstime.
    let numbers = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = numbers.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Time for which the machine's processors have been busy since its start, also with other machines' work.
///
/// # Panics
/// On a system without `/proc/stat`.
pub fn machine_busy() -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().next().unwrap();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    // user, nice, system, (idle, iowait,) irq, softirq, steal; what guests took is in user already.
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| ticks.get(*at)).sum();
    // The kernel shows it in hundredths of a second, whatever its own tick is.
    Duration::from_millis(busy * 10)
}

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_in_the_account_of_its_process() {
        let own = CpuTime::of(&[std::process::id()]);
        let mut turns = 0_u64;
        while own.spent() < Duration::from_millis(20) {
            turns = std::hint::black_box(turns + 1);
        }
        assert!(turns > 0 && machine_busy() > Duration::ZERO);
    }

    #[test]
    fn work_is_taken_once() {
        let mut own = CpuTime::of(&[std::process::id()]);
        while own.spent() < Duration::from_millis(20) {}
        assert!(own.take() >= Duration::from_millis(20));
        assert!(own.take() < Duration::from_millis(20));
    }

    #[test]
    fn children_count_when_they_have_ended() {
        let before = reaped_children(std::process::id());
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        std::process::Command::new("sh").args(["-c", script]).status().unwrap();
        assert!(reaped_children(std::process::id()) > before);
    }
}
