//! Which coordinators does this host have a stream to, and what keeps it from the others?
//!
//! Each coordinator is waited for, called, attached to, or known to refuse the host, which only a person can mend. That
//! it is not attached counts from the loss of the stream, however often it was called since, and the last error stays
//! until the next stream is greeted: so whoever asks sees for how long and why, between two calls as well.
//!
//! One coordinator may stand on the list under two names. It says itself who it is, so the second name rests while the
//! stream under the first is open, and neither streams nor seats are counted for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use usher_types::BootTime;

use crate::coordinators::Coordinator;

/// What is done about a stream to a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamPhase {
    /// The next call is waited for.
    #[default]
    Waiting,
    /// It is called, and has not greeted us yet.
    Connecting,
    /// It has greeted us.
    Attached,
    /// It said no, and only a person can mend that; it is asked again slowly.
    Refused,
    /// It is another name of a coordinator that has a stream already.
    Rests,
}

impl StreamPhase {
    /// As a status writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Attached => "attached",
            Self::Refused => "refused",
            Self::Rests => "rests",
        }
    }
}

/// How the stream to one coordinator fares.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamStatus {
    /// What is done now.
    pub phase: StreamPhase,
    /// Since when it is attached, or is not. Absent: it was not called yet.
    pub since: Option<BootTime>,
    /// When it is called next. Absent: it is attached, or being called.
    pub next_call: Option<BootTime>,
    /// Calls that failed since it last greeted us.
    pub failures: u32,
    /// Why it is not attached, and when that was seen. Absent while it is.
    pub last_error: Option<(String, BootTime)>,
    /// Its newest tick.
    pub heard: Option<BootTime>,
    /// The number of the coordinator that this is another name of.
    pub same_as: Option<usize>,
    /// Reports of this stream that were replaced by newer ones before it had room for them.
    pub superseded_reports: u64,
}

/// The streams of one host, by the number of their coordinator. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct StreamsHeld(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    streams: Mutex<Streams>,
    /// Counts the streams that were lost.
    losses: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Streams {
    held: BTreeMap<usize, Held>,
    /// Who is reported to, in order. Empty: nobody has said so.
    list: Arc<[Coordinator]>,
}

#[derive(Debug, Default)]
struct Held {
    count: u32,
    status: StreamStatus,
    /// What the coordinator calls this run of itself, and the epoch of its stream, while that is open.
    run: Option<(String, u64)>,
    /// What it called itself last, whether its stream is open or not.
    last_run: Option<String>,
}

/// One counted stream; dropping it counts it off.
#[derive(Debug)]
pub struct HeldStream {
    held: StreamsHeld,
    coordinator: usize,
}

impl StreamsHeld {
    /// Counts a stream to the coordinator of this number for as long as the result lives.
    #[must_use]
    pub fn hold(&self, coordinator: usize) -> HeldStream {
        self.streams().held.entry(coordinator).or_default().count += 1;
        HeldStream { held: self.clone(), coordinator }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.streams().held.values().map(|held| held.count).sum()
    }

    /// How many there are to the coordinator of this number.
    #[must_use]
    pub fn to(&self, coordinator: usize) -> u32 {
        self.streams().held.get(&coordinator).map(|held| held.count).unwrap_or_default()
    }

    /// How the stream to the coordinator of this number fares.
    #[must_use]
    pub fn status(&self, coordinator: usize) -> StreamStatus {
        self.streams().held.get(&coordinator).map(|held| held.status.clone()).unwrap_or_default()
    }

    /// Who is reported to, in order. Empty: nobody has said so.
    #[must_use]
    pub fn list(&self) -> Arc<[Coordinator]> {
        self.streams().list.clone()
    }

    /// Those of the list that are not another name of one of them, with their numbers.
    #[must_use]
    pub fn counted(&self) -> Vec<(usize, String)> {
        let streams = self.streams();
        let rests = |number| streams.held.get(&number).is_some_and(|held| held.status.same_as.is_some());
        let counted = streams.list.iter().filter(|known| !rests(known.number));
        counted.map(|known| (known.number, known.target.clone())).collect()
    }

