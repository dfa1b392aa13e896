//! How do connections get in without one of them keeping the others out?
//!
//! A peer that connects and says nothing costs a server that shakes hands in its accept loop everything.
//! Here each handshake runs in a task of its own with a deadline, and only finished ones reach the
//! server, through a bounded channel. The number of handshakes under way is bounded too; at the bound
//! the loop stops accepting and the kernel's backlog holds the rest until a slot or a deadline frees one.
//!
//! An error of accept (out of file descriptors, a peer that reset at once) never ends the loop: it waits
//! a little, longer each time up to a second, and goes on. A peer whose certificate the farm's authority
//! signed but which carries no usher name is closed: it is nobody.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;

use super::{Accept, Conn, PeerInfo};
use crate::identity::{IdentityError, PeerIdentity};

/// Bounds of the way in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A TLS handshake that takes longer is closed. 5 s: a slow mobile link needs one; raising it lets
    /// silent peers hold their slots longer.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once. 1024: hundreds of silent peers (a port scan, a broken health check)
    /// must leave slots free; each costs one file descriptor and about 10 kB for `handshake_timeout`.
    pub handshakes: usize,
    /// Accepted connections that the server has not taken yet.
    pub queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { handshake_timeout: Duration::from_secs(5), handshakes: 1024, queue: 64 }
    }
}

const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Accepted connections, as a stream for a gRPC server or one at a time. Dropping it closes the listener
/// and every handshake under way; connections already handed over live on.
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<Conn>,
}

impl Incoming {
    /// Starts to accept. `tls` absent: plain; see [`super::check_listen`] for where that is allowed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start<A: Accept>(listener: A, tls: Option<Arc<ServerConfig>>, limits: Limits) -> Self {
        let (deliver, accepted) = mpsc::channel(limits.queue.max(1));
        tokio::spawn(accept_loop(listener, tls.map(TlsAcceptor::from), limits, deliver));
        Self { accepted }
    }

    /// The next connection. `None` only when the runtime is going down.
    pub async fn next_conn(&mut self) -> Option<(Conn, PeerInfo)> {
        let conn = self.accepted.recv().await?;
        let info = conn.info().clone();
        Some((conn, info))
    }
}

impl Stream for Incoming {
    type Item = io::Result<Conn>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.accepted.poll_recv(cx).map(|conn| conn.map(Ok))
    }
}

async fn accept_loop<A: Accept>(
    mut listener: A,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    deliver: mpsc::Sender<Conn>,
) {
    let slots = Arc::new(Semaphore::new(limits.handshakes.max(1)));
    let mut handshakes = JoinSet::new();
    let mut retry = RETRY_MIN;
    loop {
        while handshakes.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = deliver.closed() => return,
            accepted = next(&mut listener, &slots) => accepted,
        };
        match accepted {
            Ok((io, addr, slot)) => {
                retry = RETRY_MIN;
                let (tls, deliver) = (tls.clone(), deliver.clone());
                handshakes.spawn(async move {
                    let conn = match tls {
                        None => Some(Conn::new(io, PeerInfo { addr, identity: None })),
                        Some(tls) => shake_hands(&tls, io, addr, limits.handshake_timeout).await,
                    };
                    if let Some(conn) = conn {
                        // An error says that the server is gone; so is the connection then.
                        let _server_gone = deliver.send(conn).await;
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, retry_ms = retry.as_millis(), "cannot accept a connection");
                tokio::select! {
                    () = deliver.closed() => return,
                    () = tokio::time::sleep(retry) => {}
                }
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }
}

/// A slot first, then a connection: one that is accepted is looked at right away.
async fn next<A: Accept>(
    listener: &mut A,
    slots: &Arc<Semaphore>,
) -> io::Result<(A::Io, SocketAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (io, addr) = listener.accept().await?;
    Ok((io, addr, slot))
}

#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("no TLS handshake within {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("TLS handshake failed: {0}")]
    Failed(io::Error),
    #[error("client sent no certificate")]
    NoCertificate,
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

async fn shake_hands<T>(tls: &TlsAcceptor, io: T, addr: SocketAddr, limit: Duration) -> Option<Conn>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let result = async {
        let stream = tokio::time::timeout(limit, tls.accept(io))
            .await
            .map_err(|_elapsed| HandshakeError::Silent(limit))?
            .map_err(HandshakeError::Failed)?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let leaf = chain.first().ok_or(HandshakeError::NoCertificate)?;
        let identity = Arc::new(PeerIdentity::from_certificate(leaf)?);
        Ok::<_, HandshakeError>(Conn::new(stream, PeerInfo { addr, identity: Some(identity) }))
    };
    match result.await {
        Ok(conn) => Some(conn),
        // Anyone who can reach the port can cause these two at any rate.
        Err(error @ (HandshakeError::Silent(_) | HandshakeError::Failed(_))) => {
            tracing::debug!(%addr, %error, "connection closed");
            None
        }
        Err(error) => {
            tracing::warn!(%addr, %error, "connection refused");
            None
        }
    }
}
