//! Which farms and loads are compared, and in which order.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tempfile::TempDir;
use usher_integration_tests::bench::{median, summary};

use crate::Options;
use crate::farm::Farm;
use crate::load::{Call, one_at_a_time};
use crate::window::{Pace, Turns, Window};

/// Hosts of the large farm.
const LARGE: usize = 10_000;
/// Long enough to attach a profiler.
const PROFILED: Duration = Duration::from_secs(20);
/// Of hosts that are asked for their consent.
const CONSENT_WINDOW: Duration = Duration::from_millis(300);
/// Calls of one look at the latency.
const CALLS: usize = 200;

/// One measurement: a load beside its reference.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    /// Median and spread of the ratio.
    #[serde(skip)]
    pub(crate) ratio: (f64, f64),
    pub(crate) what: &'static str,
    pub(crate) ratio_median: f64,
    pub(crate) ratio_spread: f64,
    /// Of the load, and of what it is compared with; in `unit`.
    pub(crate) figure: f64,
    pub(crate) reference: f64,
    pub(crate) unit: &'static str,
    /// Calls in a second of the load, and of the reference.
    pub(crate) rps: f64,
    pub(crate) reference_rps: f64,
    pub(crate) turns: usize,
    pub(crate) discarded: usize,
    pub(crate) is_disturbed: bool,
}

impl Row {
    fn new(
        (id, what, unit): (&'static str, &'static str, &'static str),
        turns: &Turns,
        (load, reference): (usize, usize),
        figure: impl Fn(&[Window]) -> f64,
        of_reference: impl Fn(&[Window]) -> f64,
    ) -> Self {
        let ratio = summary(turns.each(|turn| figure(turn) / of_reference(turn)));
        let rps = |at: usize| median(&turns.each(|turn| turn[at].rps));
        Self {
            id,
            what,
            ratio,
            ratio_median: ratio.0,
            ratio_spread: ratio.1,
            figure: median(&turns.each(figure)),
            reference: median(&turns.each(of_reference)),
            unit,
            rps: rps(load),
            reference_rps: rps(reference),
            turns: turns.kept.len(),
            discarded: turns.discarded,
            is_disturbed: turns.is_disturbed,
        }
    }
}

/// What a coordinator spends on its hosts alone.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Idle {
    pub(crate) farm: &'static str,
    pub(crate) hosts: usize,
    pub(crate) server_cores: f64,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) rows: Vec<Row>,
    pub(crate) idle: Vec<Idle>,
    /// Of the echo, microseconds: plain, and under TLS.
    pub(crate) echo_us: Option<f64>,
    pub(crate) echo_tls_us: Option<f64>,
}

/// Measures what is asked for.
///
/// # Errors
/// When a call fails that should not.
pub(crate) async fn measure(options: &Options) -> anyhow::Result<Measured> {
    allow_many_files();
    let folder = tempfile::Builder::new().prefix("usher-bench-").tempdir()?;
    let mut bench = Bench { options: options.clone(), folder, measured: Measured::default() };
    let usual = Farm::start(bench.folder.path(), "plain", options.usual_hosts, false).await;
    bench.with_usual(&usual).await?;
    if options.wants("tls") {
        let tls = Farm::start(bench.folder.path(), "tls", options.usual_hosts, true).await;
        bench.tls(&usual, &tls).await?;
    }
    if options.wants("growth") || options.wants("dry_run_cpu_10k") {
        let large = Farm::start(bench.folder.path(), "large", LARGE, false).await;
        bench.growth(&usual, &large).await?;
    }
    if options.wants("consent") {
        // Hosts that nothing ended on yet: nowhere do hundreds of logins end on each host in a minute, as they do above.
        drop(usual);
        let fresh = Farm::start(bench.folder.path(), "consent", options.usual_hosts, false).await;
        bench.consent(&fresh).await?;
    }
    Ok(bench.measured)
}

