//! What became of logins, and what holds against a host for it?

use std::time::Duration;

use usher_types::{FailureCause, FieldFault, GatewayId, Outcome, Penalty, ToldOutcome};

use super::place::{MAX_LEFT_MS, token};
use crate::{
    enums,
    fault::{id, whole},
    messages::OutcomeNotice,
    v1,
};

/// Only a failure has a cause; where something else does, or where it is unspecified, it says nothing.
pub(super) fn cause_of(
    outcome: Option<Outcome>,
    number: Option<i32>,
) -> Result<Option<FailureCause>, FieldFault> {
    let cause = match number {
        None | Some(0) => None,
        Some(number) => Some(enums::failure_cause("cause", number)?),
    };
    Ok(cause.filter(|_| outcome == Some(Outcome::Failed)))
}

/// What a gateway said of a login.
///
/// # Errors
/// The first field that is refused.
pub fn outcome_notice(msg: v1::OutcomeNotice) -> Result<OutcomeNotice, FieldFault> {
    let outcome = enums::outcome("outcome", msg.outcome)?;
    Ok(OutcomeNotice {
        token: token(msg.token)?,
        outcome,
        cause: cause_of(Some(outcome), msg.cause)?,
        succeeded_elsewhere: msg.succeeded_elsewhere,
    })
}

/// What a host was told of a login.
///
/// # Errors
/// The first field that is refused.
pub fn told_outcome(msg: v1::ToldOutcome) -> Result<ToldOutcome, FieldFault> {
    let outcome = enums::outcome("outcome", msg.outcome)?;
    Ok(ToldOutcome {
        token: token(msg.token)?,
        outcome,
        cause: cause_of(Some(outcome), msg.cause)?,
        age: Duration::from_millis(msg.age_ms),
        succeeded_elsewhere: msg.succeeded_elsewhere,
    })
}

/// What holds against a host.
///
/// # Errors
/// The first field that is refused.
pub fn penalty(msg: v1::Penalty) -> Result<Penalty, FieldFault> {
    Ok(Penalty {
        gateway: msg.gateway.map(|text| id::<GatewayId>("gateway", &text)).transpose()?,
        cause: enums::penalty_cause("cause", msg.cause)?,
        left: Duration::from_millis(whole("left_ms", msg.left_ms, 0..=MAX_LEFT_MS)?),
        times: whole("times", msg.times, 1..=u32::MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(outcome: v1::Outcome, cause: Option<i32>) -> Result<OutcomeNotice, FieldFault> {
        let token = Some(v1::Token { gateway: "gw".to_owned(), request_id: "r1".to_owned() });
        outcome_notice(v1::OutcomeNotice { token, outcome: outcome.into(), cause, ..Default::default() })
    }

    #[test]
    fn a_notice_of_a_coordinator_of_0_1_has_no_cause() {
        let told = notice(v1::Outcome::Failed, None).unwrap();
        assert_eq!((told.cause, told.succeeded_elsewhere), (None, false));
    }

    #[test]
    fn a_cause_belongs_to_a_failure() {
        assert_eq!(notice(v1::Outcome::Failed, Some(1)).unwrap().cause, Some(FailureCause::Busy));
        assert_eq!(notice(v1::Outcome::Connected, Some(1)).unwrap().cause, None);
        assert_eq!(notice(v1::Outcome::Failed, Some(6)).unwrap_err().field, "cause");
    }

    #[test]
    fn a_penalty_is_refused_at_its_first_wrong_field() {
        let valid = v1::Penalty { gateway: None, cause: 1, left_ms: 0, times: 1 };
        assert_eq!(penalty(valid.clone()).unwrap().left, Duration::ZERO);
        let refused = |change: fn(&mut v1::Penalty)| {
            let mut msg = valid.clone();
            change(&mut msg);
            penalty(msg).unwrap_err().field
        };
        assert_eq!(refused(|msg| msg.gateway = Some(String::new())), "gateway");
        assert_eq!(refused(|msg| msg.cause = 0), "cause");
        assert_eq!(refused(|msg| msg.left_ms = u64::MAX), "left_ms");
        assert_eq!(refused(|msg| msg.times = 0), "times");
    }
}
