//! Which settings are in force, where did each come from, and what is wrong with them?
//!
//! Four sources, the later wins: defaults in the code, the TOML file, the environment, flags. A setting
//! that is silently ignored keeps a wrong default in force for months, so unknown keys are refused with
//! a suggestion, and every error names its place: file, line and column, or the variable or flag.
//! All that is wrong is said at once, not one thing a start.
//!
//! Settings are plain structs with `#[serde(deny_unknown_fields, default)]` at every level and a
//! [`Validate`] for what types cannot say: ranges, orders, sums.

mod document;
mod dump;
mod duration;
mod error;
mod fault;
mod listen_addr;
mod loader;

#[cfg(test)]
mod tests;

pub use duration::{DurationError, HumanDuration};
pub use error::{ConfigError, ConfigErrors, Place};
pub use fault::{Fault, Faults, Validate};
pub use listen_addr::{ListenAddr, ListenAddrError, ZoneError};
pub use loader::{EnvKind, EnvVar, Loaded, Loader, Origin};
