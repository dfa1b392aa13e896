//! Taking the place that was chosen, so that no two decisions ever count on the same one.

use std::sync::Arc;

use usher_types::{BootTime, HostId};

use super::{Decision, Excluded, Inputs, Request, UserTrace, decide};
use crate::{
    farm::{CellWord, PoolView, Snapshot},
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
    pub words: Vec<CellWord>,
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
    loop {
        let before = load().pools.get(&request.pool)?.clone();
        let words = before.words();
        let pool = load().pools.get(&request.pool)?.clone();
        if !Arc::ptr_eq(&before.members, &pool.members) {
            continue;
        }
        let user = UserTrace::find(&pool, ledger, request.user.as_deref());
        let inputs = Inputs { pool: &pool, words: &words, request, user: &user, unwilling, doors, now, seed };
        let mut decision = decide(&inputs);
        match &mut decision {
            Decision::Take(choice) if !request.dry_run => {
                let at = choice.position as usize;
                if !pool.members.cells[at].reserve(words[at], choice.adds_users) {
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
        return Some(Reserved { decision, pool, words, user });
    }
}
