//! What must be in place before a host can run?
//!
//! Its identity, the book of places of this boot, and its baselines; each from the folder that outlives what it must
//! outlive. A host whose identity or book cannot be read does not start: both would be replaced by something wrong.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use usher_placement::host::{CoreSettings, HostCore};
use usher_runtime::clock::Clock;
use usher_types::{BootId, DoorKind, Hello, HostId, OperationName, Replica};

use super::baselines::BaselineStore;
use super::handle::{COMMANDS, HostHandle, PlaceNews};
use super::identity::{self, HostIdError, StreamEpochs};
use super::listing::Listing;
use super::occupancy_log::OccupancyLog;
use super::source::SourceEvent;
use super::task::{HostTask, Inputs, Outputs};
use crate::admission::{PlacesError, PlacesFile};
use crate::drain::{DrainFile, DrainKeeper};
use crate::latency::baseline_file::{BaselineFile, BaselineOwner};
use crate::report::StreamsHeld;
use crate::standing::StandingBoard;

/// Events of a source that wait for the host: some seconds of a busy machine's timings.
const SOURCE_EVENTS: usize = 256;

/// A host cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its identity.
    #[error(transparent)]
    Identity(#[from] HostIdError),
    /// Its book.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// The file for its occupancy.
    #[error("cannot open the log of occupancy {}", path.display())]
    OccupancyLog {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Where the baselines of a host come from.
#[derive(Debug, Clone, PartialEq)]
pub enum BaselineSource {
    /// They are learned, and kept on disk over restarts.
    Kept,
    /// They are kept nowhere.
    NotKept {
        /// Those known beforehand, microseconds (> 0).
        known: Vec<(OperationName, f64)>,
    },
}

/// What a host is opened with.
#[derive(Debug)]
pub struct HostSetup {
    /// What lasts: identity and baselines.
    pub state_folder: PathBuf,
    /// What lasts until the next boot: the book of places.
    pub runtime_folder: PathBuf,
    /// The boot of the machine.
    pub boot_id: BootId,
    /// Where baselines come from.
    pub baselines: BaselineSource,
    /// Hears of places, under the host's number. Absent: nobody.
    pub placed: Option<(usize, mpsc::Sender<PlaceNews>)>,
    /// Whether the source can be asked for a fresh look.
    pub refreshable: bool,
    /// Every change of its users and places is written to this file. Absent: nowhere.
    pub occupancy_log: Option<PathBuf>,
    /// What the host says of itself beside its measurements.
    pub board: StandingBoard,
}

/// A host that is ready to run.
#[derive(Debug)]
pub struct OpenHost {
    /// To be spawned.
    pub task: HostTask,
    /// For its streams.
    pub handle: HostHandle,
    /// For its source.
    pub events: mpsc::Sender<SourceEvent>,
    /// Woken when the source shall look now.
    pub refresh: Arc<Notify>,
    /// For whoever looks for its resources.
    pub inventory: watch::Sender<Option<Arc<Listing<Replica>>>>,
}

/// Opens a host. `hello` is given the host's id. Blocks.
///
/// # Errors
/// When its identity or its book cannot be read.
pub fn open(
    setup: HostSetup,
    core: CoreSettings,
    clock: Arc<dyn Clock>,
    hello: impl FnOnce(HostId) -> Hello,
) -> Result<OpenHost, OpenError> {
    let hello = hello(identity::load_or_make(&setup.state_folder)?);
    let drain = DrainFile::new(&setup.state_folder, setup.boot_id.clone());
    let standing = setup.board.whole();
    let drains = DrainKeeper::open(drain, setup.board);
    let places = PlacesFile::new(&setup.runtime_folder, setup.boot_id);
    let kept = places.load()?;
    if !kept.book.is_empty() {
        tracing::info!(places = kept.book.len(), "the places of before the restart are kept");
    }
    let mut core = HostCore::new(core, kept);
    let file = setup.state_folder.join("baselines");
    let baselines = restore_baselines(setup.baselines, file, &hello, &mut core, &*clock);
    let (commands, commands_in) = mpsc::channel(COMMANDS);
    let (events, source) = mpsc::channel(SOURCE_EVENTS);
    let refresh = Arc::new(Notify::new());
    let (load, load_out) = watch::channel(None);
    let (latency, latency_out) = watch::channel(None);
    let (sessions, sessions_out) = watch::channel(None);
    let (inventory, inventory_out) = watch::channel(None);
    let (door, door_out) = watch::channel(DoorKind::default());
    let streams_held = StreamsHeld::default();
    let inputs = Inputs {
        commands: commands_in,
        source,
        refresh: setup.refreshable.then(|| refresh.clone()),
        placed: setup.placed,
        standing,
        streams: streams_held.clone(),
    };
    let occupancy = setup.occupancy_log.map(|path| {
        OccupancyLog::open(&path, hello.host_name.as_str())
            .map_err(|source| OpenError::OccupancyLog { path, source })
    });
    let occupancy = occupancy.transpose()?;
    let reports = Arc::default();
    let outputs = Outputs { load, reports: Arc::clone(&reports), latency, sessions, door, occupancy };
    let handle = HostHandle {
        hello: Arc::new(hello),
        epochs: Arc::new(StreamEpochs::default()),
        streams_held,
        drains,
        commands,
        load: load_out,
        reports,
        latency: latency_out,
        inventory: inventory_out,
        sessions: sessions_out,
        door: door_out,
    };
    let task = HostTask::new(core, places, baselines, clock, inputs, outputs);
    Ok(OpenHost { task, handle, events, refresh, inventory })
}

fn restore_baselines(
    source: BaselineSource,
    file: PathBuf,
    hello: &Hello,
    core: &mut HostCore,
    clock: &dyn Clock,
) -> Option<BaselineStore> {
    match source {
        BaselineSource::Kept => {
            let owner =
                BaselineOwner { host_id: hello.host_id.to_string(), cpu_model: hello.cpu_model.clone() };
            let file = BaselineFile::new(file, owner);
            Some(BaselineStore::restore(file, core.operations_mut(), clock.now(), clock.wall_unix_ms()))
        }
        BaselineSource::NotKept { known } => {
            for (name, baseline_us) in known {
                if let Err(error) =
                    core.operations_mut().set_baseline(name.as_str(), baseline_us, clock.now())
                {
                    tracing::warn!(%error, operation = %name, "a known baseline is not taken");
                }
            }
            None
        }
    }
}
