//! When is it looked for resources, and when is their list told?
//!
//! The disks are looked at each minute, and soon after a name came or went in a folder that is watched; the program has
//! an interval of its own. Neither waits for the other: a dead mount holds the look at the disks and nothing else. A
//! list is told when every source has given one, for half a list would take away what is there; and then whenever it
//! differs from the one before it.
//!
//! A folder in which names come and go all the time is not looked into all the time: looks that news asked for take no
//! more than a twentieth of a CPU's time, and those that find the list unchanged come ever more rarely, at the end once
//! a minute.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use usher_runtime::clock::Clock;
use usher_types::{CollectorState, Replica};

use super::listing_program::{self, Listed};
use super::notes::Notes;
use super::watch::{News, Watches};
use super::{InventoryConfig, ProgramEntry, Scan, scan};
use crate::config::{AgentConfig, until};
use crate::host::Listing;
use crate::printable::told;
use crate::sample::describe;
use crate::standing::StandingBoard;

/// How often the disks are looked at without any news: replicas come and go by hand or by a nightly copy.
const EVERY: Duration = Duration::from_secs(60);
/// How long after the first news it is looked: what comes together is seen together.
const SETTLES: Duration = Duration::from_millis(300);
/// Shortest time from a look to the next that news asks for.
const REST: Duration = Duration::from_secs(1);
/// Part of the time that looks take at most: one of so many.
const REST_PER_LOOK: u32 = 20;
/// Intervals after which the lag that the program told is void.
const LAG_VOID_AFTER: u32 = 3;
/// Collector of the program.
const PROGRAM: &str = "inventory program";

/// The task that looks for resources.
#[derive(Debug)]
pub struct InventoryLooks {
    /// The settings in force.
    pub settings: watch::Receiver<Arc<AgentConfig>>,
    /// Root of the file system.
    pub root: PathBuf,
    /// Where the list goes.
    pub list: watch::Sender<Option<Arc<Listing<Replica>>>>,
    /// How the looks at the disks fare.
    pub state: watch::Sender<Option<CollectorState>>,
    /// Where the program's lag goes, and how it fares.
    pub board: StandingBoard,
    /// Stamps lists.
    pub clock: Arc<dyn Clock>,
}

/// What each source told last. Absent: nothing yet, or there is no such source.
#[derive(Debug, Default)]
struct Sources {
    files: Option<Scan>,
    program: Option<Vec<Replica>>,
}

impl InventoryLooks {
    /// Looks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut settings = self.settings.clone();
        loop {
            let config = settings.borrow_and_update().inventory.clone();
            self.state.send_replace(None);
            self.board.change(|parts| {
                parts.inventory_lag = None;
                parts.collectors.remove(PROGRAM);
            });
            let before = config.clone();
            let looks = Looks { config, sources: Mutex::default(), task: &self };
            tokio::select! {
                () = stop.cancelled() => return,
                () = looks.run() => return,
                () = until(&mut settings, |now| now.inventory != before) => {}
            }
        }
    }

    fn tell(&self, replicas: Vec<Replica>) {
        let before = self.list.borrow().clone();
        if before.as_ref().is_some_and(|before| before.items == replicas) {
            return;
        }
        if before.is_some() || !replicas.is_empty() {
            tracing::info!(replicas = replicas.len(), "the host's resources changed");
        }
        let list = Listing::after(before.as_deref(), replicas, 0, self.clock.now());
        self.list.send_replace(Some(Arc::new(list)));
    }
}

/// The looks of one configuration.
struct Looks<'a> {
    config: InventoryConfig,
    sources: Mutex<Sources>,
    task: &'a InventoryLooks,
}

