//! Where do new connections come from?
//!
//! From a TCP listener, outside tests. The trait is the seam through which a simulated network or a
//! failing listener takes its place.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Something that accepts connections.
pub trait Accept: Send + 'static {
    /// The bytes of one connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection and its peer's address. Must be cancel-safe: a dropped call loses none.
    ///
    /// # Errors
    /// Any error is taken for passing: the caller logs it, waits a little and asks again.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Small messages both ways all day: waiting to fill a packet would add 40 ms to an answer. A
        // socket that refuses is closing; its first read says so.
        let _refused = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

/// Listens on an address.
///
/// # Errors
/// Names the address: in use, not on this machine, not allowed.
pub async fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(addr)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = first.local_addr().unwrap();
        let error = bind(addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr.to_string()));
    }

    #[tokio::test]
    async fn small_messages_are_not_held_back() {
        let mut listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = Accept::accept(&mut listener).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