/// One load for a while, for a profiler that is told the coordinator's process.
///
/// # Errors
/// When a call fails that should not.
pub(crate) async fn profile(options: &Options, load: Call) -> anyhow::Result<()> {
    allow_many_files();
    let folder = tempfile::Builder::new().prefix("usher-bench-").tempdir()?;
    let farm = Farm::start(folder.path(), "profile", options.usual_hosts, false).await;
    if load == Call::Ask {
        farm.limit_users().await;
    }
    println!("the coordinator is process {}", farm.server());
    let pids = farm.pids();
    let pace = Pace { window: PROFILED, turns: 1, tries: 1, pids };
    let window = pace.window(&farm, load).await?;
    println!("{load:?}: {:.1} us of the coordinator for each of {:.0} calls/s", window.server_us, window.rps);
    Ok(())
}

/// A hundred connections and ten thousand hosts need more open files than a shell allows.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // A system that refuses leaves fewer hosts, which is said when they do not come.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

struct Bench {
    options: Options,
    folder: TempDir,
    measured: Measured,
}

impl Bench {
    fn pace(&self, farms: &[&Farm]) -> Pace {
        let window = if self.options.is_quick { Duration::from_millis(300) } else { Duration::from_secs(2) };
        let turns = if self.options.is_quick { 5 } else { 9 };
        let pids = farms.iter().flat_map(|farm| farm.pids()).chain([std::process::id()]).collect();
        // Who is in a hurry does not wait for a quiet machine for long.
        let tries = if self.options.is_quick { 2 * turns } else { 3 * turns };
        Pace { window, turns, tries, pids }
    }

    /// What the coordinator spends without any call, in cores. It is in every window of the farm, and is taken out.
    async fn idle(&mut self, pace: &Pace, farm: &Farm) -> anyhow::Result<f64> {
        // Reports come in rounds of seconds.
        let pace = Pace { window: pace.window.max(Duration::from_secs(1)), ..pace.clone() };
        let server_cores = pace.window(farm, Call::Nothing).await?.server_cores;
        self.measured.idle.push(Idle { farm: farm.name, hosts: farm.hosts, server_cores });
        Ok(server_cores)
    }

    async fn with_usual(&mut self, usual: &Farm) -> anyhow::Result<()> {
        let pace = self.pace(&[usual]);
        let idle = self.idle(&pace, usual).await?;
        let own = move |window: &Window| own_us(window, idle);
        if self.options.wants("dry_run") {
            let turns = pace.turns(&[(usual, Call::Echo), (usual, Call::DryRun)]).await?;
            self.measured.echo_us = Some(median(&turns.each(|turn| turn[0].server_us)));
            let what = ("place_dry_run_cpu_1k", "Place(dry_run), 1000 hosts, beside the echo", "us");
            let row = Row::new(what, &turns, (1, 0), |turn| own(&turn[1]), |turn| own(&turn[0]));
            self.measured.rows.push(row);
            let what = ("place_dry_run_rps_1k", "the same, calls in a second", "1/s");
            let row = Row::new(what, &turns, (1, 0), |turn| turn[1].rps, |turn| turn[0].rps);
            self.measured.rows.push(row);
        }
        if self.options.wants("reserve") {
            let loads = [Call::Echo, Call::PlaceAndCancel, Call::OutcomeOfNothing].map(|call| (usual, call));
            let turns = pace.turns(&loads).await?;
            let what = "Place with its reservation, the end of it included, beside the echo";
            let what = ("place_reserve_cpu", what, "us");
            let row = Row::new(what, &turns, (1, 0), |turn| place_alone(turn, own), |turn| own(&turn[0]));
            self.measured.rows.push(row);
        }
        Ok(())
    }

    async fn tls(&mut self, usual: &Farm, tls: &Farm) -> anyhow::Result<()> {
        let pace = self.pace(&[usual, tls]);
        let idle = self.idle(&pace, tls).await?;
        let loads = [(usual, Call::DryRun), (tls, Call::DryRun), (tls, Call::Echo)];
        let turns = pace.turns(&loads).await?;
        self.measured.echo_tls_us = Some(median(&turns.each(|turn| turn[2].server_us)));
        let what = ("place_tls_rps", "Place(dry_run) over mutual TLS beside plain, calls in a second", "1/s");
        let row = Row::new(what, &turns, (1, 0), |turn| turn[1].rps, |turn| turn[0].rps);
        self.measured.rows.push(row);
        let what = ("place_tls_cpu", "Place(dry_run) over mutual TLS, beside the echo over mutual TLS", "us");
        let own = |window: &Window| own_us(window, idle);
        let row = Row::new(what, &turns, (1, 2), |turn| own(&turn[1]), |turn| own(&turn[2]));
        self.measured.rows.push(row);
        Ok(())
    }

