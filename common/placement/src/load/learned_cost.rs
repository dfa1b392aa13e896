//! What does one more session cost the hosts of a pool?
//!
//! Five numbers, of a pool and not of a host: what users do when they log in is much the same on every host of it, and a
//! host alone sees too few logons to know. Until they are learned, round numbers stand for them that fit an office
//! desktop within a factor of two or three; everything that uses them must work with a number twice too large or small.

/// What one of the numbers may be, and what it is before anything is known.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct CostBounds {
    /// Its name and unit, as everyone writes them.
    pub name: &'static str,
    /// The lowest value.
    pub lowest: f64,
    /// The highest value.
    pub highest: f64,
    /// The value before anything is known.
    pub prior: f64,
}

impl CostBounds {
    /// Cores of a logon. Even a script that only prints uses some; one that uses eight is a batch job.
    pub const LOGON_CORES: Self = Self { name: "logon_cores", lowest: 0.02, highest: 8.0, prior: 1.0 };
    /// Seconds of a logon.
    pub const LOGON_SECONDS: Self = Self { name: "logon_seconds", lowest: 0.5, highest: 300.0, prior: 20.0 };
    /// Seconds from a place to its session.
    pub const CONNECT_SECONDS: Self =
        Self { name: "connect_seconds", lowest: 0.05, highest: 60.0, prior: 3.0 };
    /// Cores of a session whose logon is over.
    pub const SESSION_CORES: Self = Self { name: "session_cores", lowest: 0.001, highest: 4.0, prior: 0.1 };
    /// Memory of a session.
    pub const SESSION_MEMORY_BYTES: Self = Self {
        name: "session_memory_bytes",
        lowest: 1_048_576.0,
        highest: 68_719_476_736.0,
        prior: 536_870_912.0,
    };

    /// `value` within the bounds; the prior for what is no number.
    pub fn hold(&self, value: f64) -> f64 {
        if value.is_nan() { self.prior } else { value.clamp(self.lowest, self.highest) }
    }

    /// The value before anything is known.
    pub const fn unlearned(&self) -> LearnedValue {
        LearnedValue { value: self.prior, samples: 0.0, is_learned: false }
    }
}

/// One learned number.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct LearnedValue {
    /// The number, within its bounds.
    pub value: f64,
    /// Logons, sessions or places behind it of late, >= 0; of one host no more than some.
    pub samples: f64,
    /// Enough of them were seen once. If not, the value is the prior or close to it.
    pub is_learned: bool,
}

/// What one more session costs the hosts of a pool.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct LearnedCosts {
    /// Cores that a logon in progress keeps busy or waiting.
    pub logon_cores: LearnedValue,
    /// How long it takes, seconds.
    pub logon_seconds: LearnedValue,
    /// From a place to its session, seconds.
    pub connect_seconds: LearnedValue,
    /// Cores that a session uses when its logon is over.
    pub session_cores: LearnedValue,
    /// Memory that a session adds to its host, bytes.
    pub session_memory_bytes: LearnedValue,
}

impl LearnedCosts {
    /// Before anything is known.
    pub const PRIOR: Self = Self {
        logon_cores: CostBounds::LOGON_CORES.unlearned(),
        logon_seconds: CostBounds::LOGON_SECONDS.unlearned(),
        connect_seconds: CostBounds::CONNECT_SECONDS.unlearned(),
        session_cores: CostBounds::SESSION_CORES.unlearned(),
        session_memory_bytes: CostBounds::SESSION_MEMORY_BYTES.unlearned(),
    };

    /// Every number with its bounds.
    pub fn each(&self) -> [(CostBounds, LearnedValue); 5] {
        [
            (CostBounds::LOGON_CORES, self.logon_cores),
            (CostBounds::LOGON_SECONDS, self.logon_seconds),
            (CostBounds::CONNECT_SECONDS, self.connect_seconds),
            (CostBounds::SESSION_CORES, self.session_cores),
            (CostBounds::SESSION_MEMORY_BYTES, self.session_memory_bytes),
        ]
    }

    /// After how many seconds a place is young no more: its login has connected by then and, in all likelihood, its logon
    /// is over, or it will not come.
    pub fn young_for_seconds(&self) -> f64 {
        self.connect_seconds.value + 1.5 * self.logon_seconds.value
    }
}

impl Default for LearnedCosts {
    fn default() -> Self {
        Self::PRIOR
    }
}
