//! What does a message of a coordinator want?
//!
//! Every message is checked before it reaches the host. One that cannot be understood is logged with the field that is
//! wrong and left alone: the stream goes on, because everything else that the coordinator says may be right.

use std::time::Duration;

use tokio::sync::mpsc;
use usher_placement::host::{Limits, VersionedSettings};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message;
use usher_proto::{ExpectSession, OutcomeNotice, PoolSettings, SetDrain, SetDrainAnswer, Tick, read};
use usher_types::{FieldFault, ToldOutcome};

use crate::host::{Answer, HostCommand};

/// What one message wants.
#[derive(Debug)]
pub(super) enum Wanted {
    /// The coordinator greets.
    Welcome {
        /// Its store.
        coordinator_id: String,
        /// Its start.
        instance_id: String,
        /// Bound of the wait before a reconnect.
        spread: Duration,
    },
    /// Echo this from now on.
    Tick {
        /// The tick.
        tick: u64,
        /// Another bound of the wait before a reconnect.
        spread: Option<Duration>,
        /// Since a place on another host of the pool became a session.
        confirmed_elsewhere: Option<Duration>,
    },
    /// Something of the host.
    Host(HostCommand),
    /// That the host keeps a drain.
    Drain(SetDrain),
    /// An answer, at once.
    Answer(Answer),
    /// That the agent connects again later.
    GoElsewhere {
        /// Why.
        reason: String,
        /// After which time that is of use, as far as it knows.
        back_in: Option<Duration>,
    },
    /// Nothing that we know: a newer coordinator's word.
    Nothing,
}

/// A message that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} of the coordinator: {faults}")]
pub(super) struct Misread {
    what: &'static str,
    faults: String,
}

impl Misread {
    fn one(what: &'static str) -> impl Fn(FieldFault) -> Self {
        move |fault| Self { what, faults: fault.to_string() }
    }

    fn many(what: &'static str) -> impl Fn(Vec<FieldFault>) -> Self {
        move |faults| {
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            Self { what, faults: faults.join("; ") }
        }
    }
}

