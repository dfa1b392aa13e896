//! Does a day of periods add up exactly, without drift and without growing?
//!
//! The task of a host and the timer of its periods run through a day of paused time: calls that succeed, fail and take
//! too long, lines that are refused, more names than are kept, calls in flight that come and go, baselines that are
//! reset, timers that are late by more than a period, and an hour of suspend, which the clock since boot counts and
//! timers do not. Each window is compared with what was sent in its periods.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;
use usher_agent::host::machine::run_periods;
use usher_agent::host::{BaselineSource, HostCommand, HostSetup, HostStatus, OpenHost, SourceEvent, open};
use usher_agent::latency::listener::{OwnedTiming, OwnedWord, TimingBatch};
use usher_agent::standing::StandingBoard;
use usher_placement::host::{CoreSettings, Measurement, NameSettings, Occupancy};
use usher_runtime::clock::Clock;
use usher_types::{BootId, BootTime, Hello, HostId, HostName, HostOverrides, Latency, Percent, PoolName};

const PERIOD: Duration = Duration::from_secs(15);
const PERIODS: usize = 5;
/// How often programs send, and how long after the start: never at the moment in which a period ends.
const BETWEEN: Duration = Duration::from_secs(5);
const OFFSET: Duration = Duration::from_millis(2500);
const DAY: Duration = Duration::from_secs(86_400);
const MAX_NAMES: usize = 8;
/// For how long nothing runs.
const LATE: Duration = Duration::from_secs(40);
/// Until all that happens at one moment was seen.
const SETTLE: Duration = Duration::from_millis(100);
/// How late a timer of the runtime may be: it counts in milliseconds.
const TICK: Duration = Duration::from_millis(2);

/// Boot time as timers see it, and the time that was slept through.
#[derive(Debug)]
struct PausedClock {
    started: Instant,
    suspended_s: AtomicU64,
}

impl Clock for PausedClock {
    fn now(&self) -> BootTime {
        let suspended = Duration::from_secs(self.suspended_s.load(Ordering::Relaxed));
        BootTime::from_millis(1_000_000) + (self.started.elapsed() + suspended)
    }

    fn wall_unix_ms(&self) -> u64 {
        1_767_225_600_000
    }
}

/// What was sent of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sent {
    ok: f64,
    failed: f64,
    too_long: f64,
    sum_us: f64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.too_long += other.too_long;
        self.sum_us += other.sum_us;
    }
}

fn sum<'a>(sent: impl IntoIterator<Item = &'a Sent>) -> Sent {
    sent.into_iter().fold(Sent::default(), |mut sum, one| {
        sum += *one;
        sum
    })
}

/// What the programs have sent, for whoever sees a period end.
#[derive(Debug, Default)]
struct Book {
    open: Sent,
    closed: Vec<Sent>,
    overflow: f64,
    refused: u64,
    /// The window is told once more, though no period has ended.
    is_resetting: bool,
}

fn timing(name: &str, duration_us: f64) -> OwnedWord {
    OwnedWord::Finished(OwnedTiming { name: name.into(), duration_us, weight: 1.0 })
}

/// The words of one moment, and what of them counts.
fn words(step: u64, book: &mut Book) -> TimingBatch {
    let (ok, failed, too_long) = (step % 7, step % 3, u64::from(step.is_multiple_of(50)));
    let mut words = TimingBatch::new();
    words.extend((0..ok).map(|_| timing("q", 1000.0)));
    words.extend((0..failed).map(|_| OwnedWord::Failed { name: "q".into(), weight: 1.0 }));
    words.extend((0..too_long).map(|_| timing("q", 30_000_000.0)));
    book.open +=
        Sent { ok: ok as f64, failed: failed as f64, too_long: too_long as f64, sum_us: 1000.0 * ok as f64 };
    if step.is_multiple_of(100) {
        words.push(timing("q", f64::NAN));
        book.refused += 1;
    }
    // A program that puts numbers into its names: there is room for the first seven of them.
    let number = step / 720;
    words.push(timing(&format!("report_{number}"), 500.0));
    if number >= MAX_NAMES as u64 - 1 {
        book.overflow += 1.0;
    }
    let count = u32::try_from(step % 4).unwrap();
    words.push(OwnedWord::InFlight { name: "q".into(), count, oldest: Some(Duration::from_secs(1)) });
    words
}