    /// These are reported to from now on; what is known of others is forgotten.
    pub(super) fn set_list(&self, list: &Arc<[Coordinator]>) {
        let mut streams = self.streams();
        streams.list = list.clone();
        let is_listed = |number: &usize| list.iter().any(|known| known.number == *number);
        streams.held.retain(|number, held| is_listed(number) || held.count > 0);
        for held in streams.held.values_mut() {
            held.status.same_as = held.status.same_as.filter(is_listed);
        }
    }

    /// What the coordinators of the other streams call their runs of themselves.
    pub(super) fn instances_beside(&self, coordinator: usize) -> Vec<String> {
        let streams = self.streams();
        let others = streams.held.iter().filter(|(number, _)| **number != coordinator);
        others.filter_map(|(_, held)| Some(held.run.as_ref()?.0.clone())).collect()
    }

    /// Where the coordinators of the other streams are.
    pub(super) fn targets_beside(&self, coordinator: usize) -> Vec<String> {
        let streams = self.streams();
        let is_attached = |number| streams.held.get(&number).is_some_and(|held| held.run.is_some());
        let others =
            streams.list.iter().filter(|known| known.number != coordinator && is_attached(known.number));
        others.map(|known| known.target.clone()).collect()
    }

    /// The number of the coordinator whose stream this run of it has.
    pub(super) fn number_of(&self, instance: &str) -> Option<usize> {
        let streams = self.streams();
        let is_it = |held: &Held| held.run.as_ref().is_some_and(|(name, _)| name == instance);
        let found = streams.held.iter().find(|(_, held)| is_it(held));
        found.map(|(number, _)| *number)
    }

    /// It is another name of `same_as`, and is called again at `next_call` if that stream stands. Whether it begins to rest.
    pub(super) fn rests(
        &self,
        coordinator: usize,
        same_as: usize,
        now: BootTime,
        next_call: BootTime,
    ) -> bool {
        let mut begins = false;
        self.change(coordinator, |status| {
            begins = status.phase != StreamPhase::Rests;
            let since = status.since.filter(|_| status.same_as == Some(same_as)).or(Some(now));
            let (phase, next_call, same_as) = (StreamPhase::Rests, Some(next_call), Some(same_as));
            *status = StreamStatus { phase, since, next_call, same_as, ..StreamStatus::default() };
        });
        begins
    }

    /// The coordinator that this one is another name of, if that has a stream.
    pub(super) fn same_as(&self, coordinator: usize) -> Option<usize> {
        let streams = self.streams();
        let same_as = streams.held.get(&coordinator)?.status.same_as?;
        streams.held.get(&same_as).filter(|held| held.run.is_some()).map(|_| same_as)
    }

    /// It has let us in under this name: for itself, until it says otherwise. Whether it was taken for another's name.
    pub(super) fn stands_alone(&self, coordinator: usize) -> bool {
        self.streams().held.entry(coordinator).or_default().status.same_as.take().is_some()
    }