/// What `message` of the coordinator number `from` wants; `reply` is where the host's answers go.
pub(super) fn wanted(
    message: v1::AttachResponse,
    from: usize,
    reply: &mpsc::Sender<Answer>,
) -> Result<Wanted, Misread> {
    let Some(message) = message.message else { return Ok(Wanted::Nothing) };
    Ok(match message {
        Message::Welcome(welcome) => Wanted::Welcome {
            coordinator_id: welcome.coordinator_id,
            instance_id: welcome.instance_id,
            spread: Duration::from_millis(u64::from(welcome.reconnect_spread_ms)),
        },
        Message::Tick(tick) => {
            let Tick { tick, reconnect_spread: spread, confirmed_elsewhere } = read::tick(tick);
            Wanted::Tick { tick, spread, confirmed_elsewhere }
        }
        Message::PoolSettings(settings) => {
            let told = read::pool_settings(settings).map_err(Misread::many("the settings"))?;
            // The admin's drain is for the coordinators, which know it.
            let PoolSettings { pool, version, policy, drain: _, marks, hash } = told;
            let marks = marks.unwrap_or_default();
            let settings = Box::new(VersionedSettings { version, policy, hash, marks });
            Wanted::Host(HostCommand::Settings { from, pool, settings })
        }
        Message::ExpectSession(expect) => {
            let told = read::expect_session(expect).map_err(Misread::one("a place"))?;
            let ExpectSession { place, ask, max_users, max_pending } = told;
            let limits = Limits { max_users: max_users.finite(), max_pending: max_pending.finite() };
            Wanted::Host(HostCommand::Expect { from, place, ask, limits, reply: reply.clone() })
        }
        Message::EndPlace(end) => {
            let end = read::end_place(end).map_err(Misread::one("the end of a place"))?;
            Wanted::Host(HostCommand::End { token: end.token, attempt: end.attempt, reason: end.reason })
        }
        Message::OutcomeNotice(notice) => {
            let notice = read::outcome_notice(notice).map_err(Misread::one("an outcome"))?;
            let OutcomeNotice { token, outcome, cause, succeeded_elsewhere } = notice;
            let told = ToldOutcome { token, outcome, cause, age: Duration::ZERO, succeeded_elsewhere };
            Wanted::Host(HostCommand::Outcome(told))
        }
        Message::SessionCheck(check) => {
            let check = read::session_check(check).map_err(Misread::one("a session check"))?;
            Wanted::Host(HostCommand::CheckSession {
                check_id: check.check_id,
                session_id: check.session_id,
                user: check.user,
                reply: reply.clone(),
            })
        }
        Message::ResetBaselines(reset) => {
            let reset = read::reset_baselines(reset).map_err(Misread::one("a reset of baselines"))?;
            Wanted::Host(HostCommand::ResetBaselines { operation: reset.operation })
        }
        Message::SetDrain(set) => {
            let nonce = set.nonce;
            match read::set_drain(set) {
                Ok(set) => Wanted::Drain(set),
                // An admin waits for it.
                Err(fault) => {
                    let outcome = Err(fault.to_string());
                    Wanted::Answer(Answer::Drain(SetDrainAnswer { nonce, outcome }))
                }
            }
        }
        Message::Ping(ping) => Wanted::Answer(Answer::Pong { nonce: ping.nonce }),
        Message::GoElsewhere(hint) => Wanted::GoElsewhere {
            reason: hint.reason,
            back_in: hint.back_in_ms.map(|ms| Duration::from_millis(ms.into())),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(message: Option<Message>) -> Result<Wanted, Misread> {
        let (reply, _answers) = mpsc::channel(1);
        wanted(v1::AttachResponse { message }, 0, &reply)
    }

    #[test]
    fn a_message_of_a_newer_coordinator_wants_nothing() {
        assert!(matches!(read_one(None), Ok(Wanted::Nothing)));
    }

    #[test]
    fn a_place_without_a_request_is_refused_by_its_field() {
        let place = v1::PendingPlace {
            token: Some(v1::Token { gateway: "g".into(), request_id: String::new() }),
            attempt: 1,
            cost: 1,
            ..v1::PendingPlace::default()
        };
        let expect = v1::ExpectSession { place: Some(place), ask: true, ..v1::ExpectSession::default() };
        let error = read_one(Some(Message::ExpectSession(expect))).unwrap_err().to_string();
        assert!(error.contains("a place") && error.contains("request_id"), "{error}");
    }

    #[test]
    fn settings_that_are_out_of_range_are_refused() {
        let policy = v1::Policy { range: Some(f64::NAN), ..v1::Policy::default() };
        let pool = "desk".to_owned();
        let settings =
            v1::PoolSettings { pool, version: 1, policy: Some(policy), ..v1::PoolSettings::default() };
        let error = read_one(Some(Message::PoolSettings(settings))).unwrap_err().to_string();
        assert!(error.contains("range"), "{error}");
    }

    #[test]
    fn a_drain_of_an_unknown_kind_is_answered_because_an_admin_waits() {
        let set = v1::SetDrain { nonce: 9, drain: Some(v1::Drain { mode: 77, ..v1::Drain::default() }) };
        let Ok(Wanted::Answer(Answer::Drain(answer))) = read_one(Some(Message::SetDrain(set))) else {
            panic!("an answer")
        };
        assert!(answer.nonce == 9 && answer.outcome.unwrap_err().contains("drain.mode"));
        let end = v1::SetDrain { nonce: 10, drain: None };
        let wanted = read_one(Some(Message::SetDrain(end)));
        assert!(matches!(wanted, Ok(Wanted::Drain(SetDrain { nonce: 10, drain: None }))), "{wanted:?}");
    }

    #[test]
    fn a_ping_wants_its_answer() {
        let ping = Message::Ping(v1::Ping { nonce: 7 });
        assert!(matches!(read_one(Some(ping)), Ok(Wanted::Answer(Answer::Pong { nonce: 7 }))));
    }

    #[test]
    fn a_failure_is_told_with_its_cause_and_whether_its_gateway_succeeds_elsewhere() {
        let notice = v1::OutcomeNotice {
            token: Some(v1::Token { gateway: "g".into(), request_id: "R1".into() }),
            outcome: v1::Outcome::Failed.into(),
            cause: Some(v1::FailoverCause::Refused.into()),
            succeeded_elsewhere: true,
        };
        let Ok(Wanted::Host(HostCommand::Outcome(told))) = read_one(Some(Message::OutcomeNotice(notice)))
        else {
            panic!("an outcome")
        };
        assert_eq!((told.cause, told.succeeded_elsewhere), (Some(usher_types::FailureCause::Refused), true));
    }

    #[test]
    fn a_reset_of_an_operation_that_cannot_be_one_is_refused() {
        let reset = |operation: &str| {
            let reset = v1::ResetBaselines { operation: Some(operation.into()) };
            read_one(Some(Message::ResetBaselines(reset)))
        };
        assert!(matches!(
            reset("logon"),
            Ok(Wanted::Host(HostCommand::ResetBaselines { operation: Some(_) }))
        ));
        assert!(reset("log on").is_err());
    }
}