/// Looks at each period as it ends: its window holds what was sent in it and the four before.
struct Watcher {
    book: Arc<Mutex<Book>>,
    ends: Vec<Duration>,
    names: BTreeSet<usize>,
}

impl Watcher {
    async fn run(
        mut self,
        mut latency: watch::Receiver<Option<Arc<Latency>>>,
        stop: CancellationToken,
    ) -> Self {
        let started = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return self,
                changed = latency.changed() => changed.unwrap(),
            }
            let told = latency.borrow_and_update().clone().unwrap();
            let mut book = self.book.lock().unwrap();
            let now = started.elapsed();
            if book.is_resetting {
                continue;
            }
            let closed = std::mem::take(&mut book.open);
            book.closed.push(closed);
            let first = book.closed.len().saturating_sub(PERIODS);
            let expected = sum(&book.closed[first..]);
            let window = told.operations.iter().find(|window| window.name.as_str() == "q").unwrap();
            let seen = Sent {
                ok: window.ok,
                failed: window.failed,
                too_long: window.too_long,
                sum_us: window.sum_us,
            };
            assert_eq!(seen, expected, "after {now:?}");
            self.names.insert(told.operations.len());
            self.ends.push(now);
        }
    }
}

fn hello(host_id: HostId) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id,
        boot_id: BootId::new("b1").unwrap(),
        stream_epoch: 0,
        incarnation_ms: 1,
        host_name: HostName::new("h1").unwrap(),
        endpoints: Vec::new(),
        labels: Default::default(),
        pool: PoolName::new("desk").unwrap(),
        zone: None,
        cores: None,
        memory_bytes: None,
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: PERIOD,
        is_virtual: false,
        is_reporter: false,
    }
}

fn opened(folder: &std::path::Path, clock: Arc<PausedClock>) -> OpenHost {
    let setup = HostSetup {
        occupancy_log: None,
        state_folder: folder.join("state"),
        runtime_folder: folder.join("run"),
        boot_id: BootId::new("b1").unwrap(),
        baselines: BaselineSource::NotKept { known: Vec::new() },
        placed: None,
        refreshable: false,
        board: StandingBoard::default(),
    };
    let core = CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides: HostOverrides::default(),
        incarnation_ms: 1,
        latency_period: PERIOD,
        periods: PERIODS,
        max_names: MAX_NAMES,
        names: NameSettings::default(),
        coordinators: vec!["c1:7420".into()],
        report_interval: Duration::from_secs(5),
    };
    open(setup, core, clock, hello).unwrap()
}

async fn status(commands: &mpsc::Sender<HostCommand>) -> Box<HostStatus> {
    let (reply, answer) = oneshot::channel();
    commands.send(HostCommand::Status { reply }).await.unwrap();
    answer.await.unwrap()
}

/// Characters of all that a host shows of itself: what it keeps, it shows, or it is in one of these.
async fn shown(commands: &mpsc::Sender<HostCommand>) -> usize {
    format!("{:?}", status(commands).await).len()
}

