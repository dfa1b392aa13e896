//! How do an operator's programs speak for this host?
//!
//! Three hooks: `readiness` (is it able to take sessions), `warm_up` (are its caches warm) and `busy` (shall it come
//! after the others). Each is run at its interval, with a deadline and a bounded output, in a task of its own, so none
//! of them delays a report or another hook. What a hook said holds until it says something else: one that hangs, fails
//! or says what means nothing here neither opens nor closes the host, and shows as its collector's error.

mod words;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use usher_runtime::config::{Faults, HumanDuration, Validate};
use usher_types::{Drain, DrainMode};

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

const KINDS: [HookKind; 3] = [HookKind::Readiness, HookKind::WarmUp, HookKind::Busy];

impl HooksConfig {
    fn of(&self, kind: HookKind) -> Option<&HookConfig> {
        match kind {
            HookKind::Readiness => self.readiness.as_ref(),
            HookKind::WarmUp => self.warm_up.as_ref(),
            HookKind::Busy => self.busy.as_ref(),
        }
    }
}

/// Runs all hooks that the settings name, until `stop`.
pub async fn run_hooks(
    settings: watch::Receiver<Arc<AgentConfig>>,
    board: StandingBoard,
    stop: CancellationToken,
) {
    let run = |kind| run_hook(kind, settings.clone(), &board, &stop);
    tokio::join!(run(HookKind::Readiness), run(HookKind::WarmUp), run(HookKind::Busy));
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
    }
    parts.collectors.remove(&collector(kind));
}

fn collector(kind: HookKind) -> String {
    format!("hook {}", kind.as_str())
}

/// Never ends.
async fn again_and_again(kind: HookKind, hook: Option<&HookConfig>, board: &StandingBoard) {
    let Some(hook) = hook else { return std::future::pending().await };
    let source = hook.command.first().cloned().unwrap_or_default();
    let mut runs = interval(hook.interval.get());
    runs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut not_understood, mut last_error) = (0_u64, None);
    loop {
        runs.tick().await;
        let error = match program::run(&hook.command, hook.deadline.get(), MOST_BYTES).await {
            Ok(finished) => understand(kind, &finished).map(|said| take(board, kind, said)).err(),
            Err(error) => Some(error.to_string()),
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

/// Puts a hook's word on the board. Silence changes nothing.
fn take(board: &StandingBoard, kind: HookKind, said: Option<Said>) {
    let Some(said) = said else { return };
    board.change(|parts| match (kind, said) {
        (HookKind::WarmUp, said) => parts.is_warming_up = said != Said::Ready,
        (HookKind::Busy, said) => parts.is_busy = said == Said::Busy,
        (HookKind::Readiness, said) => {
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
                Said::Ready | Said::Busy => {}
            }
        }
    });
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
