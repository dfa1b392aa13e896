//! How do an operator's programs speak for this host?
//!
//! Three hooks say a word: `readiness` (is it able to take sessions), `warm_up` (are its caches warm) and `busy` (shall
//! it come after the others). Two deliver a number: `availability` (an index of the host's own making) and
//! `replica_lag`. Each is run at its interval, with a deadline and a bounded output, and waits for no other, so none
//! of them delays a report or another hook.
//!
//! What a hook said holds until it says something else: one that hangs, fails or says what means nothing here neither
//! opens nor closes the host, and shows as its collector's error. A number tells of a moment, though: one that was not
//! delivered anew for three intervals is void.

mod values;
mod words;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use usher_runtime::config::{Faults, HumanDuration, Validate};
use usher_types::{Drain, DrainMode, OwnAvailability};

pub use words::{HookKind, Said, understand};

use crate::config::{AgentConfig, until};
use crate::probe::config::within;
use crate::program;
use crate::standing::{Parts, StandingBoard};

/// Most output of a hook that is read: a word and a reason fit many times.
const MOST_BYTES: usize = 4096;
/// Intervals of hooks.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Deadlines of hooks.
const DEADLINE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));
/// Intervals after which a number is void: one run may fail, and the next be late.
const VOID_AFTER: u32 = 3;

/// The table `[hooks]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// Says `up` or `ready`; `fail`, `failed`, `down`, `stopped` or `maint` (NOT_READY); or `drain` (RESTRICTED).
    pub readiness: Option<HookConfig>,
    /// Says `up` or `ready` when the warm-up is done; the host is WARMING before.
    pub warm_up: Option<HookConfig>,
    /// Says `busy`, or `up` or `ready` when it is not.
    pub busy: Option<HookConfig>,
    /// Says an availability index, 0..=100, and behind it the name of its source; or `none`. It is used instead of the
    /// one from latencies.
    pub availability: Option<HookConfig>,
    /// Says how many seconds the host's replicas are behind, or `none`. Above the pool's `max_replica_lag` the host is
    /// WARMING.
    pub replica_lag: Option<HookConfig>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// The program and its arguments. There is no shell.
    pub command: Vec<String>,
    /// How often it is run, 1s..=1h.
    #[serde(default = "default_interval")]
    pub interval: HumanDuration,
    /// How long it may take before it is killed, 10ms..=60s.
    #[serde(default = "default_deadline")]
    pub deadline: HumanDuration,
}

fn default_interval() -> HumanDuration {
    HumanDuration::from_secs(15)
}

fn default_deadline() -> HumanDuration {
    HumanDuration::from_secs(5)
}

impl Validate for HookConfig {
    fn validate(&self, faults: &mut Faults) {
        if self.command.first().is_none_or(String::is_empty) {
            faults.refuse("command", "names no program");
        }
        within(faults, "interval", self.interval, INTERVAL);
        within(faults, "deadline", self.deadline, DEADLINE);
    }
}

impl Validate for HooksConfig {
    fn validate(&self, faults: &mut Faults) {
        for kind in KINDS {
            if let Some(hook) = self.of(kind) {
                faults.nested(kind.as_str(), hook);
            }
        }
    }
}

const KINDS: [HookKind; 5] =
    [HookKind::Readiness, HookKind::WarmUp, HookKind::Busy, HookKind::Availability, HookKind::ReplicaLag];

impl HooksConfig {
    fn of(&self, kind: HookKind) -> Option<&HookConfig> {
        match kind {
            HookKind::Readiness => self.readiness.as_ref(),
            HookKind::WarmUp => self.warm_up.as_ref(),
            HookKind::Busy => self.busy.as_ref(),
            HookKind::Availability => self.availability.as_ref(),
            HookKind::ReplicaLag => self.replica_lag.as_ref(),
        }
    }
}

/// Runs all hooks that the settings name, until `stop`.
pub async fn run_hooks(
    settings: watch::Receiver<Arc<AgentConfig>>,
    board: StandingBoard,
    stop: CancellationToken,
) {
    join_all(KINDS.map(|kind| run_hook(kind, settings.clone(), &board, &stop))).await;
}

/// Whose words about the host are void before they are said.
async fn run_hook(
    kind: HookKind,
    mut settings: watch::Receiver<Arc<AgentConfig>>,
    board: &StandingBoard,
    stop: &CancellationToken,
) {
    loop {
        let hook = settings.borrow_and_update().hooks.of(kind).cloned();
        board.change(|parts| begin(parts, kind, hook.is_some()));
        tokio::select! {
            () = stop.cancelled() => return,
            () = again_and_again(kind, hook.as_ref(), board) => return,
            () = until(&mut settings, |now| now.hooks.of(kind) != hook.as_ref()) => {}
        }
    }
}

