//! In which order do things happen to a host?
//!
//! One task owns the host, so everything that is asked of it is decided one after the other. Commands are taken as many
//! as wait: all are decided, the book is written once, then all are answered. Nobody is told "admitted" before the
//! book is on disk; when it cannot be written the asks stay without an answer, and their coordinators cancel them and
//! ask another host.
//!
//! A report goes out with every measurement, and within 100 ms when users or places change between two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use usher_placement::host::{
    HostCore, Occupancy, Report, SessionList, Standing, ToldShare, VersionedSettings,
};
use usher_runtime::clock::Clock;
use usher_types::{DoorKind, Latency, OperationName, Outcome, PoolName, RefusalReason, Session};

use super::baselines::BaselineStore;
use super::calls::CallCounter;
use super::handle::{Answer, HostCommand, PlaceNews};
use super::held_seats::HeldSeats;
use super::listing::{Listing, same_sessions};
use super::occupancy_log::OccupancyLog;
use super::source::SourceEvent;
use super::status::HostStatus;
use crate::admission::PlacesFile;
use crate::report::StreamsHeld;

mod checks;

use checks::WaitingCheck;

/// Shortest time between two reports that are not measurements: a burst of logins is told in few messages, and still
/// faster than anybody logs in.
const PUBLISH_GAP: Duration = Duration::from_millis(100);
/// Commands decided with one write of the book.
const BATCH: usize = 256;

/// Where a host shows its state.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) load: watch::Sender<Option<Arc<Report>>>,
    /// Counts the reports that were made.
    pub(crate) reports: Arc<AtomicU64>,
    pub(crate) latency: watch::Sender<Option<Arc<Latency>>>,
    pub(crate) sessions: watch::Sender<Option<Arc<Listing<Session>>>>,
    /// What the pool says that the host's door speaks.
    pub(crate) door: watch::Sender<DoorKind>,
    pub(crate) occupancy: Option<OccupancyLog>,
}

/// Where a host's input comes from.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) commands: mpsc::Receiver<HostCommand>,
    pub(crate) source: mpsc::Receiver<SourceEvent>,
    /// Asks the source for a fresh look. Absent: the source is always up to date.
    pub(crate) refresh: Option<Arc<Notify>>,
    /// Hears of places, under the host's number. Absent: users come by themselves.
    pub(crate) placed: Option<(usize, mpsc::Sender<PlaceNews>)>,
    /// What the host says of itself beside its measurements.
    pub(crate) standing: watch::Receiver<Standing>,
    /// Whom it reports to.
    pub(crate) streams: StreamsHeld,
}

/// The task of one host.
#[derive(Debug)]
pub struct HostTask {
    core: HostCore,
    places: PlacesFile,
    baselines: Option<BaselineStore>,
    clock: Arc<dyn Clock>,
    inputs: Inputs,
    outputs: Outputs,
    calls: CallCounter,
    published: Option<Instant>,
    dirty: bool,
    /// What coordinators may have been told, as it is on the disk.
    told: Vec<ToldShare>,
    held_seats: HeldSeats,
    /// The last write of the book failed.
    book_is_unkept: bool,
    /// Baselines were forgotten: that must be told and kept.
    forgot: bool,
    checks: Vec<WaitingCheck>,
    checks_due: Option<Instant>,
}

impl HostTask {
    pub(crate) fn new(
        core: HostCore,
        places: PlacesFile,
        baselines: Option<BaselineStore>,
        clock: Arc<dyn Clock>,
        inputs: Inputs,
        outputs: Outputs,
    ) -> Self {
        Self {
            told: core.told_shares(),
            held_seats: HeldSeats::default(),
            core,
            places,
            baselines,
            clock,
            inputs,
            outputs,
            calls: CallCounter::default(),
            published: None,
            dirty: false,
            book_is_unkept: false,
            forgot: false,
            checks: Vec::new(),
            checks_due: None,
        }
    }

