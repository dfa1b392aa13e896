//! What does a program do that asks once and ends, when nobody answers?
//!
//! It has watched nothing, but one like it that ran before may have: each that had an answer takes one copy of the farm at
//! its leisure and leaves it on disk, for the next one that has none. A copy serves for minutes, and many programs run at
//! once, so one of them takes it: the one that gets the lock, if the file is old and nobody has tried just now. A lock ends
//! with its program, however that ends.
//!
//! Programs that decide by one copy know nothing of each other. Each would send its login to the one host that was best, so
//! each imagines that some logins, chance says how many, came before its own.
//!
//! It refuses to believe a copy beyond its age, and to tell whose copy it is by anything but the names of the coordinators
//! and the farm of the certificate.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use usher_proto::v1::{self, placement_service_client::PlacementServiceClient};
use usher_runtime::clock::{Clock as _, SystemClock};
use usher_types::{BootTime, Outcome};

use crate::answer::cause_of;
use crate::cached::{self, Moment, Unusable, hex, with_ending};
use crate::client::{NOBODY, random_id};
use crate::config::{CACHE_MAX_AGE, DEADLINE};
use crate::error::NoLocal;
use crate::farm::{Known, Mirror, Taken};
use crate::in_order::{InOrder, Try, too_late};
use crate::local::{Basis, Local};
use crate::placement::{Placement, endpoints_of};
use crate::request::Request;

/// After a copy that did not come, nobody tries again for so long.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// Bytes of a sum that tell the files of two farms apart.
const NAME_BYTES: usize = 8;
/// Logins that are imagined at most: so many hosts share what comes meanwhile.
const MOST_IMAGINED: usize = 64;
/// Time for imagining them.
const IMAGINE: Duration = Duration::from_millis(100);

/// The farm on disk, for programs that ask once and end; a [`Client`](crate::Client) has its own.
///
/// ```no_run
/// # use std::time::Duration;
/// # use usher_client::{FarmCache, InOrder, NoLocal, Request};
/// # async fn example(coordinators: InOrder) -> Result<(), Box<dyn std::error::Error>> {
/// let cache = FarmCache::new("/var/cache/bastion", &coordinators);
/// // When a coordinator has answered, and there is time.
/// cache.renew(Duration::from_secs(300)).await?;
/// // When none has.
/// let farm = cache.read().await?;
/// let placement = farm.place(Request::new("desk").user("alice")).await?;
/// println!("{}, as of {:?} ago", placement.host_name(), farm.age());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FarmCache {
    path: PathBuf,
    coordinators: InOrder,
    max_age: Duration,
}

/// Why there is no new copy of the farm.
#[derive(Debug, Error)]
pub enum RenewError {
    /// It cannot be kept.
    #[error("keeping the farm in {path}: {source}")]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the disk says.
        source: io::Error,
    },
    /// No coordinator tells of it, all of it, to us.
    #[error("no coordinator tells of the farm: {0}")]
    NotTold(String),
}

impl FarmCache {
    /// The farm of these coordinators, in a file of its own in `folder`, which is made if only it is missing. Whoever may
    /// write there says where logins go when nobody answers.
    pub fn new(folder: impl AsRef<Path>, coordinators: &InOrder) -> Self {
        let mut names = coordinators.coordinators().to_vec();
        names.sort();
        names.dedup();
        let sum = hex(&Sha256::digest(names.join("\n"))[..NAME_BYTES]);
        let path = folder.as_ref().join(format!("farm-{sum}.cache"));
        Self { path, coordinators: coordinators.clone(), max_age: CACHE_MAX_AGE }
    }

    /// How old it may be for a decision. Default: 15 min.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a copy of the farm, unless one was written less than `every` ago, another program is about it, or one has tried
    /// without success within the last 30 s. Whether it did. It may be dropped at any time.
    ///
    /// # Errors
    /// [`RenewError`]; what was kept stays.
    pub async fn renew(&self, every: Duration) -> Result<bool, RenewError> {
        let path = self.path.clone();
        let turn = spawn_blocking(move || Turn::take(&path, every)).await;
        let Some(turn) = turn.map_err(io::Error::other).flatten().map_err(|error| self.disk(error))? else {
            return Ok(false);
        };
        let known = copy(&self.coordinators).await?;
        let path = self.path.clone();
        let written = spawn_blocking(move || {
            cached::write(&path, &known, &Moment::this()?)?;
            // Kept up to here, even if nobody waits for it any more.
            drop(turn);
            Ok(())
        });
        written.await.map_err(io::Error::other).flatten().map_err(|error| self.disk(error))?;
        Ok(true)
    }

