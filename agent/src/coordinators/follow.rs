//! When is DNS asked who the coordinators are, and what follows?
//!
//! Each service when its answer has grown old by its own TTL, within 30 s..1 h: a zone that says 0 must not make a
//! thousand agents ask each second, one that says a week must not keep a new coordinator unknown for so long. Soon after
//! a stream was lost as well, since a coordinator that moved has other records now, but not more often than every 10 s.
//! Without an answer it is asked again after 2 s, then twice as long each time up to a minute. All waits are drawn from a
//! range, so that agents which lost one coordinator in one moment do not all ask in one.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Coordinators;
use super::lookup::{Found, Lookup};
use super::remembered::RememberedFile;
use super::roster::{Coordinator, Roster, ServiceStatus};

/// Bounds of the age that an answer may reach.
const TTL: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
/// Bounds of the wait after no answer.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Shortest time between an answer and the next question for a lost stream.
const AFTER_LOSS: Duration = Duration::from_secs(10);

/// Says that a stream was lost. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Losses(Arc<Notify>);

impl Losses {
    /// A stream to a coordinator was lost, or could not be opened.
    pub fn lost(&self) {
        self.0.notify_one();
    }
}

#[derive(Debug)]
struct Service {
    name: String,
    due: Instant,
    failures: u32,
    answered: Option<Instant>,
    /// When somebody was last counted as missing.
    counted: Option<Instant>,
}

