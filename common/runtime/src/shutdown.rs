//! How does a process stop, and how long may that take?
//!
//! One token says "stop taking new work"; every task watches it. The first SIGTERM or SIGINT cancels it,
//! and the process then has a fixed time to tell its peers, end its streams and flush. A second signal
//! means that the operator will not wait: the process exits at once, whatever still runs. Streams that
//! never end by themselves must not keep a process alive, so the waiting has a deadline.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a process may take to stop. Service managers commonly kill after 90 s; load balancers and
/// agents are told to go elsewhere in the first moments, and a store flush takes well below a second.
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(10);

/// Tasks still ran when the time for stopping was over.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{tasks} tasks still ran {} s after the shutdown began", limit.as_secs_f64())]
pub struct StillRunning {
    /// How many.
    pub tasks: usize,
    /// How long they were waited for.
    pub limit: Duration,
}

/// The stopping of one process: a token to watch and the tasks to wait for. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// A process that runs, without signals: they are asked for by [`Shutdown::on_signals`].
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on the first SIGTERM or SIGINT begins the shutdown and a second one exits the process at
    /// once, with 128 + its number: 143 or 130.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn on_signals(&self) -> io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let token = self.token.clone();
        tokio::spawn(async move {
            let (name, _) = next_signal(&mut term, &mut int).await;
            tracing::info!(signal = name, "shutting down, a second signal exits at once");
            token.cancel();
            let (name, code) = next_signal(&mut term, &mut int).await;
            tracing::warn!(signal = name, "second signal, exiting at once");
            std::process::exit(code);
        });
        Ok(())
    }

    /// Begins the shutdown, as the first signal does. May be called many times.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until it begins.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// The token, for those who want only that.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Starts a task that [`Shutdown::finish`] waits for. The task watches the token itself.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Begins the shutdown if nobody has, and waits at most `limit` for the tasks to end.
    ///
    /// # Errors
    /// When some still run then; the caller logs that and exits all the same.
    pub async fn finish(&self, limit: Duration) -> Result<(), StillRunning> {
        self.begin();
        self.tasks.close();
        tokio::time::timeout(limit, self.tasks.wait())
            .await
            .map_err(|_elapsed| StillRunning { tasks: self.tasks.len(), limit })
    }

    /// Runs until the shutdown begins, then waits at most `limit` for the tasks to end.
    ///
    /// # Errors
    /// As [`Shutdown::finish`].
    pub async fn run_until(&self, limit: Duration) -> Result<(), StillRunning> {
        self.begun().await;
        self.finish(limit).await
    }
}

async fn next_signal(term: &mut Signal, int: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = term.recv() => ("SIGTERM", 143),
        _ = int.recv() => ("SIGINT", 130),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_watches_the_token_ends_the_wait() {
        let shutdown = Shutdown::new();
        let token = shutdown.token();
        shutdown.spawn(async move { token.cancelled().await });
        assert!(!shutdown.has_begun());
        assert_eq!(shutdown.finish(SHUTDOWN_DEADLINE).await, Ok(()));
        assert!(shutdown.has_begun());
    }

    #[tokio::test(start_paused = true)]
    async fn case_119_a_stream_that_never_ends_does_not_hold_the_process() {
        let shutdown = Shutdown::new();
        shutdown.spawn(std::future::pending::<()>());
        shutdown.begin();
        let started = tokio::time::Instant::now();
        let error = shutdown.run_until(SHUTDOWN_DEADLINE).await.unwrap_err();
        assert_eq!(error.tasks, 1);
        assert_eq!(started.elapsed(), SHUTDOWN_DEADLINE);
    }

    const CHILD: &str = "USHER_TEST_SHUTDOWN_CHILD";

    /// Not a test of its own: the process that the next test starts and signals.
    #[tokio::test]
    async fn child_process_that_ignores_its_shutdown() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let shutdown = Shutdown::new();
        shutdown.on_signals().unwrap();
        eprintln!("ready");
        shutdown.begun().await;
        eprintln!("begun");
        std::future::pending::<()>().await;
    }

    #[test]
    fn case_119_the_second_signal_exits_at_once() {
        for (second, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "shutdown::tests::child_process_that_ignores_its_shutdown", "--nocapture"])
                .env(CHILD, "1")
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = Pid::from_child(&child);
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
            assert!(lines.any(|line| line == "ready"));
            kill_process(pid, Signal::TERM).unwrap();
            assert!(lines.any(|line| line == "begun"));
            kill_process(pid, second).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(code));
        }
    }
}
