//! Keeps up with the farm, through one coordinator at a time.
//!
//! The stream is one of a connection of its own: what is not read yet of it must never hold up a login. When it ends, the
//! next one goes on from the last revision, with the same coordinator if that says so (RESYNC), else with the next one that
//! is well. A coordinator that says nothing for a while is gone, even if its connection stands; one that hears too little
//! of the farm is left for another one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status, Streaming};
use usher_proto::error::{error_info, reason};
use usher_proto::v1::{self, placement_service_client::PlacementServiceClient};
use usher_runtime::clock::{Clock, SystemClock};
use usher_runtime::net::{Timeouts, connect};
use usher_runtime::tls::TlsFiles;

use crate::answer::cause_of;
use crate::cached::{self, Moment, Unusable};
use crate::farm::{Known, Mirror, Taken};
use crate::in_order::{Try, without_address};
use crate::local::{Basis, Local};
use crate::peers::{Peer, Peers};

/// A stream that says nothing for so long is dead: four bookmarks.
const SILENT: Duration = Duration::from_secs(8);
/// Waits between streams that fail.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Between two files. What has changed in half a minute matters less than what they cost.
const SAVE_EVERY: Duration = Duration::from_secs(30);
/// Time for reading the file.
const READ: Duration = Duration::from_secs(5);
/// How long a coordinator that hears too little is followed before another one is looked at.
const PARTIAL_FOR: Duration = Duration::from_secs(30);
/// How long the whole farm of before is better than a part of it now: by then others were looked at, twice.
const OUTLIVED_AFTER: Duration = Duration::from_secs(120);
/// Time for one try to connect.
const CONNECT: Duration = Duration::from_secs(2);

/// What watching needs.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) peers: Arc<Peers>,
    pub(crate) local: Arc<Local>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) gateway: Option<MetadataValue<Ascii>>,
    pub(crate) farm: Option<String>,
    pub(crate) pools: Vec<String>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) max_age: Duration,
}

/// Why a stream ended.
enum End {
    /// Ask again, with what is known.
    Resync,
    /// This one did not serve.
    Failed(String),
    /// It does not hear enough.
    Partial,
}

