//! What is asked of every host: is it a candidate, of which class, with which score?
//!
//! One host at a time, but put so that nothing branches: the compiler makes one step of it for several hosts.

use usher_types::{Method, PendingMode};

use super::Block;
use crate::{
    decision::{Assessment, Inputs, order::code},
    farm::{CellWord, Columns, HostCell, NO_TIER, Ranked, SeenWords, is_over},
    load::{Counts, DemandFactors, LoadFactors},
};

/// What is asked of every host.
pub(super) struct Gate {
    pub(super) adds: u32,
    /// Logons in progress at which a host is at its limit, and whether it is no candidate then.
    most_logons: u32,
    is_hard: bool,
    /// All bits, if logons that hosts report count too.
    reported: u32,
    zone: u16,
    /// Whether zones matter.
    by_zone: bool,
    /// Codes are what the columns say, but for limits of users, full cells and silent hosts.
    pub(super) is_plain: bool,
}

impl Gate {
    pub(super) fn of(inputs: &Inputs<'_>) -> Self {
        let (pool, request) = (inputs.pool, inputs.request);
        let policy = &pool.policy;
        let zone = request.client_zone.as_ref();
        let most_logons = policy.max_pending.finite();
        Self {
            adds: request.cost,
            most_logons: most_logons.unwrap_or(u32::MAX),
            is_plain: zone.is_none() && most_logons.is_none(),
            is_hard: policy.max_pending_mode == PendingMode::Hard,
            reported: if pool.costs.logon_seconds.is_learned { u32::MAX } else { 0 },
            zone: zone.map_or(0, |zone| pool.zones.of_client(zone)),
            by_zone: zone.is_some(),
        }
    }

    /// The code of the host at `at`, whose tier is `tier`, and whether others are compared with it. No side of this is
    /// skipped: it is asked of many hosts at once.
    #[inline(always)]
    pub(super) fn code(&self, columns: &Columns, at: usize, tier: u8, word: CellWord) -> (u8, bool) {
        let is_eligible = (tier != NO_TIER) & !is_over(columns.limit[at], word, self.adds);
        // Both stay below 2^31.
        let logons = word.places() + (columns.logons[at] & self.reported);
        let at_limit = logons >= self.most_logons;
        let fits = HostCell::has_room(word, self.adds) & !(at_limit & self.is_hard);
        let far = self.by_zone & (columns.zone[at] != self.zone);
        let code = u8::from(word.is_silent()) << code::SILENT_SHIFT
            | tier << code::TIER_SHIFT
            | u8::from(at_limit) << code::AT_LIMIT_SHIFT
            | u8::from(far) << code::FAR_SHIFT
            | columns.group[at];
        (if is_eligible & fits { code } else { code::NONE }, is_eligible)
    }
}

/// What the scores of all hosts are computed with.
pub(super) enum Factors {
    Load(LoadFactors),
    Demand(DemandFactors),
    /// By weighted load, and no metric is known.
    NoTerms,
    Plain,
}

impl Factors {
    pub(super) fn of(assessment: &Assessment<'_>) -> Self {
        let Inputs { pool, now, .. } = *assessment.inputs();
        let seconds = now.since(pool.logons_since).as_secs_f64();
        match pool.policy.method {
            Method::WeightedLoad if !assessment.scale().has_terms() => Self::NoTerms,
            Method::WeightedLoad => Self::Load(LoadFactors::new(assessment.scale(), &pool.costs, seconds)),
            Method::Predictive => Self::Demand(DemandFactors::new(&pool.costs, seconds)),
            Method::Availability | Method::FillFirst => Self::Plain,
        }
    }

    pub(super) fn score(&self, columns: &Columns, at: usize, word: CellWord) -> f64 {
        match (self, &columns.ranked) {
            (Self::NoTerms, _) => f64::INFINITY,
            (Self::Load(factors), Ranked::Load(load)) if word.places() == 0 => {
                factors.score_without_places(load, at, word.all_users())
            }
            (Self::Load(factors), Ranked::Load(load)) => {
                factors.score(load, at, word.all_users(), word.all_places())
            }
            (Self::Demand(factors), Ranked::Demand(demand)) => factors.score(demand, at, word.all_places()),
            (_, ranked) => plain_score(ranked, columns.limit[at], at, word),
        }
    }

    pub(super) fn scores(
        &self,
        columns: &Columns,
        words: &Block<CellWord>,
        counts: &mut Counts,
        scores: &mut Block<f64>,
    ) {
        match (self, &columns.ranked) {
            (Self::NoTerms, _) => scores.fill(f64::INFINITY),
            (Self::Load(factors), Ranked::Load(load)) => {
                for (users, word) in counts.users.iter_mut().zip(words) {
                    *users = word.all_users();
                }
                if !SeenWords::of(words).have_places() {
                    return factors.scores_without_places(load, counts, scores);
                }
                for (places, word) in counts.places.iter_mut().zip(words) {
                    *places = word.all_places();
                }
                factors.scores(load, counts, scores);
            }
            (Self::Demand(factors), Ranked::Demand(demand)) => {
                for (places, word) in counts.places.iter_mut().zip(words) {
                    *places = word.all_places();
                }
                factors.scores(demand, counts, scores);
            }
            (_, ranked) => {
                for (at, score) in scores.iter_mut().enumerate() {
                    *score = plain_score(ranked, columns.limit[at], at, words[at]);
                }
            }
        }
    }
}

/// By expansion factor or by the free share of a limit.
fn plain_score(ranked: &Ranked, limit: u32, at: usize, word: CellWord) -> f64 {
    let (users, pending) = (f64::from(word.users_or_none()), f64::from(word.pending_users()));
    match ranked {
        Ranked::Factor(factors) if factors[at].is_nan() => {
            if word.knows_users() {
                users + pending
            } else {
                f64::INFINITY
            }
        }
        Ranked::Factor(factors) => factors[at] * (1.0 + pending / users.max(1.0)),
        _ if limit == u32::MAX || !word.knows_users() => 1.0,
        _ => 1.0 - (users + pending) / f64::from(limit.max(1)),
    }
}