/// A host with a warm-up hook is WARMING until that has said that it is not; the other hooks begin without a word.
fn begin(parts: &mut Parts, kind: HookKind, is_set: bool) {
    match kind {
        HookKind::Readiness => (parts.hook_not_ready, parts.hook_drain) = (None, None),
        HookKind::WarmUp => parts.is_warming_up = is_set,
        HookKind::Busy => parts.is_busy = false,
        HookKind::Availability | HookKind::ReplicaLag => forget_value(parts, kind),
    }
    parts.collectors.remove(&collector(kind));
}

fn forget_value(parts: &mut Parts, kind: HookKind) {
    match kind {
        HookKind::Availability => parts.own_availability = None,
        HookKind::ReplicaLag => parts.hook_lag = None,
        HookKind::Readiness | HookKind::WarmUp | HookKind::Busy => {}
    }
}

fn collector(kind: HookKind) -> String {
    format!("hook {}", kind.as_str())
}

/// Never ends.
async fn again_and_again(kind: HookKind, hook: Option<&HookConfig>, board: &StandingBoard) {
    let Some(hook) = hook else { return std::future::pending().await };
    let source = source(hook);
    // A run that takes longer than the interval is none that is late.
    let void_after = hook.interval.get().max(hook.deadline.get()) * VOID_AFTER;
    let mut runs = interval(hook.interval.get());
    runs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut not_understood, mut last_error, mut void_at) = (0_u64, None, None);
    loop {
        let run = async {
            runs.tick().await;
            program::run(&hook.command, hook.deadline.get(), MOST_BYTES).await
        };
        let said = match voiding(run, &mut void_at, kind, board).await {
            Ok(finished) => understand(kind, &finished),
            Err(error) => Err(error.to_string()),
        };
        let error = match said {
            Ok(said) => {
                if let Some(Said::Index { .. } | Said::Lag(_)) = said {
                    void_at = Some(Instant::now() + void_after);
                }
                take(board, kind, said, &source);
                None
            }
            Err(error) => Some(error),
        };
        if let Some(error) = &error {
            not_understood += 1;
            if last_error.as_ref() != Some(error) {
                tracing::warn!(hook = kind.as_str(), error, "a hook changes nothing");
            }
        }
        let warning = (not_understood > 0 && error.is_none())
            .then(|| format!("{not_understood} runs changed nothing since the start"));
        let shown = error.as_ref().map(|error| format!("{error} ({not_understood} since the start)"));
        board.fares(&collector(kind), &source, shown, warning);
        last_error = error;
    }
}

/// The program's name, for people.
fn source(hook: &HookConfig) -> String {
    hook.command.first().cloned().unwrap_or_default()
}

/// Waits for `run`; a number whose time is over meanwhile is void.
async fn voiding<T>(
    run: impl Future<Output = T>,
    void_at: &mut Option<Instant>,
    kind: HookKind,
    board: &StandingBoard,
) -> T {
    tokio::pin!(run);
    loop {
        let over = async {
            match *void_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = &mut run => return done,
            () = over => {
                *void_at = None;
                tracing::warn!(hook = kind.as_str(), "what a hook delivered is too old: it is void");
                board.change(|parts| forget_value(parts, kind));
            }
        }
    }
}

/// Puts a hook's word on the board. Silence changes nothing.
fn take(board: &StandingBoard, kind: HookKind, said: Option<Said>, source: &str) {
    let Some(said) = said else { return };
    board.change(|parts| match (kind, said) {
        (HookKind::WarmUp, said) => parts.is_warming_up = said != Said::Ready,
        (HookKind::Busy, said) => parts.is_busy = said == Said::Busy,
        (HookKind::Readiness, said) => take_readiness(parts, said),
        (HookKind::Availability, Said::Index { index, source: named }) => {
            let source = if named.is_empty() { file_name(source) } else { short(&named) };
            parts.own_availability = Some(OwnAvailability { index, source });
        }
        (HookKind::ReplicaLag, Said::Lag(lag)) => parts.hook_lag = Some(lag),
        (HookKind::Availability | HookKind::ReplicaLag, _) => forget_value(parts, kind),
    });
}

fn take_readiness(parts: &mut Parts, said: Said) {
    parts.hook_not_ready = None;
    parts.hook_drain = None;
    match said {
        Said::NotReady(why) if why.is_empty() => {
            parts.hook_not_ready = Some("the readiness hook says so".into());
        }
        Said::NotReady(why) => parts.hook_not_ready = Some(why),
        Said::Drain(reason) => {
            let (mode, author) = (DrainMode::UntilRestart, "readiness hook".to_owned());
            parts.hook_drain = Some(Drain { mode, reason, author, no_reconnect: false });
        }
        _ => {}
    }
}

/// The last part of a program's path, as a name that coordinators take.
fn file_name(program: &str) -> String {
    let name = short(program.rsplit('/').next().unwrap_or_default());
    if name.is_empty() { "hook".to_owned() } else { name }
}

/// As much as coordinators take of a name, in any alphabet.
fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
