//! What a gateway asks.

use usher_types::{FailureCause, GatewayId, PoolName, RequestId, ResourceId, Token, Zone};

use crate::fnv;

/// What a failover adds to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failover {
    /// Name or id of the host that does not work out.
    pub from_host: String,
    /// The request whose place failed.
    pub failed_request: Option<RequestId>,
    /// Names or ids of hosts that were tried before.
    pub tried: Vec<String>,
    /// Why.
    pub cause: FailureCause,
}

/// A login that needs a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Names the login.
    pub token: Token,
    /// The gateway's how-manieth try, from 1.
    pub attempt: u32,
    /// The pool to choose in.
    pub pool: PoolName,
    /// Only hosts that hold it are candidates.
    pub resource: Option<ResourceId>,
    /// Login name as the gateway spells it.
    pub user: Option<String>,
    /// Hosts of this zone come first among equals of state.
    pub client_zone: Option<Zone>,
    /// Users that it counts as, 1..=100.
    pub cost: u32,
    /// Names or ids of hosts that are no candidates.
    pub exclude: Vec<String>,
    /// Name or id of the home server.
    pub prefer_host: Option<String>,
    /// Reserve nothing, ask nobody.
    pub dry_run: bool,
    /// It has failed on a host before.
    pub failover: Option<Failover>,
}

impl Request {
    /// One login of somebody of whom nothing is known, which takes nothing: what hosts are seen with in lists.
    ///
    /// # Panics
    /// Never: its names are words.
    pub fn of_nobody(pool: PoolName) -> Self {
        let gateway = GatewayId::new("list").expect("a word is an id");
        let request_id = RequestId::new("list").expect("a word is an id");
        Self {
            token: Token { gateway, request_id },
            attempt: 1,
            pool,
            resource: None,
            user: None,
            client_zone: None,
            cost: 1,
            exclude: Vec::new(),
            prefer_host: None,
            dry_run: true,
            failover: None,
        }
    }

    /// Tells a retry (equal) from another request under the same id. The attempt is not content.
    pub fn content_hash(&self) -> u64 {
        let mut parts: Vec<&[u8]> = vec![self.pool.as_str().as_bytes()];
        let cost = self.cost.to_le_bytes();
        let flags = [u8::from(self.dry_run)];
        for value in [
            self.resource.as_ref().map(ResourceId::as_str),
            self.user.as_deref(),
            self.client_zone.as_ref().map(Zone::as_str),
            self.prefer_host.as_deref(),
        ] {
            parts.push(if value.is_some() { b"1" } else { b"0" });
            parts.push(value.unwrap_or_default().as_bytes());
        }
        parts.push(&cost);
        parts.push(&flags);
        parts.extend(self.exclude.iter().map(|host| host.as_bytes()));
        let cause;
        if let Some(failover) = &self.failover {
            cause = [failover.cause as u8];
            parts.push(&cause);
            parts.push(failover.from_host.as_bytes());
            parts.push(failover.failed_request.as_ref().map_or("", RequestId::as_str).as_bytes());
            parts.extend(failover.tried.iter().map(|host| host.as_bytes()));
        }
        fnv::hash(parts)
    }
}
