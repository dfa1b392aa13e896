//! How does the agent hear those on its machine without being held by them?
//!
//! Each connection is one request: read, answered, closed, within a few seconds. More connections than a handful wait
//! in the kernel's queue. Who drained the host is what the kernel says of the connection, not what the request says.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use usher_types::{Drain, DrainMode};

use super::protocol::{Answer, MAX_REQUEST_BYTES, Request};
use super::status::StatusSource;
use crate::drain::{DrainKeeper, MAX_REASON_CHARS};
use crate::host::{HostCommand, HostStatus};
use crate::socket_file::{SocketFile, bind_stream};
use crate::standing::StandingBoard;

/// The agent's own group may ask, besides its user and root.
const MODE: u32 = 0o660;
/// Requests that are heard at a time.
const AT_A_TIME: usize = 8;
/// How long one may take, from the connection to the end of the answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause after a failure to accept, so that one that fails for good does not take a CPU.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The socket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for commands on {}", path.display())]
pub struct ServeError {
    path: PathBuf,
    source: io::Error,
}

/// The open socket.
#[derive(Debug)]
pub struct LocalServer {
    listener: UnixListener,
    file: SocketFile,
}

/// What the requests are about.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) status: StatusSource,
    pub(crate) drain: DrainKeeper,
    pub(crate) board: StandingBoard,
    /// Where login names are looked up by their numbers.
    pub(crate) passwd: PathBuf,
}

impl LocalServer {
    /// Opens the socket at `path`, in the place of one that nobody listens on.
    ///
    /// # Errors
    /// When the path is taken or cannot be made.
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        let bound = bind_stream(path, MODE);
        let (listener, file) = bound.map_err(|source| ServeError { path: path.to_owned(), source })?;
        Ok(Self { listener, file })
    }

    /// Answers until `stop`; then the file is removed.
    pub(crate) async fn run(self, subject: Subject, stop: CancellationToken) {
        let Self { listener, file: _file } = self;
        let (subject, heard) = (Arc::new(subject), Arc::new(Semaphore::new(AT_A_TIME)));
        loop {
            let accept = async {
                // Never closed.
                let permit = heard.clone().acquire_owned().await.ok();
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                () = stop.cancelled() => return,
                accepted = accept => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let subject = subject.clone();
                    tokio::spawn(async move {
                        let _permit = permit;
                        if timeout(DEADLINE, subject.serve(stream)).await.is_err() {
                            tracing::debug!("a local request took too long");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot hear local requests");
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }
}

impl Subject {
    async fn serve(&self, mut stream: UnixStream) {
        let peer = stream.peer_cred().ok().map(|peer| peer.uid());
        let (reader, mut writer) = stream.split();
        let mut line = Vec::new();
        let bounded = reader.take(MAX_REQUEST_BYTES as u64);
        // Broken off: there is nobody to tell.
        let Ok(_) = BufReader::new(bounded).read_until(b'\n', &mut line).await else { return };
        let answer = if line.len() >= MAX_REQUEST_BYTES {
            Answer::Error(format!("the request is longer than {MAX_REQUEST_BYTES} bytes"))
        } else {
            match serde_json::from_slice(&line) {
                Ok(request) => self.answer(request, peer).await,
                Err(error) => Answer::Error(format!("the request cannot be understood: {error}")),
            }
        };
        let Ok(mut json) = serde_json::to_vec(&answer) else { return };
        json.push(b'\n');
        if let Err(error) = writer.write_all(&json).await.and(writer.shutdown().await) {
            tracing::debug!(%error, "a local request was not answered");
        }
    }

    async fn answer(&self, request: Request, peer: Option<u32>) -> Answer {
        match request {
            Request::Status {} => match self.host().await {
                Some(host) => Answer::Status(self.status.json(*host, &self.board.parts())),
                None => Answer::Error("the host does not answer: it stops".to_owned()),
            },
            Request::Drain { mode, reason, no_reconnect } => {
                self.drain(mode, &reason, no_reconnect, peer).await
            }
            Request::Undrain {} => self.keep(None).await,
        }
    }

    async fn host(&self) -> Option<Box<HostStatus>> {
        let (reply, answer) = oneshot::channel();
        self.status.host.commands.send(HostCommand::Status { reply }).await.ok()?;
        answer.await.ok()
    }

    async fn drain(&self, mode: DrainMode, reason: &str, no_reconnect: bool, peer: Option<u32>) -> Answer {
        if reason.chars().count() > MAX_REASON_CHARS || reason.chars().any(char::is_control) {
            return Answer::Error(format!(
                "the reason must have at most {MAX_REASON_CHARS} characters, none of them a control character"
            ));
        }
        let passwd = self.passwd.clone();
        let author = match peer {
            // A dead network directory is not asked: only the file is read.
            Some(uid) => {
                tokio::task::spawn_blocking(move || login_name(&passwd, uid)).await.unwrap_or_default()
            }
            None => String::new(),
        };
        self.keep(Some(Drain { mode, reason: reason.to_owned(), author, no_reconnect })).await
    }

    async fn keep(&self, drain: Option<Drain>) -> Answer {
        match self.drain.keep(drain.clone()).await {
            Ok(_) => Answer::Drained(drain),
            Err(why) => Answer::Error(why),
        }
    }
}

/// The login name of a user's number, by the machine's own file of users; else the number.
fn login_name(passwd: &Path, uid: u32) -> String {
    let text = std::fs::read_to_string(passwd).unwrap_or_default();
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_named_by_the_machines_own_file_of_users() {
        let folder = tempfile::tempdir().unwrap();
        let passwd = folder.path().join("passwd");
        let lines =
            "broken\n:x:7:\nroot:x:0:0:root:/root:/bin/sh\nops:x:1000:100::/:\nhigh:x:99999999999:1::/:\n";
        std::fs::write(&passwd, lines).unwrap();
        let name = |uid| login_name(&passwd, uid);
        assert_eq!([name(0), name(1000), name(7)], ["root", "ops", "uid 7"]);
        assert_eq!(login_name(Path::new("/no/such/file"), 3), "uid 3");
    }
}
