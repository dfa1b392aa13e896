//! How does a command ask the agent of this machine?

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::protocol::{Answer, Request};

/// Longest wait: the agent gives each request less.
const WAIT: Duration = Duration::from_secs(10);
/// Longest answer: ten thousand operations.
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there, or we may not ask.
    #[error("cannot ask the agent at {}: {source}{}", path.display(), hint(source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It broke off.
    #[error("the agent at {} broke off: {source}", path.display())]
    Broke {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It takes too long.
    #[error("the agent at {} does not answer", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// It is another version, or no agent.
    #[error("the answer of {} cannot be understood: {source}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => " (is usher-agent running?)",
        io::ErrorKind::PermissionDenied => " (it answers root and the members of its own group)",
        _ => "",
    }
}

/// Asks the agent whose socket is at `path`.
///
/// # Errors
/// Why there is no answer.
pub async fn ask(path: &Path, request: &Request) -> Result<Answer, AskError> {
    let asking = async {
        let connected = UnixStream::connect(path).await;
        let mut stream = connected.map_err(|source| AskError::Connect { path: path.to_owned(), source })?;
        let bytes = exchange(&mut stream, request).await;
        let bytes = bytes.map_err(|source| AskError::Broke { path: path.to_owned(), source })?;
        serde_json::from_slice(&bytes).map_err(|source| AskError::Answer { path: path.to_owned(), source })
    };
    timeout(WAIT, asking).await.unwrap_or_else(|_| Err(AskError::Silent { path: path.to_owned() }))
}

async fn exchange(stream: &mut UnixStream, request: &Request) -> io::Result<Vec<u8>> {
    let mut json = serde_json::to_vec(request)?;
    json.push(b'\n');
    stream.write_all(&json).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}
