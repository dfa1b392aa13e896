//! Is the one whose bytes we carry still there?
//!
//! ssh ends its `ProxyCommand` with a signal; a reader in a pipeline goes away without one. Both are the client's end.
//! That standard input has ended is not: it may have said all that it has to say, and still wait for the answer.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::thread::JoinHandle;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// The client went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Watches for the end of the client.
#[derive(Debug)]
pub(super) struct Client {
    signals: [Signal; 3],
    /// Nobody reads standard output any more. Absent: it can no longer be seen.
    unread: Option<oneshot::Receiver<()>>,
    watcher: Option<Watcher>,
}

/// A thread that waits for the reader's end, until its pipe is closed.
#[derive(Debug)]
struct Watcher {
    stop: PipeWriter,
    thread: JoinHandle<()>,
}

impl Client {
    /// Begins to watch.
    ///
    /// # Errors
    /// If signals, pipes or threads cannot be had.
    pub(super) fn watch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).context("catching signals");
        let signals =
            [catch(SignalKind::hangup())?, catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?];
        let (tell, unread) = oneshot::channel();
        let (stopped, stop) = io::pipe().context("making a pipe")?;
        let watching = move || {
            if becomes_unread(&stopped) {
                // The program may be about to end.
                let _ = tell.send(());
            }
        };
        let thread = std::thread::Builder::new().name("reader".to_owned()).spawn(watching);
        let thread = thread.context("starting a thread")?;
        Ok(Self { signals, unread: Some(unread), watcher: Some(Watcher { stop, thread }) })
    }

    /// Returns when it is gone.
    pub(super) async fn gone(&mut self) -> Gone {
        let [hangup, terminate, interrupt] = &mut self.signals;
        let unread = &mut self.unread;
        let unread = async {
            let seen = match unread {
                Some(seen) => seen.await.is_ok(),
                None => false,
            };
            *unread = None;
            if !seen {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = hangup.recv() => Gone,
            _ = terminate.recv() => Gone,
            _ = interrupt.recv() => Gone,
            () = unread => Gone,
        }
    }

    /// Tells the reader that nothing more comes, while the other direction may go on.
    pub(super) fn close_stdout(&mut self) {
        // Whoever waits for something to happen to an open file keeps it open.
        if let Some(Watcher { stop, thread }) = self.watcher.take() {
            drop(stop);
            // It has nothing to say any more.
            let _ = thread.join();
        }
        // Something must stand in its place, or the next file that is opened would be standard output.
        if let Ok(nowhere) = File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&nowhere);
        }
    }
}

/// Blocks until nobody can read standard output, or until it is `stopped`. False also if it cannot be seen.
fn becomes_unread(stopped: &PipeReader) -> bool {
    let stdout = io::stdout();
    loop {
        // Nothing is asked for: an error and a hang-up are told unasked.
        let mut watched =
            [PollFd::new(&stdout, PollFlags::empty()), PollFd::new(stopped, PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) => return watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
