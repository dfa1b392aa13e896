//! What did each host hold, and when, by its own word?
//!
//! Made of the lines that modelled hosts write of each change of their book (`usher-agent --virtual-log`). Times are those of
//! the machine's boot-time clock, in milliseconds. What a host held when its agent died it holds until the next run says
//! otherwise: the book is on disk.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Gateway and request.
pub type TokenName = (String, String);

/// A line that is none.
#[derive(Debug, PartialEq, Eq)]
pub struct LogError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at_ms: u64,
    host: String,
    #[serde(default)]
    began: bool,
    users: Option<u32>,
    pending_users: u32,
    limit: Option<u32>,
    came: Vec<(String, String, u32)>,
    went: Vec<(String, String, u32, Option<String>)>,
}

/// From when until when.
pub(super) type Span = (u64, u64);

/// What hosts held.
#[derive(Debug, Default)]
pub struct Holdings {
    /// Spans in which a host held a token, by token and host, in order of time.
    pub(super) held: BTreeMap<TokenName, BTreeMap<String, Vec<Span>>>,
    /// Why a place of a token on a host ended last, in the host's words.
    pub(super) why: BTreeMap<(TokenName, String), String>,
    /// Moments at which a host was above its limit: when, who, users, limit.
    pub(super) above: Vec<(u64, String, u32, u32)>,
    /// The fullest that each host ever was, and its limit.
    pub(super) fullest: BTreeMap<String, (u32, Option<u32>)>,
    /// Held now: since when.
    open: BTreeMap<String, BTreeMap<TokenName, u64>>,
    /// Lines that were read.
    pub lines: usize,
}

impl Holdings {
    /// Reads the log of one agent.
    ///
    /// # Errors
    /// The first line that is none, if it is not the last: a killed agent may leave half of one there.
    pub fn read(&mut self, log: &str) -> Result<(), LogError> {
        let mut lines = log.lines().enumerate().peekable();
        while let Some((index, text)) = lines.next() {
            match serde_json::from_str::<Line>(text) {
                Ok(line) => self.take(line),
                Err(_) if lines.peek().is_none() && !log.ends_with('\n') => {}
                Err(error) => return Err(LogError { line: index + 1, why: error.to_string() }),
            }
        }
        Ok(())
    }

    /// Everything that is still held is held until `now_ms`.
    pub fn close(&mut self, now_ms: u64) {
        for (host, tokens) in std::mem::take(&mut self.open) {
            for (token, since) in tokens {
                self.span(&host, token, (since, now_ms));
            }
        }
    }

    /// Whether this host has written anything.
    pub fn knows(&self, host: &str) -> bool {
        self.fullest.contains_key(host)
    }

    fn take(&mut self, line: Line) {
        self.lines += 1;
        if let (Some(users), limit) = (line.users, line.limit) {
            let all = users + line.pending_users;
            if let Some(limit) = limit.filter(|limit| all > *limit) {
                self.above.push((line.at_ms, line.host.clone(), all, limit));
            }
            let fullest = self.fullest.entry(line.host.clone()).or_default();
            *fullest = (fullest.0.max(all), limit);
        }
        let named = |(gateway, request, _): (String, String, u32)| (gateway, request);
        let came: Vec<TokenName> = line.came.into_iter().map(named).collect();
        let mut went = Vec::new();
        for (gateway, request, _, why) in line.went {
            let token = (gateway, request);
            if let Some(why) = why {
                self.why.insert((token.clone(), line.host.clone()), why);
            }
            went.push(token);
        }
        if line.began {
            let held = self.open.get(&line.host).into_iter().flatten();
            went = held.map(|(token, _)| token.clone()).filter(|token| !came.contains(token)).collect();
        }
        for token in went.into_iter().filter(|token| !came.contains(token)) {
            if let Some(since) = self.open.entry(line.host.clone()).or_default().remove(&token) {
                self.span(&line.host, token, (since, line.at_ms));
            }
        }
        let open = self.open.entry(line.host).or_default();
        for token in came {
            open.entry(token).or_insert(line.at_ms);
        }
    }

    fn span(&mut self, host: &str, token: TokenName, span: Span) {
        self.held.entry(token).or_default().entry(host.to_owned()).or_default().push(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(request: &str) -> TokenName {
        ("g".to_owned(), request.to_owned())
    }

    fn line(at: u64, began: bool, came: &str, went: &str) -> String {
        format!(
            "{{\"at_ms\":{at},\"host\":\"h1\",\"began\":{began},\"users\":1,\"pending_users\":1,\"limit\":9,\
             \"came\":[{came}],\"went\":[{went}]}}\n"
        )
    }

    #[test]
    fn what_came_is_held_until_it_went_over_a_restart_too_and_under_another_attempt() {
        let (a1, a2, b) = ("[\"g\",\"a\",1]", "[\"g\",\"a\",2]", "[\"g\",\"b\",1]");
        let log = line(1, true, "", "")
            + &line(2, false, &format!("{a1},{b}"), "")
            + &line(5, false, a2, "[\"g\",\"a\",1,null]")
            // The next run: `b` ended while nobody looked.
            + &line(9, true, a2, "")
            + &line(12, false, "", "[\"g\",\"a\",2,\"CANCELLED\"]");
        let mut holdings = Holdings::default();
        holdings.read(&log).unwrap();
        holdings.close(20);
        assert_eq!(holdings.held[&token("a")]["h1"], [(2, 12)]);
        assert_eq!(holdings.held[&token("b")]["h1"], [(2, 9)]);
        assert_eq!(holdings.why[&(token("a"), "h1".to_owned())], "CANCELLED");
        assert_eq!((holdings.lines, holdings.fullest["h1"]), (5, (2, Some(9))));
    }

    #[test]
    fn half_a_line_at_the_end_is_a_killed_agents_and_anywhere_else_an_error() {
        let whole = line(1, true, "", "");
        assert_eq!(Holdings::default().read(&format!("{whole}{{\"at_ms\":2,\"ho")), Ok(()));
        let error = Holdings::default().read(&format!("{{\"at\n{whole}")).unwrap_err();
        assert_eq!(error.line, 1);
        assert!(Holdings::default().read(&whole.replace("users", "people")).is_err());
    }
}
