//! A stretch of time under one load, and what it took: the measured unit. What is compared is measured in turn, in
//! windows that follow each other, and a turn in which the machine was busy with something else counts for nothing.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use usher_integration_tests::bench::{CpuTime, machine_busy, processors};

use crate::farm::Farm;
use crate::load::{Call, Load};

/// A load runs for so long before it is looked at.
const WARM_UP: Duration = Duration::from_millis(100);
/// After a load that hosts report of: they do so at most every tenth of a second.
const SETTLE: Duration = Duration::from_millis(250);
/// Share of the machine that others may take: the clock that tells it is a hundredth of a second coarse.
const OTHERS_MOST: f64 = 0.06;

/// What one window saw.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Window {
    /// Calls answered in a second.
    pub(crate) rps: f64,
    /// Processor time of the coordinator in a second of wall time.
    pub(crate) server_cores: f64,
    /// Processor time of the coordinator for each call, microseconds, its work for reports included.
    pub(crate) server_us: f64,
    /// Share of calls for which no host gave its consent.
    pub(crate) refused: f64,
    /// Share of the machine that went to processes that are not of this run.
    pub(crate) others: f64,
}

/// How long, and how often.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub(crate) window: Duration,
    pub(crate) turns: usize,
    /// So many at most, to have enough quiet ones.
    pub(crate) tries: usize,
    /// Every process of this run.
    pub(crate) pids: Vec<u32>,
}

/// Windows that were measured in turn.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    /// Each turn has one window for each load.
    pub(crate) kept: Vec<Vec<Window>>,
    pub(crate) discarded: usize,
    /// There were not enough quiet turns, and others had to do.
    pub(crate) is_disturbed: bool,
}

impl Turns {
    /// A figure of each turn.
    pub(crate) fn each(&self, figure: impl Fn(&[Window]) -> f64) -> Vec<f64> {
        self.kept.iter().map(|turn| figure(turn)).collect()
    }
}

impl Pace {
    /// One window of a load.
    pub(crate) async fn window(&self, farm: &Farm, call: Call) -> anyhow::Result<Window> {
        let load = Load::start(&farm.connections, call);
        tokio::time::sleep(WARM_UP).await;
        let (server, ours) = (CpuTime::of(&[farm.server()]), CpuTime::of(&self.pids));
        let (begun, answered, busy) = (Instant::now(), load.answers(), machine_busy());
        tokio::time::sleep(self.window).await;
        let (server, ours) = (server.spent(), ours.spent());
        let (wall, now, busy) = (begun.elapsed(), load.answers(), machine_busy().saturating_sub(busy));
        let has_changed_hosts = matches!(call, Call::Ask | Call::PlaceAndCancel);
        load.end().await.with_context(|| format!("under load {call:?} of farm {}", farm.name))?;
        if has_changed_hosts {
            // Hosts go on telling of it for a moment, which is not the next load's.
            tokio::time::sleep(SETTLE).await;
        }
        let (answered, refused) = ((now.0 - answered.0) as f64, (now.1 - answered.1) as f64);
        let wall = wall.as_secs_f64();
        Ok(Window {
            rps: answered / wall,
            server_cores: server.as_secs_f64() / wall,
            server_us: server.as_secs_f64() * 1e6 / answered.max(1.0),
            refused: refused / (answered + refused).max(1.0),
            others: (busy.as_secs_f64() - ours.as_secs_f64()).max(0.0) / (wall * processors() as f64),
        })
    }

    /// Loads in turn, each turn the other way round.
    pub(crate) async fn turns(&self, loads: &[(&Farm, Call)]) -> anyhow::Result<Turns> {
        let mut tried: Vec<Vec<Window>> = Vec::new();
        let is_quiet = |turn: &Vec<Window>| others(turn) <= OTHERS_MOST;
        while tried.iter().filter(|turn| is_quiet(turn)).count() < self.turns && tried.len() < self.tries {
            let is_odd = tried.len() % 2 == 1;
            let mut turn = vec![None; loads.len()];
            for at in 0..loads.len() {
                let at = if is_odd { loads.len() - 1 - at } else { at };
                let (farm, call) = loads[at];
                turn[at] = Some(self.window(farm, call).await?);
            }
            tried.push(turn.into_iter().flatten().collect());
        }
        let all = tried.len();
        tried.sort_by(|a, b| others(a).total_cmp(&others(b)));
        tried.truncate(self.turns);
        let is_disturbed = !tried.iter().all(is_quiet);
        Ok(Turns { discarded: all - tried.len(), kept: tried, is_disturbed })
    }
}

/// The most that others took in one window of a turn.
fn others(turn: &[Window]) -> f64 {
    turn.iter().map(|window| window.others).fold(0.0, f64::max)
}
