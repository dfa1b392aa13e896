//! What does an operator type on a host to drain it, or to see how its agent fares?
//!
//! These commands need no coordinator: they ask the agent of this machine. 0: done; 1: the agent refused; 2: wrong use;
//! 3: nobody answered.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use usher_types::{Drain, DrainMode};

use super::{Answer, Request, ask};

/// The agent said no.
const REFUSED: u8 = 1;
/// Nobody answered.
const NO_ANSWER: u8 = 3;
/// Where an agent listens unless its settings say otherwise.
const DEFAULT_SOCKET: &str = "/run/usher/agent.sock";

/// Where the agent listens.
#[derive(Debug, Args)]
pub struct SocketArgument {
    /// The agent's socket: agent.sock in its runtime_dir
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

/// `usher-agent drain`.
#[derive(Debug, Args)]
pub struct DrainArguments {
    #[command(flatten)]
    socket: SocketArgument,
    /// Why, for people
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    reason: String,
    /// Until this host has booted again (the default)
    #[arg(long, conflicts_with = "persistent")]
    until_restart: bool,
    /// Until somebody undrains it
    #[arg(long)]
    persistent: bool,
    /// Refuse users who come back to their sessions too
    #[arg(long)]
    no_reconnect: bool,
}

/// `usher-agent undrain`.
#[derive(Debug, Args)]
pub struct UndrainArguments {
    #[command(flatten)]
    socket: SocketArgument,
}

/// `usher-agent status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    socket: SocketArgument,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Drains this host.
#[must_use]
pub fn drain(arguments: DrainArguments) -> ExitCode {
    let DrainArguments { socket, reason, persistent, no_reconnect, .. } = arguments;
    let mode = if persistent { DrainMode::Persistent } else { DrainMode::UntilRestart };
    run(&socket.socket, &Request::Drain { mode, reason, no_reconnect }, false)
}

/// Takes back a drain that was given on this host.
#[must_use]
pub fn undrain(arguments: &UndrainArguments) -> ExitCode {
    run(&arguments.socket.socket, &Request::Undrain {}, false)
}

/// Shows how the agent fares.
#[must_use]
pub fn status(arguments: &StatusArguments) -> ExitCode {
    run(&arguments.socket.socket, &Request::Status {}, arguments.json)
}

fn run(socket: &Path, request: &Request, as_json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::from(NO_ANSWER);
        }
    };
    match runtime.block_on(ask(socket, request)) {
        Ok(Answer::Drained(drain)) => {
            println!("{}", drained(drain.as_ref()));
            ExitCode::SUCCESS
        }
        Ok(Answer::Status(status)) => {
            print!("{}", if as_json { format!("{status:#}\n") } else { shown(&status) });
            ExitCode::SUCCESS
        }
        Ok(Answer::Error(why)) => {
            eprintln!("the agent refused: {why}");
            ExitCode::from(REFUSED)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(NO_ANSWER)
        }
    }
}

fn drained(drain: Option<&Drain>) -> String {
    let Some(drain) = drain else { return "not drained on this host".to_owned() };
    let until = match drain.mode {
        DrainMode::UntilRestart => "until it has booted again",
        DrainMode::Persistent => "until it is undrained",
    };
    let reconnects = if drain.no_reconnect { ", no reconnects" } else { "" };
    let reason = if drain.reason.is_empty() { String::new() } else { format!(": {}", drain.reason) };
    format!("drained by {} {until}{reconnects}{reason}", drain.author)
}

/// The status for people: one line a fact, what is wrong last.
fn shown(status: &Value) -> String {
    let mut lines = Vec::new();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for (key, value) in status.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("operations" | "collectors" | "streams" | "held_back", Value::Array(rows)) => {
                lines.push(format!("{key}:"));
                lines.extend(rows.iter().map(|row| format!("  {}", line_of(row))));
            }
            (_, Value::Object(_)) => lines.push(format!("{key}: {}", line_of(value))),
            _ => lines.push(format!("{key}: {}", text(value))),
        }
    }
    lines.join("\n") + "\n"
}

/// An object in one line, its name first: `q: total.ok=12 window.ok=3`.
fn line_of(value: &Value) -> String {
    if let Value::String(sentence) = value {
        return sentence.clone();
    }
    let mut words = Vec::new();
    flatten("", value, &mut words);
    match value["name"].as_str() {
        Some(name) => {
            words.retain(|word| !word.starts_with("name="));
            format!("{name}: {}", words.join(" "))
        }
        None => words.join(" "),
    }
}

fn flatten(prefix: &str, value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, words);
            }
        }
        Value::String(text) => words.push(format!("{prefix}={text}")),
        // People compare them; programs take the JSON.
        Value::Number(number) if number.is_f64() => {
            words.push(format!("{prefix}={:.1}", number.as_f64().unwrap_or_default()));
        }
        other => words.push(format!("{prefix}={other}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_drain_is_told_in_a_sentence() {
        let mut drain = Drain {
            mode: DrainMode::Persistent,
            reason: "new disks".into(),
            author: "root".into(),
            no_reconnect: true,
        };
        let sentence = "drained by root until it is undrained, no reconnects: new disks";
        assert_eq!(drained(Some(&drain)), sentence);
        (drain.mode, drain.no_reconnect, drain.reason) = (DrainMode::UntilRestart, false, String::new());
        assert_eq!(drained(Some(&drain)), "drained by root until it has booted again");
        assert_eq!(drained(None), "not drained on this host");
    }

    #[test]
    fn a_status_is_one_line_a_fact() {
        let status = json!({
            "pool": "desk",
            "load": { "users": 3, "cpu_percent": 12.345, "sessions": { "active": 2 } },
            "collectors": [{ "name": "cpu", "source": "proc" }],
            "held_back": ["coordinator c2:7443 is not heard for 12 s: connection refused"],
        });
        let expected = "collectors:\n  cpu: source=proc\nheld_back:\n  coordinator c2:7443 is not heard for 12 s: connection \
                        refused\nload: cpu_percent=12.3 sessions.active=2 users=3\npool: desk\n";
        assert_eq!(shown(&status), expected);
    }
}