impl Watching {
    /// Reads the file, then watches until `end`.
    pub(crate) async fn run(self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(mut self) {
        self.read_file().await;
        let mut mirror = Mirror::new(self.farm.clone());
        let mut of: Option<String> = None;
        let mut saving = Saving::default();
        let mut wait = FIRST_WAIT;
        let mut passed_over: Option<String> = None;
        loop {
            let peers = self.peers.in_order();
            let next =
                peers.iter().find(|peer| Some(&peer.address) != passed_over.as_ref()).or(peers.first());
            let Some(peer) = next else { return };
            passed_over = None;
            if of.as_ref() != Some(&peer.address) {
                mirror.forget();
                of = Some(peer.address.clone());
            }
            let began = Instant::now();
            match self.follow(peer, &mut mirror, &mut saving).await {
                End::Resync if began.elapsed() > FIRST_WAIT => {
                    wait = FIRST_WAIT;
                    continue;
                }
                // One that is at its end as soon as it begins must not be asked without a pause.
                End::Resync => {}
                End::Partial => passed_over = Some(peer.address.clone()),
                End::Failed(why) => {
                    tracing::info!(coordinator = peer.address, why, "the farm cannot be watched here");
                    passed_over = Some(peer.address.clone());
                    if began.elapsed() > SILENT {
                        wait = FIRST_WAIT;
                    }
                }
            }
            sleep(wait.mul_f64(rand::random_range(0.5..=1.0))).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Asks to be told, from where the mirror stands.
    async fn open(&self, peer: &Peer, mirror: &Mirror) -> Result<Streaming<v1::WatchFarmResponse>, End> {
        let timeouts = Timeouts { connect: CONNECT, ..Timeouts::default() };
        let connecting = connect(&peer.address, self.tls.as_ref(), &timeouts).await;
        let channel = connecting.map_err(|error| End::Failed(without_address(&error, &peer.address)))?;
        let (resume_revision, resume_instance) = mirror.resume().unzip();
        let request = v1::WatchFarmRequest {
            pools: self.pools.clone(),
            resume_revision,
            resume_instance: resume_instance.unwrap_or_default(),
        };
        let named = Try { earlier: 0, timeout: SILENT, gateway: self.gateway.clone() };
        let mut request: Request<v1::WatchFarmRequest> = named.request(request);
        // The stream has no end; only its beginning has a deadline, which is ours.
        request.metadata_mut().remove("grpc-timeout");
        match timeout(SILENT, PlacementServiceClient::new(channel).watch_farm(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(ended(&status)),
            Err(_) => Err(End::Failed("it does not begin to tell of the farm".to_owned())),
        }
    }

    async fn follow(&mut self, peer: &Peer, mirror: &mut Mirror, saving: &mut Saving) -> End {
        let mut stream = match self.open(peer, mirror).await {
            Ok(stream) => stream,
            Err(end) => return end,
        };
        let mut partial_since: Option<Instant> = None;
        let mut has_told = false;
        loop {
            let message = match timeout(SILENT, stream.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) if has_told => return End::Resync,
                Ok(Ok(None)) => return End::Failed("it tells of nothing".to_owned()),
                Ok(Err(status)) if has_told => return ended(&status),
                Ok(Err(status)) => return End::Failed(cause_of(&status)),
                Err(_) => return End::Failed("it tells nothing any more".to_owned()),
            };
            has_told = true;
            match mirror.take(message, SystemClock.now()) {
                Ok(Taken::Part) => {}
                Ok(Taken::Bookmark { stale }) => {
                    let known = mirror.known();
                    peer.hears(known.hosts_heard, known.hosts_registered);
                    if !stale && self.is_worth_learning(&known) {
                        self.learn(known, saving);
                    }
                    if peer.is_partial() {
                        let since = *partial_since.get_or_insert_with(Instant::now);
                        if since.elapsed() > PARTIAL_FOR {
                            return End::Partial;
                        }
                    } else {
                        partial_since = None;
                    }
                }
                Err(nonsense) => {
                    mirror.forget();
                    let why = nonsense.to_string();
                    peer.failed(why.clone());
                    return End::Failed(why);
                }
            }
        }
    }

    /// A coordinator that hears little of the farm takes the rest for gone. What another one has told lately is better.
    fn is_worth_learning(&self, known: &Known) -> bool {
        let is_better =
            |basis: &Basis| basis.known.is_full() && basis.age(SystemClock.now()) < OUTLIVED_AFTER;
        known.hosts_heard > 0 && (known.is_full() || !self.local.basis().as_ref().is_some_and(is_better))
    }

    fn learn(&self, known: Known, saving: &mut Saving) {
        let known = Arc::new(known);
        self.local.learn(Basis { known: known.clone(), came_at: known.as_of, age_then: Duration::ZERO });
        if let Some(path) = &self.cache {
            saving.save(path, known);
        }
    }

    /// Begins with what the file knows.
    async fn read_file(&mut self) {
        let Some(path) = self.cache.clone() else { return };
        let (farm, max_age) = (self.farm.clone(), self.max_age);
        let reading = tokio::task::spawn_blocking(move || {
            let now = Moment::this().map_err(Unusable::Unreadable)?;
            let read = cached::read(&path, farm.as_deref(), max_age, &now);
            if let Err(error) = &read
                && !matches!(error, Unusable::Missing)
            {
                let aside = cached::set_aside(&path, &now);
                let aside = aside.map(|aside| aside.display().to_string());
                tracing::warn!(path = %path.display(), %error, aside, "the farm on disk is not used");
            }
            read
        });
        // A disk that hangs must not keep anybody from watching.
        if let Ok(Ok(Ok((known, age_then)))) = timeout(READ, reading).await {
            tracing::info!(
                age_s = age_then.as_secs(),
                hosts = known.hosts.len(),
                "the farm was read from disk"
            );
            // Of two files of two farms the second is not ours.
            self.farm.get_or_insert_with(|| known.farm.clone());
            self.local.learn(Basis { known: Arc::new(known), came_at: SystemClock.now(), age_then });
        }
    }
}

/// The file on its way to the disk.
#[derive(Debug, Default)]
struct Saving {
    saved_at: Option<Instant>,
    writing: Option<JoinHandle<()>>,
}

impl Saving {
    /// Writes the file, unless one was written lately or is still being written. Nobody waits for the disk.
    fn save(&mut self, path: &Path, known: Arc<Known>) {
        let is_busy = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if is_busy || self.saved_at.is_some_and(|at| at.elapsed() < SAVE_EVERY) {
            return;
        }
        self.saved_at = Some(Instant::now());
        let path = path.to_owned();
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let written = Moment::this().and_then(|now| cached::write(&path, &known, &now));
            if let Err(error) = written {
                tracing::warn!(path = %path.display(), %error, "cannot keep the farm on disk");
            }
        }));
    }
}

fn ended(status: &Status) -> End {
    let is_resync = error_info(status).is_some_and(|info| info.reason == reason::RESYNC);
    match status.code() {
        Code::Aborted if is_resync => End::Resync,
        _ => End::Failed(cause_of(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(hosts_heard: u32) -> Known {
        Known { hosts_heard, hosts_registered: 100, as_of: SystemClock.now(), ..Known::default() }
    }

    #[tokio::test]
    async fn a_part_of_the_farm_does_not_take_the_place_of_the_whole() {
        let watching = Watching {
            peers: Arc::new(Peers::start(&[], None, &CancellationToken::new())),
            local: Arc::default(),
            tls: None,
            gateway: None,
            farm: None,
            pools: Vec::new(),
            cache: None,
            max_age: OUTLIVED_AFTER,
        };
        assert!(!watching.is_worth_learning(&known(0)), "nothing is not better than nothing");
        assert!(watching.is_worth_learning(&known(30)));
        watching.learn(known(30), &mut Saving::default());
        assert!(watching.is_worth_learning(&known(20)), "as it is now");
        watching.learn(known(95), &mut Saving::default());
        assert!(!watching.is_worth_learning(&known(89)));
        assert!(watching.is_worth_learning(&known(90)));
        // What is from a file, or from long ago, may be of another farm than today's.
        let old = Basis { known: Arc::new(known(100)), came_at: SystemClock.now(), age_then: OUTLIVED_AFTER };
        watching.local.learn(old);
        assert!(watching.is_worth_learning(&known(50)));
    }
}
