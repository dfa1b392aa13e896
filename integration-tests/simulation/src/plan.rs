//! What happens to the farm in one run?
//!
//! A seed draws the size of the farm, its load and its bad luck; the same seed draws the same. Faults stop when the busy
//! part is over: then everything is healed, nobody comes or goes any more, and after a while all must agree.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// How long is waited, after everything is healed, until all must agree: the longest wait of an agent that was refused
/// (30 s), a connection that hangs (10 s), and the time to live of a place that was given in the last moment (20 s) after
/// that.
pub const QUIET: Duration = Duration::from_secs(70);
/// Time to live of places.
pub const PLACE_TTL: Duration = Duration::from_secs(20);

/// A part that is broken on purpose, to see that an invariant notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Sabotage {
    /// Nothing is.
    #[default]
    None,
    /// Agents know no limit, and admit everybody.
    AdmitAll,
    /// Hosts say that one coordinator is all they report to, so that each believes that every place is its own to give.
    GreedyShare,
    /// What a host admitted is forgotten when its agent crashes.
    ForgetBook,
    /// A coordinator that starts finds its store empty.
    EmptyStore,
    /// One link stays cut for good.
    NeverHealed,
    /// Hosts keep the places that coordinators take back.
    KeepPlaces,
    /// Coordinators' boot-time clocks run too fast, so that a grace is over too soon for a host that is away.
    FastClocks,
    /// One coordinator shares its store with nobody.
    StoreApart,
    /// A task panics.
    Panic,
    /// Tasks are left behind.
    Leak,
    /// Gateways' clocks take calls for longer than they are.
    LateCalls,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Nothing passes between two nodes; of what was under way nothing arrives.
    Cut(String, String, Duration),
    /// Nothing passes from the first to the second.
    CutOneWay(String, String, Duration),
    /// Nothing arrives until later, then all of it.
    Hold(String, String, Duration),
    /// Everything takes up to so long, the third.
    Slow(String, String, Duration, Duration),
    /// The program is killed and started again after a while; the system closes its connections.
    Crash(String, Duration),
    /// The program is told to stop, and started again after a while.
    Stop(String, Duration),
    /// The machine loses its power and boots after a while: nobody is told, and its sessions are gone.
    PowerLoss(String, Duration),
    /// The machine is shut down in order, and boots after a while.
    Shutdown(String, Duration),
    /// The machine was suspended for so long: its boot-time clock jumps.
    Suspend(String, Duration),
    /// Somebody sets the wall clock, ms ahead or back.
    StepWall(String, i64),
    /// The coordinator cannot reach the shared store.
    StoreAway(String, Duration),
    /// So many logins come at once.
    Storm(u32),
}

impl Fault {
    /// Its kind, as counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cut(..) => "cut",
            Self::CutOneWay(..) => "cut_one_way",
            Self::Hold(..) => "hold",
            Self::Slow(..) => "slow",
            Self::Crash(..) => "crash",
            Self::Stop(..) => "stop",
            Self::PowerLoss(..) => "power_loss",
            Self::Shutdown(..) => "shutdown",
            Self::Suspend(..) => "suspend",
            Self::StepWall(..) => "step_wall",
            Self::StoreAway(..) => "store_away",
            Self::Storm(_) => "storm",
        }
    }
}

/// What one run is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Of all chance.
    pub seed: u64,
    /// What is broken on purpose.
    pub sabotage: Sabotage,
    /// How many coordinators.
    pub coordinators: usize,
    /// How many users each host takes at most.
    pub limits: Vec<u32>,
    /// How many gateways.
    pub gateways: usize,
    /// How often hosts report.
    pub report_interval: Duration,
    /// Longest time of a message in the healthy network.
    pub latency: Duration,
    /// Mean time between two logins at one gateway.
    pub pause: Duration,
    /// How long the busy part lasts.
    pub busy: Duration,
    /// What goes wrong, and when.
    pub faults: Vec<(Duration, Fault)>,
}

/// A node's name.
pub fn coordinator(index: usize) -> String {
    format!("c{}", index + 1)
}

/// The name of a host, where its agent runs.
pub fn host(index: usize) -> String {
    format!("h{}", index + 1)
}

/// The name of the door of a host: what users connect to. It outlives the agent.
pub fn door(index: usize) -> String {
    format!("d{}", index + 1)
}

/// A gateway's name.
pub fn gateway(index: usize) -> String {
    format!("g{}", index + 1)
}