    /// Counts streams that are lost, to be waited for.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        self.0.losses.subscribe()
    }

    /// It is called at `next_call`.
    pub(super) fn waits(&self, coordinator: usize, refused: bool, now: BootTime, next_call: BootTime) {
        self.change(coordinator, |status| {
            status.phase = if refused { StreamPhase::Refused } else { StreamPhase::Waiting };
            status.since.get_or_insert(now);
            status.next_call = Some(next_call);
        });
    }

    /// It is called. One that has refused us is still known to, until it greets us; one that rests still does.
    pub(super) fn connects(&self, coordinator: usize) {
        self.change(coordinator, |status| {
            if !matches!(status.phase, StreamPhase::Refused | StreamPhase::Rests) {
                status.phase = StreamPhase::Connecting;
            }
            status.next_call = None;
        });
    }

    /// It has greeted us on the stream of this epoch, and calls this run of itself `instance`. Whether another name of it
    /// has a stream: it keeps the one of the higher epoch, and the other name rests.
    pub(super) fn attached(&self, coordinator: usize, instance: &str, epoch: u64, now: BootTime) -> bool {
        let mut streams = self.streams();
        // One that does not say who it is may be anybody.
        let run = (!instance.is_empty()).then(|| (instance.to_owned(), epoch));
        let is_same = |held: &Held| held.run.as_ref().is_some_and(|(name, _)| name == instance);
        let other = streams.held.iter().find(|(number, held)| **number != coordinator && is_same(held));
        let other = other.and_then(|(number, held)| Some((*number, held.run.as_ref()?.1)));
        let rests = match other {
            None => None,
            Some((other, older)) if older < epoch => Some((other, coordinator)),
            Some((other, _)) => Some((coordinator, other)),
        };
        let held = streams.held.entry(coordinator).or_default();
        held.last_run = run.as_ref().map(|(name, _)| name.clone());
        held.run = run;
        let (phase, heard) = (StreamPhase::Attached, held.status.heard);
        held.status = StreamStatus { phase, since: Some(now), heard, ..StreamStatus::default() };
        if let Some((rests, same_as)) = rests
            && let Some(held) = streams.held.get_mut(&rests)
        {
            (held.run, held.status.same_as) = (None, Some(same_as));
        }
        // The end of a stream that was given up for this one may have been read before this greeting.
        let mut is_known = rests.is_some();
        for (number, held) in &mut streams.held {
            let is_same = held.last_run.as_deref() == Some(instance) && !instance.is_empty();
            if *number != coordinator && is_same && held.run.is_none() && held.status.same_as.is_none() {
                (held.status.same_as, is_known) = (Some(coordinator), true);
            }
        }
        is_known
    }

    /// Its newest tick has come.
    pub(super) fn heard(&self, coordinator: usize, now: BootTime) {
        self.change(coordinator, |status| status.heard = Some(now));
    }

    /// So many reports were replaced by a newer one before the stream had room for them.
    pub(super) fn superseded(&self, coordinator: usize, reports: u64) {
        if reports > 0 {
            self.change(coordinator, |status| status.superseded_reports += reports);
        }
    }

    /// The stream is over, or was never opened.
    pub(super) fn ended(&self, coordinator: usize, why: String, now: BootTime) {
        self.streams().held.entry(coordinator).or_default().run = None;
        self.0.losses.send_modify(|losses| *losses += 1);
        self.change(coordinator, |status| {
            if status.phase == StreamPhase::Attached {
                (status.phase, status.since) = (StreamPhase::Waiting, Some(now));
            }
            status.failures = status.failures.saturating_add(1);
            status.last_error = Some((why, now));
        });
    }

    fn change(&self, coordinator: usize, change: impl FnOnce(&mut StreamStatus)) {
        change(&mut self.streams().held.entry(coordinator).or_default().status);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // No change here can break off half done.
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        if let Some(held) = self.held.streams().held.get_mut(&self.coordinator) {
            held.count = held.count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_millis(seconds * 1000)
    }

    #[test]
    fn the_time_without_a_stream_counts_from_its_loss_and_the_reason_stays_between_two_calls() {
        let streams = StreamsHeld::default();
        assert_eq!(streams.status(0), StreamStatus::default());
        streams.waits(0, false, at(1), at(2));
        streams.connects(0);
        assert_eq!((streams.status(0).phase, streams.status(0).next_call), (StreamPhase::Connecting, None));
        streams.attached(0, "run 1", 1, at(3));
        streams.heard(0, at(9));
        streams.ended(0, "the coordinator ended the stream".into(), at(10));
        for call in [11, 21] {
            streams.waits(0, false, at(call), at(call + 5));
            streams.connects(0);
            streams.ended(0, "connection refused".into(), at(call + 6));
        }
        let status = streams.status(0);
        assert_eq!(
            (status.phase, status.since, status.heard),
            (StreamPhase::Connecting, Some(at(10)), Some(at(9)))
        );
        assert_eq!((status.failures, status.last_error), (3, Some(("connection refused".into(), at(27)))));
        streams.attached(0, "run 2", 2, at(30));
        let status = streams.status(0);
        assert_eq!((status.since, status.failures, status.last_error), (Some(at(30)), 0, None));
    }

    #[test]
    fn one_that_refuses_us_is_said_to_until_it_greets_us() {
        let streams = StreamsHeld::default();
        streams.ended(1, "AlreadyExists: the id is in use".into(), at(1));
        streams.waits(1, true, at(1), at(20));
        streams.connects(1);
        assert_eq!(streams.status(1).phase, StreamPhase::Refused);
        streams.waits(1, false, at(20), at(21));
        assert_eq!(streams.status(1).phase, StreamPhase::Waiting, "now it is only gone");
    }

    fn known(number: usize) -> Coordinator {
        let origin = crate::coordinators::Origin::Settings;
        Coordinator { number, target: format!("c{number}:7443"), origin }
    }

    #[test]
    fn a_second_name_of_one_coordinator_rests_while_the_first_has_its_stream_and_counts_for_nothing() {
        let streams = StreamsHeld::default();
        streams.set_list(&[known(0), known(1)].into());
        let _held = streams.hold(0);
        assert!(!streams.attached(0, "run 1", 1, at(1)));
        assert_eq!(streams.instances_beside(1), ["run 1"]);
        assert_eq!(streams.number_of("run 1"), Some(0));
        assert!(streams.rests(1, 0, at(2), at(60)));
        streams.connects(1);
        assert!(!streams.rests(1, 0, at(60), at(120)), "it was looked at");
        assert_eq!((streams.count(), streams.counted()), (1, vec![(0, "c0:7443".into())]));
        assert_eq!(streams.same_as(1), Some(0));
        streams.ended(0, "gone".into(), at(5));
        assert_eq!(streams.same_as(1), None, "it is looked at again");
        assert_eq!(streams.counted().len(), 1, "and is taken for the same until it says otherwise");
        assert!(streams.stands_alone(1));
        streams.attached(1, "run 2", 2, at(7));
        assert_eq!(streams.counted().len(), 2);
    }

    #[test]
    fn of_two_streams_to_one_coordinator_that_cannot_refuse_the_second_the_first_rests() {
        let streams = StreamsHeld::default();
        streams.set_list(&[known(0), known(1)].into());
        streams.attached(0, "run 1", 1, at(1));
        assert!(streams.attached(1, "run 1", 2, at(2)));
        assert_eq!((streams.same_as(0), streams.same_as(1)), (Some(1), None));
        streams.ended(0, "a newer stream took over".into(), at(2));
        assert_eq!(streams.same_as(0), Some(1));
        // The same, when the end of the first is read before the second's greeting.
        let early = StreamsHeld::default();
        early.set_list(&[known(0), known(1)].into());
        early.attached(0, "run 1", 1, at(1));
        early.ended(0, "a newer stream took over".into(), at(2));
        assert!(early.attached(1, "run 1", 2, at(2)));
        assert_eq!((early.same_as(0), early.counted().len()), (Some(1), 1));
        // The same, when the younger stream's greeting is read first.
        let late = StreamsHeld::default();
        late.set_list(&[known(0), known(1)].into());
        late.attached(1, "run 1", 2, at(1));
        assert!(late.attached(0, "run 1", 1, at(1)));
        assert_eq!((late.same_as(0), late.same_as(1)), (Some(1), None));
        streams.set_list(&[known(0)].into());
        assert_eq!((streams.same_as(0), streams.counted().len()), (None, 1), "the other is gone");
    }

    #[test]
    fn streams_are_counted_for_as_long_as_they_are_held() {
        let streams = StreamsHeld::default();
        let (first, second) = (streams.hold(0), streams.hold(0));
        assert_eq!((streams.count(), streams.to(0), streams.to(1)), (2, 2, 0));
        drop((first, second));
        assert_eq!((streams.count(), streams.status(0)), (0, StreamStatus::default()));
    }
}
