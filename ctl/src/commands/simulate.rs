//! What would a storm of logins do to a farm like this one, by which method?
//!
//! A model of the farm is run on this machine; nobody is asked, and no configuration is read. Its logins are placed by
//! the code that coordinators run, by the rules that others use, and by an oracle that knows everything: it is always
//! there, because a figure alone says nothing. All methods meet the same logins.

mod plot;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use usher_runtime::config::{DurationError, HumanDuration};
use usher_simulator::{Figures, Method, OwnFarm, Scene, Spread, Trace, each, trace};

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::decimal;
use crate::output::{emit, json::emit_json, remark};

/// Arguments of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl simulate --hosts 100 --logons 2000 --in 120s
                                            Monday morning, by the usual methods
  usherctl simulate --method predictive,aads_stale,random --report-interval 15s
  usherctl simulate --hosts 30 --logons 1200 --mixed --seeds 20 --json
  usherctl simulate --plot storm.svg        with two figures to look at

Hosts have 8 cores, 32 GB and 10 sessions before the storm; with --mixed every second and third is 2 and 4 times as
large. A logon computes for about 16 s when it is alone. EXPANSION is how much longer logons took: 1 is no longer, p99 is
what one of a hundred exceeds. OF ORACLE is that p99 over the one of an oracle that knows everything.
Methods: predictive, weighted_load, weighted_load_best and availability are usher's; random, round_robin,
least_sessions_stale, aads_stale, highest_index_stale, best_of_two_stale, aads_reservations, aads_reservations_raw and
cpu_reservations are what others do")]
pub(crate) struct Arguments {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 100)]
    hosts: usize,
    /// Logins that come in all
    #[arg(long, value_name = "N", default_value_t = 2000)]
    logons: usize,
    /// Within which time they come
    #[arg(long = "in", value_name = "TIME", default_value = "120s", value_parser = parse_time, allow_hyphen_values = true)]
    within: Duration,
    /// Methods, each beside the others and the oracle
    #[arg(
        long,
        value_name = "METHOD,...",
        value_delimiter = ',',
        default_value = "predictive,weighted_load,round_robin,best_of_two_stale,random"
    )]
    method: Vec<Method>,
    /// How often agents report
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time, allow_hyphen_values = true)]
    report_interval: Duration,
    /// The first seed: the same seed gives the same logins
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seeds are run
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Hosts of three sizes
    #[arg(long)]
    mixed: bool,
    /// Draw logon expansion over time and sessions of each host into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let duration: HumanDuration = text.parse().map_err(|error: DurationError| error.to_string())?;
    Ok(duration.get())
}

/// One method over all seeds.
#[derive(Debug)]
struct Ran {
    method: Method,
    traces: Vec<Trace>,
    figures: Vec<Figures>,
}

/// Runs the model and shows what came of it.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let (scene, methods) = (scene(arguments)?, methods(&arguments.method));
    // A file that cannot be written must not be found out after the work.
    if let Some(path) = &arguments.plot {
        write_plot(path, "")?;
    }
    let ran = simulate(&scene, &methods, arguments);
    if let Some(path) = &arguments.plot {
        let figure = plot::svg(&ran, &scene).context("drawing the figures")?;
        write_plot(path, &figure)?;
    }
    if context.json() { emit_json(&Document::new(arguments, &ran)) } else { emit(&table(&ran)) }
}

fn scene(arguments: &Arguments) -> Result<Scene, Failure> {
    let farm = OwnFarm {
        hosts: arguments.hosts,
        logons: arguments.logons,
        within: arguments.within,
        report_interval: arguments.report_interval,
        mixed: arguments.mixed,
    };
    if arguments.seed.checked_add(arguments.seeds).is_none() {
        return Err(Failure::usage(format!(
            "seed = {}: there are no {} seeds from it on",
            arguments.seed, arguments.seeds
        )));
    }
    farm.scene().map_err(|fault| Failure::usage(fault.to_string()))
}

