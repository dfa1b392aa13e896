//! A farm of real processes, a load on it, and everything that may go wrong with it.
//!
//! The schedule comes of a seed; what callers were answered is noted call by call; what hosts held they wrote down
//! themselves. When all is over the checker looks at both. A fault begins when the farm is whole after the one before, or
//! after a while if it does not become whole.

mod clock;
mod farm;
mod faults;
mod load;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use usher_integration_tests::chaos::{Fault, Findings, Held, Holdings, Length, Planned, check, schedule};

use clock::now_ms;
use farm::{Farm, Size};
use load::{Call, Caller, Callers, End, Load, Rate};
pub(crate) use report::Document;
use report::{FaultLine, Seen, goals};

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) length: Length,
    /// Tell each fault on standard error as it passes.
    pub(crate) tells: bool,
    /// Keep everything that was written, and every call, in this folder.
    pub(crate) logs: Option<PathBuf>,
}

/// Longest wait until the farm is whole.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// Findings of a kind that are told in words.
const TOLD: usize = 20;

/// A fault that has passed.
struct Passed {
    planned: Planned,
    from_ms: u64,
    lasted_s: f64,
    whole_after: Option<Duration>,
}

/// Runs the whole of it.
pub(crate) async fn run(options: Options) -> Document {
    let is_quick = options.length == Length::Quick;
    let (size, rate) = if is_quick {
        (Size { agents: 2, hosts: 4 }, Rate { library: 40, raw: 10 })
    } else {
        (Size { agents: 4, hosts: 12 }, Rate { library: 500, raw: 50 })
    };
    let tell = |text: &str| {
        if options.tells {
            eprintln!("{text}");
        }
    };
    tell(&format!("seed {}: starting the farm", options.seed));
    let mut farm = Farm::start(size).await;
    let load = Load::start(Callers {
        machine: farm.gateways.clone(),
        coordinators: farm.addresses(),
        files: farm.gateway_files.clone(),
        cache: farm.folder().join("gateway.farm"),
        rate,
        seed: options.seed,
    });
    let began_ms = now_ms();
    let (mut passed, mut outages) = (Vec::new(), Vec::new());
    // The library gets to know the farm before anything happens to it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for planned in schedule(options.seed, options.length) {
        let from_ms = now_ms();
        tell(&format!(
            "{:>5} s  {} ({})",
            (from_ms - began_ms) / 1000,
            planned.fault.name(),
            faults::victim(planned)
        ));
        outages.extend(faults::strike(&mut farm, planned).await);
        let lasted_s = (now_ms() - from_ms) as f64 / 1000.0;
        let whole_after = whole_after(&farm, planned).await;
        if let Some(outage) = outages.last_mut().filter(|outage| outage.0 >= from_ms) {
            // A host is away until it is heard again.
            outage.1 = now_ms();
        }
        let whole = match &whole_after {
            Ok(after) => format!("whole after {:.1} s", after.as_secs_f64()),
            Err(lacking) => format!("NOT whole: {lacking}"),
        };
        tell(&format!("         {whole}, {} calls so far", load.ended()));
        passed.push(Passed { planned, from_ms, lasted_s, whole_after: whole_after.ok() });
        tokio::time::sleep(planned.rest).await;
    }
    let calls = tokio::task::spawn_blocking(move || load.finish()).await.unwrap();
    // Cancellations are on their way, and hosts write when they hear of them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seconds = (now_ms() - began_ms) as f64 / 1000.0;
    if let Some(folder) = &options.logs {
        keep(&farm, &calls, folder);
    }
    let (holdings, found) = judge(&farm, &calls, &outages);
    let document = Judged {
        options: &options,
        rate,
        seconds,
        hosts: farm.hosts,
        calls: &calls,
        passed: &passed,
        holdings: &holdings,
        found: &found,
    };
    document.written(began_ms)
}

/// The farm is whole when everybody hears everybody, and the shared store takes writes.
async fn whole_after(farm: &Farm, planned: Planned) -> Result<Duration, String> {
    let started = std::time::Instant::now();
    if planned.fault == Fault::KillStore {
        farm.etcd.healthy().await;
    }
    farm.is_whole(WHOLE_WITHIN).await.map(|()| started.elapsed())
}

