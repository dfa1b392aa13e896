//! The agent's program.

use std::process::ExitCode;

fn main() -> ExitCode {
    usher_agent::cli::main_from(std::env::args_os())
}
