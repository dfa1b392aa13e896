//! What was known of the farm before this program started?
//!
//! A file that only this library writes, and that is believed only if every byte of it is as it was written: a line that
//! says what it is, a line with the sum of all that follows, a line that says of which farm and when, and the farm in the
//! messages of the protocol. It is written beside itself and moved into place, so that a cut leaves the one before.
//!
//! Its age is counted on the boot-time clock if the machine has not booted since, else on the wall clock. One that is cut,
//! of another farm, from the future or otherwise not ours is set aside under a name with the time, for people to look at,
//! and never used.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use usher_proto::v1::{self, watch_farm_response::Event};
use usher_runtime::aside::move_aside;
use usher_runtime::clock::{Clock, SystemClock, boot_id};
use usher_types::BootTime;

use crate::farm::{Known, Mirror, Taken};

const FIRST_LINE: &str = "usher farm cache 1\n";
/// A farm of a hundred thousand hosts is smaller.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// A message of the file is closed when it is that large.
const FULL_BYTES: usize = 256 * 1024;
/// No message of it is larger: a host whose names are all as long as can be came in a message of the wire, which has this limit.
const MOST_IN_ONE: usize = 4 * 1024 * 1024;
/// Files set aside that are kept.
const KEPT_ASIDE: usize = 4;
/// A wall clock may be so far behind the one that wrote the file; more is from the future.
const SKEW: Duration = Duration::from_secs(60);

/// The clocks of this machine at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) boot_id: String,
    pub(crate) now: BootTime,
    pub(crate) wall_unix_ms: u64,
}

impl Moment {
    /// This one.
    ///
    /// # Errors
    /// If the boot cannot be told.
    pub(crate) fn this() -> io::Result<Self> {
        Ok(Self {
            boot_id: boot_id(Path::new("/"))?,
            now: SystemClock.now(),
            wall_unix_ms: SystemClock.wall_unix_ms(),
        })
    }
}

/// When a file was written, and of what farm.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    farm: String,
    boot_id: String,
    /// On the boot-time clock of that boot.
    as_of_us: u64,
    as_of_unix_ms: u64,
}

/// Why a file is not used.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    #[error("there is none")]
    Missing,
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("it is no file of this format")]
    OtherFormat,
    #[error("it is cut, or was changed: its sum is not what it says")]
    Damaged,
    #[error("it is of farm {0:?}, not of ours")]
    OtherFarm(String),
    #[error("it is from the future by this machine's clocks")]
    Future,
    #[error("it is {} s old, allowed are {} s", .0.as_secs(), .1.as_secs())]
    TooOld(Duration, Duration),
}

/// Reads the file. What is known is as of an instant of this boot's clock, however long before it.
///
/// # Errors
/// Why it is not used.
pub(crate) fn read(
    path: &Path,
    farm: Option<&str>,
    max_age: Duration,
    now: &Moment,
) -> Result<(Known, Duration), Unusable> {
    let (head, body) = parts(path)?;
    if farm.is_some_and(|ours| ours != head.farm) {
        return Err(Unusable::OtherFarm(head.farm));
    }
    let age = age(&head, now).ok_or(Unusable::Future)?;
    if age > max_age {
        return Err(Unusable::TooOld(age, max_age));
    }
    // The clock's origin may be younger than the file: all that counts is how far instants lie apart.
    let as_of = BootTime::from_micros(u64::MAX / 2);
    let mut mirror = Mirror::new(Some(head.farm));
    let mut rest = body.as_slice();
    let mut complete = false;
    while !rest.is_empty() {
        let length = prost::decode_length_delimiter(&mut rest).map_err(|_| Unusable::OtherFormat)?;
        if length > MOST_IN_ONE || length > rest.len() {
            return Err(Unusable::OtherFormat);
        }
        let (message, others) = rest.split_at(length);
        rest = others;
        let message = v1::WatchFarmResponse::decode(message).map_err(|_| Unusable::OtherFormat)?;
        // After nonsense a mirror is good for nothing, whatever comes then.
        let taken = mirror.take(message, as_of).map_err(|_| Unusable::OtherFormat)?;
        complete = matches!(taken, Taken::Bookmark { .. });
    }
    if complete { Ok((mirror.known(), age)) } else { Err(Unusable::OtherFormat) }
}

