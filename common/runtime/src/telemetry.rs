//! Where do log lines go, and which ones?
//!
//! To stderr, always: stdout belongs to what a command answers, and the journal or the container runtime
//! picks stderr up. The filter is the caller's (a flag or a setting), else `USHER_LOG`, else `info`.

use std::io::IsTerminal;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable with the filter, in the syntax of tracing's `EnvFilter`
/// (`info,usher_agent=debug`).
pub const LOG_ENV: &str = "USHER_LOG";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One line for people, in colour on a terminal.
    #[default]
    Human,
    /// One JSON object a line, for collectors.
    Json,
}

/// The log filter could not be read.
#[derive(Debug, thiserror::Error)]
#[error("log filter {filter:?} from {origin} is not valid: {source}")]
pub struct FilterError {
    filter: String,
    origin: String,
    source: tracing_subscriber::filter::ParseError,
}

/// Starts logging to stderr. A second call in one process leaves the first one's logging in place, so
/// that programs which run several parts in one process need no order among them.
///
/// `filter` wins over `USHER_LOG`; without either, `info`. An empty text counts as not given.
///
/// # Errors
/// When the filter has no valid syntax; nothing is installed then.
pub fn init(format: LogFormat, filter: Option<&str>) -> Result<(), FilterError> {
    let from_environment = std::env::var(LOG_ENV).ok();
    let filter = parse_filter(filter, from_environment.as_deref())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An error here only says that a subscriber is already there.
    let (started, reload): (_, Reload) = match format {
        LogFormat::Human => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
            let handle = builder.reload_handle();
            (builder.finish().try_init(), Box::new(move |filter| handle.reload(filter)))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            (builder.finish().try_init(), Box::new(move |filter| handle.reload(filter)))
        }
    };
    if started.is_ok() {
        // Only one start succeeds, so the place is free.
        let _ = RELOAD.set(reload);
    }
    Ok(())
}

type Reload = Box<dyn Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error> + Send + Sync>;

/// Replaces the filter of the logging that [`init`] started.
static RELOAD: OnceLock<Reload> = OnceLock::new();

/// From now on these log lines; read as in [`init`], which must have been called. Without it nothing happens.
///
/// # Errors
/// When the filter has no valid syntax; the one before stays.
pub fn set_filter(filter: Option<&str>) -> Result<(), FilterError> {
    let from_environment = std::env::var(LOG_ENV).ok();
    let filter = parse_filter(filter, from_environment.as_deref())?;
    if let Some(Err(error)) = RELOAD.get().map(|reload| reload(filter)) {
        tracing::warn!(%error, "the log filter stays as it was");
    }
    Ok(())
}

fn parse_filter(argument: Option<&str>, environment: Option<&str>) -> Result<EnvFilter, FilterError> {
    let given = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let (filter, origin) = match (given(argument), given(environment)) {
        (Some(filter), _) => (filter, "the command line or settings".to_owned()),
        (None, Some(filter)) => (filter, format!("environment {LOG_ENV}")),
        (None, None) => ("info".to_owned(), "the default".to_owned()),
    };
    EnvFilter::builder().parse(&filter).map_err(|source| FilterError { filter, origin, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_wins_over_the_environment_and_info_is_the_default() {
        let shown = |a, b| parse_filter(a, b).unwrap().to_string();
        assert_eq!(shown(Some("debug"), Some("warn")), "debug");
        assert_eq!(shown(Some(" "), Some("warn")), "warn");
        assert_eq!(shown(None, None), "info");
    }

    #[test]
    fn a_bad_filter_names_itself_and_where_it_came_from() {
        let error = parse_filter(None, Some("usher=loud")).unwrap_err().to_string();
        assert!(error.contains("usher=loud") && error.contains("USHER_LOG"), "{error}");
    }

    #[test]
    fn a_second_start_changes_nothing_and_does_not_panic() {
        init(LogFormat::Human, Some("warn")).unwrap();
        init(LogFormat::Json, Some("warn")).unwrap();
    }
}