    fn disk(&self, source: io::Error) -> RenewError {
        RenewError::Disk { path: self.path.clone(), source }
    }

    /// What is on disk. A file that is not as it was written is set aside.
    ///
    /// # Errors
    /// [`NoLocal`]: why it is of no use.
    pub async fn read(&self) -> Result<LastKnown, NoLocal> {
        let (path, coordinators, max_age) = (self.path.clone(), self.coordinators.clone(), self.max_age);
        let reading = spawn_blocking(move || {
            let now = Moment::this().map_err(Unusable::Unreadable);
            let read = now.and_then(|now| {
                let read = cached::read(&path, coordinators.farm().as_deref(), max_age, &now);
                read.map_err(|error| (error, now)).map_err(|(error, now)| set_aside(&path, error, &now))
            });
            read.map_err(|error| no_use(&path, &error))
        });
        let (known, age_then) = reading.await.map_err(|_| NoLocal::Ending)??;
        let basis = Basis { known: Arc::new(known), came_at: SystemClock.now(), age_then };
        let local = Arc::new(Local::default());
        local.learn(basis.clone());
        Ok(LastKnown { local, basis, max_age: self.max_age, imagined: Mutex::default() })
    }
}

/// One that is old or missing is nothing for people to look at.
fn set_aside(path: &Path, error: Unusable, now: &Moment) -> Unusable {
    if !matches!(error, Unusable::Missing | Unusable::TooOld(..) | Unusable::Unreadable(_)) {
        // If it cannot be moved, it is not used the next time either.
        let _ = cached::set_aside(path, now);
    }
    error
}

fn no_use(path: &Path, error: &Unusable) -> NoLocal {
    match error {
        Unusable::Missing => NoLocal::NothingKnown,
        Unusable::TooOld(age, allowed) => NoLocal::TooOld { age: *age, allowed: *allowed },
        other => NoLocal::Unusable(format!("{}: {other}", path.display())),
    }
}

/// The farm from the first coordinator that hears all of it, else from the one that hears most.
async fn copy(coordinators: &InOrder) -> Result<Known, RenewError> {
    let farm = coordinators.farm();
    let mut best: Option<Known> = None;
    let mut faults = Vec::new();
    for address in coordinators.coordinators() {
        match one_copy(coordinators, address, farm.clone()).await {
            Ok(known) if known.is_full() => return Ok(known),
            Ok(known) if best.as_ref().is_some_and(|best| best.hosts_heard >= known.hosts_heard) => {}
            Ok(known) => best = Some(known),
            Err(fault) => faults.push(format!("{address}: {fault}")),
        }
    }
    best.ok_or_else(|| RenewError::NotTold(faults.join("; ")))
}

/// One coordinator's copy: everything up to the first bookmark. In words why there is none.
async fn one_copy(coordinators: &InOrder, address: &str, farm: Option<String>) -> Result<Known, String> {
    let channel = coordinators.reach(address).await.map_err(|error| error.to_string())?;
    let this = coordinators.try_after(0);
    let within = this.timeout;
    timeout(within, told(channel, this, farm)).await.unwrap_or_else(|_elapsed| Err(too_late(within)))
}

async fn told(channel: Channel, this: Try, farm: Option<String>) -> Result<Known, String> {
    let request = this.request(v1::WatchFarmRequest::default());
    let stream = PlacementServiceClient::new(channel).watch_farm(request).await;
    let mut stream = stream.map_err(|status| cause_of(&status))?.into_inner();
    let mut mirror = Mirror::new(farm);
    while let Some(message) = stream.message().await.map_err(|status| cause_of(&status))? {
        match mirror.take(message, SystemClock.now()).map_err(|nonsense| nonsense.to_string())? {
            Taken::Part => {}
            Taken::Bookmark { stale: true } => return Err("it waits for its hosts".to_owned()),
            Taken::Bookmark { stale: false } => {
                let known = mirror.known();
                let heard = known.hosts_heard > 0;
                return heard.then_some(known).ok_or_else(|| "it hears no host".to_owned());
            }
        }
    }
    Err("it ends before it has told of the farm".to_owned())
}

