//! The coordinator as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    usher_coordinator::cli::main_from(std::env::args_os())
}
