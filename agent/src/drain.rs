//! Is this host drained, by a command given on it or by an admin through a coordinator?
//!
//! The answer must outlive the agent, and a persistent drain a reboot, so it lies in the state folder. A drain until
//! the restart names the boot in which it was given and is void in every other. A file that cannot be read or
//! understood counts as a drain: whoever wrote it wanted nobody to come, and somebody is there to take it back, while
//! users who are sent to a machine that is taken apart are not asked.
//!
//! There is one such drain, whoever sets it: the host is where equal coordinators meet, so a drain set through one of them
//! is ended through another, or on the host, and holds while no coordinator and no store is there. The last word counts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use usher_proto::DrainKept;
use usher_types::{BootId, Drain, DrainMode};

use crate::disk::{self, Outlives};
use crate::printable::printable;
use crate::standing::StandingBoard;

/// Longest reason that is kept, in characters: a sentence or two in a list of hosts.
pub const MAX_REASON_CHARS: usize = 200;

/// Changes that may wait: a handful of coordinators and people. A disk that hangs must not gather more.
const CHANGES_WAITING: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    boot_id: String,
    drain: Drain,
}

/// The file `drain.json` of the state folder.
#[derive(Debug, Clone)]
pub struct DrainFile {
    path: PathBuf,
    boot_id: BootId,
    is_in_memory: bool,
}

impl DrainFile {
    /// The file in `folder`, in the boot `boot_id`.
    #[must_use]
    pub fn new(folder: &Path, boot_id: BootId) -> Self {
        let is_in_memory = disk::is_in_memory(folder);
        Self { path: folder.join("drain.json"), boot_id, is_in_memory }
    }

    /// The drain that holds. Blocks.
    #[must_use]
    pub fn load(&self) -> Option<Drain> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(self.unreadable(&error.to_string())),
        };
        match serde_json::from_slice::<Content>(&bytes) {
            Ok(Content { boot_id, drain }) => {
                let holds = drain.mode == DrainMode::Persistent || boot_id == self.boot_id.as_str();
                holds.then(|| as_could_be_said(drain))
            }
            Err(error) => Some(self.unreadable(&error.to_string())),
        }
    }

    fn unreadable(&self, why: &str) -> Drain {
        let path = self.path.display();
        tracing::error!(%path, why, "the drain file cannot be understood: the host stays drained");
        let reason = format!("{path} cannot be understood: {why}; undrain the host to go on");
        let reason = printable(&reason, MAX_REASON_CHARS);
        Drain { mode: DrainMode::Persistent, reason, author: "usher-agent".into(), no_reconnect: false }
    }

    /// Keeps `drain`, or that there is none. On the disk when this returns. Blocks.
    ///
    /// # Errors
    /// When the disk refuses; what was kept before still is.
    pub fn save(&self, drain: Option<&Drain>) -> io::Result<()> {
        let Some(drain) = drain else {
            return disk::remove(&self.path);
        };
        let content = Content { boot_id: self.boot_id.to_string(), drain: drain.clone() };
        let mut json = serde_json::to_vec_pretty(&content)?;
        json.push(b'\n');
        disk::replace(&self.path, &json, Outlives::Power)
    }
}

/// The drain of one host: the file, and what the host says of itself, changed together. Clones share it.
#[derive(Debug, Clone)]
pub struct DrainKeeper {
    file: DrainFile,
    board: StandingBoard,
    /// Orders the changes: the file and the board must not end differently.
    changing: Arc<Mutex<()>>,
    /// Changes that wait for each other or for the disk.
    waiting: Arc<Semaphore>,
}

/// Given back when a change is done.
type Turn = (OwnedSemaphorePermit, OwnedMutexGuard<()>);

impl DrainKeeper {
    /// Takes over the drain that the file holds. Blocks.
    #[must_use]
    pub fn open(file: DrainFile, board: StandingBoard) -> Self {
        board.change(|parts| parts.drain = file.load());
        Self { file, board, changing: Arc::default(), waiting: Arc::new(Semaphore::new(CHANGES_WAITING)) }
    }

    /// Keeps `drain`, or ends the one that is kept. On the disk first: a drain that was confirmed must not be gone after a
    /// loss of power. One that has begun is done to its end, whether or not the caller still waits: the next one must not write
    /// while it does.
    ///
    /// # Errors
    /// Why the disk refused, for people; the drain is as it was then.
    pub async fn keep(&self, drain: Option<Drain>) -> Result<DrainKept, String> {
        let Ok(waiting) = self.waiting.clone().try_acquire_owned() else {
            return Err(format!("{CHANGES_WAITING} changes of the drain wait for the disk"));
        };
        let turn = (waiting, self.changing.clone().lock_owned().await);
        let change = self.clone().change(drain, turn);
        if self.file.is_in_memory {
            return change.await;
        }
        tokio::spawn(change).await.map_err(|error| format!("the change broke off: {error}"))?
    }

    async fn change(self, drain: Option<Drain>, _turn: Turn) -> Result<DrainKept, String> {
        let drain = drain.map(as_could_be_said);
        let before = self.board.parts().drain;
        let (file, kept) = (self.file.clone(), drain.clone());
        let saved = if file.is_in_memory {
            Ok(file.save(kept.as_ref()))
        } else {
            tokio::task::spawn_blocking(move || file.save(kept.as_ref())).await
        };
        saved
            .map_err(|error| format!("the thread that writes broke off: {error}"))?
            .map_err(|error| error.to_string())?;
        let file = self.file.path.display();
        match &drain {
            Some(drain) => tracing::info!(author = drain.author, reason = drain.reason, %file, "drained"),
            None => tracing::info!(%file, "undrained"),
        }
        self.board.change(|parts| parts.drain.clone_from(&drain));
        Ok(DrainKept { before, holds: self.board.parts().whole().drain })
    }
}

