//! What is one accepted connection?
//!
//! Its bytes, and who is on the other end. Plain and TLS look the same from here on, so no service has
//! to know which one it got.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::is_loopback;
use crate::identity::{IdentityError, PeerIdentity};

/// Whoever calls on plain loopback without a name: made once, since it may be every call.
static LOCAL: LazyLock<Option<Arc<PeerIdentity>>> =
    LazyLock::new(|| PeerIdentity::loopback(None).ok().map(Arc::new));

/// Who is on the other end of a connection. Each gRPC request carries it in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its address.
    pub addr: SocketAddr,
    /// Who its certificate says it is; absent on a plain connection.
    pub identity: Option<Arc<PeerIdentity>>,
}

impl PeerInfo {
    /// Who is calling: the certificate's identity, or on plain loopback every role under the name that
    /// the caller gives itself. Absent for a plain connection from elsewhere: nobody we know.
    ///
    /// # Errors
    /// When the name it gives itself is not allowed.
    pub fn caller(&self, own_name: Option<&str>) -> Result<Option<Arc<PeerIdentity>>, IdentityError> {
        match (&self.identity, own_name) {
            (Some(identity), _) => Ok(Some(identity.clone())),
            (None, _) if !is_loopback(self.addr.ip()) => Ok(None),
            (None, Some(name)) => PeerIdentity::loopback(Some(name)).map(Arc::new).map(Some),
            (None, None) => Ok(LOCAL.clone()),
        }
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// An accepted connection, ready for HTTP.
pub struct Conn {
    // One virtual call for each read and write, next to a system call.
    io: Box<dyn Io>,
    info: PeerInfo,
}

impl Conn {
    pub(super) fn new<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(io: T, info: PeerInfo) -> Self {
        Self { io: Box::new(io), info }
    }

    /// Who is on the other end.
    pub fn info(&self) -> &PeerInfo {
        &self.info
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Connected for Conn {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.info.clone()
    }
}

impl AsyncRead for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(cx)
    }

    /// No, although the sockets can. HTTP/2 copies what is shorter than 1 KiB together then, and sends many answers with one
    /// system call; otherwise it does so below 256 bytes only, and each answer to a placement would be a call of its own,
    /// which is dearer than the decision.
    fn is_write_vectored(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;

    #[test]
    fn a_plain_peer_is_somebody_only_on_loopback() {
        let plain = |addr: &str| PeerInfo { addr: addr.parse().unwrap(), identity: None };
        let caller = plain("[::1]:9").caller(Some("bastion")).unwrap().unwrap();
        assert_eq!(caller.name, "bastion");
        assert!(caller.has_role(Role::Gateway));
        let nameless = plain("127.0.0.1:9").caller(None).unwrap().unwrap();
        assert_eq!(*nameless, PeerIdentity::loopback(None).unwrap());
        assert_eq!(plain("10.0.0.1:9").caller(Some("bastion")), Ok(None));
        assert!(plain("127.0.0.1:9").caller(Some("a b")).is_err());
    }

    #[test]
    fn under_tls_the_name_it_gives_itself_is_ignored() {
        let identity = PeerIdentity::from_uri("usher://f/gateway/real").unwrap();
        let info =
            PeerInfo { addr: "127.0.0.1:9".parse().unwrap(), identity: Some(Arc::new(identity.clone())) };
        assert_eq!(info.caller(Some("false")), Ok(Some(Arc::new(identity))));
    }
}
