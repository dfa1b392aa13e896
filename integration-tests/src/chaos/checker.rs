//! Which promises were broken?
//!
//! Three, by the hosts' own logs and what the callers were answered; no coordinator is asked.
//!
//! - **Limit**: at no moment were a host's users and those on their way more than its limit.
//! - **One place**: no token was on two hosts for more than a second.
//! - **No place lost**: a place that was answered a second ago or more, and that its host has had in its book, is in it when the
//!   caller gives it back. Within that second a slower coordinator may still take back what it had asked the same host for.
//!   A host that its farm had reason to give up is no witness: while its agent is away, places on it are void.
//!
//! A place that its host never had in the book was given without asking it, from what the host keeps free for coordinators
//! that it does not hear. Such places are counted, and break nothing.

use std::collections::BTreeMap;

use super::holdings::{Holdings, Span, TokenName};

/// For how long one token may be on two hosts: that is what it takes until somebody has seen both.
const TWO_HOSTS_MS: u64 = 1000;
/// How long after its answer a place stands for good.
const STANDS_MS: u64 = 1000;

/// A place that a caller was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub token: TokenName,
    /// The host's name.
    pub host: String,
    /// When the answer came.
    pub from_ms: u64,
    /// When the caller began to give it back.
    pub until_ms: u64,
}

/// A time in which agents were away, of all hosts.
pub type Outage = Span;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// When, and for people what, in order of time.
    pub limits_passed: Vec<(u64, String)>,
    /// As above: when the second host had had it for too long.
    pub doubled: Vec<(u64, String)>,
    /// As above: when it was gone.
    pub lost: Vec<(u64, String)>,
    /// Places that their host never had in the book.
    pub never_asked: usize,
    /// Places that were looked at.
    pub places: usize,
    /// Those of them that were held for long enough to stand, and that their host had in its book.
    pub judged: usize,
    /// The longest time for which a token was on two hosts.
    pub longest_on_two_ms: u64,
}

/// Looks at everything.
pub fn check(holdings: &Holdings, places: &[Held], outages: &[Outage]) -> Findings {
    let mut findings = Findings { places: places.len(), ..Findings::default() };
    for (at, host, users, limit) in &holdings.above {
        findings.limits_passed.push((*at, format!("{host} had {users} users of at most {limit}")));
    }
    for (token, hosts) in &holdings.held {
        look_for_doubles(token, hosts, &mut findings);
    }
    for place in places.iter().filter(|place| holdings.knows(&place.host)) {
        look_for_loss(holdings, place, outages, &mut findings);
    }
    for found in [&mut findings.limits_passed, &mut findings.doubled, &mut findings.lost] {
        found.sort();
    }
    findings
}

fn look_for_doubles(token: &TokenName, hosts: &BTreeMap<String, Vec<Span>>, findings: &mut Findings) {
    let spans: Vec<(&String, Span)> =
        hosts.iter().flat_map(|(host, spans)| spans.iter().map(move |span| (host, *span))).collect();
    for (index, (host, one)) in spans.iter().enumerate() {
        for (other_host, other) in spans[index + 1..].iter().filter(|(other, _)| other != host) {
            let (from, until) = (one.0.max(other.0), one.1.min(other.1));
            let both_ms = until.saturating_sub(from);
            findings.longest_on_two_ms = findings.longest_on_two_ms.max(both_ms);
            if both_ms > TWO_HOSTS_MS {
                let what = format!("{} was on {host} and {other_host} for {both_ms} ms", token.1);
                findings.doubled.push((from + TWO_HOSTS_MS, what));
            }
        }
    }
}

/// How a host says that a place ended because the coordinator that gave it had lost the host.
const VOID: &str = "HOST_LOST";

