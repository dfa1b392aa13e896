//! What does a farm look like, on one machine, without installing anything?
//!
//! A coordinator, a real agent for this machine and some modelled hosts, each a process of its own on free loopback
//! ports, talking as they would across a network. When all hosts are measured, one user is placed and the decision
//! explained. Nothing of it stays when it ends, unless a data folder is named.

mod demonstration;
mod farm;
mod folder;
mod processes;
mod progress;

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{emit, json::emit_json, remark};
use demonstration::Demonstration;
use folder::DataFolder;
use processes::Processes;
use progress::Progress;

/// The pool of a quickstart farm.
const POOL: &str = "quickstart";
/// From the first process to the last measured host. Measured: 1 to 2 s on two cores; a slow machine may take ten times that.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Arguments of `quickstart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl quickstart                       a farm to look at, until Ctrl-C
  usherctl quickstart --once                show it once and end it
  usherctl quickstart --once --json         {hosts, placement, explanation}
  usherctl quickstart --data-dir ./farm     keep what it learns, and the logs")]
pub(crate) struct Arguments {
    /// Show the farm, one placement and its explanation, then end everything
    #[arg(long)]
    once: bool,
    /// Keep the farm's data and logs here [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<std::path::PathBuf>,
    /// How many modelled hosts join the real one
    #[arg(long = "virtual", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=100))]
    virtual_hosts: u16,
}

/// Runs the farm.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let mut stop = Stop::on_signals()?;
    let folder = DataFolder::open(arguments.data_dir.as_deref())?;
    let mut processes = Processes::new(folder.path());
    let outcome = tokio::select! {
        outcome = demonstrate(context, &arguments, &mut processes) => outcome,
        () = stop.asked() => Err(Failure::Check("stopped before the farm was ready".to_owned())),
    };
    let outcome = match outcome {
        Ok(()) if !arguments.once => tokio::select! {
            outcome = processes.watch() => outcome,
            () = stop.asked() => Ok(()),
        },
        other => other,
    };
    // A second signal while the farm ends is for those who will not wait.
    tokio::select! {
        () = processes.end() => outcome,
        () = stop.asked() => Err(Failure::Check("stopped before every process of the farm had ended".to_owned())),
    }
}

async fn demonstrate(
    context: &Context,
    arguments: &Arguments,
    processes: &mut Processes,
) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let started = tokio::time::Instant::now();
    let deadline = started + READY_WITHIN;
    let listening = farm::start_coordinator(processes, deadline).await?;
    progress.say(&format!("coordinator is up at {}", listening.grpc));
    farm::start_agents(processes, listening.grpc, arguments.virtual_hosts)?;
    let hosts_wanted = usize::from(arguments.virtual_hosts) + 1;
    let hosts =
        farm::wait_until_measured(processes, listening.grpc, hosts_wanted, deadline, &mut progress).await?;
    let demonstration = Demonstration::make(listening.grpc, hosts, deadline).await?;
    progress.finish();
    if context.json() {
        emit_json(&demonstration.document())?;
    } else {
        emit(&demonstration.page())?;
    }
    if !arguments.once {
        let how = demonstration::how_to_go_on(&listening, &demonstration, processes.folder());
        if context.json() { remark(&how) } else { emit(&format!("\n{how}"))? }
    }
    Ok(())
}

/// The wish to end, by Ctrl-C, by `kill`, or by closing the terminal.
#[derive(Debug)]
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Stop {
    fn on_signals() -> Result<Self, Failure> {
        let on = |kind| signal(kind).context("installing the signal handlers");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
            _ = self.hang_up.recv() => (),
        }
    }
}
