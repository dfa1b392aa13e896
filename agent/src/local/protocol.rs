//! How do the agent and a command on its machine understand each other?

use serde::{Deserialize, Serialize};
use serde_json::Value;
use usher_types::{Drain, DrainMode};

/// Longest request, its line feed included: a reason for a drain and some words.
pub const MAX_REQUEST_BYTES: usize = 4096;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How the agent fares.
    Status {},
    /// No new sessions from now on.
    Drain {
        /// How long it lasts.
        #[serde(default)]
        mode: DrainMode,
        /// For people; may be empty.
        #[serde(default)]
        reason: String,
        /// Reconnects are refused too.
        #[serde(default)]
        no_reconnect: bool,
    },
    /// A drain given on this host ends.
    Undrain {},
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How the agent fares.
    Status(Value),
    /// The drain that was given on this host and holds now.
    Drained(Option<Drain>),
    /// Why nothing was done.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_people_would_type() {
        let drain =
            |mode, reason: &str, no_reconnect| Request::Drain { mode, reason: reason.into(), no_reconnect };
        for (json, request) in [
            (r#"{"command":"status"}"#, Request::Status {}),
            (r#"{"command":"undrain"}"#, Request::Undrain {}),
            (r#"{"command":"drain"}"#, drain(DrainMode::UntilRestart, "", false)),
            (
                r#"{"command":"drain","mode":"persistent","reason":"disks","no_reconnect":true}"#,
                drain(DrainMode::Persistent, "disks", true),
            ),
        ] {
            assert_eq!(serde_json::from_str::<Request>(json).unwrap(), request, "{json}");
        }
        for json in ["", "{}", "[]", r#"{"command":"reboot"}"#, r#"{"command":"drain","until":"noon"}"#] {
            assert!(serde_json::from_str::<Request>(json).is_err(), "{json}");
        }
    }
}
