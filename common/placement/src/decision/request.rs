//! What a gateway asks, and the words that qualify an answer.

use std::fmt;

use usher_types::{PoolName, RequestId, ResourceId, Token, Zone};

use crate::fnv;

/// Why the host that was given does not work out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FailoverCause {
    /// It says that it is busy.
    Busy,
    /// No connection could be made.
    Unreachable,
    /// It refused the session.
    Refused,
    /// The user could not be authenticated.
    Auth,
    /// Anything else.
    Other,
}

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
    pub cause: FailoverCause,
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

macro_rules! flags {
    ($($(#[$doc:meta])* $constant:ident = $bit:literal, $name:literal;)*) => {
        /// Words that qualify an answer.
        #[derive(Copy, Clone, PartialEq, Eq, Default)]
        pub struct Flags(u16);

        impl Flags {
            $($(#[$doc])* pub const $constant: Self = Self(1 << $bit);)*

            /// The words.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                [$((Self::$constant, $name)),*].into_iter().filter_map(move |(flag, name)| self.has(flag).then_some(name))
            }
        }
    };
}

flags! {
    /// Every host that could be chosen is BUSY.
    ALL_BUSY = 0, "all_busy";
    /// A metric of the host was not known and stands for the pool's median.
    INCOMPLETE = 1, "incomplete";
    /// The coordinator hears fewer than 90 % of the registered hosts.
    PARTIAL_VIEW = 2, "partial_view";
    /// The availability index rests on too few calls.
    SPARSE = 3, "sparse";
    /// There was no call to measure the availability by.
    IDLE = 4, "idle";
    /// Calls hang on the host.
    STALLED = 5, "stalled";
}

impl Flags {
    /// No word.
    pub const NONE: Self = Self(0);

    /// Whether `flag` is among them.
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 == flag.0
    }

    /// With `flag` too, if `set`.
    #[must_use]
    pub const fn with(self, flag: Self, set: bool) -> Self {
        if set { Self(self.0 | flag.0) } else { self }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
