//! How do baselines survive a restart, a power cut and a cloned disk?
//!
//! A baseline takes hours to learn and a wrong one misjudges the host for as long, so the file is believed only when
//! it proves itself: its first line carries the SHA-256 of the rest, the body names the host it was measured on. A
//! file that does not prove itself is moved aside, where it can be looked at, and the copy before it is taken; when
//! there is none either, the baselines begin anew and the result says so. Loading never fails: an agent that does not
//! start because of its baselines would be worse than one without.
//!
//! Saving goes to a file beside, to the disk, then in place by rename, so that a cut at any moment leaves a whole
//! file. The one before is kept as `.bak`; it is never given up before the new one is on the disk for certain, so that
//! there is a whole one even where the file in place was spoilt.
//!
//! Another CPU model means other hardware: the old baselines say nothing about it, and are dropped.
//!
//! A file of 0.1 knows of each operation only the lowest mean ever. That stays its lowest mean, and stands as the
//! provisional estimate until a quiet hour confirms a better one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use usher_availability::{BaselineRecord, MinimumRecord, RobustRecord};

use super::statsd::is_name;
use crate::disk::{self, Disk, FailedStep, LocalDisk};
use crate::printable::printable;

/// End of the name of the copy before.
const KEPT: &str = ".bak";

const MAGIC: &str = "usher-baselines";
const FORMAT_VERSION: u32 = 2;
/// The format of 0.1.
const FORMAT_OF_0_1: u32 = 1;

/// A file of the agent's cap of names is some 500 KiB; more than this is not ours.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Bound of what is said about files that are not believed: two paths and what is wrong with each.
const MAX_REASON_CHARS: usize = 1000;

/// What was learned, by operation.
pub type Baselines = BTreeMap<String, BaselineRecord>;

/// The host that baselines belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineOwner {
    /// The agent's host id.
    pub host_id: String,
    /// Absent if it cannot be told; it is then not compared.
    pub cpu_model: Option<String>,
}

/// Where loaded baselines came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaselineOrigin {
    /// The file.
    File,
    /// The copy before the last save: at most one save is lost.
    Backup,
    /// There was no file yet.
    FirstStart,
    /// There were baselines, but none that can be used: they begin anew.
    Reset {
        /// Why, for people.
        reason: String,
    },
}

/// What loading gave.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedBaselines {
    /// With the ages of now. Empty on a first start and a reset.
    pub baselines: Baselines,
    /// Where they came from.
    pub origin: BaselineOrigin,
    /// One line for the log when anything was not as it should be.
    pub warning: Option<String>,
}

/// The baselines could not be saved. Those on disk are whole, the last or the ones before.
#[derive(Debug, thiserror::Error)]
#[error("cannot save baselines: cannot {step} {}", path.display())]
pub struct SaveError {
    path: PathBuf,
    step: &'static str,
    source: io::Error,
}

