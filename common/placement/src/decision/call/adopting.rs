//! A retry of what another coordinator has given.
//!
//! This one knows the place from its host's list, and whoever gave it may be taking it back at this moment, because its caller
//! waits no longer: then the host has given the seat to another before it hears of the retry. So a host that gives its places
//! itself is asked, under the attempt of the retry. If it has the place still, it keeps it, and an end of the attempt before
//! means nothing to it; if not, it gives it anew or refuses.

use std::{sync::Arc, time::Duration};

use usher_types::{BootTime, EndReason, RefusalReason};

use super::{Call, Consent, ConsentAsked, Denied, Next, Stage, Step};
use crate::{
    decision::{Excluded, Limits, ends::end},
    farm::PoolView,
    reservation::Grant,
};

/// The host of a place that another coordinator gave is being asked for it.
#[derive(Debug)]
pub(super) struct Adopting {
    pool: Arc<PoolView>,
    position: u32,
    pub(super) grant: Arc<Grant>,
    asked_for: Duration,
    pub said: Option<Consent>,
}

impl Adopting {
    /// Whether nobody else answers with the place: it was given under an earlier attempt than this one, and not asked for again.
    pub(super) fn is_alone(&self, attempt: u32) -> bool {
        self.grant.is_hearsay() && self.grant.made_under < attempt && self.grant.attempt() == attempt
    }
}

impl Call {
    /// Asks the host for a place that is known from its list. Absent: it need not be asked, or cannot.
    pub(super) fn adopt(
        &mut self,
        pool: &Arc<PoolView>,
        position: u32,
        grant: &Arc<Grant>,
        now: BootTime,
    ) -> Next {
        let host = &pool.hosts[position as usize];
        let limits = Limits::of(host, &pool.policy);
        if !grant.is_hearsay() || !limits.any() || !host.can_be_asked() {
            return None;
        }
        let (place, within) = (grant.to_place(now)?, self.ask_for(now));
        let (pool, grant) = (pool.clone(), grant.clone());
        let ask = limits.ask(grant.host_id.clone(), place, within);
        self.stage =
            Stage::Adopting(Box::new(Adopting { pool, position, grant, asked_for: within, said: None }));
        Some(Step::Ask(ask))
    }

    pub(super) fn after_adoption(&mut self, adopting: Adopting, now: BootTime) -> Next {
        let Adopting { pool, position, grant, asked_for, said } = adopting;
        let said = self.heard(&grant, &pool, position, said, asked_for);
        match said {
            Consent::Admitted if grant.counts() => {
                grant.adopt();
                let decision_id = grant.decision_id.clone();
                return Some(Self::repeated(pool, position, Some(grant), decision_id));
            }
            // It ended while its host was asked: that end may be its answer.
            Consent::Admitted => self.stage = Stage::Arriving,
            Consent::Refused(RefusalReason::Reused) => return Some(Self::denied(Denied::Reused)),
            Consent::Refused(_) | Consent::Silent => {
                self.messages.extend(end(&grant, EndReason::Cancelled, now));
                self.attempt = grant.anew(self.request.attempt);
                let why = match said {
                    // Whoever gave it took it back before the host heard of the retry: under a higher attempt it may have room.
                    Consent::Refused(RefusalReason::Ended) => None,
                    Consent::Refused(_) => Some(Excluded::RefusedConsent),
                    _ => Some(Excluded::NoAnswer),
                };
                self.unwilling.extend(why.map(|why| (grant.host_id.clone(), why)));
                self.stage = Stage::Deciding;
            }
        }
        None
    }

    /// Notes what a host said to being asked.
    pub(super) fn heard(
        &mut self,
        grant: &Grant,
        pool: &PoolView,
        position: u32,
        said: Option<Consent>,
        asked_for: Duration,
    ) -> Consent {
        let said = said.unwrap_or(Consent::Silent);
        if said == Consent::Silent && asked_for == super::acting::ASK_ONE {
            // One that was given less time than it may take has not failed to answer.
            grant.cell.set_silent(true);
        }
        let host_name = pool.hosts[position as usize].facts.name.clone();
        self.consents.push(ConsentAsked { host_name, said });
        said
    }
}
