//! When does a modelled host move, and what does it tell?
//!
//! One task for all of them. It looks every tenth of a second which hosts have something to do: a logon under way, a
//! report or a period that is due. Reports are spread over the interval, as those of real hosts are.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use usher_runtime::clock::Clock;
use usher_types::BootTime;

use super::fixed::FixedValues;
use super::model::ModelHost;
use crate::host::{PlaceNews, SourceEvent};

const TICK: Duration = Duration::from_millis(100);

/// What stands in for a machine.
#[derive(Debug)]
pub enum Source {
    /// Users come, work and go.
    Model(Box<ModelHost>),
    /// Nothing moves.
    Fixed(FixedValues),
}

/// Something that happens again and again. Seconds.
#[derive(Debug, Clone, Copy)]
struct Timer {
    next_s: f64,
    interval_s: f64,
}

impl Timer {
    /// Whether it is time. After a pause it is time once, not as often as was missed.
    fn is_due(&mut self, now_s: f64) -> bool {
        if now_s < self.next_s {
            return false;
        }
        self.next_s += self.interval_s;
        if self.next_s <= now_s {
            self.next_s = now_s + self.interval_s;
        }
        true
    }
}

/// One modelled host.
#[derive(Debug)]
pub struct Slot {
    source: Source,
    events: mpsc::Sender<SourceEvent>,
    told: bool,
    reports: Timer,
    periods: Timer,
}

impl Slot {
    /// A host that tells its `events`: at once, and then every interval. Its position among all hosts, `index`, spreads
    /// the reports of many over the interval.
    #[must_use]
    pub fn new(
        source: Source,
        events: mpsc::Sender<SourceEvent>,
        index: usize,
        report_interval: Duration,
        period: Duration,
    ) -> Self {
        // Fractions of multiples of the golden ratio lie evenly, however many there are.
        let phase = (index as f64 * 0.618_033_988_749_895).fract();
        let timer = |interval: Duration| {
            let interval_s = interval.as_secs_f64();
            Timer { next_s: interval_s * phase, interval_s }
        };
        Self { source, events, told: false, reports: timer(report_interval), periods: timer(period) }
    }
}

/// Moves all modelled hosts of one process.
#[derive(Debug)]
pub struct Ticker {
    slots: Vec<Slot>,
    places: mpsc::Receiver<PlaceNews>,
    clock: Arc<dyn Clock>,
    started: BootTime,
}

impl Ticker {
    /// Hosts whose number in `places` is their position in `slots`.
    #[must_use]
    pub fn new(slots: Vec<Slot>, places: mpsc::Receiver<PlaceNews>, clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Self { slots, places, clock, started }
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.tick(),
                Some(news) = self.places.recv() => self.take(news),
            }
        }
    }

    fn seconds(&self) -> f64 {
        self.clock.now().since(self.started).as_secs_f64()
    }

    fn take(&mut self, news: PlaceNews) {
        let now_s = self.seconds();
        let Some(slot) = self.slots.get_mut(news.host()) else { return };
        let Source::Model(model) = &mut slot.source else { return };
        match news {
            PlaceNews::Given { token, user, .. } => model.place(token, user, now_s),
            PlaceNews::Withdrawn { token, .. } => model.withdraw(&token),
        }
    }

    fn tick(&mut self) {
        let now_s = self.seconds();
        let uptime = self.clock.now().since(BootTime::ZERO);
        for slot in &mut self.slots {
            slot.tick(now_s, uptime);
        }
    }
}

impl Slot {
    fn tick(&mut self, now_s: f64, uptime: Duration) {
        let first = !std::mem::replace(&mut self.told, true);
        let reports = self.reports.is_due(now_s) | first;
        // What a fixed host's latency is needs no period to be known.
        let ends = self.periods.is_due(now_s) | (first && matches!(self.source, Source::Fixed(_)));
        let (values, occupancy, calls) = match &mut self.source {
            Source::Fixed(values) => (
                reports.then(|| values.measurement(uptime)),
                reports.then(|| values.occupancy()),
                if ends { values.calls() } else { None },
            ),
            Source::Model(model) => {
                if !(reports || ends || model.is_active()) {
                    return;
                }
                let changed = model.advance(now_s);
                (
                    reports.then(|| model.measure(uptime)),
                    (reports || changed).then(|| model.occupancy()),
                    if ends { model.calls() } else { None },
                )
            }
        };
        match (values, occupancy) {
            (Some(values), Some(occupancy)) => {
                self.send(SourceEvent::Measured { values: Box::new(values), occupancy })
            }
            (None, Some(occupancy)) => self.send(SourceEvent::Sessions { occupancy, logons: None }),
            _ => {}
        }
        if let Some(calls) = calls {
            self.send(SourceEvent::Calls(vec![calls.into()]));
            self.send(SourceEvent::PeriodEnded);
        }
    }

    /// A host that is so far behind that its queue is full hears the next report instead.
    fn send(&self, event: SourceEvent) {
        if self.events.try_send(event).is_err() {
            tracing::debug!("a modelled host is behind or gone: an event is dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_126_after_a_pause_there_is_one_report() {
        let mut timer = Timer { next_s: 1.0, interval_s: 5.0 };
        assert!(!timer.is_due(0.9));
        assert!(timer.is_due(1.0));
        assert!(timer.is_due(6.1));
        assert!(timer.is_due(126.0));
        assert!(!timer.is_due(130.9));
        assert!(timer.is_due(131.0));
    }

    #[test]
    fn a_host_tells_its_state_at_once_and_a_fixed_one_its_latency_too() {
        let second = Duration::from_secs(1);
        for (source, events) in [
            (Source::Fixed("users=3,ai-xf=2".parse().unwrap()), 3),
            (Source::Model(Box::new(ModelHost::new("virtual-1", 1))), 1),
        ] {
            let (sender, mut receiver) = mpsc::channel(8);
            let mut slot = Slot::new(source, sender, 1, 5 * second, 15 * second);
            slot.tick(0.0, second);
            slot.tick(0.1, second);
            assert!(matches!(receiver.try_recv().unwrap(), SourceEvent::Measured { .. }));
            assert_eq!(receiver.len(), events - 1);
        }
    }
}
