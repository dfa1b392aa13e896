//! The processes of a farm: started, watched, ended.
//!
//! Each writes its log to a file of its own, which is shown when the process ends unasked. Each has its own process
//! group, so that Ctrl-C reaches only usherctl, which then ends them in order; and each is tied to usherctl by the
//! kernel, in case that is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::failure::Failure;
use crate::output::remark;
use crate::output::text::clean;
use crate::reexec::{COORDINATOR, PARENT_ENV};

/// For an orderly end; the programs themselves give up after as long.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How often is looked whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Lines of a log that are shown: enough for an error and what led to it.
const LOG_LINES: usize = 12;
/// Settings of this machine that are meant for other programs than those of the farm.
const FOREIGN_ENV: [&str; 3] = ["USHER_CONFIG", "USHER_COORDINATORS", "USHER_FARM"];

/// All processes of a farm.
#[derive(Debug)]
pub(super) struct Processes {
    folder: PathBuf,
    running: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    word: &'static str,
    log: PathBuf,
    child: Child,
}

/// A process that ended unasked.
#[derive(Debug)]
struct Death {
    name: String,
    word: &'static str,
    status: ExitStatus,
    log: PathBuf,
}

impl Processes {
    /// None yet; their logs will be in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), running: Vec::new() }
    }

    /// Where data and logs are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts this program again as what `word` says, and returns its process id.
    ///
    /// # Errors
    /// If its log cannot be made or it cannot be started.
    pub(super) fn start<S: AsRef<OsStr>>(
        &mut self,
        name: &str,
        word: &'static str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<u32, Failure> {
        let log = self.folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let errors = file.try_clone().with_context(|| format!("opening {} twice", log.display()))?;
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg(word).args(arguments).env(PARENT_ENV, std::process::id().to_string());
        for name in FOREIGN_ENV {
            command.env_remove(name);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let pid = child.id().unwrap_or_default();
        self.running.push(Process { name: name.to_owned(), word, log, child });
        Ok(pid)
    }

    /// Fails if a process has ended.
    ///
    /// # Errors
    /// [`Failure::Check`] with the last lines of its log.
    pub(super) fn all_run(&mut self) -> Result<(), Failure> {
        match self.take_dead().into_iter().next() {
            None => Ok(()),
            Some(death) => Err(Failure::Check(death.tell())),
        }
    }

    /// Waits while the farm serves. A host may be killed to see what happens, so only the coordinator's end is one.
    ///
    /// # Errors
    /// [`Failure::Check`] with the last lines of the coordinator's log.
    pub(super) async fn watch(&mut self) -> Result<(), Failure> {
        loop {
            for death in self.take_dead() {
                if death.word == COORDINATOR {
                    return Err(Failure::Check(death.tell()));
                }
                remark(&death.tell());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn take_dead(&mut self) -> Vec<Death> {
        let mut dead = Vec::new();
        self.running.retain_mut(|process| {
            // A child that cannot be asked is left to the end.
            let Ok(Some(status)) = process.child.try_wait() else { return true };
            let (name, log) = (process.name.clone(), process.log.clone());
            dead.push(Death { name, word: process.word, status, log });
            false
        });
        dead
    }

    /// Ends all: asks each, waits, then kills those that still run.
    pub(super) async fn end(&mut self) {
        for process in &self.running {
            if let Some(pid) = process.pid() {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = tokio::time::Instant::now() + END_WITHIN;
        for process in &mut self.running {
            if tokio::time::timeout_at(deadline, process.child.wait()).await.is_err() {
                remark(&format!(
                    "{} did not end within {} s and is killed",
                    process.name,
                    END_WITHIN.as_secs()
                ));
                let _ = process.child.kill().await;
            }
        }
        self.running.clear();
    }
}

impl Process {
    /// Absent if it has ended and was waited for: then the number may belong to somebody else.
    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
    }
}

impl Death {
    fn tell(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!("{} has ended ({}); its last lines:\n{}", self.name, self.status, last_lines(&log))
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let shown =
        lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| format!("  {}", clean(line)));
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "  (nothing)".to_owned() } else { shown.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a test of its own: the process that other tests start and end.
    #[test]
    fn a_process_that_stays() {
        while std::env::var_os(PARENT_ENV).is_some() {
            std::thread::park();
        }
    }

    fn start_one_that_stays(processes: &mut Processes) -> Pid {
        let test = ["quickstart::processes::tests::a_process_that_stays"];
        let pid = processes.start("stays", "--exact", test).unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn every_process_is_ended_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(folder.path());
        let pids = [start_one_that_stays(&mut processes), start_one_that_stays(&mut processes)];
        processes.all_run().unwrap();
        processes.end().await;
        for pid in pids {
            assert!(rustix::process::test_kill_process(pid).is_err(), "{pid:?} is still there");
        }
    }

    #[tokio::test]
    async fn a_process_that_ends_unasked_is_told_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(folder.path());
        processes.start("gone", "--nonsense", [""]).unwrap();
        let died = async {
            loop {
                match processes.all_run() {
                    Ok(()) => tokio::task::yield_now().await,
                    Err(failure) => return failure,
                }
            }
        };
        let failure = tokio::time::timeout(Duration::from_secs(30), died).await.unwrap();
        let text = failure.for_people();
        assert_eq!(failure.exit_code(), 4);
        assert!(text.contains("gone has ended") && text.contains("nonsense"), "{text}");
    }

    #[test]
    fn the_last_lines_of_a_log_are_shown_and_cannot_steer_the_terminal() {
        let log: String = (0..100).map(|n| format!("line {n}\u{7}\n")).collect();
        let shown = last_lines(&log);
        assert_eq!(shown.lines().count(), LOG_LINES);
        assert!(shown.ends_with("  line 99\\u{7}"), "{shown}");
        assert_eq!(last_lines(""), "  (nothing)");
    }
}