/// A file that was written by hand is bound by what a command could have said: the reason travels in every report.
fn as_could_be_said(drain: Drain) -> Drain {
    let [reason, author] = [&drain.reason, &drain.author].map(|text| printable(text, MAX_REASON_CHARS));
    Drain { reason, author, ..drain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, boot: &str) -> DrainFile {
        DrainFile::new(folder, BootId::new(boot).unwrap())
    }

    fn drain(mode: DrainMode) -> Drain {
        Drain { mode, reason: "new disks".into(), author: "root".into(), no_reconnect: true }
    }

    #[test]
    fn a_drain_until_the_restart_ends_with_the_boot_and_a_persistent_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(file(folder.path(), "b1").load(), None);
        for (mode, after_boot) in
            [(DrainMode::UntilRestart, None), (DrainMode::Persistent, Some(drain(DrainMode::Persistent)))]
        {
            file(folder.path(), "b1").save(Some(&drain(mode))).unwrap();
            assert_eq!(file(folder.path(), "b1").load(), Some(drain(mode)));
            assert_eq!(file(folder.path(), "b2").load(), after_boot);
        }
        file(folder.path(), "b2").save(None).unwrap();
        file(folder.path(), "b2").save(None).unwrap();
        assert_eq!(file(folder.path(), "b1").load(), None);
    }

    #[test]
    fn a_reason_written_by_hand_is_cut_to_what_a_command_may_say() {
        let folder = tempfile::tempdir().unwrap();
        let reason = format!("\u{1b}[31m{}", "x".repeat(9999));
        let by_hand = Drain { reason, ..drain(DrainMode::Persistent) };
        file(folder.path(), "b1").save(Some(&by_hand)).unwrap();
        let held = file(folder.path(), "b1").load().unwrap().reason;
        assert_eq!((held.chars().count(), held.starts_with("[31mxx")), (MAX_REASON_CHARS, true));
    }

    #[test]
    fn a_file_that_cannot_be_understood_keeps_the_host_drained_until_it_is_undrained() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drain.json");
        for broken in ["", "{", "[]", "{\"boot_id\":\"b1\"}"] {
            std::fs::write(&path, broken).unwrap();
            let held = file(folder.path(), "b1").load().unwrap();
            assert_eq!((held.mode, held.no_reconnect), (DrainMode::Persistent, false));
            assert!(held.reason.contains("drain.json"), "{}", held.reason);
        }
        file(folder.path(), "b1").save(None).unwrap();
        assert_eq!(file(folder.path(), "b1").load(), None);
    }

    #[tokio::test]
    async fn the_last_word_counts_and_is_on_the_disk_before_the_host_says_it() {
        let folder = tempfile::tempdir().unwrap();
        let board = StandingBoard::default();
        board.change(|parts| {
            parts.hook_drain = Some(Drain { author: "hook".into(), ..drain(DrainMode::UntilRestart) })
        });
        let keeper = DrainKeeper::open(file(folder.path(), "b1"), board.clone());
        let ann = Drain { author: "ann".into(), ..drain(DrainMode::Persistent) };
        let kept = keeper.keep(Some(ann.clone())).await.unwrap();
        assert_eq!(kept, DrainKept { before: None, holds: Some(ann.clone()) });
        let ben = Drain { author: "ben".into(), reason: "\u{1b}fan".into(), ..ann.clone() };
        let kept = keeper.keep(Some(ben)).await.unwrap();
        assert_eq!(kept.before, Some(ann));
        assert_eq!(kept.holds.unwrap().reason, "fan", "as a command on the host could have said it");
        // Another run of the agent.
        let again = DrainKeeper::open(file(folder.path(), "b2"), StandingBoard::default());
        let ended = again.keep(None).await.unwrap();
        assert_eq!((ended.before.unwrap().author.as_str(), ended.holds), ("ben", None));
        let still = keeper.keep(None).await.unwrap().holds.unwrap();
        assert_eq!(still.author, "hook", "the word of the hook is not a person's to end");
    }

    #[test]
    fn a_change_that_nobody_waits_for_any_more_ends_with_file_and_board_the_same() {
        let folder = tempfile::tempdir().unwrap();
        // One thread for the disk, and it hangs until the test lets go.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (let_go, hangs) = std::sync::mpsc::channel::<()>();
            let hanging = tokio::task::spawn_blocking(move || hangs.recv());
            let board = StandingBoard::default();
            let keeper = DrainKeeper {
                file: file(folder.path(), "b1"),
                board: board.clone(),
                changing: Arc::default(),
                waiting: Arc::new(Semaphore::new(CHANGES_WAITING)),
            };
            let given_up = tokio::time::timeout(
                std::time::Duration::from_millis(20),
                keeper.keep(Some(drain(DrainMode::Persistent))),
            );
            assert!(given_up.await.is_err());
            assert!(keeper.changing.try_lock().is_err(), "the next one waits for it");
            let_go.send(()).unwrap();
            hanging.await.unwrap().unwrap();
            let _done = keeper.changing.lock().await;
            assert_eq!(board.parts().drain, Some(drain(DrainMode::Persistent)));
            assert_eq!(keeper.file.load(), board.parts().drain);
        });
    }

    #[tokio::test]
    async fn a_drain_that_cannot_be_written_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let board = StandingBoard::default();
        let keeper = DrainKeeper::open(file(&folder.path().join("gone"), "b1"), board.clone());
        let why = keeper.keep(Some(drain(DrainMode::Persistent))).await.unwrap_err();
        assert!(why.contains("drain.json"), "{why}");
        assert_eq!(board.parts().drain, None);
    }
}
