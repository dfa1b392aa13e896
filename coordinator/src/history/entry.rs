//! One kept decision.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use usher_placement::decision::{
    ConsentAsked, DecisionRecord, ExplainedRecord, RecordedChoice, RecordedRedirect,
};
use usher_types::{BootTime, DecisionId, Method, PoolName, ResourceId, Token, UserKey, UserMatch, Weights};

/// A decision that has just been made.
#[derive(Debug)]
pub(crate) struct NewDecision {
    pub id: DecisionId,
    /// Its number in this run of the coordinator.
    pub sequence: u64,
    pub decided_unix_ms: u64,
    /// Login name as the gateway spelled it. It is hashed, not kept.
    pub user: Option<String>,
    pub record: DecisionRecord,
}

/// A login name as the history knows it: hashed with a key that lives as long as this run and is written nowhere.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct UserHash(u64);

impl fmt::Display for UserHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Hashes login names. The standard library's keyed hash (SipHash with 128 random bits) does: without the key nobody
/// can try names, and it is asked for equality only.
#[derive(Clone, Debug, Default)]
pub(super) struct UserHasher(RandomState);

impl UserHasher {
    /// The hash of a name as this rule compares it. Two rules give two hashes: they do not mean the same users.
    pub(super) fn of(&self, rule: UserMatch, user: &str) -> Option<UserHash> {
        let key: UserKey = rule.key(user)?;
        Some(UserHash(self.0.hash_one((rule == UserMatch::Exact, key))))
    }
}

/// What is known of a decision for as long as it is kept at all.
#[derive(Clone, Debug)]
pub(crate) struct Headline {
    pub id: DecisionId,
    pub sequence: u64,
    pub decided_at: BootTime,
    pub decided_unix_ms: u64,
    pub pool: PoolName,
    pub policy_version: u64,
    pub method: Method,
    pub weights: Weights,
    pub token: Token,
    pub user: Option<UserHash>,
    pub resource: Option<ResourceId>,
    pub cost: u32,
    pub dry_run: bool,
    pub consents: Vec<ConsentAsked>,
    /// What the gateway was told: the host, or the reason of the refusal as errors name it.
    pub answered: Result<RecordedChoice, &'static str>,
    pub redirect: Option<RecordedRedirect>,
}

impl Headline {
    pub(super) fn new(new: &NewDecision, users: &UserHasher) -> Self {
        let record = &new.record;
        let (request, policy) = (&record.request, &record.pool.policy);
        Self {
            id: new.id.clone(),
            sequence: new.sequence,
            decided_at: record.decided_at,
            decided_unix_ms: new.decided_unix_ms,
            pool: record.pool.name.clone(),
            policy_version: record.pool.version,
            method: policy.method,
            weights: policy.weights,
            token: request.token.clone(),
            user: new.user.as_deref().and_then(|user| users.of(policy.user_match, user)),
            resource: request.resource.clone(),
            cost: request.cost,
            dry_run: request.dry_run,
            consents: record.consents.clone(),
            answered: record.answered.clone().map_err(|kind| kind.reason()),
            redirect: record.redirect.clone(),
        }
    }

    /// Whether `host`, a name or an id, was chosen or passed over.
    pub(super) fn concerns(&self, host: &str) -> bool {
        let chosen = self.answered.as_ref().ok().map(|chosen| (&chosen.host_id, &chosen.host_name));
        let passed_over = self.redirect.as_ref().map(|redirect| (&redirect.host_id, &redirect.host_name));
        chosen.into_iter().chain(passed_over).any(|(id, name)| id.as_str() == host || name.matches(host))
    }
}

/// What a kept decision can still be explained by.
#[derive(Clone, Debug)]
pub(crate) enum Detail {
    /// Everything.
    Full(Arc<DecisionRecord>),
    /// The chosen host, the best 16 and the counts.
    Reduced(Arc<ExplainedRecord>),
    /// Its headline only: so many decisions came at once that there was no time for more.
    Headline,
}

/// A kept decision.
#[derive(Clone, Debug)]
pub(crate) struct KeptDecision {
    pub headline: Arc<Headline>,
    pub detail: Detail,
}

impl KeptDecision {
    /// Whether it cannot be explained in full any more.
    pub(crate) fn is_reduced(&self) -> bool {
        !matches!(self.detail, Detail::Full(_))
    }
}

/// Which decisions are wanted. What is absent restricts nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ListFilter {
    /// Login name, as the asker spells it; compared as the pool compared it when it decided.
    pub user: Option<String>,
    /// Name or id of a host that was chosen or passed over.
    pub host: Option<String>,
    pub pool: Option<PoolName>,
    /// Not decided before this instant.
    pub not_before: Option<BootTime>,
    pub refused_only: bool,
    /// How many at most.
    pub limit: usize,
}

impl ListFilter {
    /// A test for headlines.
    pub(super) fn test<'a>(&'a self, users: &UserHasher) -> impl Fn(&Headline) -> bool + use<'a> {
        // A name that no rule takes belongs to nobody.
        let wanted = self
            .user
            .as_ref()
            .map(|user| [UserMatch::Folded, UserMatch::Exact].map(|rule| users.of(rule, user)));
        move |headline| {
            wanted.is_none_or(|wanted| headline.user.is_some() && wanted.contains(&headline.user))
                && self.host.as_ref().is_none_or(|host| headline.concerns(host))
                && self.pool.as_ref().is_none_or(|pool| *pool == headline.pool)
                && self.not_before.is_none_or(|instant| headline.decided_at >= instant)
                && (!self.refused_only || headline.answered.is_err())
        }
    }
}

/// Decisions that were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    /// Newest first.
    pub decisions: Vec<KeptDecision>,
    /// There are more.
    pub truncated: bool,
}
