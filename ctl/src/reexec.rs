//! How does one program become a whole farm?
//!
//! A quickstart farm is made of real processes, but a person builds one binary. So usherctl starts itself again with a
//! hidden first word and then is the coordinator, or an agent, with the same command line as theirs. Such a process
//! must not outlive the usherctl that started it, however that one ends: the kernel is asked to end it too.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The hidden word for a coordinator.
pub(crate) const COORDINATOR: &str = "__coordinator";
/// The hidden word for an agent.
pub(crate) const AGENT: &str = "__agent";
/// Names the process with which this one must end.
pub(crate) const PARENT_ENV: &str = "USHERCTL_PARENT_PID";

/// Runs as a part of a farm, if the first word says so.
pub(crate) fn run_as_part() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let word = arguments.next()?;
    let (name, run): (&str, fn(Arguments) -> ExitCode) = match word.to_str()? {
        COORDINATOR => ("usher-coordinator", |arguments| usher_coordinator::cli::main_from(arguments)),
        AGENT => ("usher-agent", |arguments| usher_agent::cli::main_from(arguments)),
        _ => return None,
    };
    if let Err(reason) = end_with_parent() {
        eprintln!("{name}: {reason}");
        return Some(ExitCode::FAILURE);
    }
    Some(run(Box::new(std::iter::once(OsString::from(name)).chain(arguments))))
}

type Arguments = Box<dyn Iterator<Item = OsString>>;

fn end_with_parent() -> Result<(), String> {
    let Some(parent) = env::var_os(PARENT_ENV) else { return Ok(()) };
    // Killed, not asked: whoever asks would have to stay to see that it is done.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be tied to the process that started it: {error}"))?;
    let now = getppid().map(|pid| pid.as_raw_pid().to_string());
    // It may have ended before it was tied to.
    if now.is_some_and(|now| parent == *now) {
        Ok(())
    } else {
        Err("the process that started it has ended".to_owned())
    }
}