/// Head and body of a file whose sum is right.
fn parts(path: &Path) -> Result<(Head, Vec<u8>), Unusable> {
    // Opening a fifo in its place would hold up whoever does it.
    let is_file = match fs::metadata(path) {
        Ok(found) => found.is_file(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
        Err(error) => return Err(Unusable::Unreadable(error)),
    };
    if !is_file {
        return Err(Unusable::OtherFormat);
    }
    let file = File::open(path).map_err(Unusable::Unreadable)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(Unusable::Unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Unusable::OtherFormat);
    }
    let rest = bytes.strip_prefix(FIRST_LINE.as_bytes()).ok_or(Unusable::OtherFormat)?;
    let (sum, rest) = line(rest).ok_or(Unusable::Damaged)?;
    if sum != hex(&Sha256::digest(rest)).as_bytes() {
        return Err(Unusable::Damaged);
    }
    let (head, body) = line(rest).ok_or(Unusable::OtherFormat)?;
    let head = serde_json::from_slice(head).map_err(|_| Unusable::OtherFormat)?;
    Ok((head, body.to_vec()))
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// In small letters.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How old it is. Absent: it is from the future.
fn age(head: &Head, now: &Moment) -> Option<Duration> {
    if head.boot_id == now.boot_id {
        let then = BootTime::from_micros(head.as_of_us);
        return (then <= now.now).then(|| now.now.since(then));
    }
    let ms = now.wall_unix_ms.checked_sub(head.as_of_unix_ms);
    match ms {
        Some(ms) => Some(Duration::from_millis(ms)),
        None => {
            let ahead = Duration::from_millis(head.as_of_unix_ms - now.wall_unix_ms);
            (ahead <= SKEW).then_some(Duration::ZERO)
        }
    }
}

/// Writes what is known beside the file, and puts it in its place.
///
/// # Errors
/// What the disk says; the file of before stays.
pub(crate) fn write(path: &Path, known: &Known, now: &Moment) -> io::Result<()> {
    let age = now.now.since(known.as_of);
    let head = Head {
        farm: known.farm.clone(),
        boot_id: now.boot_id.clone(),
        as_of_us: known.as_of.as_micros(),
        as_of_unix_ms: now.wall_unix_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
    };
    let mut rest = serde_json::to_vec(&head)?;
    rest.push(b'\n');
    for message in messages(known) {
        rest.extend(message.encode_length_delimited_to_vec());
    }
    let beside = with_ending(path, "new");
    let mut file = File::create(&beside)?;
    file.write_all(FIRST_LINE.as_bytes())?;
    file.write_all(hex(&Sha256::digest(&rest)).as_bytes())?;
    file.write_all(b"\n")?;
    file.write_all(&rest)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The name is on disk when its folder is.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The farm in the messages in which a coordinator tells of it.
fn messages(known: &Known) -> Vec<v1::WatchFarmResponse> {
    let message = |event| v1::WatchFarmResponse { revision: 1, event: Some(event), held_ms: 0 };
    let start = v1::FarmStart {
        farm: known.farm.clone(),
        instance_id: "file".to_owned(),
        ..v1::FarmStart::default()
    };
    let changes = |changes| message(Event::Changes(changes));
    let mut all = vec![message(Event::Start(start))];
    let pools = in_parts(known.pools.values().cloned());
    all.extend(pools.map(|pools| changes(v1::FarmChanges { pools, ..v1::FarmChanges::default() })));
    let age_ms = |at: BootTime| u64::try_from(known.as_of.since(at).as_millis()).unwrap_or(u64::MAX);
    let hosts = in_parts(known.hosts.values().map(|host| {
        let mut told = host.told.clone();
        told.load_age_ms = host.measured_at.map(age_ms);
        if let Some(availability) = &mut told.availability {
            availability.age_ms = age_ms(host.timed_at);
        }
        told
    }));
    all.extend(hosts.map(|hosts| changes(v1::FarmChanges { hosts, ..v1::FarmChanges::default() })));
    let bookmark = v1::FarmBookmark {
        hosts_heard: known.hosts_heard,
        hosts_registered: known.hosts_registered,
        stale: false,
    };
    all.push(message(Event::Bookmark(bookmark)));
    all
}

/// As many in each part as fill a message.
fn in_parts<T: Message>(all: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.peekable();
    std::iter::from_fn(move || {
        let mut part: Vec<T> = all.next().into_iter().collect();
        let mut bytes = part.first()?.encoded_len();
        while let Some(next) = all.peek()
            && bytes + next.encoded_len() <= FULL_BYTES
        {
            bytes += next.encoded_len();
            part.extend(all.next());
        }
        Some(part)
    })
}

/// Moves a file that is not used out of the way. Where to. Absent: it could not be moved.
pub(crate) fn set_aside(path: &Path, now: &Moment) -> Option<PathBuf> {
    let aside = move_aside(path, &format!("aside-{:013}", now.wall_unix_ms)).ok()?;
    forget_oldest_aside(path);
    Some(aside)
}

fn forget_oldest_aside(path: &Path) {
    let Some(prefix) = with_ending(path, "aside-").file_name().map(|name| name.to_owned()) else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let prefix = prefix.to_string_lossy().into_owned();
    let mut aside: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    aside.sort();
    for old in aside.iter().rev().skip(KEPT_ASIDE) {
        // It is for people only; the next time it is tried again.
        let _ = fs::remove_file(old);
    }
}

pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