#[tokio::test(start_paused = true)]
async fn case_063_a_day_of_periods_adds_up_does_not_drift_and_does_not_grow() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(PausedClock { started: Instant::now(), suspended_s: AtomicU64::new(0) });
    let OpenHost { task, handle, events, .. } = opened(folder.path(), clock.clone());
    let (commands, stop) = (handle.commands.clone(), CancellationToken::new());
    let (timings, batches) = mpsc::channel(16);
    let host = tokio::spawn(task.run(stop.clone()));
    let periods = tokio::spawn(run_periods(PERIOD, batches, events.clone(), stop.clone()));
    let book = Arc::new(Mutex::new(Book::default()));
    let watcher = Watcher { book: book.clone(), ends: Vec::new(), names: BTreeSet::new() };
    let watcher = tokio::spawn(watcher.run(handle.latency.clone(), stop.clone()));
    let started = Instant::now();
    sleep(OFFSET).await;

    let (mut late, mut skipped, mut sizes) = (BTreeSet::new(), 0, Vec::new());
    let mut step = 0;
    while started.elapsed() < DAY {
        let words = words(step, &mut book.lock().unwrap());
        timings.send(words).await.unwrap();
        if step.is_multiple_of(12) {
            let values = Measurement { cpu: Percent::new(20.0).ok(), ..Measurement::default() };
            let measured = SourceEvent::Measured { values: Box::new(values), occupancy: Occupancy::Unknown };
            events.send(measured).await.unwrap();
        }
        if step % 1440 == 700 {
            book.lock().unwrap().is_resetting = true;
            commands.send(HostCommand::ResetBaselines { operation: None }).await.unwrap();
        }
        if step == 8640 {
            clock.suspended_s.fetch_add(3600, Ordering::Relaxed);
        }
        if step % 720 == 360 {
            sizes.push(shown(&commands).await);
        }
        sleep(SETTLE).await;
        book.lock().unwrap().is_resetting = false;
        sleep(BETWEEN - SETTLE).await;
        // Once an hour nothing runs for more than two periods: their ends are told once, late.
        if step % 720 == 100 {
            let before = ends_until(started.elapsed());
            advance(LATE - SETTLE).await;
            late.insert(started.elapsed().as_secs());
            skipped += ends_until(started.elapsed()) - before - 1;
            sleep(SETTLE).await;
        }
        step += 1;
    }

    let told = status(&commands).await;
    stop.cancel();
    for task in [host, periods] {
        task.await.unwrap();
    }
    let Watcher { ends, names, .. } = watcher.await.unwrap();
    let book = book.lock().unwrap();
    check_totals(&told, &book);
    assert_eq!(ends.len() as u128 + skipped, ends_until(started.elapsed()), "each period ended once");
    for end in &ends {
        let over = end.as_nanos() % PERIOD.as_nanos();
        assert!(over <= TICK.as_nanos() || late.contains(&end.as_secs()), "a period ended at {end:?}");
    }
    assert!(late.len() == 24 && skipped >= 24, "{skipped} ends were skipped");
    assert!(names.last().is_some_and(|most| *most <= MAX_NAMES), "{names:?}");
    // From the hour in which the last name found room.
    let (first, rest) = sizes[MAX_NAMES..].split_first().unwrap();
    assert!(rest.iter().all(|size| size.abs_diff(*first) <= first / 10), "{sizes:?}");
}

/// Ends of periods so far, if each were told.
fn ends_until(elapsed: Duration) -> u128 {
    elapsed.as_nanos() / PERIOD.as_nanos()
}

fn check_totals(told: &HostStatus, book: &Book) {
    let (_, total) = told.totals.iter().find(|(name, _)| name.as_str() == "q").unwrap();
    let expected = sum(book.closed.iter().chain([&book.open]));
    let seen = Sent { ok: total.ok, failed: total.failed, too_long: total.too_long, sum_us: total.sum_us };
    assert_eq!(seen, expected);
    assert!(
        expected.ok > 50_000.0 && expected.failed > 10_000.0 && expected.too_long > 300.0,
        "{expected:?}"
    );
    assert_eq!(told.overflow_calls as f64, book.overflow);
    let refused: u64 = told.refused.values().sum();
    assert_eq!(refused, book.refused + book.overflow as u64, "{:?}", told.refused);
}