/// Copies the farm's folder, and writes the calls beside it.
fn keep(farm: &Farm, calls: &[Call], folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut lines = String::new();
    for call in calls {
        lines += &serde_json::to_string(call).unwrap();
        lines.push('\n');
    }
    std::fs::write(folder.join("calls.json"), lines).unwrap();
    let copied = Command::new("cp").arg("-r").arg(farm.folder().join(".")).arg(folder).status();
    assert!(copied.unwrap().success(), "the logs are not copied");
}

fn judge(farm: &Farm, calls: &[Call], outages: &[(u64, u64)]) -> (Holdings, Findings) {
    let mut holdings = Holdings::default();
    for log in &farm.logs {
        let text = std::fs::read_to_string(log).unwrap();
        holdings.read(&text).unwrap_or_else(|error| panic!("{}: {error:?}", log.display()));
    }
    holdings.close(now_ms());
    let gateway = |caller: Caller| if caller == Caller::Library { "lib" } else { "raw" };
    let held = calls.iter().filter_map(|call| match &call.end {
        End::Placed { host, until_ms, is_reserved: true, is_blind: false, .. } => Some(Held {
            token: (gateway(call.caller).to_owned(), call.request_id.clone()),
            host: host.clone(),
            from_ms: call.answered_ms,
            until_ms: *until_ms,
        }),
        _ => None,
    });
    let held: Vec<Held> = held.collect();
    let found = check(&holdings, &held, outages);
    (holdings, found)
}

/// Everything that is known when all is over.
struct Judged<'a> {
    options: &'a Options,
    rate: Rate,
    seconds: f64,
    hosts: usize,
    calls: &'a [Call],
    passed: &'a [Passed],
    holdings: &'a Holdings,
    found: &'a Findings,
}

impl Judged<'_> {
    fn written(&self, began_ms: u64) -> Document {
        let total = Seen::of(self.calls, 0, u64::MAX);
        let total =
            Seen { gap_library_s: 0.0, gap_raw_s: 0.0, settled_library_s: 0.0, settled_raw_s: 0.0, ..total };
        let faults = self.fault_lines();
        let due = self.seconds * f64::from(self.rate.library + self.rate.raw);
        let made_share = (self.calls.len() as f64 / due).min(1.0);
        let found = self.found;
        let told = |kind: &str, all: &[(u64, String)]| -> Vec<String> {
            let line = |(at, what): &(u64, String)| {
                format!("{kind} at {:.1} s: {what}", at.saturating_sub(began_ms) as f64 / 1000.0)
            };
            all.iter().take(TOLD).map(line).collect()
        };
        Document {
            seed: self.options.seed,
            quick: self.options.length == Length::Quick,
            seconds: self.seconds,
            hosts: self.hosts,
            calls_per_second_library: self.rate.library,
            calls_per_second_raw: self.rate.raw,
            calls_made_share: made_share,
            log_lines: self.holdings.lines,
            places_checked: found.places,
            places_judged: found.judged,
            places_never_asked: found.never_asked,
            longest_on_two_hosts_s: found.longest_on_two_ms as f64 / 1000.0,
            failures: self.failures(),
            findings: [
                told("limit passed", &found.limits_passed),
                told("token on two hosts", &found.doubled),
                told("place lost", &found.lost),
            ]
            .concat(),
            goals: goals(&total, found, &faults, made_share),
            total,
            faults,
        }
    }

    fn fault_lines(&self) -> Vec<FaultLine> {
        let ends = self.passed.iter().skip(1).map(|next| next.from_ms).chain([u64::MAX]);
        let line = |(passed, until_ms): (&Passed, u64)| {
            let within = |found: &[(u64, String)]| {
                found.iter().filter(|(at, _)| (passed.from_ms..until_ms).contains(at)).count()
            };
            FaultLine {
                fault: passed.planned.fault.name(),
                victim: faults::victim(passed.planned),
                lasted_s: passed.lasted_s,
                whole_after_s: passed.whole_after.map(|after| after.as_secs_f64()),
                seen: Seen::of(self.calls, passed.from_ms, until_ms),
                limits_passed: within(&self.found.limits_passed),
                doubled: within(&self.found.doubled),
                lost: within(&self.found.lost),
            }
        };
        self.passed.iter().zip(ends).map(line).collect()
    }

    fn failures(&self) -> Vec<(String, usize)> {
        let mut reasons = BTreeMap::<String, usize>::new();
        for call in self.calls {
            if let End::Failed(reason) = &call.end {
                *reasons.entry(format!("{:?}: {reason}", call.caller)).or_default() += 1;
            }
        }
        let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        reasons.truncate(TOLD);
        reasons
    }
}
