//! The host's word on a place: asked where its number of users is limited, told everywhere else.

use std::sync::Arc;

use usher_placement::{
    decision::Excluded,
    farm::{HostView, PoolView},
    reservation::{Grant, GrantState},
};
use usher_proto::{self as proto, v1::attach_response::Message};
use usher_types::EndReason;

use super::{ASK_ONE, Placing, ends};
use crate::{history::Consent, metrics::ConsentAnswer, shared::Shared};

/// What the host said.
pub(super) enum Consented {
    Yes,
    No(Excluded),
}

impl Placing<'_> {
    /// Asks the host for a place that is counted already.
    pub(super) async fn consent(&mut self, grant: &Grant, host: &HostView, pool: &PoolView) -> Consented {
        let host_id = &host.facts.host_id;
        let Some(place) = grant.to_place(self.shared.now()) else { return Consented::No(Excluded::NoAnswer) };
        let ask = proto::write::expect_session(&proto::ExpectSession {
            place,
            ask: true,
            max_users: host.max_users(&pool.policy),
        });
        let key = (grant.token.clone(), grant.attempt());
        let limit = self.left(ASK_ONE);
        let answer = self.shared.links.ask_consent(host_id, ask, key, limit).await;
        let (consented, said) = match answer {
            // Ended meanwhile: its host went away, or the gateway gave it up.
            Some(Ok(())) if !grant.admit() && grant.state() != GrantState::Live => {
                (Consented::No(Excluded::NoAnswer), ConsentAnswer::Silent)
            }
            Some(Ok(())) => (Consented::Yes, ConsentAnswer::Admitted),
            Some(Err(_)) => (Consented::No(Excluded::RefusedConsent), ConsentAnswer::Refused),
            None => {
                // A host that was given less time than it may take has not failed to answer.
                if limit == ASK_ONE {
                    grant.cell.set_silent(true);
                }
                (Consented::No(Excluded::NoAnswer), ConsentAnswer::Silent)
            }
        };
        self.shared.metrics.consent_answered(said);
        let answer = match said {
            ConsentAnswer::Admitted => "ADMITTED",
            ConsentAnswer::Refused => "REFUSED",
            ConsentAnswer::Silent => "SILENT",
        };
        self.consents.push(Consent { host_name: host.facts.name.to_string(), answer });
        consented
    }
}

/// A place that is taken back unless it is kept: whatever ends the call early ends the place.
pub(super) struct Taken<'a> {
    shared: &'a Shared,
    grant: Arc<Grant>,
    kept: bool,
}

impl<'a> Taken<'a> {
    pub(super) fn new(shared: &'a Shared, grant: Arc<Grant>) -> Self {
        Self { shared, grant, kept: false }
    }

    /// The caller has its answer.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.kept {
            ends::end(self.shared, &self.grant, EndReason::Cancelled);
        }
    }
}

/// Tells the host of a place that counts. Without a stream it is told when it connects again.
pub(super) fn tell(shared: &Shared, grant: &Grant) {
    if !grant.counts() {
        return;
    }
    let Some(place) = grant.to_place(shared.now()) else { return };
    let expect = proto::ExpectSession { place, ask: false, max_users: usher_types::UserLimit::Unlimited };
    shared.links.send(&grant.host_id, Message::ExpectSession(proto::write::expect_session(&expect)));
}
