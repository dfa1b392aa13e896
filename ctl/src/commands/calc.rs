//! What would a coordinator compute from these numbers?
//!
//! The numbers are typed in, the formulas are the very ones that agents and coordinators run, so a person can check a
//! decision by hand or try settings before applying them.

mod ai;
mod load;

use clap::Subcommand;

use crate::commands::Context;
use crate::failure::Failure;

/// Arguments of `calc`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  usherctl calc ai --xf 8                   how available is a host that is 8 times slower?
  usherctl calc load --host a=35/55/10/70 --host b=25/45/14/89 --weights 30/30/25/15")]
pub(crate) enum CalcCommand {
    /// The availability index of a host
    Ai(ai::Arguments),
    /// The weighted load of hosts, compared with each other
    Load(load::Arguments),
}

/// Computes.
pub(crate) fn run(context: &Context, command: &CalcCommand) -> Result<(), Failure> {
    match command {
        CalcCommand::Ai(arguments) => ai::run(context, arguments),
        CalcCommand::Load(arguments) => load::run(context, arguments),
    }
}
