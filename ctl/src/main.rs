//! `usherctl`: what an operator of a farm types.
//!
//! The program reads the command line, does what is asked, and turns a failure into text and an exit code. Started by
//! itself as a part of a quickstart farm, it becomes a coordinator or an agent instead.

mod cli;
mod client_config;
mod commands;
mod connect;
mod failure;
mod output;
mod quickstart;
mod reexec;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

use crate::cli::Cli;
use crate::commands::Context;
use crate::failure::Failure;

fn main() -> ExitCode {
    if let Some(code) = reexec::run_as_part() {
        return code;
    }
    output::table::colour_for_terminals();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    let json = cli.globals.json;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure, json);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let context = Context::new(cli.globals);
    // One thread is plenty. It is also needed: the kernel ends the processes of a quickstart farm when the thread that
    // started them ends, so that must be the main one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    let done = runtime.block_on(context.run(cli.command));
    // A name that is still looked up is nothing to wait for.
    runtime.shutdown_background();
    done
}

/// Help and versions go to stdout with exit code 0; wrong use is told by clap, to scripts as a document too.
fn not_parsed(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to fail.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|argument| argument == "--json") {
        let message = error.render().to_string();
        tell_scripts(&Failure::usage(message.trim_end()));
    }
    ExitCode::from(2)
}

fn tell(failure: &Failure, json: bool) {
    // Standard output belongs to the server that `connect` connects to.
    if json && !matches!(failure, Failure::Unconnected(_)) {
        tell_scripts(failure);
    } else {
        output::remark(&failure.for_people());
    }
}

fn tell_scripts(failure: &Failure) {
    if output::json::emit_json_line(&failure.for_scripts()).is_err() {
        output::remark(&failure.for_people());
    }
}