/// Why a file was not believed.
#[derive(Debug, thiserror::Error)]
enum BadFile {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is empty")]
    Empty,
    #[error("does not begin with `{MAGIC} {FORMAT_VERSION}` and a checksum")]
    Header,
    #[error("does not match its checksum")]
    Checksum,
    #[error("is of host {0}")]
    OtherHost(String),
    #[error("has a body that cannot be understood: {0}")]
    Body(#[from] serde_json::Error),
    #[error("has no sound baseline of `{0}`")]
    Entry(String),
    #[error("names an operation `{0}`, which cannot be one")]
    Name(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    format: u32,
    host_id: String,
    cpu_model: Option<String>,
    /// When it was written, on the host's wall clock, ms since 1970 UTC: ages are of that moment.
    saved_unix_ms: u64,
    entries: Baselines,
}

/// How long an operation takes without load, as 0.1 knew it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OldEntry {
    baseline_us: f64,
    samples: u64,
    updated_unix_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OldBody {
    #[serde(rename = "format")]
    _format: u32,
    host_id: String,
    cpu_model: Option<String>,
    entries: BTreeMap<String, OldEntry>,
}

impl OldBody {
    fn into_new(self) -> Result<Body, BadFile> {
        // Ages are counted from one moment: the latest that the file knows.
        let saved_unix_ms =
            self.entries.values().map(|entry| entry.updated_unix_ms).max().unwrap_or_default();
        let mut entries = Baselines::new();
        for (name, old) in self.entries {
            if !(old.baseline_us.is_finite() && old.baseline_us > 0.0) {
                return Err(BadFile::Entry(name));
            }
            let (lowest_us, samples) = (Some(old.baseline_us), old.samples);
            let moved_ms_ago = saved_unix_ms - old.updated_unix_ms;
            let minimum = MinimumRecord { lowest_us, samples, moved_ms_ago, ..MinimumRecord::default() };
            let robust = RobustRecord { lowest_us, samples, moved_ms_ago, ..RobustRecord::default() };
            entries.insert(name, BaselineRecord { minimum, robust });
        }
        let Self { host_id, cpu_model, .. } = self;
        Ok(Body { format: FORMAT_VERSION, host_id, cpu_model, saved_unix_ms, entries })
    }
}

/// The file of baselines of one host.
#[derive(Debug, Clone)]
pub struct BaselineFile {
    path: PathBuf,
    owner: BaselineOwner,
}

impl BaselineFile {
    /// The file at `path`, whose folder must exist, of `owner`.
    #[must_use]
    pub fn new(path: PathBuf, owner: BaselineOwner) -> Self {
        Self { path, owner }
    }

    /// Loads the newest baselines that can be believed. `now_unix_ms` stamps the files that are moved aside. Blocks.
    #[must_use]
    pub fn load(&self, now_unix_ms: u64) -> LoadedBaselines {
        self.load_from(&LocalDisk, now_unix_ms)
    }

    fn load_from(&self, disk: &impl Disk, now_unix_ms: u64) -> LoadedBaselines {
        let mut problems = Vec::new();
        for (path, origin) in
            [(self.path.clone(), BaselineOrigin::File), (self.backup(), BaselineOrigin::Backup)]
        {
            match self.read(disk, &path) {
                Ok(Some(body)) => return self.accept(body, origin, problems, now_unix_ms),
                Ok(None) => {}
                Err(bad) => {
                    let moved = match move_aside(disk, &path, now_unix_ms) {
                        Ok(aside) => format!("moved to {}", aside.display()),
                        Err(error) => format!("cannot be moved aside: {error}"),
                    };
                    problems.push(format!("{} {bad} ({moved})", path.display()));
                }
            }
        }
        if problems.is_empty() {
            let origin = BaselineOrigin::FirstStart;
            return LoadedBaselines { baselines: Baselines::new(), origin, warning: None };
        }
        reset(&problems.join("; "))
    }

    fn accept(
        &self,
        body: Body,
        origin: BaselineOrigin,
        mut problems: Vec<String>,
        now_unix_ms: u64,
    ) -> LoadedBaselines {
        if let (Some(then), Some(now)) = (&body.cpu_model, &self.owner.cpu_model)
            && then != now
        {
            return reset(&format!("the CPU was `{then}` and is `{now}`"));
        }
        if origin == BaselineOrigin::Backup {
            if problems.is_empty() {
                problems.push(format!("{} is missing", self.path.display()));
            }
            problems.push("the copy before it is used".to_owned());
        }
        let warning = (!problems.is_empty())
            .then(|| printable(&format!("baselines: {}", problems.join("; ")), MAX_REASON_CHARS));
        let passed = Duration::from_millis(now_unix_ms.saturating_sub(body.saved_unix_ms));
        let older = |(name, record): (String, BaselineRecord)| (name, record.older_by(passed));
        LoadedBaselines { baselines: body.entries.into_iter().map(older).collect(), origin, warning }
    }

    /// `None` when there is no such file.
    fn read(&self, disk: &impl Disk, path: &Path) -> Result<Option<Body>, BadFile> {
        let bytes = match disk.read(path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let body = decode(&bytes)?;
        if body.host_id != self.owner.host_id {
            return Err(BadFile::OtherHost(body.host_id));
        }
        Ok(Some(body))
    }

    /// Saves `baselines`, whose ages are of `now_unix_ms`, in place of those on disk. Blocks until they are on the
    /// disk.
    ///
    /// # Errors
    /// When the disk refuses; the baselines before are then still there.
    pub fn save(&self, baselines: &Baselines, now_unix_ms: u64) -> Result<(), SaveError> {
        self.save_to(&LocalDisk, baselines, now_unix_ms)
    }

    fn save_to(&self, disk: &impl Disk, baselines: &Baselines, now_unix_ms: u64) -> Result<(), SaveError> {
        let failed = |FailedStep { step, source }| SaveError { path: self.path.clone(), step, source };
        let body = Body {
            format: FORMAT_VERSION,
            host_id: self.owner.host_id.clone(),
            cpu_model: self.owner.cpu_model.clone(),
            saved_unix_ms: now_unix_ms,
            entries: baselines.clone(),
        };
        let bytes = encode(&body).map_err(|source| failed(FailedStep { step: "encode", source }))?;
        disk::replace_keeping(disk, &self.path, OsStr::new(KEPT), &bytes).map_err(failed)
    }

    fn backup(&self) -> PathBuf {
        disk::beside(&self.path, KEPT)
    }
}

fn reset(reason: &str) -> LoadedBaselines {
    let reason = printable(reason, MAX_REASON_CHARS);
    let warning = Some(format!("baselines begin anew: {reason}"));
    LoadedBaselines { baselines: Baselines::new(), origin: BaselineOrigin::Reset { reason }, warning }
}

fn encode(body: &Body) -> io::Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(body)?;
    json.push(b'\n');
    let mut bytes = format!("{MAGIC} {FORMAT_VERSION} {}\n", checksum(&json)).into_bytes();
    bytes.append(&mut json);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<Body, BadFile> {
    if bytes.is_empty() {
        return Err(BadFile::Empty);
    }
    let end = bytes.iter().position(|&byte| byte == b'\n').ok_or(BadFile::Header)?;
    let (header, rest) = bytes.split_at(end);
    let json = rest.get(1..).unwrap_or_default();
    let header = std::str::from_utf8(header).map_err(|_| BadFile::Header)?;
    let checksum_of = |version: u32| header.strip_prefix(&format!("{MAGIC} {version} "));
    let (expected, is_old) = match (checksum_of(FORMAT_VERSION), checksum_of(FORMAT_OF_0_1)) {
        (Some(expected), _) => (expected, false),
        (None, Some(expected)) => (expected, true),
        (None, None) => return Err(BadFile::Header),
    };
    if checksum(json) != expected {
        return Err(BadFile::Checksum);
    }
    let body = if is_old {
        serde_json::from_slice::<OldBody>(json)?.into_new()?
    } else {
        serde_json::from_slice(json)?
    };
    // Numbers that cannot be true are left out one by one when they are restored.
    match body.entries.keys().find(|name| !is_name(name)) {
        Some(name) => Err(BadFile::Name(name.clone())),
        None => Ok(body),
    }
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn move_aside(disk: &impl Disk, path: &Path, now_unix_ms: u64) -> io::Result<PathBuf> {
    let aside = disk::beside(path, format!(".bad-{now_unix_ms}"));
    disk.rename(path, &aside)?;
    Ok(aside)
}

#[cfg(test)]
#[path = "baseline_file_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "baseline_cut_tests.rs"]
mod cut_tests;