/// Each once, in the order in which they were named, and the oracle.
fn methods(named: &[Method]) -> Vec<Method> {
    let mut methods = Vec::with_capacity(named.len() + 1);
    for method in named.iter().copied().chain([Method::Oracle]) {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    methods
}

fn write_plot(path: &Path, text: &str) -> Result<(), Failure> {
    let written = std::fs::write(path, text);
    written.map_err(|error| Failure::usage(format!("writing the plot {}: {error}", path.display())))
}

fn simulate(scene: &Scene, methods: &[Method], arguments: &Arguments) -> Vec<Ran> {
    let seeds = usize::try_from(arguments.seeds).unwrap_or(usize::MAX);
    let bar = progress(methods.len() * seeds);
    let traces = each(methods.len() * seeds, |job| {
        let trace = trace(scene, methods[job / seeds], arguments.seed + (job % seeds) as u64);
        bar.inc(1);
        trace
    });
    bar.finish_and_clear();
    let by_method = methods.iter().zip(traces.chunks(seeds));
    by_method
        .map(|(method, traces)| Ran {
            method: *method,
            figures: traces.iter().map(Trace::figures).collect(),
            traces: traces.to_vec(),
        })
        .collect()
}

/// For a person at a terminal; hidden otherwise.
fn progress(runs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs as u64);
    match ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left") {
        Ok(style) => bar.set_style(style),
        Err(error) => remark(&format!("drawing the progress bar: {error}")),
    }
    bar
}

/// What one method came to.
#[derive(Debug, Serialize)]
struct Line {
    method: &'static str,
    p50: f64,
    p99: Spread,
    p99_over_oracle: Spread,
    peak_to_mean: f64,
    herd: f64,
    full_percent: f64,
    logins: usize,
    finished: usize,
    censored: usize,
    refused: usize,
    never_arrived: usize,
}

impl Line {
    fn new(ran: &Ran, oracle: &[f64]) -> Self {
        let mean = |value: fn(&Figures) -> f64| Spread::of(&values(ran, value)).mean;
        let sum = |value: fn(&Figures) -> usize| ran.figures.iter().map(value).sum();
        let p99 = values(ran, |figures| figures.p99);
        Self {
            method: ran.method.as_str(),
            p50: mean(|figures| figures.p50),
            p99_over_oracle: Spread::of_ratios(&p99, oracle),
            p99: Spread::of(&p99),
            peak_to_mean: mean(|figures| figures.peak_to_mean),
            herd: mean(|figures| figures.herd),
            full_percent: mean(|figures| figures.full_percent),
            logins: sum(|figures| figures.logins),
            finished: sum(|figures| figures.finished),
            censored: sum(|figures| figures.censored),
            refused: sum(|figures| figures.refused),
            never_arrived: sum(|figures| figures.never_arrived),
        }
    }
}

fn values(ran: &Ran, value: fn(&Figures) -> f64) -> Vec<f64> {
    ran.figures.iter().map(value).collect()
}

fn lines(ran: &[Ran]) -> Vec<Line> {
    let oracle = ran.iter().find(|ran| ran.method == Method::Oracle);
    let oracle = oracle.map(|ran| values(ran, |figures| figures.p99)).unwrap_or_default();
    ran.iter().map(|ran| Line::new(ran, &oracle)).collect()
}

/// The document for scripts.
#[derive(Debug, Serialize)]
struct Document {
    hosts: usize,
    logons: usize,
    in_s: f64,
    report_interval_s: f64,
    mixed: bool,
    seed: u64,
    seeds: u64,
    methods: Vec<Line>,
}

impl Document {
    fn new(arguments: &Arguments, ran: &[Ran]) -> Self {
        Self {
            hosts: arguments.hosts,
            logons: arguments.logons,
            in_s: arguments.within.as_secs_f64(),
            report_interval_s: arguments.report_interval.as_secs_f64(),
            mixed: arguments.mixed,
            seed: arguments.seed,
            seeds: arguments.seeds,
            methods: lines(ran),
        }
    }
}

