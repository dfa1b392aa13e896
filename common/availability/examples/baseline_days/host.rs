//! What happens on the modelled host: how busy it is, how many calls come, how long they take.
//!
//! Its CPU use follows the hours of the day, with slow noise, less at weekends. Calls come as a Poisson process in
//! proportion to it, because they are what keeps it busy. A call takes the unloaded latency, times a random factor of
//! mean 1, times 1 / (1 - utilisation), the mean of the simplest queue, which is never more than 50.

use rand::RngExt;
use rand_distr::{Distribution, LogNormal, Normal, Poisson};
use rand_pcg::Pcg64Mcg;

pub(crate) const DAYS: u64 = 14;
pub(crate) const PERIOD_SECONDS: u64 = 15;
const HOUR_SECONDS: u64 = 3600;
const DAY_SECONDS: u64 = 24 * HOUR_SECONDS;
/// Life begins at 8 on a Monday, when work does: the first hours are not the quiet ones.
const FIRST_HOUR: u64 = 8;
/// The day on which the hardware changes.
const CHANGE_DAY: u64 = 7;
/// Latency without load before the hardware changes, microseconds.
const UNLOADED_US: f64 = 20_000.0;
/// Calls of a period at full utilisation: ten a second.
const MOST_CALLS: f64 = 150.0;
const MOST_QUEUEING: f64 = 50.0;

/// How much single calls differ.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// Of the logarithm.
    sigma: f64,
}

pub(crate) const SERVICES: [Service; 2] =
    [Service { name: "nearly constant", sigma: 0.02 }, Service { name: "lognormal .5", sigma: 0.5 }];

/// What is special about a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Scene {
    /// Nothing.
    Ordinary,
    /// One call of a thousand takes a thousandth; once a day a fifth of them do, for a minute.
    FreakSamples,
    /// Nearly no call from 22 to 6.
    QuietNight,
    /// Unloaded latency x 1.6 from day 7 on; nobody resets what was learned.
    SlowerHardware,
    /// Unloaded latency x 0.6 from day 7 on.
    FasterHardware,
    /// Utilisation above 90 % from day 5 to day 9.
    Saturation,
    /// Utilisation never below 55 %.
    NeverIdle,
}

pub(crate) const SCENES: [Scene; 7] = [
    Scene::Ordinary,
    Scene::FreakSamples,
    Scene::QuietNight,
    Scene::SlowerHardware,
    Scene::FasterHardware,
    Scene::Saturation,
    Scene::NeverIdle,
];

impl Scene {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::FreakSamples => "freak samples",
            Self::QuietNight => "quiet night",
            Self::SlowerHardware => "slower hardware",
            Self::FasterHardware => "faster hardware",
            Self::Saturation => "saturation",
            Self::NeverIdle => "never idle",
        }
    }

    /// The first second that counts: of a hardware change, what comes after it.
    pub(crate) fn counts_from(self) -> u64 {
        match self {
            Self::SlowerHardware | Self::FasterHardware => CHANGE_DAY * DAY_SECONDS,
            _ => 0,
        }
    }
}

/// One period of a host's life.
#[derive(Debug)]
pub(crate) struct Period {
    /// 0..1.
    pub(crate) utilisation: f64,
    /// The true latency without load.
    pub(crate) unloaded_us: f64,
    /// Calls and the sum of their durations.
    pub(crate) calls: u32,
    pub(crate) sum_us: f64,
}

/// The host.
#[derive(Debug)]
pub(crate) struct Host {
    scene: Scene,
    sigma: f64,
    noise: f64,
    random: Pcg64Mcg,
}

impl Host {
    pub(crate) fn new(scene: Scene, service: Service, random: Pcg64Mcg) -> Self {
        Self { scene, sigma: service.sigma, noise: 0.0, random }
    }

    /// What happens in the period that begins `second` seconds after the first.
    pub(crate) fn period(&mut self, second: u64) -> Period {
        let utilisation = self.utilisation(second);
        let unloaded_us = self.unloaded_us(second);
        let calls = self.calls(second, utilisation);
        let mean_us = unloaded_us * (1.0 / (1.0 - utilisation)).min(MOST_QUEUEING);
        // The logarithm's mean is shifted so that the factor's is 1.
        let factor = LogNormal::new(-self.sigma * self.sigma / 2.0, self.sigma).expect("a valid sigma");
        let freaks = self.freak_share(second);
        let mut sum_us = 0.0;
        for _ in 0..calls {
            let is_freak = freaks > 0.0 && self.random.random_bool(freaks);
            let call = if is_freak { unloaded_us / 1000.0 } else { mean_us };
            sum_us += call * factor.sample(&mut self.random);
        }
        Period { utilisation, unloaded_us, calls, sum_us }
    }

    fn utilisation(&mut self, second: u64) -> f64 {
        let (day, hour) = clock(second);
        // Slow: half of it is gone after six minutes.
        let shock: f64 = Normal::new(0.0, 0.01).expect("a valid spread").sample(&mut self.random);
        self.noise = 0.97 * self.noise + shock;
        let is_weekend = day % 7 >= 5;
        let work = if is_weekend { 0.25 } else { 1.0 } * working_hours(hour);
        let (least, most) = match self.scene {
            Scene::Saturation if (5..9).contains(&day) => (0.93, 0.96),
            Scene::NeverIdle => (0.6, 0.85),
            Scene::QuietNight if is_night(hour) => (0.01, 0.01),
            _ => (0.08, 0.65),
        };
        let floor = if self.scene == Scene::NeverIdle { 0.55 } else { 0.005 };
        (least + (most - least) * work + self.noise).clamp(floor, 0.98)
    }

    fn calls(&mut self, second: u64, utilisation: f64) -> u32 {
        let (_, hour) = clock(second);
        let nearly_none = self.scene == Scene::QuietNight && is_night(hour);
        let expected = if nearly_none { 0.3 } else { MOST_CALLS * utilisation };
        Poisson::new(expected).expect("above 0").sample(&mut self.random) as u32
    }

    fn unloaded_us(&self, second: u64) -> f64 {
        let has_changed = second >= self.scene.counts_from();
        match self.scene {
            Scene::SlowerHardware if has_changed => 1.6 * UNLOADED_US,
            Scene::FasterHardware if has_changed => 0.6 * UNLOADED_US,
            _ => UNLOADED_US,
        }
    }

    fn freak_share(&self, second: u64) -> f64 {
        match self.scene {
            // A minute at 3 in the morning, when a cache was just filled.
            Scene::FreakSamples if (3.0..3.0 + 1.0 / 60.0).contains(&clock(second).1) => 0.2,
            Scene::FreakSamples => 0.001,
            _ => 0.0,
        }
    }
}

/// The day since the first Monday, and the hour of the day.
fn clock(second: u64) -> (u64, f64) {
    let second = second + FIRST_HOUR * HOUR_SECONDS;
    (second / DAY_SECONDS, (second % DAY_SECONDS) as f64 / HOUR_SECONDS as f64)
}

fn is_night(hour: f64) -> bool {
    !(6.0..22.0).contains(&hour)
}

/// 0 at night, 1 at 13, as a smooth hill from 6 to 20.
fn working_hours(hour: f64) -> f64 {
    let from_start = (hour - 6.0) / 14.0;
    if (0.0..=1.0).contains(&from_start) { (std::f64::consts::PI * from_start).sin().powi(2) } else { 0.0 }
}
