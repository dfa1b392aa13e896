//! Who is worth looking at in a pool too large to be looked at as a whole?
//!
//! Looking at a host costs two or three nanoseconds, so a few hundred of them cost less than the call that asks; a hundred
//! thousand do not. The best of some hosts drawn at random is nearly as good as the best of all: of 16 it is one of the
//! best 6 % on average, and in a storm of logins, where the hosts of a class are much alike, nobody can tell. So the
//! classes are looked up once for each snapshot, a decision draws from the best of them, and what it drew it looks at as it
//! is now: a host that has filled up since, or fallen silent, is as little a candidate as in any other pool.
//!
//! What a host's load is compared with is that of the snapshot. If the draw finds too few of the class that it was made
//! from, it is repeated once with more, and then the whole pool is looked at. So it is for requests that few hosts can
//! serve, where the method ranks all (`fill_first`), and where something is wrong with most of the pool.

use std::sync::Arc;

use rand::{SeedableRng, seq::index};
use rand_pcg::Pcg64Mcg;
use usher_types::{BootTime, Method};

use super::{
    Assessment, Decision, Inputs, Request, UserTrace,
    order::{Class, code},
    scan::Scan,
    words::Words,
};
use crate::{farm::PoolView, load::Scale};

/// Pools and lists of holders up to this size are looked at as a whole, which costs as much as a draw does. With twice as
/// many, decisions cost twice as much just below it as above.
const LOOKED_AT: usize = 512;
/// Hosts drawn. In modelled storms among 1000 and 10 000 hosts the 99th percentile of logon times is within 1 % of that of
/// whole pools looked at. With twice as many it is within 0.5 %, and a decision costs half as much again.
const DRAWN: usize = 16;
/// The same for the second draw: enough where one host in thirty fits.
const DRAWN_AGAIN: usize = 256;
/// Fewer than this of the best class would not do: see the draw among several coordinators.
const ENOUGH: usize = 4;
/// Draws and ties must not depend on each other.
const OTHER_SEED: u64 = 0x6372_6f77_6464_7277;

/// The hosts of a large pool by class, as of a snapshot.
#[derive(Debug)]
pub(crate) struct Crowd {
    scale: Scale,
    /// Hosts by code, the best first; of those that are no candidates none.
    classes: Vec<(u8, Vec<u32>)>,
}

/// How far a decision goes to find somebody.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    Draw,
    DrawAgain,
    LookAtAll,
}

impl Effort {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Draw => Self::DrawAgain,
            Self::DrawAgain | Self::LookAtAll => Self::LookAtAll,
        }
    }

    const fn drawn(self) -> usize {
        match self {
            Self::Draw => DRAWN,
            Self::DrawAgain => DRAWN_AGAIN,
            Self::LookAtAll => usize::MAX,
        }
    }
}

impl Crowd {
    /// Of a pool as it is at `now`. Absent: it is looked at as a whole.
    pub(crate) fn of(pool: &PoolView, now: BootTime) -> Option<Arc<Self>> {
        let is_large = pool.hosts.len() > LOOKED_AT && pool.policy.method != Method::FillFirst;
        if is_large { Self::of_any(pool, now) } else { None }
    }

    /// The same of a pool of any size.
    pub(super) fn of_any(pool: &PoolView, now: BootTime) -> Option<Arc<Self>> {
        let (words, request, user) =
            (pool.words(), Request::of_nobody(pool.name.clone()), UserTrace::default());
        let inputs = Inputs {
            pool,
            words: Words::All(&words),
            request: &request,
            user: &user,
            unwilling: &[],
            doors: &[],
            now,
            seed: 0,
        };
        let mut assessment = Assessment::new(&inputs);
        let codes = Scan::codes_of(&mut assessment, &words);
        let mut counts = [0usize; 256];
        codes.iter().for_each(|code| counts[usize::from(*code)] += 1);
        counts[usize::from(code::NONE)] = 0;
        let mut classes: Vec<(u8, Vec<u32>)> = (0u8..=code::NONE)
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .map(|(code, count)| (code, Vec::with_capacity(count)))
            .collect();
        let mut at = [usize::MAX; 256];
        classes.iter().enumerate().for_each(|(n, (code, _))| at[usize::from(*code)] = n);
        for (position, code) in (0u32..).zip(&codes) {
            if let Some((_, hosts)) = classes.get_mut(at[usize::from(*code)]) {
                hosts.push(position);
            }
        }
        let (code, _) = classes.first()?;
        let best = Class::of_code(*code);
        let is_well = !best.silent && !best.penalised && best.tier.state().is_eligible();
        is_well.then(|| Arc::new(Self { scale: *assessment.scale(), classes }))
    }

