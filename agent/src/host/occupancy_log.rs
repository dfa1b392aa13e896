//! Was this host ever fuller than it may be?
//!
//! Whoever tests a farm must not take the word of those under test: coordinators would count as they place. A modelled host
//! can write down each change of its own book, with its time, in a file that a checker reads afterwards. A line says what
//! came and what went since the line before; the first of each run of the agent, `began`, says all that the host holds.
//!
//! It is for tests: nothing is rotated, and a line that cannot be written is lost with a warning.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use usher_placement::host::HostCore;
use usher_runtime::clock::Clock;
use usher_types::{EndReason, Load, Token};

use super::task::Outputs;

/// The file of one agent, and what was last written of one of its hosts.
#[derive(Debug)]
pub(crate) struct OccupancyLog {
    file: File,
    host: String,
    began: bool,
    /// Users of sessions and of places, and the limit.
    counts: (Option<u32>, u32, Option<u32>),
    /// Places, each with the attempt under which it is held.
    places: BTreeMap<Token, u32>,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds on the boot-time clock, which all processes of a machine share.
    at_ms: u64,
    host: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    began: bool,
    users: Option<u32>,
    pending_users: u32,
    /// Absent: none, or the pool's.
    limit: Option<u32>,
    /// Gateway, request, attempt.
    came: Vec<(&'a str, &'a str, u32)>,
    /// The same, and why it ended. Absent: it is held under another attempt now.
    went: Vec<(&'a str, &'a str, u32, Option<EndReason>)>,
}

impl OccupancyLog {
    /// Appends to the file, which is made.
    pub(crate) fn open(path: &Path, host: &str) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let (counts, places) = ((None, 0, None), BTreeMap::new());
        Ok(Self { file, host: host.to_owned(), began: false, counts, places })
    }

    /// `end_of` says why a place ended that the host does not hold any more.
    fn note(
        &mut self,
        load: &Load,
        end_of: impl Fn(&Token) -> Option<EndReason>,
        at_ms: u64,
    ) -> io::Result<()> {
        let places: BTreeMap<Token, u32> =
            load.pending.iter().map(|place| (place.token.clone(), place.attempt)).collect();
        let pending_users = load.pending.iter().map(|place| place.counted_users).sum();
        let limit = load.overrides.max_users.and_then(|limit| limit.finite());
        let counts = (load.users, pending_users, limit);
        if self.began && counts == self.counts && places == self.places {
            return Ok(());
        }
        let line = Line {
            at_ms,
            host: &self.host,
            began: !self.began,
            users: load.users,
            pending_users,
            limit,
            came: beyond(&places, &self.places).map(|(token, attempt)| named(token, attempt)).collect(),
            went: beyond(&self.places, &places)
                .map(|(token, attempt)| ended(load, &end_of, token, attempt))
                .collect(),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        // In one piece: the hosts of an agent share the file, and a killed agent leaves no half of a line.
        self.file.write_all(&text)?;
        (self.began, self.counts, self.places) = (true, counts, places);
        Ok(())
    }
}

/// What is in `these` and not, or under another attempt, in `others`.
fn beyond<'a>(
    these: &'a BTreeMap<Token, u32>,
    others: &BTreeMap<Token, u32>,
) -> impl Iterator<Item = (&'a Token, u32)> {
    let new = these.iter().filter(|(token, attempt)| others.get(token) != Some(attempt));
    new.map(|(token, attempt)| (token, *attempt))
}

fn named(token: &Token, attempt: u32) -> (&str, &str, u32) {
    (token.gateway.as_str(), token.request_id.as_str(), attempt)
}

fn ended<'a>(
    load: &Load,
    end_of: &impl Fn(&Token) -> Option<EndReason>,
    token: &'a Token,
    attempt: u32,
) -> (&'a str, &'a str, u32, Option<EndReason>) {
    let is_held = load.pending.iter().any(|place| place.token == *token);
    let reason = if is_held { None } else { end_of(token) };
    (token.gateway.as_str(), token.request_id.as_str(), attempt, reason)
}

impl Outputs {
    /// Writes down what has changed, if somebody wants to know.
    pub(super) fn note_occupancy(&mut self, core: &HostCore, clock: &dyn Clock) {
        let Some(log) = &mut self.occupancy else { return };
        let now = clock.now();
        // Before the first measurement there is no host yet.
        let Some(load) = core.state(now, clock.wall_unix_ms()) else { return };
        if let Err(error) = log.note(&load, |token| core.end_of(token), now.as_micros() / 1000) {
            tracing::warn!(%error, "the log of occupancy is not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::{EndedPlace, Endpoint, GatewayId, PendingPlace, PoolName, RequestId};

    use super::*;

    fn place(request: &str, attempt: u32) -> PendingPlace {
        PendingPlace {
            token: Token {
                gateway: GatewayId::new("g").unwrap(),
                request_id: RequestId::new(request).unwrap(),
            },
            attempt,
            content_hash: 7,
            pool: PoolName::new("desk").unwrap(),
            endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
            user: None,
            cost: 1,
            counted_users: 1,
            left: Duration::from_secs(120),
            connected: false,
            admitted: true,
        }
    }

    fn cancelled(place: PendingPlace) -> EndedPlace {
        EndedPlace {
            token: place.token,
            attempt: place.attempt,
            reason: EndReason::Cancelled,
            ended_ago: Duration::ZERO,
            content_hash: place.content_hash,
            pool: place.pool,
            endpoint: place.endpoint,
        }
    }

    #[test]
    fn each_line_says_what_came_and_went_and_a_load_without_change_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut load = Load { users: Some(3), ..Load::default() };
        let none = |_: &Token| None;
        let mut log = OccupancyLog::open(&path, "h1").unwrap();
        log.note(&load, none, 5).unwrap();
        load.pending = vec![place("a", 1), place("b", 1)];
        log.note(&load, none, 6).unwrap();
        log.note(&load, none, 7).unwrap();
        load.pending = vec![place("b", 2)];
        let ended = cancelled(place("a", 1));
        log.note(&load, |token| (*token == ended.token).then_some(ended.reason), 8).unwrap();
        // The next run of the agent.
        OccupancyLog::open(&path, "h1").unwrap().note(&load, none, 9).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let line = |at: u64, began: &str, pending: u32, came: &str, went: &str| {
            format!(
                "{{\"at_ms\":{at},\"host\":\"h1\",{began}\"users\":3,\"pending_users\":{pending},\"limit\":null,\
                 \"came\":[{came}],\"went\":[{went}]}}"
            )
        };
        let began = "\"began\":true,";
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], line(5, began, 0, "", ""));
        assert_eq!(lines[1], line(6, "", 2, "[\"g\",\"a\",1],[\"g\",\"b\",1]", ""));
        assert_eq!(
            lines[2],
            line(8, "", 1, "[\"g\",\"b\",2]", "[\"g\",\"a\",1,\"CANCELLED\"],[\"g\",\"b\",1,null]")
        );
        assert_eq!(lines[3], line(9, began, 1, "[\"g\",\"b\",2]", ""));
    }
}
