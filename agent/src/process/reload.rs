//! What changes while the agent runs, when its settings are read anew?
//!
//! On SIGHUP: the log filter, the door, probes, hooks, inventory, mounts and sessions. None of them touches a stream, a
//! socket for timings or the window of latencies, so nothing is lost. Settings that cannot be taken over (names, folders,
//! coordinators, certificates, intervals) are named in the log and hold after a restart; a file with a fault changes
//! nothing at all.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use usher_runtime::telemetry;

use super::notify;
use crate::config::AgentConfig;

/// Reads the settings anew, as they were read at the start. The error is for people.
pub type ReadSettings = dyn Fn() -> Result<AgentConfig, String> + Send + Sync;

/// How the settings are read anew.
#[derive(Clone)]
pub struct Reload(Arc<ReadSettings>);

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reload")
    }
}

impl Reload {
    /// By `read`, which may block.
    pub fn new(read: impl Fn() -> Result<AgentConfig, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Takes settings over at each SIGHUP, until `stop`.
    pub(super) async fn run(self, settings: watch::Sender<Arc<AgentConfig>>, stop: CancellationToken) {
        let mut hang_ups = match signal(SignalKind::hangup()) {
            Ok(hang_ups) => hang_ups,
            Err(error) => {
                tracing::warn!(%error, "settings are not read anew on SIGHUP");
                return stop.cancelled().await;
            }
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = hang_ups.recv() => {}
            }
            // A service manager of the kind `notify-reload` waits for the two words.
            match sd_notify::NotifyState::monotonic_usec_now() {
                Ok(now) => super::notify_all(&[sd_notify::NotifyState::Reloading, now]),
                Err(error) => tracing::debug!(%error, "no monotonic clock for the service manager"),
            }
            self.take_over(&settings).await;
            notify(sd_notify::NotifyState::Ready);
        }
    }

    async fn take_over(&self, settings: &watch::Sender<Arc<AgentConfig>>) {
        let reader = self.0.clone();
        let read = tokio::task::spawn_blocking(move || reader()).await;
        let read = match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(error, "the settings are not taken over: those before stay in force");
                return;
            }
        };
        let (taken, needs_restart) = settings.borrow().taking_over(&read);
        if let Err(error) = telemetry::set_filter(taken.log.filter.as_deref()) {
            tracing::error!(%error, "the log filter stays as it was");
        }
        settings.send_if_modified(|now| {
            let is_new = **now != taken;
            *now = Arc::new(taken);
            is_new
        });
        if needs_restart {
            tracing::warn!(
                "settings are taken over; some that changed hold only after a restart (all but log.filter, door, \
                 probes, hooks, inventory, mounts and sessions)"
            );
        } else {
            tracing::info!("settings are taken over");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SessionConfig;

    #[tokio::test]
    async fn only_sound_settings_are_taken_over_and_only_those_that_can_be() {
        let before = AgentConfig { pool: "desk".into(), ..AgentConfig::default() };
        let (settings, mut seen) = watch::channel(Arc::new(before.clone()));
        Reload::new(|| Err("line 3: unknown key".to_owned())).take_over(&settings).await;
        assert!(!seen.has_changed().unwrap());

        let sessions = SessionConfig { ignore_uids_below: 1000, ..SessionConfig::default() };
        let read = AgentConfig {
            pool: "other".into(),
            mounts: vec!["/srv".into()],
            sessions: sessions.clone(),
            ..before.clone()
        };
        Reload::new(move || Ok(read.clone())).take_over(&settings).await;
        let now = seen.borrow_and_update().clone();
        assert_eq!(*now, AgentConfig { mounts: vec!["/srv".into()], sessions, ..before });

        let same = (*now).clone();
        Reload::new(move || Ok(same.clone())).take_over(&settings).await;
        assert!(!seen.has_changed().unwrap(), "the same settings wake nobody");
    }
}
