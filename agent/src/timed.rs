//! `usher-agent time NAME -- COMMAND`: how long does a command take, told as a call of an operation?
//!
//! The command is run as if nobody watched: same input, output, environment and exit code, and signals that are meant
//! for it reach it. The time is taken on the monotonic clock. An exit code other than 0 is a failed call. That the
//! timing cannot be told is a line on stderr and changes nothing else: a script must not fail because its agent does.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::latency::listener::DEFAULT_UDP;
use crate::latency::statsd::is_name;

/// As a shell says that a command cannot be run, or is not there.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// `usher-agent time`.
#[derive(Debug, Args)]
pub struct TimeArguments {
    /// The operation that the command is a call of: A-Z a-z 0-9 _ . -
    #[arg(value_parser = operation)]
    name: String,
    /// The agent's unix socket for timings
    #[arg(long, value_name = "PATH", default_value = "/run/usher/statsd.sock")]
    socket: PathBuf,
    /// The agent's UDP address for timings, used if the socket cannot be
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_UDP)]
    udp: SocketAddr,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn operation(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err("must be 1 to 128 of A-Z a-z 0-9 _ . -".to_owned()) }
}

/// Runs the command and tells its time; the exit code is the command's, 128 and the signal's number if one ended it.
#[must_use]
pub fn run(arguments: &TimeArguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::from(NOT_RUN);
        }
    };
    runtime.block_on(async {
        let started = Instant::now();
        let ended = run_command(&arguments.command).await;
        let took = started.elapsed();
        let (succeeded, code) = match &ended {
            Ok(status) => (status.success(), exit_code(*status)),
            Err(error) => {
                let program = arguments.command.first().cloned().unwrap_or_default();
                eprintln!("cannot run {}: {error}", program.display());
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                (false, if is_missing { NOT_FOUND } else { NOT_RUN })
            }
        };
        if let Err(error) = tell(arguments, &line(&arguments.name, took, succeeded)) {
            eprintln!("usher-agent time: the timing of {} is lost: {error}", arguments.name);
        }
        ExitCode::from(code)
    })
}

async fn run_command(command: &[OsString]) -> io::Result<ExitStatus> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    // Before the command runs: a signal for it must not end us first.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut child = Command::new(program).args(arguments).spawn()?;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            // A terminal sends these two to the command itself.
            Some(()) = interrupt.recv() => {}
            Some(()) = quit.recv() => {}
            Some(()) = terminate.recv() => pass_on(&child, Signal::TERM),
            Some(()) = hang_up.recv() => pass_on(&child, Signal::HUP),
        }
    }
}

fn pass_on(child: &Child, signal: Signal) {
    // Without a number it has ended already.
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or_default();
    // Both fit by their nature.
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// A microsecond is what the clock tells for certain, and what no rounding makes a zero.
fn line(name: &str, took: Duration, succeeded: bool) -> String {
    let milliseconds = took.as_secs_f64().max(1e-6) * 1000.0;
    format!("{name}:{milliseconds:.3}|ms{}", if succeeded { "" } else { "|#outcome:failed" })
}

fn tell(arguments: &TimeArguments, line: &str) -> io::Result<()> {
    let over_unix = || {
        let socket = UnixDatagram::unbound()?;
        // A full queue must not hold the command's exit.
        socket.set_nonblocking(true)?;
        socket.send_to(line.as_bytes(), &arguments.socket)
    };
    if over_unix().is_ok() {
        return Ok(());
    }
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let any =
        if arguments.udp.is_ipv6() { SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)) } else { any };
    let socket = UdpSocket::bind(any)?;
    // Connected, so that a port on which nobody listens is an error rather than silence.
    socket.connect(arguments.udp)?;
    socket.send(line.as_bytes())?;
    socket.send(b"").map(drop)
}

#[cfg(test)]
#[path = "timed_tests.rs"]
mod tests;