/// Keeps the list of coordinators up to date.
#[derive(Debug)]
pub struct Follower {
    roster: Roster,
    lookup: Arc<dyn Lookup>,
    file: RememberedFile,
    losses: Losses,
    rng: StdRng,
    services: Vec<Service>,
    coordinators: watch::Sender<Arc<[Coordinator]>>,
    status: watch::Sender<Arc<[ServiceStatus]>>,
    /// What is known is on the disk, or on its way there.
    is_saved: bool,
    saving: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins with what `roster` knows; what comes of it is kept in `file`. The list, and what came of its services.
    pub fn new(
        roster: Roster,
        lookup: Arc<dyn Lookup>,
        file: RememberedFile,
        losses: Losses,
        rng: StdRng,
    ) -> (Self, Coordinators, watch::Receiver<Arc<[ServiceStatus]>>) {
        let (coordinators, list) = watch::channel(roster.coordinators().into());
        let (status, fares) = watch::channel(roster.status().into());
        let now = Instant::now();
        let service = |name: &str| Service {
            name: name.to_owned(),
            due: now,
            failures: 0,
            answered: None,
            counted: None,
        };
        let services = roster.services().map(service).collect();
        let (is_saved, saving) = (true, None);
        let follower =
            Self { roster, lookup, file, losses, rng, services, coordinators, status, is_saved, saving };
        (follower, list, fares)
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let next = self.services.iter().enumerate().min_by_key(|(_, service)| service.due);
            let Some((next, due)) = next.map(|(at, service)| (at, service.due)) else {
                return stop.cancelled().await;
            };
            let losses = self.losses.clone();
            tokio::select! {
                () = stop.cancelled() => return,
                () = losses.0.notified() => {
                    self.hasten();
                    continue;
                }
                () = sleep_until(due) => {}
            }
            let (lookup, name) = (self.lookup.clone(), self.services[next].name.clone());
            let found = tokio::select! {
                () = stop.cancelled() => return,
                found = lookup.look_up(&name) => found,
            };
            match found {
                Ok(found) => self.answered(next, &found),
                Err(error) => self.failed(next, &error.to_string()),
            }
            self.publish();
            self.remember();
        }
    }

    /// A stream was lost: what DNS said may be old.
    fn hasten(&mut self) {
        let now = Instant::now();
        for service in &mut self.services {
            let earliest = service.answered.map_or(now, |answered| answered + AFTER_LOSS).max(now);
            let soon = earliest + Duration::from_secs(2).mul_f64(self.rng.random());
            // One that does not answer has its own pace.
            if service.failures == 0 && soon < service.due {
                service.due = soon;
            }
        }
    }

    fn answered(&mut self, at: usize, found: &Found) {
        let now = Instant::now();
        let service = &mut self.services[at];
        let counts = service.counted.is_none_or(|counted| now.duration_since(counted) >= TTL.0);
        if counts {
            service.counted = Some(now);
        }
        if std::mem::take(&mut service.failures) > 0 {
            tracing::info!(service = service.name, "DNS names the coordinators again");
        }
        service.answered = Some(now);
        // Never before the shortest time: the answer after it is to count.
        service.due = now + found.ttl.clamp(TTL.0, TTL.1).mul_f64(1.0 + 0.1 * self.rng.random::<f64>());
        let name = service.name.clone();
        self.roster.answered(&name, &found.targets, counts);
    }

    fn failed(&mut self, at: usize, error: &str) {
        let service = &mut self.services[at];
        let longest = RETRY.0.saturating_mul(1 << service.failures.min(10)).min(RETRY.1);
        service.due = Instant::now() + longest.mul_f64(0.5 + 0.5 * self.rng.random::<f64>());
        if service.failures == 0 {
            tracing::warn!(
                service = service.name,
                error,
                "DNS does not name the coordinators, the last answer holds"
            );
        }
        service.failures = service.failures.saturating_add(1);
        let name = service.name.clone();
        self.roster.failed(&name, error.to_owned());
    }

    fn publish(&mut self) {
        self.status.send_replace(self.roster.status().into());
        let list: Arc<[Coordinator]> = self.roster.coordinators().into();
        let (before, changed) = {
            let before = self.coordinators.borrow();
            (before.clone(), *before != list)
        };
        if !changed {
            return;
        }
        for gone in before.iter().filter(|gone| list.iter().all(|now| now.number != gone.number)) {
            tracing::info!(coordinator = gone.target, "DNS does not name this coordinator any more");
        }
        for new in list.iter().filter(|new| before.iter().all(|before| before.number != new.number)) {
            tracing::info!(coordinator = new.target, "DNS names another coordinator");
        }
        self.coordinators.send_replace(list);
        self.is_saved = false;
    }

    /// Remembers whom DNS named, for the next start. The list is in use without waiting for it: a state disk that hangs keeps no
    /// coordinator from anybody. What it is still busy with is followed by the newest, and not by all in between.
    fn remember(&mut self) {
        let is_busy = self.saving.as_ref().is_some_and(|saving| !saving.is_finished());
        if self.is_saved || is_busy {
            return;
        }
        self.is_saved = true;
        let (file, known) = (self.file.clone(), self.roster.to_remember());
        self.saving = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = file.save(&known) {
                tracing::warn!(%error, "the coordinators that DNS names are not remembered");
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use rand::SeedableRng;

    use super::*;
    use crate::coordinators::lookup::{LookingUp, LookupError};

    const NAME: &str = "_usher._tcp.example.org";

    /// Says what it is told to, and when it was asked.
    #[derive(Debug, Default)]
    struct Told {
        targets: Mutex<Option<Vec<String>>>,
        ttl: Mutex<Duration>,
        asked: Mutex<Vec<Instant>>,
    }

    impl Told {
        fn says(&self, targets: &[&str]) {
            *self.targets.lock().unwrap() = Some(targets.iter().map(ToString::to_string).collect());
        }

        fn is_away(&self) {
            *self.targets.lock().unwrap() = None;
        }

        fn asked(&self) -> usize {
            self.asked.lock().unwrap().len()
        }
    }

    impl Lookup for Told {
        fn look_up<'a>(&'a self, service: &'a str) -> LookingUp<'a> {
            self.asked.lock().unwrap().push(Instant::now());
            let found = match self.targets.lock().unwrap().clone() {
                Some(targets) => Ok(Found { targets, ttl: *self.ttl.lock().unwrap() }),
                None => Err(LookupError::NoAnswer { service: service.into(), reason: "away".into() }),
            };
            Box::pin(async { found })
        }
    }

    struct Set {
        dns: Arc<Told>,
        losses: Losses,
        list: Coordinators,
        status: watch::Receiver<Arc<[ServiceStatus]>>,
        folder: tempfile::TempDir,
        _stop: tokio_util::sync::DropGuard,
    }

    impl Set {
        fn start(dns: Told, folder: tempfile::TempDir) -> Self {
            let (dns, losses, stop) = (Arc::new(dns), Losses::default(), CancellationToken::new());
            let file = RememberedFile::new(folder.path());
            let remembered = file.load();
            let roster = Roster::new(&[format!("srv:{NAME}")], true, &remembered);
            let rng = StdRng::seed_from_u64(1);
            let (follower, list, status) = Follower::new(roster, dns.clone(), file, losses.clone(), rng);
            tokio::spawn(follower.run(stop.clone()));
            Self { dns, losses, list, status, folder, _stop: stop.drop_guard() }
        }

        fn new(targets: &[&str]) -> Self {
            let dns = Told::default();
            dns.says(targets);
            Self::start(dns, tempfile::tempdir().unwrap())
        }

        fn targets(&self) -> Vec<String> {
            self.list.borrow().iter().map(|known| known.target.clone()).collect()
        }

        async fn until(&mut self, is_it: impl FnMut(&Arc<[Coordinator]>) -> bool) -> Duration {
            let begun = Instant::now();
            let limit = Duration::from_secs(7200);
            tokio::time::timeout(limit, self.list.wait_for(is_it)).await.unwrap().unwrap();
            begun.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_for_its_ttl_within_half_a_minute_and_an_hour() {
        for (ttl, shortest, longest) in [(0, 30, 33), (300, 300, 330), (86_400, 3600, 3960)] {
            let dns = Told::default();
            *dns.ttl.lock().unwrap() = Duration::from_secs(ttl);
            dns.says(&["c1:7443"]);
            let mut set = Set::start(dns, tempfile::tempdir().unwrap());
            set.until(|list| list.len() == 1).await;
            set.dns.says(&["c1:7443", "c2:7443"]);
            let seconds = set.until(|list| list.len() == 2).await.as_secs();
            assert!((shortest..=longest).contains(&seconds), "{ttl}: {seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_stream_hastens_the_next_question_and_many_do_not_make_many() {
        let mut set = Set::new(&["c1:7443"]);
        *set.dns.ttl.lock().unwrap() = Duration::from_secs(3600);
        set.until(|list| list.len() == 1).await;
        set.dns.says(&["c1:7443", "c2:7443"]);
        set.losses.lost();
        let waited = set.until(|list| list.len() == 2).await;
        assert!(waited <= Duration::from_secs(12), "{waited:?}");
        let before = set.dns.asked();
        for _ in 0..600 {
            set.losses.lost();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(set.dns.asked() - before <= 6, "{} in a minute", set.dns.asked() - before);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_for_lost_streams_give_nobody_up_sooner() {
        let mut set = Set::new(&["c1:7443", "c2:7443"]);
        set.until(|list| list.len() == 2).await;
        set.dns.says(&["c2:7443"]);
        let begun = Instant::now();
        let losses = set.losses.clone();
        let losing = tokio::spawn(async move {
            loop {
                losses.lost();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        set.until(|list| list.len() == 1).await;
        losing.abort();
        assert!(begun.elapsed() >= Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_starts_while_dns_is_away_uses_what_it_knew_and_says_so() {
        let mut set = Set::new(&["c1:7443", "c2:7443"]);
        set.until(|list| list.len() == 2).await;
        let folder = set.folder;
        // It is in use before it is on the disk.
        let saved = async {
            while RememberedFile::new(folder.path()).load().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), saved).await.unwrap();
        let dns = Told::default();
        let mut set = Set::start(dns, folder);
        assert_eq!(set.targets(), ["c1:7443", "c2:7443"], "before any answer");
        set.status.wait_for(|status| status[0].error.is_some()).await.unwrap();
        assert!(set.status.borrow()[0].is_remembered);
        // It is asked again, less and less often, and its first answer is used at once.
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = set.dns.asked();
        assert!((10..=30).contains(&asked), "{asked} in ten minutes");
        set.dns.says(&["c1:7443", "c2:7443", "c3:7443"]);
        assert!(set.until(|list| list.len() == 3).await <= Duration::from_secs(60));
        assert!(!set.status.borrow()[0].is_remembered);
        set.dns.is_away();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert_eq!(set.targets().len(), 3, "the last answer holds");
    }

    #[test]
    fn a_disk_that_hangs_keeps_no_new_coordinator_from_the_agent() {
        // One thread for the disk, and it hangs.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (dns, folder) = (Told::default(), tempfile::tempdir().unwrap());
            dns.says(&["c1:7443", "c2:7443"]);
            let (_let_go, hangs) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || hangs.recv());
            let mut set = Set::start(dns, folder);
            let known = set.list.wait_for(|list| list.len() == 2);
            assert!(tokio::time::timeout(Duration::from_secs(20), known).await.is_ok());
        });
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_service_nobody_is_asked() {
        let roster = Roster::new(&["c1".to_owned()], true, &BTreeMap::new());
        let folder = tempfile::tempdir().unwrap();
        let (dns, file) = (Arc::new(Told::default()), RememberedFile::new(folder.path()));
        let (follower, list, _) =
            Follower::new(roster, dns.clone(), file, Losses::default(), StdRng::seed_from_u64(1));
        let stop = CancellationToken::new();
        let running = tokio::spawn(follower.run(stop.clone()));
        tokio::time::sleep(Duration::from_secs(7200)).await;
        assert_eq!((dns.asked(), list.borrow().len()), (0, 1));
        stop.cancel();
        running.await.unwrap();
    }
}