impl Looks<'_> {
    /// Never ends.
    async fn run(self) {
        if self.config == InventoryConfig::default() {
            self.task.tell(Vec::new());
        }
        let files = async {
            if self.config.has_files() {
                self.look_at_files().await;
            }
        };
        let program = async {
            if let Some(program) = &self.config.program {
                self.ask_program(program).await;
            }
        };
        tokio::join!(files, program);
        std::future::pending().await
    }

    /// Ends only when looks break off for good.
    async fn look_at_files(&self) {
        let watches = Watches::new();
        let news = watches.news();
        let looker = match looker(self.config.clone(), self.task.root.clone(), watches) {
            Ok(looker) => looker,
            Err(error) => return self.fares(Some(format!("cannot look: {error}")), None),
        };
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rest = Rest::default();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = settled(news.as_ref(), rest.over_at) => {}
            }
            if let Some(news) = &news {
                news.forget();
            }
            let started = Instant::now();
            let (reply, looked) = oneshot::channel();
            // A thread that broke off hears nothing and answers nothing.
            let _ = looker.send(reply);
            let changed = match looked.await {
                Ok(Ok(scan)) => self.files_found(scan),
                Ok(Err(error)) => {
                    self.fares(Some(error), None);
                    false
                }
                Err(_) => return self.fares(Some("the look broke off".to_owned()), None),
            };
            rest.after_look(started.elapsed(), changed);
        }
    }

    /// Whether the list is another one than before.
    fn files_found(&self, scan: Scan) -> bool {
        let (error, warning) = (scan.errors.summary(), scan.warnings.summary());
        let is_only_source = self.config.program.is_none();
        let changed = if is_only_source {
            let before = self.task.list.borrow().as_ref().map(|list| list.generation);
            self.task.tell(scan.replicas);
            before != self.task.list.borrow().as_ref().map(|list| list.generation)
        } else {
            let mut sources = self.sources();
            let changed = sources.files.as_ref().is_none_or(|before| before.replicas != scan.replicas);
            sources.files = Some(scan);
            self.tell_both(&sources);
            changed
        };
        self.fares(error, warning);
        changed
    }

    fn fares(&self, error: Option<String>, warning: Option<String>) {
        if let Some(error) = &error {
            tracing::debug!(error, "the look for resources");
        }
        let (name, source) = ("inventory".to_owned(), "files".to_owned());
        let (error, warning) = (told(error), told(warning));
        self.task.state.send_replace(Some(CollectorState { name, source, error, warning }));
    }

    /// Never ends.
    async fn ask_program(&self, program: &ProgramEntry) {
        let source = program.command.first().cloned().unwrap_or_default();
        let every = program.interval.get();
        let void_after = every.max(program.deadline.get()) * LAG_VOID_AFTER;
        let mut runs = interval(every);
        runs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failures, mut void_at): (u64, Option<Instant>) = (0, None);
        let mut has_listed = false;
        loop {
            let run = async {
                runs.tick().await;
                listing_program::read(&program.command, program.deadline.get()).await
            };
            tokio::pin!(run);
            let told = match void_at {
                Some(at) => match timeout_at(at, &mut run).await {
                    Ok(told) => told,
                    Err(_) => {
                        void_at = None;
                        self.task.board.change(|parts| parts.inventory_lag = None);
                        run.await
                    }
                },
                None => run.await,
            };
            let (error, warning) = match told {
                Ok(listed) => {
                    has_listed = true;
                    void_at = listed.lag.map(|_| Instant::now() + void_after);
                    self.program_listed(listed)
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(error, "the program that lists resources");
                    let list =
                        if has_listed { "its last list stays" } else { "no list is told before its first" };
                    (Some(format!("{error}; {list} ({failures} runs failed since the start)")), None)
                }
            };
            self.task.board.fares(PROGRAM, &source, error, warning);
        }
    }

    /// Takes a list over. What is to be told of it as an error, and as a warning.
    fn program_listed(&self, listed: Listed) -> (Option<String>, Option<String>) {
        let Listed { replicas, lag, bad, left_out } = listed;
        self.task.board.change(|parts| parts.inventory_lag = lag);
        let mut whole = Scan { replicas, errors: bad, warnings: Notes::default() };
        whole.put_in_order(left_out);
        let told = (whole.errors.summary(), whole.warnings.summary());
        if self.config.has_files() {
            let mut sources = self.sources();
            sources.program = Some(whole.replicas);
            self.tell_both(&sources);
        } else {
            self.task.tell(whole.replicas);
        }
        told
    }

    /// Both lists as one, once there are both. What the disks show wins where both name a resource: it was seen.
    fn tell_both(&self, sources: &Sources) {
        let (Some(files), Some(program)) = (&sources.files, &sources.program) else { return };
        let replicas = files.replicas.iter().chain(program).cloned().collect();
        let mut whole = Scan { replicas, ..Scan::default() };
        whole.put_in_order(0);
        self.task.tell(whole.replicas);
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        // A list is replaced whole.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the result of a look goes.
type Reply = oneshot::Sender<Result<Scan, String>>;

/// A thread that looks at the disks when it is asked to, until nobody can ask any more. Always the same one: lists of
/// many megabytes come and go, and each thread that makes some keeps room for them.
fn looker(config: InventoryConfig, root: PathBuf, mut watches: Watches) -> io::Result<mpsc::Sender<Reply>> {
    let (asks, asked) = mpsc::channel::<Reply>();
    thread::Builder::new().name("inventory".to_owned()).spawn(move || {
        for reply in asked {
            let looked = scan(&config, &root, &mut watches).map_err(|error| describe(&error));
            // Whoever asked may have new settings.
            let _ = reply.send(looked);
        }
    })?;
    Ok(asks)
}

/// When news may ask for a look again.
#[derive(Debug, Default)]
struct Rest {
    /// Absent: at once.
    over_at: Option<Instant>,
    length: Duration,
}

impl Rest {
    fn after_look(&mut self, took: Duration, changed: bool) {
        let least = REST.max(took.saturating_mul(REST_PER_LOOK));
        let length = if changed { least } else { least.max(self.length.saturating_mul(2)) };
        self.length = length.min(EVERY);
        self.over_at = Some(Instant::now() + self.length);
    }
}

/// Waits for news, not before `rest_is_over`, and until what comes with it has come too.
async fn settled(news: Option<&News>, rest_is_over: Option<Instant>) {
    let Some(news) = news else { return std::future::pending().await };
    if let Some(at) = rest_is_over {
        sleep_until(at).await;
    }
    news.wait().await;
    sleep(SETTLES).await;
}

#[cfg(test)]
#[path = "looks_tests.rs"]
mod tests;
