//! How is a program of the operator's run without putting the agent in its hands?
//!
//! It gets nothing to read, a deadline, and a bounded ear: what it writes beyond the bound is thrown away. When the
//! deadline has passed, it and all that it started are killed. A program that ends while something it started still
//! holds its output is done all the same.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long the rest of the output is waited for after the program has ended.
const REST_WAIT: Duration = Duration::from_millis(200);

/// What a program left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// The beginning of what it wrote.
    pub output: Vec<u8>,
}

/// How a program ended whose output was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// How it ended.
    pub status: ExitStatus,
    /// Its output was heard to the end. Not so when something that it started still holds it.
    pub is_whole: bool,
}

/// Why a program left nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is nothing to run.
    #[error("no program is named")]
    Empty,
    /// It cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be waited for.
    #[error("cannot wait for {program}: {source}")]
    Wait {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It was killed.
    #[error("{program} did not end within {} ms and was killed", limit.as_millis())]
    TimedOut {
        /// The program.
        program: String,
        /// Its deadline.
        limit: Duration,
    },
}

/// A running program that takes what it started with it when it is dropped.
struct Running {
    child: Child,
    /// Absent once it has been waited for: its number may then be another's.
    group: Option<Pid>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may have ended by itself meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs `command` (a program and its arguments) for at most `deadline` and keeps at most `most_bytes` of its output.
/// Dropping the future kills it.
///
/// # Errors
/// When it cannot be run, or did not end in time. An exit code other than 0 is none.
pub async fn run(
    command: &[String],
    deadline: Duration,
    most_bytes: usize,
) -> Result<Finished, ProgramError> {
    let mut output = Vec::new();
    let Heard { status, .. } = run_heard(command, deadline, |bytes| {
        let room = most_bytes.saturating_sub(output.len());
        output.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    })
    .await?;
    Ok(Finished { status, output })
}

/// As [`run`], but everything that it writes is handed to `hear` piece by piece, whatever it is and however much.
///
/// # Errors
/// As [`run`].
pub async fn run_heard(
    command: &[String],
    deadline: Duration,
    hear: impl FnMut(&[u8]),
) -> Result<Heard, ProgramError> {
    let (program, arguments) = command.split_first().ok_or(ProgramError::Empty)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| ProgramError::Start { program: program.clone(), source })?;
    let output = child.stdout.take();
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let mut running = Running { child, group };
    let ended = timeout(deadline, listen(&mut running.child, output, hear)).await;
    match ended {
        Ok(Ok(heard)) => {
            running.group = None;
            Ok(heard)
        }
        Ok(Err(source)) => Err(ProgramError::Wait { program: program.clone(), source }),
        Err(_) => Err(ProgramError::TimedOut { program: program.clone(), limit: deadline }),
    }
}

async fn listen(
    child: &mut Child,
    output: Option<impl AsyncRead + Unpin>,
    hear: impl FnMut(&[u8]),
) -> io::Result<Heard> {
    let reading = hear_all(output, hear);
    tokio::pin!(reading);
    tokio::select! {
        status = child.wait() => {
            // What it wrote before it ended is in the pipe already.
            let is_whole = timeout(REST_WAIT, reading).await.is_ok();
            Ok(Heard { status: status?, is_whole })
        }
        () = &mut reading => Ok(Heard { status: child.wait().await?, is_whole: true }),
    }
}

/// Reads to the end, or a program that writes more than is kept would wait for ever.
async fn hear_all(output: Option<impl AsyncRead + Unpin>, mut hear: impl FnMut(&[u8])) {
    let Some(mut output) = output else { return };
    let mut buffer = [0; 4096];
    // An error is an end too.
    while let Ok(read @ 1..) = output.read(&mut buffer).await {
        hear(buffer.get(..read).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn the_beginning_of_the_output_and_the_exit_code_are_kept() {
        let finished = run(&shell("echo ready; exit 3"), LONG, 100).await.unwrap();
        assert_eq!((finished.output.as_slice(), finished.status.code()), (&b"ready\n"[..], Some(3)));
        let much = run(&shell("head -c 3000000 /dev/zero"), LONG, 100).await.unwrap();
        assert_eq!((much.output.len(), much.status.code()), (100, Some(0)));
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
        let error = run(&shell(&script), Duration::from_millis(500), 100).await.unwrap_err().to_string();
        assert!(error.contains("/bin/sh") && error.contains("500 ms"), "{error}");
        let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        let is_gone = || {
            // A killed process may wait for its new parent to look.
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z")
        };
        tokio::time::timeout(LONG, async {
            while !is_gone() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("killed");
    }

    #[tokio::test]
    async fn output_that_somebody_else_holds_open_does_not_hold_the_agent() {
        let finished = run(&shell("echo up; sleep 5 &"), LONG, 100).await.unwrap();
        assert_eq!(finished.output, b"up\n");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let error = run(&["/no/such/program".to_owned()], LONG, 1).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot start /no/such/program: "), "{error}");
        assert!(matches!(run(&[], LONG, 1).await, Err(ProgramError::Empty)));
    }
}
