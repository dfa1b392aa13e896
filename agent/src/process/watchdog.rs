//! Does the agent still do its work, or does it only exist?
//!
//! The service manager kills a process that does not say so in time. It is said only when every host's task has
//! answered: a task that hangs in a lock or a dead disk would otherwise be alive for ever.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::notify;
use crate::host::{HostCommand, HostHandle};

/// How often the service manager wants to hear of us, halved so that one late word is no death. Absent: it does not.
pub(super) fn period() -> Option<Duration> {
    Some(sd_notify::watchdog_enabled()? / 2)
}

/// Tells the service manager until `stop`.
pub(super) async fn run(period: Duration, hosts: Vec<HostHandle>, stop: CancellationToken) {
    let mut words = interval(period);
    words.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = words.tick() => {}
        }
        if timeout(period, all_answer(&hosts)).await == Ok(true) {
            notify(sd_notify::NotifyState::Watchdog);
        } else {
            tracing::warn!("a host's task does not answer; the service manager is not told that all is well");
        }
    }
}

async fn all_answer(hosts: &[HostHandle]) -> bool {
    for host in hosts {
        let (reply, answer) = oneshot::channel();
        let is_asked = host.commands.send(HostCommand::Status { reply }).await.is_ok();
        if !is_asked || answer.await.is_err() {
            return false;
        }
    }
    true
}
