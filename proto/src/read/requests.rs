//! What do operators and gateways ask for, beyond a place? Every fault is named at once, and nothing is done then.
//!
//! A filter that is set but empty is refused, not taken for "everything": a script whose variable is empty must not
//! get the answer to another question.

use std::time::Duration;

use usher_types::{FieldFault, GatewayId, PolicyChange, PoolName, Profile, RequestId, Token};

use super::{marks::host_text, outcomes::cause_of, settings::policy_change};
use crate::{
    enums,
    fault::{Faults, WireId, id, shown, user, whole},
    messages::ResetBaselines,
    requests::{
        ApplyPool, DecisionFilter, DiffPool, LocateResource, PoolHistory, ReportOutcome, SessionFilter,
    },
    v1,
};

/// The protocol's own limit of entries in an answer that was asked for by count.
const MAX_LIMIT: u32 = 1000;
const DEFAULT_LIMIT: usize = 100;

/// How many entries are wanted: 0 and absent mean 100.
fn limit(faults: &mut Faults, limit: Option<u32>) -> Option<usize> {
    match faults.ok(whole("limit", limit.unwrap_or(0), 0..=MAX_LIMIT))? {
        0 => Some(DEFAULT_LIMIT),
        // Below MAX_LIMIT, and a usize is never smaller than that.
        limit => usize::try_from(limit).ok(),
    }
}

fn optional_id<T: WireId>(faults: &mut Faults, field: &str, text: Option<String>) -> Option<T> {
    text.and_then(|text| faults.ok(id(field, &text)))
}

/// The value, if there were no faults.
fn done<T>(faults: Faults, value: Option<T>) -> Result<T, Vec<FieldFault>> {
    let faults = faults.into_vec();
    match value {
        Some(value) if faults.is_empty() => Ok(value),
        _ => Err(faults),
    }
}

/// What a gateway says of a login. It can only speak of its own, so that its name comes from the connection.
///
/// A cause of anything but a failure means nothing and is dropped, as an unspecified one is.
///
/// # Errors
/// Every field that is refused.
pub fn report_outcome(
    gateway: GatewayId,
    msg: v1::ReportOutcomeRequest,
) -> Result<ReportOutcome, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let request_id = faults.ok(id::<RequestId>("request_id", &msg.request_id));
    let outcome = faults.ok(enums::outcome("outcome", msg.outcome));
    let cause = faults.ok(cause_of(outcome, msg.cause));
    let report = request_id.zip(outcome).zip(cause).map(|((request_id, outcome), cause)| ReportOutcome {
        token: Token { gateway, request_id },
        outcome,
        cause,
    });
    done(faults, report)
}

/// How a pool is to be created or changed. No policy at all changes nothing.
///
/// # Errors
/// Every field that is no value at all; whether the values can be in force is told when they are applied.
pub fn apply_pool(msg: v1::ApplyPoolRequest) -> Result<ApplyPool, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let pool = faults.ok(id::<PoolName>("pool", &msg.pool));
    let profile = msg.profile.and_then(|name| faults.ok(profile(&name)));
    let change = policy_change(msg.policy.unwrap_or_default()).unwrap_or_else(|refused| {
        refused.into_iter().for_each(|fault| faults.push(fault));
        PolicyChange::default()
    });
    let apply = pool.map(|pool| ApplyPool {
        pool,
        expected_version: msg.expected_version,
        profile,
        change,
        dry_run: msg.dry_run,
        must_be_new: msg.must_be_new,
    });
    done(faults, apply)
}

fn profile(name: &str) -> Result<Profile, FieldFault> {
    Profile::named(name).ok_or_else(|| {
        let known = Profile::ALL.map(Profile::as_str).join(", ");
        FieldFault::new("profile", shown(name), known)
    })
}

/// Which versions of a pool's settings are wanted.
///
/// # Errors
/// Every field that is refused.
pub fn pool_history(msg: v1::GetPoolHistoryRequest) -> Result<PoolHistory, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let pool = faults.ok(id("pool", &msg.pool));
    let limit = limit(&mut faults, msg.limit);
    done(faults, pool.zip(limit).map(|(pool, limit)| PoolHistory { pool, limit }))
}