    /// Runs until `stop`, or until the source ends. What was learned is on disk when this returns.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        // A drain of before the restart is in the very first report.
        self.take_standing().await;
        loop {
            let publish_at = self.publish_at();
            let expires_at = self.expires_at();
            let reach_at = self.reach_at();
            tokio::select! {
                () = stop.cancelled() => break,
                taken = self.inputs.commands.recv_many(&mut batch, BATCH) => {
                    // Without streams and handles nobody can see this host any more.
                    if taken == 0 {
                        break;
                    }
                    self.take_commands(&mut batch).await;
                }
                event = self.inputs.source.recv() => match event {
                    Some(event) => self.take_event(event).await,
                    None => break,
                },
                Ok(()) = self.inputs.standing.changed() => self.take_standing().await,
                () = at(publish_at) => self.publish().await,
                () = at(expires_at) => self.take_expiry().await,
                () = at(reach_at) => self.follow_reach(),
                () = at(self.checks_due) => self.answer_checks(),
            }
            self.outputs.note_occupancy(&self.core, &*self.clock);
        }
        self.save_baselines().await;
        if let Some(baselines) = &mut self.baselines {
            baselines.finish().await;
        }
    }

    fn publish_at(&self) -> Option<Instant> {
        self.dirty.then(|| self.published.map_or_else(Instant::now, |at| at + PUBLISH_GAP))
    }

    fn expires_at(&self) -> Option<Instant> {
        let left = self.core.next_expiry()?.since(self.clock.now());
        Some(Instant::now() + left)
    }

    /// When a coordinator is next heard, or not heard, without any word of it.
    fn reach_at(&self) -> Option<Instant> {
        let now = self.clock.now();
        Some(Instant::now() + self.core.next_reach_change(now)?.since(now))
    }

    /// What is kept free for coordinators that are not heard may have changed.
    fn follow_reach(&mut self) {
        self.dirty |= self.core.reach_changed(self.clock.now());
    }

    async fn publish(&mut self) {
        self.dirty = false;
        self.published = Some(Instant::now());
        let Some(report) = self.core.publish(self.clock.now(), self.clock.wall_unix_ms()) else { return };
        // Whoever hears of more room than before may give it: an agent that starts anew must know.
        if self.core.told_more_than(&self.told) {
            self.keep_book().await;
        }
        self.outputs.reports.fetch_add(1, Ordering::Relaxed);
        self.outputs.load.send_replace(Some(Arc::new(report)));
    }

    async fn take_standing(&mut self) {
        let standing = self.inputs.standing.borrow_and_update().clone();
        self.dirty = true;
        if self.core.set_standing(standing, self.clock.now()) {
            self.keep_book().await;
        }
    }

    fn status(&self) -> HostStatus {
        let now = self.clock.now();
        let operations = self.core.operations();
        HostStatus {
            load: self.core.load(now, self.clock.wall_unix_ms()),
            totals: operations.totals().map(|(name, counts)| (name.clone(), counts)).collect(),
            window: operations.window(now),
            overflow_calls: operations.overflow_calls(),
            refused: self.calls.refused(),
            unheard: self.core.unheard(now).map(str::to_owned).collect(),
            unlisted_sessions: self.core.session_list().unlisted,
            commands_waiting: self.inputs.commands.len(),
            events_waiting: self.inputs.source.len(),
            checks_waiting: self.checks.len(),
            book_is_unkept: self.book_is_unkept,
        }
    }

    async fn take_commands(&mut self, batch: &mut Vec<HostCommand>) {
        let mut answers = Vec::new();
        let was_latched = self.core.latched();
        let mut changed = self.core.expire(self.clock.now());
        // Whoever kept a drain told the board before it came here.
        if self.inputs.standing.has_changed().unwrap_or(false) {
            self.take_standing().await;
        }
        for command in batch.drain(..) {
            changed |= self.decide(command, &mut answers);
        }
        changed |= was_latched != self.core.latched();
        self.follow_reach();
        if changed {
            self.dirty = true;
            if !self.keep_book().await {
                answers.clear();
            }
        }
        // A report that is due goes first: both leave in one packet then.
        if self.publish_at().is_some_and(|due| due <= Instant::now()) {
            self.publish().await;
        }
        for (reply, answer) in answers {
            send(&reply, answer);
        }
        if std::mem::take(&mut self.forgot) {
            let now = self.clock.now();
            self.outputs.latency.send_replace(Some(Arc::new(self.core.latency(now))));
            // A save that is under way has the old ones.
            if let Some(baselines) = &mut self.baselines {
                baselines.finish().await;
            }
            self.save_baselines().await;
        }
    }

    fn tell_model(&self, news: impl FnOnce(usize) -> PlaceNews) {
        if let Some((host, places)) = &self.inputs.placed
            && places.try_send(news(*host)).is_err()
        {
            tracing::debug!("the model is behind: it does not hear of a place");
        }
    }

    /// Whether the book changed.
    fn decide(&mut self, command: HostCommand, answers: &mut Vec<(mpsc::Sender<Answer>, Answer)>) -> bool {
        let now = self.clock.now();
        match command {
            HostCommand::Coordinators => {
                let counted = self.inputs.streams.counted();
                let counted = counted.iter().map(|(number, name)| (*number, name.as_str()));
                self.core.number_coordinators(counted);
                self.dirty = true;
                // What they may have been told must outlive this agent.
                true
            }
            HostCommand::Attached { from } => {
                self.core.stream_opened(from);
                self.dirty = true;
                self.ask_for_refresh();
                false
            }
            HostCommand::Ticked { from } => {
                self.core.tick_heard(from, now);
                false
            }
            HostCommand::Detached { from } => {
                // The other coordinators hear at once that there is one stream less.
                self.dirty |= self.core.stream_closed(from);
                false
            }
            HostCommand::Expect { from, place, ask, limits, reply } => {
                let decided = self.core.expect(from, &place, ask, limits, now);
                // The coordinator does not know that the place has ended, or is another's: the next report lists it.
                self.dirty |= matches!(decided, Err(RefusalReason::Ended | RefusalReason::Reused));
                if ask {
                    let refused = decided.err();
                    let answer =
                        Answer::Place { token: place.token.clone(), attempt: place.attempt, refused };
                    answers.push((reply, answer));
                }
                if decided.is_ok() {
                    let (token, user) = (place.token, place.user);
                    self.tell_model(|host| PlaceNews::Given { host, token, user });
                }
                decided.is_ok()
            }
            HostCommand::End { token, attempt, reason } => {
                let ended = self.core.end(&token, attempt, reason, now);
                if ended {
                    self.tell_model(|host| PlaceNews::Withdrawn { host, token });
                }
                ended
            }
            HostCommand::Outcome(told) => {
                let changed = self.core.outcome(&told, now);
                if changed && matches!(told.outcome, Outcome::Failed | Outcome::Cancelled) {
                    self.tell_model(|host| PlaceNews::Withdrawn { host, token: told.token });
                }
                changed
            }
            HostCommand::ConfirmedElsewhere { age } => self.core.confirmed_elsewhere(age, now),
            HostCommand::ResetBaselines { operation } => {
                self.forget_baselines(operation.as_ref());
                false
            }
            HostCommand::DrainKept { answer, reply } => {
                // The next report is at once, and none of before is after the answer.
                self.published = None;
                self.dirty = true;
                answers.push((reply, Answer::Drain(answer)));
                false
            }
            HostCommand::Settings { from, pool, settings } => {
                self.take_settings(from, &pool, *settings);
                false
            }
            HostCommand::Status { reply } => {
                // Whoever asked may have gone.
                let _ = reply.send(Box::new(self.status()));
                false
            }
            HostCommand::CheckSession { check_id, session_id, user, reply } => {
                self.check(WaitingCheck { check_id, session_id, user, reply });
                false
            }
        }
    }

    fn forget_baselines(&mut self, operation: Option<&OperationName>) {
        let forgotten = self.core.reset_baselines(operation, self.clock.now());
        let operation = operation.map_or("all", |name| name.as_str());
        tracing::info!(operation, forgotten, "baselines are forgotten, as a coordinator asked");
        self.forgot = true;
    }

    fn take_settings(&mut self, from: usize, pool: &PoolName, settings: VersionedSettings) {
        if pool != self.core.pool() {
            tracing::warn!(told = %pool, ours = %self.core.pool(), "settings of another pool are ignored");
            return;
        }
        if self.core.settings_told(from, settings, self.clock.now()) {
            self.dirty = true;
            let door = self.core.told_policy().map(|policy| policy.kind).unwrap_or_default();
            self.outputs.door.send_if_modified(|told| std::mem::replace(told, door) != door);
            // They may say that names travel in another form.
            if self.outputs.sessions.borrow().is_some() {
                self.publish_sessions();
            }
        }
    }

    async fn take_event(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Measured { mut values, occupancy } => {
                let (listed, now) = (matches!(occupancy, Occupancy::Listed(_)), self.clock.now());
                values.collectors.extend(self.baselines.as_ref().and_then(|kept| kept.collector(now)));
                let changed = self.core.measure(*values, occupancy, now);
                // Less room than the disk says costs places only after a restart: that can wait for a measurement.
                let is_kept = self.core.told_shares() == self.told;
                self.sessions_seen(listed, changed || !is_kept).await;
                self.held_seats.look(&self.core, self.clock.now());
                self.publish().await;
            }
            SourceEvent::Sessions { occupancy, logons } => {
                let (listed, now) = (matches!(occupancy, Occupancy::Listed(_)), self.clock.now());
                let changed = self.core.occupy(occupancy, now);
                if let Some(logons) = logons {
                    self.core.logons_told(logons, now);
                }
                self.dirty |= changed;
                self.sessions_seen(listed, changed).await;
            }
            SourceEvent::Calls(words) => self.calls.take(&mut self.core, words, self.clock.now()),
            SourceEvent::PeriodEnded => self.end_period().await,
        }
    }

    async fn sessions_seen(&mut self, listed: bool, book_changed: bool) {
        if book_changed {
            self.keep_book().await;
        }
        if listed {
            self.publish_sessions();
        }
        self.answer_checks();
    }

    fn publish_sessions(&self) {
        let SessionList { sessions, unlisted, taken_at } = self.core.session_list();
        let before = self.outputs.sessions.borrow().clone();
        let same = |before: &Arc<Listing<Session>>| {
            before.unlisted == unlisted && same_sessions(&before.items, &sessions)
        };
        if !before.as_ref().is_some_and(same) {
            let list = Listing::after(before.as_deref(), sessions, unlisted, taken_at);
            self.outputs.sessions.send_replace(Some(Arc::new(list)));
        }
    }

    async fn end_period(&mut self) {
        let was_latched = self.core.latched();
        self.calls.age_in_flight(&mut self.core, self.clock.now());
        let latency = self.core.end_period(self.clock.now());
        self.outputs.latency.send_replace(Some(Arc::new(latency)));
        if was_latched != self.core.latched() {
            self.dirty = true;
            self.keep_book().await;
        }
        self.save_baselines().await;
    }

    async fn save_baselines(&mut self) {
        if let Some(baselines) = &mut self.baselines {
            let (now, wall) = (self.clock.now(), self.clock.wall_unix_ms());
            baselines.save(self.core.operations(), now, wall).await;
        }
    }

    async fn take_expiry(&mut self) {
        if self.core.expire(self.clock.now()) {
            self.dirty = true;
            self.keep_book().await;
        }
    }

    /// Whether what must outlive the agent is on disk as it is now.
    async fn keep_book(&mut self) -> bool {
        let file = self.places.clone();
        let kept = self.core.record();
        let told = self.core.told_shares();
        let kept = if file.is_in_memory() {
            Ok(file.save(kept))
        } else {
            tokio::task::spawn_blocking(move || file.save(kept)).await
        };
        let is_kept = match kept {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                let error = crate::sample::describe(&error);
                tracing::warn!(error, "the book of places is not kept; nobody is admitted until it is");
                false
            }
            Err(error) => {
                tracing::error!(%error, "the thread that writes the book of places broke off");
                false
            }
        };
        if is_kept {
            self.told = told;
        }
        self.book_is_unkept = !is_kept;
        // Before anybody is answered.
        self.outputs.note_occupancy(&self.core, &*self.clock);
        is_kept
    }
}

fn send(reply: &mpsc::Sender<Answer>, answer: Answer) {
    if reply.try_send(answer).is_err() {
        tracing::debug!("a coordinator went away or does not read its answers: one is dropped");
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