    pub(super) fn scale(&self) -> &Scale {
        &self.scale
    }

    /// What it keeps in memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.classes.iter().map(|(_, hosts)| size_of_val(hosts.as_slice())).sum::<usize>()
    }

    /// The positions of the hosts to look at, in ascending order. Absent: all.
    pub(super) fn draw(&self, inputs: &Drawing<'_>, effort: Effort) -> Option<Vec<u32>> {
        let Drawing { pool, request, user, seed } = *inputs;
        if effort == Effort::LookAtAll {
            return None;
        }
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ OTHER_SEED);
        let mut drawn = Vec::with_capacity(effort.drawn() + 8);
        let mut draw_from = |hosts: &[u32], most: usize| {
            if hosts.len() <= most {
                drawn.extend_from_slice(hosts);
            } else {
                drawn.extend(index::sample(&mut rng, hosts.len(), most).into_iter().map(|n| hosts[n]));
            }
            drawn.len()
        };
        match &request.resource {
            Some(resource) => {
                let holders = pool.replicas.get(resource)?;
                let most = if holders.len() <= LOOKED_AT { LOOKED_AT } else { effort.drawn() };
                draw_from(holders, most);
            }
            None => {
                let mut left = effort.drawn();
                for (_, hosts) in &self.classes {
                    left = effort.drawn().saturating_sub(draw_from(hosts, left));
                    if left == 0 {
                        break;
                    }
                }
            }
        }
        drawn.extend(named_hosts(pool, request, user));
        drawn.sort_unstable();
        drawn.dedup();
        Some(drawn)
    }

    /// Whether what a draw found is as good as what the whole pool has.
    pub(super) fn is_enough(&self, inputs: &Inputs<'_>, decision: &Decision, scan: &Scan) -> bool {
        match decision {
            Decision::OwnSession { .. } | Decision::OwnPlace { .. } => return true,
            Decision::TryDoors(_) | Decision::Refused(_) => return false,
            Decision::Take(_) => {}
        }
        let (Some(best), Some((first, hosts))) = (scan.best(), self.classes.first()) else { return false };
        let (found, there_is) = (Class::of_code(best), Class::of_code(*first));
        let is_well = !found.silent && !found.penalised && found.tier.state().is_eligible();
        let holders =
            inputs.request.resource.as_ref().and_then(|resource| inputs.pool.replicas.get(resource));
        if holders.is_some_and(|holders| holders.len() <= LOOKED_AT) {
            return is_well;
        }
        // In which zone the hosts of a class are is not known.
        let zone = inputs.request.client_zone.as_ref();
        let is_near = !found.far || zone.is_none_or(|zone| !inputs.pool.zones.has(zone));
        is_well
            && is_near
            && Class { far: false, ..found } <= there_is
            && scan.count(best) >= ENOUGH.min(hosts.len())
    }

    /// Hosts of the best class.
    pub(super) fn best_class(&self) -> usize {
        self.classes.first().map_or(0, |(_, hosts)| hosts.len())
    }
}

/// What is drawn for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Drawing<'a> {
    pub(super) pool: &'a PoolView,
    pub(super) request: &'a Request,
    pub(super) user: &'a UserTrace,
    pub(super) seed: u64,
}

/// Hosts that the request is about, whoever is drawn.
fn named_hosts(pool: &PoolView, request: &Request, user: &UserTrace) -> impl Iterator<Item = u32> {
    let of_user = user.sessions.iter().map(|session| &session.host_id).chain(&user.places);
    let of_user = of_user.filter_map(|host_id| pool.members.position(host_id));
    let from = request.failover.as_ref().map(|failover| failover.from_host.as_str());
    let named = request.prefer_host.as_deref().into_iter().chain(from).filter_map(|host| pool.find(host));
    of_user.chain(named).filter_map(|position| u32::try_from(position).ok()).collect::<Vec<_>>().into_iter()
}
