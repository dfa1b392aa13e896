//! Taking the place that was chosen, so that no two decisions ever count on the same one.

use std::sync::Arc;

use usher_types::{BootTime, HostId};

use super::{Decision, Excluded, Inputs, Request, decide};
use crate::farm::{CellWord, PoolView, Snapshot};

/// A decision together with what it was made from.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// What was decided; if it is [`Decision::Take`] of a request that is no dry run, the place is counted now.
    pub decision: Decision,
    /// The pool that it was decided on.
    pub pool: Arc<PoolView>,
    /// The cells as they were ranked.
    pub words: Vec<CellWord>,
}

/// Decides, and counts the place of a choice in its host's cell. Absent: there is no such pool.
///
/// `load` gives the newest snapshot. The cells are read before the snapshot that they are ranked with, and the place is
/// taken only if the chosen host's cell has not changed since: then no other placement and no report came in between,
/// and the rank still holds. If it did change, it is decided again.
pub fn reserve_best(
    load: impl Fn() -> Arc<Snapshot>,
    request: &Request,
    own_places: &[HostId],
    unwilling: &[(HostId, Excluded)],
    now: BootTime,
    seed: u64,
) -> Option<Reserved> {
    loop {
        let before = load().pools.get(&request.pool)?.clone();
        let words = before.words();
        let pool = load().pools.get(&request.pool)?.clone();
        if !Arc::ptr_eq(&before.members, &pool.members) {
            continue;
        }
        let inputs = Inputs { pool: &pool, words: &words, request, own_places, unwilling, now, seed };
        let decision = decide(&inputs);
        if let Decision::Take(choice) = &decision
            && !request.dry_run
        {
            let at = choice.position as usize;
            if !pool.members.cells[at].reserve(words[at], choice.adds_users) {
                continue;
            }
        }
        return Some(Reserved { decision, pool, words });
    }
}
