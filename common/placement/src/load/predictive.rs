//! The predictive method: how much CPU demand and memory will a host have once this login is on it?
//!
//! What changes fast in a logon storm is what was just placed, and that is known exactly. So a host's last report is only
//! believed for its background, a slow mean of the demand without the logons; the logons are counted and multiplied by
//! what one costs. With `C = cores x speed`, `M` = installed memory, `m` = share of it in use:
//!
//! ```text
//! L     = l exp(-age / logon_seconds) + young places
//! u     = B + (logon_cores (L + 1) + session_cores (U + l)) / (C s)
//! m'    = m + session_memory (U + 1) / M
//! score = u + 6 max(0, m' - 0.85) + 0.1 m'
//! ```
//!
//! | input | range | at zero, missing or stale |
//! |---|---|---|
//! | B, background demand | >= 0, share of C; may pass 1 | missing: the pool's mean stands for it |
//! | l, logons in progress in the last Load | >= 0 | missing: 0; stale: they end meanwhile, hence the exponential |
//! | U, places whose session is not seen; the young ones among them | >= 0 | known here at any time |
//! | s, the share that counts while ramping up | > 0, <= 1 | missing: 1 |
//! | C, M | > 0 | missing: the pool's mean; known nowhere: 1 core, and sessions that need no memory |
//! | m | 0..=1 | missing: the pool's mean; known nowhere: no term of memory |
//!
//! What stands for a missing value is said. A host of which neither background nor memory is known comes after all others
//! (the caller's to do): it is compared by its places alone.
//!
//! Memory counts little until it becomes scarce and then more than any CPU: a host that swaps is lost for everybody on
//! it. Ranking by stale CPU instead sends every login of an interval to one host. The availability index says whether a
//! host is fit; as a rank its window lags a storm.

use super::LearnedCosts;

/// Up to here memory is plenty.
pub(super) const MEMORY_IS_PLENTY: f64 = 0.85;
/// Each share of memory beyond that weighs as six times all cores.
pub(super) const SCARCE_MEMORY: f64 = 6.0;
/// Below it, memory decides between hosts of almost equal demand.
pub(super) const MEMORY: f64 = 0.1;
/// No input is larger: the sums stay numbers.
const LARGEST: f64 = 1e15;

/// What is known of a host. Absent: not known.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct DemandInput {
    /// Background demand as a share of its cores, >= 0.
    pub background: Option<f64>,
    /// It is the mean of other hosts, because this one is new.
    pub background_is_borrowed: bool,
    /// Logons in progress in its last Load.
    pub logons: f64,
    /// Age of that Load, seconds.
    pub load_age_seconds: f64,
    /// Places given out whose session was not seen yet.
    pub places: f64,
    /// Those among them whose login may still be connecting or logging on.
    pub young_places: f64,
    /// Logical CPUs times their speed relative to a normal one.
    pub cores: Option<f64>,
    /// Installed memory, bytes.
    pub memory_bytes: Option<f64>,
    /// Share of it in use, 0..=1.
    pub memory_used: Option<f64>,
    /// Share of its cores that counts while it is ramping up, > 0, < 1. Absent: all.
    pub ramp: Option<f64>,
}

impl DemandInput {
    /// Whether neither its demand nor its memory is known: it cannot be compared with others but by its places.
    pub fn is_unknown(&self) -> bool {
        self.background.is_none() && self.memory_used.is_none()
    }
}

/// What stands for values that a host does not know: means over the pool. Absent: no host knows it.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Typical {
    /// Background demand as a share of the cores.
    pub background: Option<f64>,
    /// Logical CPUs.
    pub cores: Option<f64>,
    /// Installed memory, bytes.
    pub memory_bytes: Option<f64>,
    /// Share of it in use, 0..=1.
    pub memory_used: Option<f64>,
}

/// What a host will have once the login is on it; the terms add up to the score.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct PredictedLoad {
    /// Background demand, share of the cores.
    pub background: f64,
    /// Demand of logons: those in progress, those on their way, and this one.
    pub logons: f64,
    /// Demand of the sessions that these logons become.
    pub sessions: f64,
    /// What the share of memory in use weighs.
    pub memory: f64,
    /// What the share beyond the plenty weighs.
    pub scarce_memory: f64,
    /// Expected demand with this login, share of the cores; may pass 1.
    pub demand: f64,
    /// Expected share of memory in use with this login; may pass 1. Absent: not known anywhere in the pool.
    pub memory_used: Option<f64>,
    /// Logons that are expected to be in progress, without this one.
    pub logons_expected: f64,
    /// A value that was not known was replaced or left out.
    pub is_incomplete: bool,
}

