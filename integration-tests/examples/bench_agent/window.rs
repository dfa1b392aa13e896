//! A stretch of time in which all of them look once a second, and what each took: the measured unit. One in which the
//! machine was busy with something else counts for nothing.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};
use usher_integration_tests::bench::{CpuTime, machine_busy, processors, reaped_children};

use crate::contestants::{Contestants, NAMES};
use crate::crowd::{self, Crowd};

/// Processes on the machine, few and many.
pub(crate) const CROWDS: [usize; 2] = [100, 1000];
/// Share of the machine that others may take: the clock that tells it is a hundredth of a second coarse.
const OTHERS_MOST: f64 = 0.06;

/// How long, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Of one window.
    pub(crate) seconds: u32,
    pub(crate) windows: usize,
    /// So many at most, to have enough quiet ones.
    pub(crate) tries: usize,
    /// After the number of processes has changed.
    pub(crate) settle: Duration,
}

/// What one of them took.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cost {
    /// Processor time of a thousand looks, s.
    pub(crate) cpu_s: f64,
    /// Memory of its own, MiB.
    pub(crate) anonymous_mib: f64,
    /// With the pages of files that it has in memory, which it may share with others.
    pub(crate) resident_mib: f64,
}

/// What one window saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// As [`NAMES`].
    pub(crate) costs: [Cost; 4],
    /// Share of the machine that went to processes that are not of this run.
    others: f64,
}

/// All windows with one number of processes.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    pub(crate) crowd: usize,
    /// On the machine in truth.
    pub(crate) processes: usize,
    pub(crate) kept: Vec<Window>,
    pub(crate) discarded: usize,
    /// There were not enough quiet windows, and others had to do.
    pub(crate) is_disturbed: bool,
}

/// With few processes and with many.
///
/// # Errors
/// When somebody does not start, or stops.
pub(crate) async fn measure(pace: &Pace) -> anyhow::Result<Vec<Stretch>> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let mut contestants = Contestants::start(folder.path()).await?;
    let mut stretches = Vec::new();
    for crowd in CROWDS {
        stretches.push(stretch(&mut contestants, crowd, pace).await?);
    }
    Ok(stretches)
}

async fn stretch(contestants: &mut Contestants, crowd: usize, pace: &Pace) -> anyhow::Result<Stretch> {
    let _crowd = Crowd::fill_up_to(crowd)?;
    tokio::time::sleep(pace.settle).await;
    let processes = crowd::on_this_machine();
    let mut tried = Vec::new();
    let is_quiet = |window: &Window| window.others <= OTHERS_MOST;
    while tried.iter().filter(|window| is_quiet(window)).count() < pace.windows && tried.len() < pace.tries {
        tried.push(window(contestants, pace.seconds).await?);
    }
    let all = tried.len();
    tried.sort_by(|a, b| a.others.total_cmp(&b.others));
    tried.truncate(pace.windows);
    let is_disturbed = !tried.iter().all(is_quiet);
    Ok(Stretch { crowd, processes, discarded: all - tried.len(), kept: tried, is_disturbed })
}

async fn window(contestants: &mut Contestants, seconds: u32) -> anyhow::Result<Window> {
    let pids = contestants.pids();
    let mut accounts = pids.map(|pid| CpuTime::of(&[pid]));
    let children = pids.map(reaped_children);
    let mut spent = [Duration::ZERO; NAMES.len()];
    let (all, busy, begun) = (CpuTime::of(&contestants.all_pids()), machine_busy(), Instant::now());
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    for _ in 0..seconds {
        contestants.scrape().await;
        ticks.tick().await;
        for (spent, account) in spent.iter_mut().zip(&mut accounts) {
            *spent += account.take();
        }
    }
    let (wall_s, all, busy) =
        (begun.elapsed().as_secs_f64(), all.spent(), machine_busy().saturating_sub(busy));
    contestants.all_at_work().await?;
    // The others look once a second by their own clock, the exporter as often as it was asked.
    let looks = [wall_s, f64::from(seconds), wall_s, wall_s];
    let costs = std::array::from_fn(|at| {
        let reaped = reaped_children(pids[at]).saturating_sub(children[at]);
        let (anonymous_mib, resident_mib) = memory_mib(pids[at]);
        Cost { cpu_s: (spent[at] + reaped).as_secs_f64() * 1000.0 / looks[at], anonymous_mib, resident_mib }
    });
    let others = (busy.as_secs_f64() - all.as_secs_f64()).max(0.0) / (wall_s * processors() as f64);
    Ok(Window { costs, others })
}

/// Memory of a process now: its own, and all of it.
fn memory_mib(pid: u32) -> (f64, f64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    };
    (line("RssAnon:"), line("VmRSS:"))
}
