//! Who is where, and would be sent back there?

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tonic::Status;
use usher_placement::{
    decision::{Decision, Inputs, Request, UserTrace, Words, decide},
    farm::{CellWord, PoolView, Snapshot},
    reservation::Ledger,
};
use usher_proto::{SessionFilter, error, read, v1, write};
use usher_types::{BootTime, HostId, Session, UserKey};

use super::{only_host, wanted_pools};
use crate::shared::Shared;

/// Sessions in one answer: about 2 MB.
const MAX_SESSIONS: usize = 10_000;

/// The sessions that a request asks for.
pub(super) async fn list(
    shared: &Arc<Shared>,
    msg: v1::ListSessionsRequest,
) -> Result<v1::ListSessionsResponse, Status> {
    let wanted = read::list_sessions(msg).map_err(|faults| error::invalid_fields(&faults))?;
    let shared = shared.clone();
    // Each user costs a decision: too long for the threads that answer placements.
    let list = move || {
        let (snapshot, now) = shared.look();
        find(&snapshot, &shared.ledger, &wanted, now)
    };
    tokio::task::spawn_blocking(list).await.map_err(|_| Status::internal("the list could not be made"))?
}

/// A session that was found, and whose it is.
struct Found<'a> {
    pool: &'a PoolView,
    position: usize,
    session: &'a Session,
    user: Option<UserKey>,
}

fn find(
    snapshot: &Snapshot,
    ledger: &Ledger,
    wanted: &SessionFilter,
    now: BootTime,
) -> Result<v1::ListSessionsResponse, Status> {
    let only_host = only_host(snapshot, wanted.host.as_deref())?;
    let mut found = Vec::new();
    for pool in wanted_pools(snapshot, wanted.pool.as_ref())? {
        let rule = pool.policy.user_match;
        let only_user = wanted.user.as_deref().map(|user| rule.key(user));
        let hosts = pool.hosts.iter().enumerate();
        for (position, host) in
            hosts.filter(|(_, h)| only_host.as_ref().is_none_or(|o| h.facts.host_id == *o))
        {
            for session in host.sessions.iter() {
                let user = rule.key(&session.user);
                if only_user.as_ref().is_none_or(|only| *only == user) {
                    found.push(Found { pool, position, session, user });
                }
            }
        }
    }
    let order = |found: &Found<'_>| {
        let facts = &found.pool.hosts[found.position].facts;
        (found.session.user.clone(), facts.name.clone(), facts.host_id.clone(), found.session.id.clone())
    };
    found.sort_by_cached_key(|found| {
        let (user, name, host_id, session_id) = order(found);
        (user, name.to_string(), host_id, session_id)
    });
    let truncated = found.len() > MAX_SESSIONS;
    found.truncate(MAX_SESSIONS);
    let homes = homes(&found, ledger, now);
    let sessions = found.iter().map(|found| info(found, &homes, now)).collect();
    Ok(v1::ListSessionsResponse { sessions, truncated })
}

/// Sessions to which their users would be sent back: host and session id.
type Homes = HashSet<(HostId, Arc<str>)>;

fn homes(found: &[Found<'_>], ledger: &Ledger, now: BootTime) -> Homes {
    let mut words = HashMap::<&str, Vec<CellWord>>::new();
    let mut asked = HashSet::new();
    let mut homes = Homes::new();
    for Found { pool, session, user, .. } in found {
        if !asked.insert((pool.name.as_str(), user)) {
            continue;
        }
        let words = words.entry(pool.name.as_str()).or_insert_with(|| pool.words());
        homes.extend(home(pool, words, &session.user, ledger, now));
    }
    homes
}

/// The session that a login of this user would be sent back to, by the rules of a placement.
fn home(
    pool: &PoolView,
    words: &[CellWord],
    user: &str,
    ledger: &Ledger,
    now: BootTime,
) -> Option<(HostId, Arc<str>)> {
    let (request, user) = (Request::of_nobody(pool.name.clone()), UserTrace::find(pool, ledger, Some(user)));
    let words = Words::All(words);
    let inputs =
        Inputs { pool, words, request: &request, user: &user, unwilling: &[], doors: &[], now, seed: 0 };
    match decide(&inputs) {
        Decision::OwnSession { session, .. } => Some((session.host_id, session.session_id)),
        _ => None,
    }
}

fn info(found: &Found<'_>, homes: &Homes, now: BootTime) -> v1::SessionInfo {
    let Found { pool, position, session, user } = found;
    let facts = &pool.hosts[*position].facts;
    let mine = user.as_ref().map_or(&[][..], |user| pool.sessions.of(user));
    let listed = mine.iter().find(|at| at.host_id == facts.host_id && *at.session_id == *session.id);
    // It was listed some time ago, and has grown older since.
    let age = listed.and_then(|at| at.began).map(|began| now.since(began)).or(session.age);
    v1::SessionInfo {
        host_id: facts.host_id.to_string(),
        host_name: facts.name.to_string(),
        pool: pool.name.to_string(),
        session: Some(write::session(&Session { age, ..(*session).clone() })),
        returns_here: homes.contains(&(facts.host_id.clone(), Arc::from(session.id.as_str()))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::{Affinity, PolicyChange, SessionState};

    use super::*;
    use crate::placing::testing;

    fn session(id: &str, user: &str, state: SessionState) -> Session {
        Session { id: id.into(), user: user.into(), state, age: Some(Duration::from_secs(60)) }
    }

    async fn listed(change: &PolicyChange, msg: v1::ListSessionsRequest) -> Vec<(String, String, bool)> {
        let (mut farm, ledger) = testing::farm(change, &[("a", 2), ("b", 1)]);
        let (a, b) = (HostId::new("a").unwrap(), HostId::new("b").unwrap());
        let on_a = vec![
            session("1", "CORP\\Alice", SessionState::Active),
            session("2", "bob", SessionState::Active),
        ];
        farm.observe_sessions(&a, on_a, testing::NOW);
        farm.observe_sessions(&b, vec![session("3", "alice", SessionState::Disconnected)], testing::NOW);
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        let sessions = list(&shared, msg).await.unwrap().sessions;
        let short = |info: v1::SessionInfo| (info.session.unwrap().user, info.host_name, info.returns_here);
        sessions.into_iter().map(short).collect()
    }

    #[tokio::test]
    async fn a_user_is_found_as_the_pool_compares_names_and_the_one_session_that_they_come_back_to() {
        let of_alice = v1::ListSessionsRequest { user: Some("ALICE@corp".into()), ..Default::default() };
        let expected = [("CORP\\Alice".into(), "a".into(), false), ("alice".into(), "b".into(), true)];
        assert_eq!(listed(&PolicyChange::default(), of_alice.clone()).await, expected);
        let nobody_returns = PolicyChange { affinity: Some(Affinity::None), ..PolicyChange::default() };
        assert!(listed(&nobody_returns, of_alice).await.iter().all(|(_, _, returns)| !returns));
    }

    #[tokio::test]
    async fn without_a_user_everyone_is_listed_and_a_host_can_be_named() {
        let all = listed(&PolicyChange::default(), v1::ListSessionsRequest::default()).await;
        assert_eq!(all.len(), 3);
        assert_eq!(all[2], ("bob".into(), "a".into(), true));
        let on_b = v1::ListSessionsRequest { host: Some("B".into()), ..Default::default() };
        assert_eq!(listed(&PolicyChange::default(), on_b).await, [("alice".into(), "b".into(), true)]);
    }
}
