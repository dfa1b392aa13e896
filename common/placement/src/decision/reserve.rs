//! Taking the place that was chosen, so that no two decisions ever count on the same one.

use std::sync::Arc;

use usher_types::{BootTime, HostId};

use super::{
    Decision, Excluded, Inputs, ReadWords, Request, UserTrace,
    choose::decide_by_scan,
    crowd::{Drawing, Effort},
};
use crate::{
    farm::{PoolView, Snapshot},
    reservation::Ledger,
};

/// A decision together with what it was made from.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// What was decided; if it is [`Decision::Take`] of a request that is no dry run, the place is counted now.
    pub decision: Decision,
    /// The pool that it was decided on.
    pub pool: Arc<PoolView>,
    /// The cells as they were ranked.
    pub words: ReadWords,
    /// Where the user was.
    pub user: UserTrace,
}

/// What a decision is made with, apart from the newest snapshot.
#[derive(Copy, Clone, Debug)]
pub struct Asked<'a> {
    /// What is asked.
    pub request: &'a Request,
    /// See [`Inputs::unwilling`].
    pub unwilling: &'a [(HostId, Excluded)],
    /// See [`Inputs::doors`].
    pub doors: &'a [(HostId, bool)],
    /// The instant of the decision.
    pub now: BootTime,
    /// Settles ties.
    pub seed: u64,
}

/// Decides, and counts the place of a choice in its host's cell. Absent: there is no such pool.
///
/// `load` gives the newest snapshot. The cells are read before the snapshot that they are ranked with, and the place is
/// taken only if the chosen host's cell has not changed since: then no other placement and no report came in between,
/// and the rank still holds. If it did change, it is decided again.
pub fn reserve_best(
    load: impl Fn() -> Arc<Snapshot>,
    ledger: &Ledger,
    asked: &Asked<'_>,
) -> Option<Reserved> {
    let Asked { request, unwilling, doors, now, seed } = *asked;
    let mut effort = Effort::Draw;
    loop {
        let newest = load();
        let before = newest.pools.get(&request.pool)?;
        let drawn = before.crowd.as_ref().and_then(|crowd| {
            let user = UserTrace::find(before, ledger, request.user.as_deref());
            crowd.draw(&Drawing { pool: before, request, user: &user, seed }, effort)
        });
        let words = match &drawn {
            Some(positions) => ReadWords::of(before, positions),
            None => ReadWords::all(before),
        };
        let newest = load();
        let pool = newest.pools.get(&request.pool)?;
        // What was drawn from one snapshot is not looked at in another.
        let is_same = if drawn.is_some() {
            Arc::ptr_eq(before, pool)
        } else {
            Arc::ptr_eq(&before.members, &pool.members)
        };
        if !is_same {
            continue;
        }
        let user = UserTrace::find(pool, ledger, request.user.as_deref());
        let inputs =
            Inputs { pool, words: words.as_words(), request, user: &user, unwilling, doors, now, seed };
        let (mut decision, scan) = decide_by_scan(&inputs);
        if drawn.is_some()
            && let (Some(crowd), Some(scan)) = (&pool.crowd, &scan)
            && !crowd.is_enough(&inputs, &decision, scan)
        {
            effort = effort.next();
            continue;
        }
        match &mut decision {
            Decision::Take(choice) if !request.dry_run => {
                let at = choice.position as usize;
                if !pool.members.cells[at].reserve(inputs.words[at], choice.adds_users) {
                    continue;
                }
            }
            Decision::Refused(refusal) => {
                let hosts = refusal.at_limit.iter().map(|at| &pool.hosts[*at as usize].facts.host_id);
                let first_end = hosts.filter_map(|host_id| ledger.oldest_end_on(host_id)).min();
                refusal.wait_for(first_end, now);
            }
            _ => {}
        }
        return Some(Reserved { decision, pool: pool.clone(), words, user });
    }
}