/// Which two versions of a pool's settings are compared.
///
/// # Errors
/// The fault, if the pool's name is none.
pub fn diff_pool(msg: v1::DiffPoolRequest) -> Result<DiffPool, Vec<FieldFault>> {
    let pool = id("pool", &msg.pool).map_err(|fault| vec![fault])?;
    Ok(DiffPool { pool, from: msg.from, to: msg.to })
}

/// The host, by name or id, whose baselines are wanted.
///
/// # Errors
/// The fault, if the text can be no host's.
pub fn get_baselines(msg: v1::GetBaselinesRequest) -> Result<String, Vec<FieldFault>> {
    host_text("host", msg.host).map_err(|fault| vec![fault])
}

/// The host, by name or id, and what it is to forget.
///
/// # Errors
/// Every field that is refused.
pub fn reset_baselines_request(
    msg: v1::ResetBaselinesRequest,
) -> Result<(String, ResetBaselines), Vec<FieldFault>> {
    let mut faults = Faults::default();
    let host = faults.ok(host_text("host", msg.host));
    let operation = optional_id(&mut faults, "operation", msg.operation);
    done(faults, host.map(|host| (host, ResetBaselines { operation })))
}

/// Which hosts hold a resource.
///
/// # Errors
/// Every field that is refused.
pub fn locate_resource(msg: v1::LocateResourceRequest) -> Result<LocateResource, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let resource = faults.ok(id("resource", &msg.resource));
    let pool = optional_id(&mut faults, "pool", msg.pool);
    done(faults, resource.map(|resource| LocateResource { resource, pool }))
}

/// Which decisions are wanted.
///
/// # Errors
/// Every field that is refused; a fault does not show a login name.
pub fn list_decisions(msg: v1::ListDecisionsRequest) -> Result<DecisionFilter, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let user = msg.user.and_then(|text| faults.ok(user("user", text)));
    let host = msg.host.and_then(|text| faults.ok(host_text("host", text)));
    let pool = optional_id(&mut faults, "pool", msg.pool);
    let limit = limit(&mut faults, msg.limit);
    let filter = limit.map(|limit| DecisionFilter {
        user,
        host,
        pool,
        since: msg.since_ms.map(Duration::from_millis),
        refused_only: msg.refused_only,
        limit,
    });
    done(faults, filter)
}

/// Which sessions are wanted.
///
/// # Errors
/// Every field that is refused; a fault does not show a login name.
pub fn list_sessions(msg: v1::ListSessionsRequest) -> Result<SessionFilter, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let user = msg.user.and_then(|text| faults.ok(user("user", text)));
    let host = msg.host.and_then(|text| faults.ok(host_text("host", text)));
    let pool = optional_id(&mut faults, "pool", msg.pool);
    done(faults, Some(SessionFilter { user, host, pool }))
}

#[cfg(test)]
mod tests {
    use usher_types::{FailureCause, Outcome};

    use super::*;

    fn fields<T: std::fmt::Debug>(refused: Result<T, Vec<FieldFault>>) -> Vec<String> {
        refused.unwrap_err().into_iter().map(|fault| fault.field).collect()
    }

    fn outcome(outcome: v1::Outcome, cause: Option<i32>) -> Result<ReportOutcome, Vec<FieldFault>> {
        let msg = v1::ReportOutcomeRequest { request_id: "r1".to_owned(), outcome: outcome.into(), cause };
        report_outcome(GatewayId::new("gw").unwrap(), msg)
    }

