//! What hosts are told, put on their streams.

use usher_placement::decision::{HostMessage, ToHost};
use usher_proto::{self as proto, v1::attach_response::Message, write};
use usher_types::{PendingLimit, UserLimit};

use crate::shared::Shared;

/// Tells hosts, in order. One without a stream is told of its places when it connects again.
pub(super) fn all(shared: &Shared, messages: Vec<ToHost>) {
    for ToHost { host_id, message } in messages {
        shared.links.send(&host_id, to_wire(message));
    }
}

fn to_wire(message: HostMessage) -> Message {
    match message {
        HostMessage::Expect(place) => {
            let (max_users, max_pending) = (UserLimit::Unlimited, PendingLimit::Unlimited);
            let expect = proto::ExpectSession { place, ask: false, max_users, max_pending };
            Message::ExpectSession(write::expect_session(&expect))
        }
        HostMessage::End { token, attempt, reason } => {
            Message::EndPlace(write::end_place(&proto::EndPlace { token, attempt, reason }))
        }
        HostMessage::Outcome { token, outcome, cause, succeeded_elsewhere } => {
            let notice = proto::OutcomeNotice { token, outcome, cause, succeeded_elsewhere };
            Message::OutcomeNotice(write::outcome_notice(&notice))
        }
    }
}