fn table(ran: &[Ran]) -> String {
    let header = [
        "METHOD",
        "EXPANSION P50",
        "P99",
        "+-",
        "OF ORACLE",
        "WORST SEED",
        "PEAK/MEAN",
        "HERD IN 5S",
        "FULL",
        "NOT DONE",
    ];
    let mut grid = Grid::new(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for line in lines(ran) {
        let number = |value: f64, decimals| cell(decimal(Some(value), decimals));
        grid.row([
            cell(line.method),
            number(line.p50, 2),
            number(line.p99.mean, 2),
            number((line.p99.high - line.p99.low) / 2.0, 2),
            number(line.p99_over_oracle.mean, 3),
            number(line.p99_over_oracle.worst, 3),
            number(line.peak_to_mean, 2),
            number(line.herd, 1),
            cell(format!("{:.1}%", line.full_percent)),
            cell((line.censored + line.refused).to_string()),
        ]);
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn arguments(words: &str) -> Result<Arguments, clap::Error> {
        let words = ["usherctl", "simulate"].into_iter().chain(words.split_whitespace());
        let Command::Simulate(arguments) = Cli::try_parse_from(words)?.command else {
            panic!("another command")
        };
        Ok(arguments)
    }

    #[test]
    fn a_farm_that_cannot_be_is_wrong_use_before_any_work() {
        for (words, expected) in [
            ("--hosts 0", "hosts = 0"),
            ("--logons 0", "logons = 0"),
            ("--hosts 10 --logons 100000", "at most 334 fit"),
            ("--in 0s", "longer than 0 s"),
            ("--report-interval 0s", "allowed are 100ms..=1h"),
            ("--seed 18446744073709551615", "no 5 seeds"),
        ] {
            let failure = scene(&arguments(words).unwrap()).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{words}");
            assert!(failure.for_people().contains(expected), "{}", failure.for_people());
        }
        for words in
            ["--in -3s", "--in 5", "--report-interval -1s", "--method nonsense", "--seeds 0", "--hosts -1"]
        {
            let error = arguments(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words}");
            assert!(error.to_string().contains("error: "), "{error}");
        }
        let error = arguments("--method nonsense").unwrap_err().to_string();
        assert!(error.contains("there is no method `nonsense`") && error.contains("predictive"), "{error}");
    }

    #[test]
    fn the_oracle_is_always_there_and_nobody_is_there_twice() {
        let named = [Method::Random, Method::Predictive, Method::Random];
        assert_eq!(methods(&named), [Method::Random, Method::Predictive, Method::Oracle]);
    }

    #[test]
    fn a_small_farm_shows_every_method_with_its_figures() {
        let arguments = arguments("--hosts 5 --logons 50 --in 30s --seeds 2 --method random").unwrap();
        let scene = scene(&arguments).unwrap();
        let ran = simulate(&scene, &methods(&arguments.method), &arguments);
        let text = table(&ran);
        assert_eq!(text.lines().count(), 3, "{text}");
        let document = serde_json::to_value(Document::new(&arguments, &ran)).unwrap();
        let (random, oracle) = (&document["methods"][0], &document["methods"][1]);
        assert_eq!((&random["method"], &oracle["method"]), (&"random".into(), &"oracle".into()));
        assert_eq!(random["logins"], 100);
        assert_eq!(oracle["p99_over_oracle"]["mean"], 1.0);
        let figure = plot::svg(&ran, &scene).unwrap();
        assert!(figure.starts_with("<svg") && figure.trim_end().ends_with("</svg>"), "{figure}");
        for word in ["random", "oracle", "sessions", "logon expansion"] {
            assert!(figure.contains(word), "{word}");
        }
    }
}
