//! The words that qualify an answer.

use std::fmt;

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
    /// The host is BUSY: nobody better could be chosen.
    ALL_BUSY = 0, "all_busy";
    /// The host has as many logons in progress as it should have; so has every better one.
    OVER_PENDING = 1, "over_pending";
    /// A metric of the host was not known: the pool's median stands for it, or, for users that nobody knows, its places.
    INCOMPLETE = 2, "incomplete";
    /// No quiet hour has confirmed the baselines behind its availability yet.
    PROVISIONAL = 3, "provisional";
    /// The availability index rests on too few calls.
    SPARSE = 4, "sparse";
    /// There was no call to measure the availability by.
    IDLE = 5, "idle";
    /// Calls hang on the host.
    STALLED = 6, "stalled";
    /// It has just booted, or become ready again, and takes less than its share.
    RAMPING = 7, "ramping";
    /// The coordinator hears fewer than 90 % of the registered hosts.
    PARTIAL_VIEW = 8, "partial_view";
    /// Its agent is lost; its own door accepted a connection.
    BLIND = 9, "blind";
    /// Hosts hash login names with another key than the gateway: whether the user has a session is not known.
    AFFINITY_UNKNOWN = 10, "affinity_unknown";
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

    /// Without `flag`.
    #[must_use]
    pub const fn without(self, flag: Self) -> Self {
        Self(self.0 & !flag.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