fn look_for_loss(holdings: &Holdings, place: &Held, outages: &[Outage], findings: &mut Findings) {
    if outages.iter().any(|(from, until)| *from <= place.until_ms && place.from_ms <= *until) {
        return;
    }
    let spans = holdings.held.get(&place.token).and_then(|hosts| hosts.get(&place.host));
    let Some(last) = spans.and_then(|spans| spans.iter().rev().find(|span| span.0 <= place.until_ms)) else {
        findings.never_asked += 1;
        return;
    };
    let is_judged = place.until_ms - place.from_ms >= STANDS_MS;
    findings.judged += usize::from(is_judged);
    if is_judged && last.1 < place.until_ms {
        let early_ms = place.until_ms - last.1.max(place.from_ms);
        let why = holdings.why.get(&(place.token.clone(), place.host.clone())).map_or("", String::as_str);
        // The coordinator that gave it heard nothing of the host until it was OFFLINE: such a place is void for good, and its
        // gateway is given another when it asks.
        if why == VOID {
            return;
        }
        let (request, host) = (&place.token.1, &place.host);
        let what = format!("{request} was gone from {host} {early_ms} ms before it was given back: {why}");
        findings.lost.push((last.1, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Log(String);

    impl Log {
        fn new() -> Self {
            Self(String::new())
        }

        fn line(mut self, at: u64, host: &str, users: u32, came: &[&str], went: &[&str]) -> Self {
            let list = |requests: &[&str], why: &str| {
                let one = |request: &&str| format!("[\"g\",\"{request}\",1{why}]");
                requests.iter().map(one).collect::<Vec<_>>().join(",")
            };
            self.0 += &format!(
                "{{\"at_ms\":{at},\"host\":\"{host}\",\"users\":{users},\"pending_users\":0,\"limit\":4,\
                 \"came\":[{}],\"went\":[{}]}}\n",
                list(came, ""),
                list(went, ",\"EXPIRED\"")
            );
            self
        }

        fn holdings(self) -> Holdings {
            let mut holdings = Holdings::default();
            holdings.read(&self.0).unwrap();
            holdings.close(100_000);
            holdings
        }
    }

    fn held(request: &str, host: &str, from_ms: u64, until_ms: u64) -> Held {
        Held { token: ("g".to_owned(), request.to_owned()), host: host.to_owned(), from_ms, until_ms }
    }

    #[test]
    fn a_sound_log_breaks_nothing() {
        let log = Log::new().line(10, "h1", 4, &["a"], &[]).line(900, "h2", 1, &["a"], &[]);
        let log = log.line(1000, "h1", 3, &[], &["a"]).line(5000, "h2", 1, &[], &["a"]);
        let findings = check(&log.holdings(), &[held("a", "h2", 901, 4999)], &[]);
        let sound = Findings { places: 1, judged: 1, longest_on_two_ms: 100, ..Findings::default() };
        assert_eq!(findings, sound);
    }

    #[test]
    fn one_user_above_the_limit_is_found_though_only_for_a_moment() {
        let log =
            Log::new().line(10, "h1", 4, &[], &[]).line(11, "h1", 5, &[], &[]).line(12, "h1", 4, &[], &[]);
        let findings = check(&log.holdings(), &[], &[]);
        assert_eq!(findings.limits_passed, [(11, "h1 had 5 users of at most 4".to_owned())]);
    }

    #[test]
    fn users_on_their_way_count_against_the_limit() {
        let text = "{\"at_ms\":1,\"host\":\"h1\",\"users\":3,\"pending_users\":2,\"limit\":4,\"came\":[],\"went\":[]}\n";
        let mut holdings = Holdings::default();
        holdings.read(text).unwrap();
        assert_eq!(check(&holdings, &[], &[]).limits_passed.len(), 1);
        let mut unlimited = Holdings::default();
        unlimited.read(&text.replace("\"limit\":4", "\"limit\":null")).unwrap();
        assert!(check(&unlimited, &[], &[]).limits_passed.is_empty());
    }

    #[test]
    fn a_token_on_two_hosts_is_found_after_a_second_and_not_before() {
        let on_both = |until| {
            let log = Log::new().line(10, "h1", 1, &["a"], &[]).line(500, "h2", 1, &["a"], &[]);
            check(&log.line(until, "h1", 1, &[], &["a"]).holdings(), &[], &[]).doubled
        };
        assert_eq!(on_both(1500), []);
        assert_eq!(on_both(1501), [(1500, "a was on h1 and h2 for 1001 ms".to_owned())]);
        // Nobody ever took it back.
        let log = Log::new().line(10, "h1", 1, &["a"], &[]).line(500, "h2", 1, &["a"], &[]);
        assert_eq!(check(&log.holdings(), &[], &[]).doubled.len(), 1);
    }

    #[test]
    fn a_place_that_its_host_forgot_is_found_unless_its_agent_was_away() {
        let holdings = || Log::new().line(10, "h1", 1, &["a"], &[]).line(50, "h1", 1, &[], &["a"]).holdings();
        let place = held("a", "h1", 12, 1080);
        let lost = check(&holdings(), std::slice::from_ref(&place), &[]).lost;
        assert_eq!(lost, [(50, "a was gone from h1 1030 ms before it was given back: EXPIRED".to_owned())]);
        assert_eq!(check(&holdings(), std::slice::from_ref(&place), &[(70, 90)]).lost, []);
        let log = Log::new().line(10, "h1", 1, &["a"], &[]).line(50, "h1", 1, &[], &["a"]);
        let void = Log(log.0.replace("EXPIRED", VOID)).holdings();
        assert_eq!(
            check(&void, std::slice::from_ref(&place), &[]).lost,
            [],
            "its host was OFFLINE to who gave it"
        );
        let early = Held { until_ms: 1011, ..place.clone() };
        assert_eq!(check(&holdings(), &[early], &[]).lost, [], "it does not stand yet");
        assert_eq!(check(&holdings(), &[Held { from_ms: 0, until_ms: 50, ..place }], &[]).lost, []);
    }

    #[test]
    fn an_agent_that_comes_back_without_its_book_has_lost_what_was_in_it() {
        let began = "{\"at_ms\":60,\"host\":\"h1\",\"began\":true,\"users\":1,\"pending_users\":0,\"limit\":4,\
                     \"came\":[],\"went\":[]}\n";
        let log = Log(Log::new().line(10, "h1", 1, &["a"], &[]).0 + began);
        let findings = check(&log.holdings(), &[held("a", "h1", 12, 1080)], &[]);
        assert_eq!(findings.lost.len(), 1);
    }

    #[test]
    fn a_place_that_the_host_was_never_asked_for_is_counted_and_one_on_a_silent_host_is_not() {
        let log = Log::new().line(10, "h1", 1, &[], &[]);
        let places = [held("a", "h1", 12, 80), held("b", "real", 12, 80)];
        let findings = check(&log.holdings(), &places, &[]);
        assert_eq!((findings.never_asked, findings.places), (1, 2));
        assert_eq!(findings.lost, []);
    }
}
