//! When does somebody come or go?
//!
//! logind says so at once, to whoever listens: that there is a new session, that one has gone, and of some changes of
//! one. What it says is no more than a reason to look: signals get lost with a bus that restarts, and of the state
//! `closing` there is none. So the host is looked at each second all the same, and sooner after a signal.
//!
//! The listener has a connection and a task of its own, so that signals that nobody takes in time never stand before the
//! answers to questions. It keeps one bit for all of them, and the names of some sessions that changed. A bus that dies
//! is tried again, after a second and then more rarely; when it is back, that is a reason to look as well.

use std::collections::HashMap;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use zbus::message::Type;
use zbus::{MatchRule, Message, MessageStream, OwnedObjectPath};

use super::logind_bus::{BusAddress, SERVICE, SESSION_INTERFACE, connect};

/// Between two tries of a bus that is not there.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long a bus may take to let us listen.
const SUBSCRIBING: Duration = Duration::from_secs(2);
/// Sessions that are remembered as changed. Of more, the others are found changed in the turn of all.
const MAX_CHANGED: usize = 1024;
/// Signals that wait for the task.
const QUEUED: Option<NonZeroUsize> = NonZeroUsize::new(256);

/// What logind said since somebody last looked.
#[derive(Debug, Default)]
pub struct SessionNews {
    came: Notify,
    changed: Mutex<HashSet<OwnedObjectPath>>,
}

impl SessionNews {
    /// Waits until there is a reason to look. Many signals are one reason.
    pub async fn came(&self) {
        self.came.notified().await;
    }

    /// There is a reason to look.
    pub fn tell(&self) {
        self.came.notify_one();
    }

    /// The sessions that changed since the last call, as far as logind says.
    pub(super) fn take_changed(&self) -> HashSet<OwnedObjectPath> {
        std::mem::take(&mut *self.changed())
    }

    pub(super) fn tell_changed(&self, session: OwnedObjectPath) {
        let mut changed = self.changed();
        if changed.len() < MAX_CHANGED {
            changed.insert(session);
        }
        drop(changed);
        self.tell();
    }

    fn changed(&self) -> MutexGuard<'_, HashSet<OwnedObjectPath>> {
        // A set is whole between any two steps.
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens to the logind of the bus at `address` for as long as it is polled.
pub async fn listen(address: BusAddress, news: Arc<SessionNews>) {
    let mut retry = RETRY;
    loop {
        let subscribed = tokio::time::timeout(SUBSCRIBING, Subscription::new(&address)).await;
        match subscribed {
            Ok(Ok(subscription)) => {
                tracing::debug!("logind's signals are heard");
                retry = RETRY;
                // What happened before is not told any more.
                news.tell();
                subscription.follow(&news).await;
                tracing::debug!("the bus of logind's signals has gone");
            }
            Ok(Err(error)) => tracing::debug!(%error, "logind's signals are not heard"),
            Err(_) => tracing::debug!("logind's signals are not heard: the bus is silent"),
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(LONGEST_RETRY);
    }
}

struct Subscription {
    manager: MessageStream,
    sessions: MessageStream,
}

impl Subscription {
    async fn new(address: &BusAddress) -> zbus::Result<Self> {
        let connection = connect(address).await?;
        let rule = || MatchRule::builder().msg_type(Type::Signal).sender(SERVICE);
        let manager = rule().path("/org/freedesktop/login1").interface("org.freedesktop.login1.Manager");
        let sessions = rule()
            .path_namespace("/org/freedesktop/login1/session")
            .interface("org.freedesktop.DBus.Properties")
            .member("PropertiesChanged")
            .add_arg(SESSION_INTERFACE);
        Ok(Self {
            manager: MessageStream::for_match_rule(manager.build()?, &connection, QUEUED).await?,
            sessions: MessageStream::for_match_rule(sessions.build()?, &connection, QUEUED).await?,
        })
    }

    /// Until the bus goes.
    async fn follow(mut self, news: &SessionNews) {
        loop {
            tokio::select! {
                signal = self.manager.next() => match signal {
                    Some(Ok(signal)) => {
                        let header = signal.header();
                        let member = header.member().map(|member| member.as_str());
                        if matches!(member, Some("SessionNew" | "SessionRemoved")) {
                            news.tell();
                        }
                    }
                    Some(Err(_)) | None => return,
                },
                signal = self.sessions.next() => match signal {
                    Some(Ok(signal)) => {
                        if let Some(session) = changed_session(&signal) {
                            news.tell_changed(session);
                        }
                    }
                    Some(Err(_)) | None => return,
                },
            }
        }
    }
}

/// The session of which something changed that matters here. Idle and locked ones are as they were.
fn changed_session(signal: &Message) -> Option<OwnedObjectPath> {
    const WATCHED: [&str; 3] = ["Active", "State", "Class"];
    let body = signal.body();
    let (_, changed, invalidated): (String, HashMap<String, zbus::Variant<'_>>, Vec<String>) =
        body.deserialize().ok()?;
    let is_watched = |name: &String| WATCHED.contains(&name.as_str());
    let matters = changed.keys().any(is_watched) || invalidated.iter().any(is_watched);
    matters.then(|| signal.header().path().map(|path| path.to_owned().into())).flatten()
}

#[cfg(test)]
#[path = "logind_signals_tests.rs"]
mod tests;