    #[test]
    fn a_failure_has_a_cause_and_nothing_else_has() {
        let auth = Some(v1::FailoverCause::Auth.into());
        assert_eq!(outcome(v1::Outcome::Failed, auth).unwrap().cause, Some(FailureCause::Auth));
        assert_eq!(outcome(v1::Outcome::Failed, None).unwrap().cause, None);
        assert_eq!(outcome(v1::Outcome::Failed, Some(0)).unwrap().cause, None, "0.1 takes it so too");
        let ended = outcome(v1::Outcome::Ended, auth).unwrap();
        assert_eq!((ended.outcome, ended.cause), (Outcome::Ended, None));
        assert_eq!(ended.token.to_string(), "gw/r1");
        for wrong in [v1::Outcome::Failed, v1::Outcome::Connected] {
            assert_eq!(
                fields(outcome(wrong, Some(77))),
                ["cause"],
                "a number that means nothing is a mistake"
            );
        }
        assert_eq!(fields(outcome(v1::Outcome::Unspecified, None)), ["outcome"]);
    }

    #[test]
    fn an_apply_names_every_fault_and_the_known_profiles() {
        let msg = v1::ApplyPoolRequest {
            profile: Some("domino ".to_owned()),
            policy: Some(v1::Policy { method: Some(99), ..Default::default() }),
            ..Default::default()
        };
        let faults = apply_pool(msg).unwrap_err();
        assert_eq!(
            faults[1].to_string(),
            "profile = \"domino \": allowed identical, mixed, unlike, ssh-login, domino, web"
        );
        assert_eq!((faults[0].field.as_str(), faults[2].field.as_str()), ("pool", "method"));
        let msg = v1::ApplyPoolRequest {
            pool: "mail".to_owned(),
            profile: Some("domino".to_owned()),
            must_be_new: true,
            ..Default::default()
        };
        let taken = apply_pool(msg).unwrap();
        assert_eq!((taken.profile, taken.change), (Some(Profile::Domino), PolicyChange::default()));
        assert!(taken.must_be_new && !taken.dry_run);
    }

    #[test]
    fn a_filter_that_is_empty_is_not_taken_for_everything() {
        let empty = || Some(String::new());
        let decisions =
            v1::ListDecisionsRequest { user: empty(), host: empty(), pool: empty(), ..Default::default() };
        assert_eq!(fields(list_decisions(decisions)), ["user", "host", "pool"]);
        let sessions = v1::ListSessionsRequest { user: empty(), host: empty(), pool: empty() };
        assert_eq!(fields(list_sessions(sessions)), ["user", "host", "pool"]);
        let everything = SessionFilter { user: None, host: None, pool: None };
        assert_eq!(list_sessions(v1::ListSessionsRequest::default()), Ok(everything));
    }

    #[test]
    fn no_limit_is_a_hundred_and_more_than_a_thousand_is_refused() {
        let limited = |limit| {
            let msg = v1::ListDecisionsRequest { limit, since_ms: Some(1500), ..Default::default() };
            list_decisions(msg).map(|filter| (filter.since, filter.limit))
        };
        let since = Some(Duration::from_millis(1500));
        for (limit, taken) in [(None, 100), (Some(0), 100), (Some(1), 1), (Some(1000), 1000)] {
            assert_eq!(limited(limit), Ok((since, taken)));
        }
        assert_eq!(fields(limited(Some(1001))), ["limit"]);
        let history = v1::GetPoolHistoryRequest { pool: "desk".to_owned(), limit: Some(u32::MAX) };
        assert_eq!(fields(pool_history(history)), ["limit"]);
    }

    #[test]
    fn requests_about_one_thing_name_it() {
        assert_eq!(fields(pool_history(v1::GetPoolHistoryRequest::default())), ["pool"]);
        assert_eq!(fields(diff_pool(v1::DiffPoolRequest::default())), ["pool"]);
        assert_eq!(fields(get_baselines(v1::GetBaselinesRequest::default())), ["host"]);
        assert_eq!(fields(locate_resource(v1::LocateResourceRequest::default())), ["resource"]);
        let wrong = v1::ResetBaselinesRequest { operation: Some("a b".to_owned()), ..Default::default() };
        assert_eq!(fields(reset_baselines_request(wrong)), ["host", "operation"]);
        let from = v1::DiffPoolRequest { pool: "desk".to_owned(), from: Some(0), to: None };
        assert_eq!(diff_pool(from).unwrap().from, Some(0), "0 is the defaults");
    }
}
