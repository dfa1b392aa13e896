//! Where did a gateway's logins succeed lately?
//!
//! A login that fails says little: the gateway itself may be cut off. One that fails while another login of the same
//! gateway succeeds on another host of the pool speaks against the host. So the latest successes of each gateway are
//! remembered for a minute, those that came through this coordinator and those that hosts tell of.
//!
//! Two hosts for each gateway are enough: whatever host is asked about, one of the two is another.

use std::{sync::Arc, time::Duration};

use usher_types::{BootTime, GatewayId, HostId, KeyHasher, PoolName};

/// For how long a success speaks against other hosts.
const SUCCESS_COUNTS: Duration = Duration::from_secs(60);
/// Gateways of a farm are few; only a host that makes them up comes to as many in a minute.
const MOST_GATEWAYS: usize = 10_000;

/// The latest event and the host that it happened on, and the latest one on any other host.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestTwo {
    latest: Option<(HostId, BootTime)>,
    other: Option<(HostId, BootTime)>,
}

impl LatestTwo {
    /// It happened on `host_id` at `at`. Whether that is news.
    pub(crate) fn note(&mut self, host_id: &HostId, at: BootTime) -> bool {
        let is_later = |than: &Option<(HostId, BootTime)>| than.as_ref().is_none_or(|(_, known)| at > *known);
        let news = Some((host_id.clone(), at));
        if self.latest.as_ref().is_some_and(|(known, _)| known == host_id) {
            let later = is_later(&self.latest);
            if later {
                self.latest = news;
            }
            later
        } else if is_later(&self.latest) {
            self.other = std::mem::replace(&mut self.latest, news);
            true
        } else if is_later(&self.other) {
            self.other = news;
            true
        } else {
            false
        }
    }

    /// When it happened last on a host other than `host_id`.
    pub(crate) fn elsewhere(&self, host_id: &HostId) -> Option<BootTime> {
        let on_other = |event: &&(HostId, BootTime)| event.0 != *host_id;
        self.latest.as_ref().filter(on_other).or(self.other.as_ref()).map(|(_, at)| *at)
    }
}

/// The latest successes of every gateway in every pool. Noted and asked at the same time by many, without a lock.
#[derive(Debug, Default)]
pub struct GatewaySuccesses {
    by_gateway: papaya::HashMap<(PoolName, GatewayId), Arc<LatestTwo>, KeyHasher>,
}

impl GatewaySuccesses {
    /// A login through `gateway` succeeded on a host of the pool at `at`.
    pub fn note(&self, pool: &PoolName, gateway: &GatewayId, host_id: &HostId, at: BootTime) {
        let by_gateway = self.by_gateway.pin();
        let key = (pool.clone(), gateway.clone());
        if by_gateway.len() >= MOST_GATEWAYS && !by_gateway.contains_key(&key) {
            return;
        }
        by_gateway.compute(key, |entry| {
            let mut two = entry.map_or_else(LatestTwo::default, |(_, two)| (**two).clone());
            if two.note(host_id, at) {
                papaya::Operation::Insert(Arc::new(two))
            } else {
                papaya::Operation::Abort(())
            }
        });
    }

    /// Whether a login through `gateway` succeeded on another host of the pool in the minute before `now`.
    pub fn elsewhere(&self, pool: &PoolName, gateway: &GatewayId, host_id: &HostId, now: BootTime) -> bool {
        let by_gateway = self.by_gateway.pin();
        let at = by_gateway.get(&(pool.clone(), gateway.clone())).and_then(|two| two.elsewhere(host_id));
        at.is_some_and(|at| now.since(at) <= SUCCESS_COUNTS)
    }

    /// Forgets what counts no more at `now`.
    pub(crate) fn sweep(&self, now: BootTime) {
        let counts =
            |two: &LatestTwo| two.latest.as_ref().is_some_and(|(_, at)| now.since(*at) <= SUCCESS_COUNTS);
        self.by_gateway.pin().retain(|_, two| counts(two));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(1_000_000 + seconds * 1000)
    }

    fn names() -> (PoolName, GatewayId, [HostId; 3]) {
        let host = |name| HostId::new(name).unwrap();
        (PoolName::new("desk").unwrap(), GatewayId::new("g1").unwrap(), [host("a"), host("b"), host("c")])
    }

    #[test]
    fn a_success_speaks_against_other_hosts_for_a_minute() {
        let (pool, gateway, [a, b, _]) = names();
        let successes = GatewaySuccesses::default();
        successes.note(&pool, &gateway, &a, at(0));
        assert!(!successes.elsewhere(&pool, &gateway, &a, at(0)), "its own success is not elsewhere");
        assert!(successes.elsewhere(&pool, &gateway, &b, at(60)));
        assert!(!successes.elsewhere(&pool, &gateway, &b, at(61)));
        assert!(!successes.elsewhere(&pool, &GatewayId::new("g2").unwrap(), &b, at(0)));
        assert!(!successes.elsewhere(&PoolName::new("web").unwrap(), &gateway, &b, at(0)));
    }

    #[test]
    fn two_hosts_are_remembered_in_whatever_order_they_are_told() {
        let (_, _, [a, b, c]) = names();
        for order in [[(&a, 1), (&b, 2), (&c, 3)], [(&c, 3), (&a, 1), (&b, 2)], [(&b, 2), (&c, 3), (&a, 1)]] {
            let mut two = LatestTwo::default();
            for (host, seconds) in order {
                two.note(host, at(seconds));
            }
            assert!(!two.note(&a, at(1)), "told again");
            let elsewhere = [&a, &b, &c].map(|host| two.elsewhere(host));
            assert_eq!(elsewhere, [Some(at(3)), Some(at(3)), Some(at(2))]);
        }
    }

    #[test]
    fn what_counts_no_more_is_forgotten_and_made_up_gateways_fill_no_memory() {
        let (pool, gateway, [a, b, _]) = names();
        let successes = GatewaySuccesses::default();
        successes.note(&pool, &gateway, &a, at(0));
        for n in 0..MOST_GATEWAYS {
            successes.note(&pool, &GatewayId::new(format!("made-up-{n}")).unwrap(), &a, at(0));
        }
        assert_eq!(successes.by_gateway.pin().len(), MOST_GATEWAYS);
        successes.note(&pool, &gateway, &b, at(30));
        successes.sweep(at(61));
        assert_eq!(successes.by_gateway.pin().len(), 1, "one who is known is noted nevertheless");
    }
}