    async fn growth(&mut self, usual: &Farm, large: &Farm) -> anyhow::Result<()> {
        let pace = self.pace(&[usual, large]);
        let (idle_usual, idle_large) = (self.idle(&pace, usual).await?, self.idle(&pace, large).await?);
        let loads = [(large, Call::Echo), (large, Call::DryRun), (usual, Call::DryRun)];
        let turns = pace.turns(&loads).await?;
        let of_large = |turn: &[Window]| own_us(&turn[1], idle_large);
        let what = ("place_dry_run_cpu_10k", "Place(dry_run), 10 000 hosts, beside the echo", "us");
        let row = Row::new(what, &turns, (1, 0), of_large, |turn| own_us(&turn[0], idle_large));
        self.measured.rows.push(row);
        let what = ("place_growth_10k", "Place(dry_run), 10 000 hosts beside 1000", "us");
        let row = Row::new(what, &turns, (1, 2), of_large, |turn| own_us(&turn[2], idle_usual));
        self.measured.rows.push(row);
        Ok(())
    }

    async fn consent(&mut self, usual: &Farm) -> anyhow::Result<()> {
        usual.limit_users().await;
        // Short: a host lists what ended on it for a minute, and nowhere do thousands of logins end on one host in a minute.
        let pace = Pace { window: CONSENT_WINDOW, ..self.pace(&[usual]) };
        let idle = self.idle(&pace, usual).await?;
        let own = move |window: &Window| own_us(window, idle);
        // First: after thousands of places each host has some dozen to tell of.
        self.consent_latency(usual, pace.turns).await?;
        let turns = pace.turns(&[(usual, Call::Echo), (usual, Call::Ask)]).await?;
        let what = ("place_consent_cpu", "Place with its host's consent, beside the echo", "us");
        let row = Row::new(what, &turns, (1, 0), |turn| own(&turn[1]), |turn| own(&turn[0]));
        self.measured.rows.push(row);
        Ok(())
    }

    /// One call at a time: what the host's consent adds to a call, in round trips of the echo.
    async fn consent_latency(&mut self, usual: &Farm, turns: usize) -> anyhow::Result<()> {
        let (mut ratios, mut added, mut trips) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..turns {
            let mut medians = Vec::new();
            for call in [Call::Echo, Call::DryRun, Call::Ask] {
                let times = one_at_a_time(&usual.connections, call, CALLS).await?;
                let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
                medians.push(median(&times));
            }
            let [echo, dry_run, ask] = medians[..] else { continue };
            added.push(ask - dry_run);
            trips.push(echo);
            ratios.push((ask - dry_run) / echo);
        }
        let ratio = summary(ratios);
        self.measured.rows.push(Row {
            id: "place_consent_latency",
            what: "what the host's consent adds to one call, in round trips of the echo",
            ratio,
            ratio_median: ratio.0,
            ratio_spread: ratio.1,
            figure: median(&added),
            reference: median(&trips),
            unit: "us",
            rps: 1e6 / median(&added),
            reference_rps: 1e6 / median(&trips),
            turns,
            discarded: 0,
            is_disturbed: false,
        });
        Ok(())
    }
}

/// Processor time of the coordinator for each call, without what its hosts' reports took, microseconds.
fn own_us(window: &Window, idle_cores: f64) -> f64 {
    window.server_us - idle_cores * 1e6 / window.rps.max(1.0)
}

/// Of a turn of echo, place with its cancellation, and a cancellation of nothing: the place alone. What remains of the
/// cancellation is the end of the place.
fn place_alone(turn: &[Window], own: impl Fn(&Window) -> f64) -> f64 {
    own(&turn[1]) - own(&turn[2])
}