impl PredictedLoad {
    /// Expected demand without this login, share of the cores; may pass 1.
    pub fn demand_before(&self) -> f64 {
        // Each of the logons is as dear, this one among them.
        self.background + self.sessions + self.logons * self.logons_expected / (self.logons_expected + 1.0)
    }

    /// Low is good.
    pub fn score(&self) -> f64 {
        self.background + self.logons + self.sessions + self.memory + self.scarce_memory
    }

    /// What is expected of a host of a pool with these costs, if one more login goes there.
    pub fn of(input: &DemandInput, typical: &Typical, costs: &LearnedCosts) -> Self {
        let sane = |value: f64| if value.is_nan() { 0.0 } else { value.clamp(0.0, LARGEST) };
        let stood_for = input.background.is_none()
            || input.cores.is_none()
            || input.memory_bytes.is_none()
            || input.memory_used.is_none();
        let cores = input.cores.or(typical.cores).unwrap_or(1.0);
        let counting = sane(cores * input.ramp.unwrap_or(1.0)).max(1e-3);
        let logons_now = sane(input.logons);
        let still = logons_now * (-sane(input.load_age_seconds) / costs.logon_seconds.value.max(1e-3)).exp();
        let logons_expected = still + sane(input.young_places);
        let background = sane(input.background.or(typical.background).unwrap_or(0.0));
        let logons = costs.logon_cores.value * (logons_expected + 1.0) / counting;
        let sessions = costs.session_cores.value * (sane(input.places) + logons_now) / counting;
        let used = input.memory_used.or(typical.memory_used).map(|used| sane(used).min(1.0));
        let total = input.memory_bytes.or(typical.memory_bytes).map(|bytes| sane(bytes).max(1.0));
        let coming = costs.session_memory_bytes.value * (sane(input.places) + 1.0);
        let memory_used = used.map(|used| used + total.map_or(0.0, |total| coming / total));
        Self {
            background,
            logons,
            sessions,
            memory: memory_used.map_or(0.0, |used| MEMORY * used),
            scarce_memory: memory_used.map_or(0.0, |used| SCARCE_MEMORY * (used - MEMORY_IS_PLENTY).max(0.0)),
            demand: background + logons + sessions,
            memory_used,
            logons_expected,
            is_incomplete: stood_for,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host() -> DemandInput {
        DemandInput {
            background: Some(0.2),
            cores: Some(8.0),
            memory_bytes: Some(32e9),
            memory_used: Some(0.25),
            ..DemandInput::default()
        }
    }

    fn costs(cores: f64, seconds: f64, session_cores: f64, session_bytes: f64) -> LearnedCosts {
        let mut costs = LearnedCosts::PRIOR;
        costs.logon_cores.value = cores;
        costs.logon_seconds.value = seconds;
        costs.session_cores.value = session_cores;
        costs.session_memory_bytes.value = session_bytes;
        costs
    }

    fn predict(input: &DemandInput) -> PredictedLoad {
        PredictedLoad::of(input, &Typical::default(), &costs(1.5, 16.0, 0.125, 0.64e9))
    }

    // rule: predictive-score
    #[test]
    fn the_score_is_the_sum_of_background_logons_sessions_and_memory() {
        let input =
            DemandInput { logons: 4.0, load_age_seconds: 16.0, places: 3.0, young_places: 2.0, ..host() };
        let load = predict(&input);
        let expected = 4.0 * (-1.0_f64).exp() + 2.0;
        assert!((load.logons_expected - expected).abs() < 1e-12);
        assert!((load.logons - 1.5 * (expected + 1.0) / 8.0).abs() < 1e-12);
        assert!((load.sessions - 0.125 * 7.0 / 8.0).abs() < 1e-12);
        let used = 0.25 + 0.02 * 4.0;
        assert!((load.memory_used.unwrap() - used).abs() < 1e-12);
        assert!((load.memory - 0.1 * used).abs() < 1e-12);
        assert_eq!((load.background, load.scarce_memory, load.is_incomplete), (0.2, 0.0, false));
        let sum = load.background + load.logons + load.sessions + load.memory;
        assert!((load.score() - sum).abs() < 1e-12);
        assert!((load.demand + load.memory - sum).abs() < 1e-12);
    }

    // rule: predictive-score
    #[test]
    fn scarce_memory_weighs_more_than_all_cores() {
        let full = predict(&DemandInput { memory_used: Some(0.93), ..host() });
        assert!((full.scarce_memory - 6.0 * (0.93 + 0.02 - 0.85)).abs() < 1e-9);
        let busy = predict(&DemandInput { background: Some(0.7), ..host() });
        assert!(full.score() > busy.score());
    }

    // rule: predictive-ramp
    #[test]
    fn a_ramping_host_has_only_a_part_of_its_cores() {
        let ramping = predict(&DemandInput { ramp: Some(0.25), places: 2.0, young_places: 2.0, ..host() });
        let settled = predict(&DemandInput { places: 2.0, young_places: 2.0, ..host() });
        assert!((ramping.logons - 4.0 * settled.logons).abs() < 1e-12);
        assert!((ramping.sessions - 4.0 * settled.sessions).abs() < 1e-12);
        assert_eq!(ramping.background, settled.background);
    }

    // rule: predictive-missing
    #[test]
    fn the_mean_of_the_pool_stands_for_what_is_not_known_and_that_is_said() {
        let typical = Typical {
            background: Some(0.5),
            cores: Some(4.0),
            memory_bytes: Some(16e9),
            memory_used: Some(0.5),
        };
        let load = PredictedLoad::of(&DemandInput::default(), &typical, &LearnedCosts::PRIOR);
        assert!((load.background, load.is_incomplete) == (0.5, true) && DemandInput::default().is_unknown());
        assert!((load.logons - 0.25).abs() < 1e-12);
        assert!((load.memory_used.unwrap() - (0.5 + 536_870_912.0 / 16e9)).abs() < 1e-12);
        let alone = PredictedLoad::of(&DemandInput::default(), &Typical::default(), &LearnedCosts::PRIOR);
        assert_eq!((alone.background, alone.memory_used, alone.memory), (0.0, None, 0.0));
        assert_eq!(alone.score(), 1.0, "one logon on one core");
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(f64::MAX), Just(f64::MIN_POSITIVE), -1e9..1e9, any::<f64>()]
    }

    fn maybe() -> impl Strategy<Value = Option<f64>> {
        proptest::option::of(number())
    }

    fn any_input() -> impl Strategy<Value = DemandInput> {
        let counts = (number(), number(), number(), number());
        ((maybe(), maybe(), maybe(), maybe(), maybe()), counts).prop_map(|(known, counts)| DemandInput {
            background: known.0,
            background_is_borrowed: false,
            cores: known.1,
            memory_bytes: known.2,
            memory_used: known.3,
            ramp: known.4,
            logons: counts.0,
            load_age_seconds: counts.1,
            places: counts.2,
            young_places: counts.3,
        })
    }

    proptest! {
        // rule: predictive-score
        #[test]
        fn every_score_is_a_number_whose_parts_add_up(input in any_input()) {
            let load = PredictedLoad::of(&input, &Typical::default(), &LearnedCosts::PRIOR);
            let parts = [load.background, load.logons, load.sessions, load.memory, load.scarce_memory];
            prop_assert!(parts.iter().all(|part| part.is_finite() && *part >= 0.0), "{:?}", load);
            prop_assert_eq!(load.score(), parts.iter().sum::<f64>());
        }

        // rule: predictive-monotone
        #[test]
        fn more_places_never_improve_a_host(
            (places, more, young) in (0u32..500, 1u32..10, 0u32..500),
            background in 0.0..2.0f64,
            ramp in proptest::option::of(0.1..1.0f64),
        ) {
            let of = |places: u32, young: u32| predict(&DemandInput {
                background: Some(background), ramp, places: f64::from(places),
                young_places: f64::from(young.min(places)), ..host()
            }).score();
            prop_assert!(of(places + more, young) > of(places, young));
            prop_assert!(of(places + more, young + more) > of(places, young));
        }
    }
}