/// A generator of its own for each use, so that one draw more in one place changes nothing elsewhere.
pub fn rng(seed: u64, of: &str) -> StdRng {
    let mixed =
        of.bytes().fold(seed, |mixed, byte| (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    StdRng::seed_from_u64(mixed)
}

impl Plan {
    /// What `seed` draws, with a busy part of 60 to 90 s.
    pub fn draw(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = rng(seed, "plan");
        let busy = Duration::from_secs(rng.random_range(60..=90));
        Self::with_busy(seed, sabotage, busy)
    }

    /// The same with another length of its busy part.
    pub fn with_busy(seed: u64, sabotage: Sabotage, busy: Duration) -> Self {
        let mut rng = rng(seed, "farm");
        let hosts = rng.random_range(3..=6);
        let limits: Vec<u32> = (0..hosts).map(|_| rng.random_range(2..=8)).collect();
        let gateways = rng.random_range(2..=3);
        let interval_ms = *[1000, 2000, 5000].choose(&mut rng).unwrap_or(&5000);
        // Sessions last half a minute: this offers a little more than there is room for.
        let seats = f64::from(limits.iter().sum::<u32>());
        let pause = Duration::from_secs_f64(25.0 * gateways as f64 / seats * rng.random_range(0.7..1.4));
        let mut plan = Self {
            seed,
            sabotage,
            coordinators: rng.random_range(2..=4),
            limits,
            gateways,
            report_interval: Duration::from_millis(interval_ms),
            latency: Duration::from_millis(rng.random_range(5..=50)),
            pause,
            busy,
            faults: Vec::new(),
        };
        plan.faults = match sabotage {
            Sabotage::FastClocks => Self::unheard_at_start(),
            _ => plan.draw_faults(),
        };
        plan
    }

    /// A host is gone when a coordinator starts that knew it: chance does that too rarely.
    fn unheard_at_start() -> Vec<(Duration, Fault)> {
        let gone = Fault::PowerLoss(host(0), Duration::from_secs(60));
        let starts = Fault::Crash(coordinator(0), Duration::from_secs(1));
        vec![(Duration::from_millis(15_000), gone), (Duration::from_millis(15_500), starts)]
    }

    fn draw_faults(&self) -> Vec<(Duration, Fault)> {
        let mut rng = rng(self.seed, "faults");
        let mut faults = Vec::new();
        // Some runs are nearly calm, others never are.
        let pause = rng.random_range(2.0..8.0);
        let mut at = 6.0;
        loop {
            at += pause * rng.random_range(0.2..1.8);
            if at >= self.busy.as_secs_f64() {
                return faults;
            }
            faults.push((Duration::from_secs_f64(at), self.draw_fault(&mut rng)));
        }
    }

    fn draw_fault(&self, rng: &mut StdRng) -> Fault {
        let c = coordinator(rng.random_range(0..self.coordinators));
        let index = rng.random_range(0..self.limits.len());
        let (h, d) = (host(index), door(index));
        let g = gateway(rng.random_range(0..self.gateways));
        let short = seconds(rng, 0.3, 4.0);
        let long = if rng.random_bool(0.3) { seconds(rng, 10.0, 35.0) } else { seconds(rng, 1.0, 10.0) };
        match rng.random_range(0..100) {
            0..14 => Fault::Cut(h, c, long),
            14..20 => {
                let (from, to) = if rng.random_bool(0.5) { (h, c) } else { (c, h) };
                Fault::CutOneWay(from, to, long)
            }
            20..28 => Fault::Cut(g, c, long),
            28..34 => {
                let (from, to) = if rng.random_bool(0.5) { (g, c) } else { (c, g) };
                Fault::CutOneWay(from, to, short)
            }
            34..38 => Fault::Cut(g, d, long),
            38..46 => Fault::Hold(h, c, short),
            46..50 => Fault::Hold(g, c, short),
            50..56 => {
                let latency = Duration::from_millis(rng.random_range(100..600));
                Fault::Slow(if rng.random_bool(0.7) { h } else { g }, c, latency, long)
            }
            56..64 => Fault::Crash(c, short),
            64..68 => Fault::Stop(c, short),
            68..71 => Fault::PowerLoss(c, long),
            71..78 => Fault::Crash(h, short),
            78..81 => Fault::Stop(h, short),
            81..86 => Fault::PowerLoss(h, long),
            86..88 => Fault::Shutdown(h, long),
            88..90 => Fault::Suspend(c, seconds(rng, 3.0, 90.0)),
            90..93 => {
                let node = if rng.random_bool(0.5) { c } else { h };
                Fault::StepWall(node, *[86_400_000, 3_600_000, -3_600_000].choose(rng).unwrap_or(&0))
            }
            93..96 => Fault::StoreAway(c, long),
            _ => Fault::Storm(rng.random_range(10..40)),
        }
    }
}

fn seconds(rng: &mut StdRng, least: f64, most: f64) -> Duration {
    Duration::from_secs_f64(rng.random_range(least..most))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_many_seeds_draw_every_fault() {
        let plan = |seed| Plan::draw(seed, Sabotage::None);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7).faults, plan(8).faults);
        let kinds: BTreeSet<_> =
            (0..60).flat_map(|seed| plan(seed).faults).map(|(_, fault)| fault.kind()).collect();
        assert_eq!(kinds.len(), 12, "{kinds:?}");
    }
}