/// The right to take a copy, until it is dropped or the program ends.
#[derive(Debug)]
struct Turn {
    _lock: File,
}

impl Turn {
    /// Absent: there is nothing to do, or another one does it.
    fn take(path: &Path, every: Duration) -> io::Result<Option<Self>> {
        let is_new = || fs::metadata(path).is_ok_and(|found| is_younger(&found, every));
        if is_new() {
            return Ok(None);
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let mut lock = File::options().create(true).append(true).open(with_ending(path, "lock"))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        // One byte: somebody has tried, when it was written.
        let tried = lock.metadata()?;
        if is_new() || (tried.len() > 0 && is_younger(&tried, TRY_AGAIN.min(every))) {
            return Ok(None);
        }
        lock.set_len(0)?;
        lock.write_all(b"\n")?;
        Ok(Some(Self { _lock: lock }))
    }
}

/// Whether it was written less than `age` ago. What is from the future was not.
fn is_younger(found: &fs::Metadata, age: Duration) -> bool {
    found.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|since| since < age)
}

/// What was known of the farm. Decides without a coordinator, as a [`Client`](crate::Client) does when none answers.
#[derive(Debug)]
pub struct LastKnown {
    local: Arc<Local>,
    basis: Basis,
    max_age: Duration,
    /// Logins that nobody has asked for.
    imagined: Mutex<Vec<String>>,
}

impl LastKnown {
    /// How old it is.
    pub fn age(&self) -> Duration {
        self.basis.age(SystemClock.now())
    }

    /// The hosts of a pool, each with its id and its name.
    pub fn hosts(&self, pool: &str) -> impl Iterator<Item = (&str, &str)> {
        let facts = self.basis.known.hosts.values().filter_map(|host| host.told.facts.as_ref());
        facts.filter(move |facts| facts.pool == pool).map(|facts| (&*facts.host_id, &*facts.host_name))
    }

    /// A place for a login, by what was known; [`is_local`](Placement::is_local). A host that did not work out is one that
    /// the next request [excludes](Request::exclude).
    ///
    /// # Errors
    /// [`NoLocal`]: why there is none.
    pub async fn place(&self, request: Request) -> Result<Placement, NoLocal> {
        if !request.dry_run {
            self.imagine_others(&request).await;
        }
        let request_id = request.request_id.clone().unwrap_or_else(random_id);
        let mut decided = self.decide(&request, &request_id, DEADLINE).await;
        if decided.is_err() && self.forget_others() {
            // Nobody is refused because of somebody who is not there.
            decided = self.decide(&request, &request_id, DEADLINE).await;
        }
        let (message, age) = decided?;
        Ok(Placement {
            endpoints: endpoints_of(&message),
            message,
            request,
            request_id,
            tried: Vec::new(),
            coordinator: None,
            attempts: 0,
            farm_age: Some(age),
        })
    }

    fn imagined(&self) -> MutexGuard<'_, Vec<String>> {
        self.imagined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the places of imagined logins up. Whether there were any.
    fn forget_others(&self) -> bool {
        let imagined = std::mem::take(&mut *self.imagined());
        imagined.iter().for_each(|id| self.local.report(id, Outcome::Cancelled, SystemClock.now()));
        !imagined.is_empty()
    }

    /// Places for as many logins as may have come since, up to one for each host but one.
    async fn imagine_others(&self, request: &Request) {
        let hosts = self.hosts(&request.pool).count().clamp(1, MOST_IMAGINED);
        let others = rand::rng().random_range(0..hosts);
        let until = Instant::now() + IMAGINE;
        for _ in 0..others {
            let (id, left) = (random_id(), until.saturating_duration_since(Instant::now()));
            // One whose time is over may hold its place all the same.
            self.imagined().push(id.clone());
            let placed = self.decide(&Request::new(&request.pool), &id, left).await;
            if left.is_zero() || placed.is_err() {
                break;
            }
        }
    }

    async fn decide(
        &self,
        request: &Request,
        request_id: &str,
        within: Duration,
    ) -> Result<(v1::Placement, Duration), NoLocal> {
        let request = request.decision(NOBODY, request_id, None)?;
        let now: BootTime = SystemClock.now();
        self.local.decide(request, self.max_age, now, Instant::now() + within).await
    }
}

#[cfg(test)]
mod tests;
