//! What does a message of a coordinator want?
//!
//! Every message is checked before it reaches the host. One that cannot be understood is logged with the field that is
//! wrong and left alone: the stream goes on, because everything else that the coordinator says may be right.

use std::time::Duration;

use tokio::sync::mpsc;
use usher_proto::v1;
use usher_proto::v1::attach_response::Message;
use usher_proto::{ExpectSession, PoolSettings, read};
use usher_types::FieldFault;

use crate::host::{Answer, HostCommand, VersionedPolicy};

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
    },
    /// Something of the host.
    Host(HostCommand),
    /// An answer, at once.
    Answer(Answer),
    /// That the agent connects again later.
    GoElsewhere(String),
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
        Message::Tick(tick) => Wanted::Tick {
            tick: tick.tick,
            spread: tick.reconnect_spread_ms.map(|ms| Duration::from_millis(u64::from(ms))),
        },
        Message::PoolSettings(settings) => {
            let told = read::pool_settings(settings).map_err(Misread::many("the settings"))?;
            let PoolSettings { pool, version, policy, drain: _ } = told;
            let settings = Box::new(VersionedPolicy { version, policy });
            Wanted::Host(HostCommand::Settings { from, pool, settings })
        }
        Message::ExpectSession(expect) => {
            let told = read::expect_session(expect).map_err(Misread::one("a place"))?;
            let ExpectSession { place, ask, max_users } = told;
            Wanted::Host(HostCommand::Expect { place, ask, limit: max_users.finite(), reply: reply.clone() })
        }
        Message::EndPlace(end) => {
            let end = read::end_place(end).map_err(Misread::one("the end of a place"))?;
            Wanted::Host(HostCommand::End { token: end.token, attempt: end.attempt, reason: end.reason })
        }
        Message::OutcomeNotice(notice) => {
            let notice = read::outcome_notice(notice).map_err(Misread::one("an outcome"))?;
            Wanted::Host(HostCommand::Outcome { token: notice.token, outcome: notice.outcome })
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
        Message::Ping(ping) => Wanted::Answer(Answer::Pong { nonce: ping.nonce }),
        Message::GoElsewhere(hint) => Wanted::GoElsewhere(hint.reason),
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
        let expect = v1::ExpectSession { place: Some(place), ask: true, max_users: None };
        let error = read_one(Some(Message::ExpectSession(expect))).unwrap_err().to_string();
        assert!(error.contains("a place") && error.contains("request_id"), "{error}");
    }

    #[test]
    fn settings_that_are_out_of_range_are_refused() {
        let policy = v1::Policy { range: Some(f64::NAN), ..v1::Policy::default() };
        let settings =
            v1::PoolSettings { pool: "desk".into(), version: 1, policy: Some(policy), drain: None };
        let error = read_one(Some(Message::PoolSettings(settings))).unwrap_err().to_string();
        assert!(error.contains("range"), "{error}");
    }

    #[test]
    fn a_ping_wants_its_answer() {
        let ping = Message::Ping(v1::Ping { nonce: 7 });
        assert!(matches!(read_one(Some(ping)), Ok(Wanted::Answer(Answer::Pong { nonce: 7 }))));
    }
}
