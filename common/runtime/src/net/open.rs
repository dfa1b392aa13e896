//! Which of the addresses behind a name is a coordinator of our farm?
//!
//! A name is resolved anew at each attempt and its addresses are tried in turn until one of them proves to be what we
//! look for: it accepts, it shakes hands in time, its certificate is of the farm's authority and for this name, and it
//! names a *coordinator* of our own farm. An address that something else has taken over meanwhile accepts connections as
//! well, and a stolen certificate of an agent is of the farm's authority as well: neither of them must get a host's
//! reports or a gateway's users. Our own certificate says which farm is ours.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::calm::Complaints;
use crate::identity::{IdentityError, PeerIdentity, Role};
use crate::tls::ClientTls;

/// Most addresses of one name that are tried in one attempt.
const MOST_ADDRESSES: usize = 8;
/// Least time for each of them.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Why an address is not the coordinator that we look for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The name has no address.
    #[error("cannot resolve the name: {0}")]
    Resolve(#[source] io::Error),
    /// Nobody accepts.
    #[error("{0}")]
    Tcp(#[source] io::Error),
    /// Nobody answers in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// It accepts and does not prove to be of our farm's authority under this name.
    #[error("TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
    /// The name cannot be one of a certificate.
    #[error("{0:?} is neither a DNS name nor an address")]
    Name(String),
    /// It is another service.
    #[error("it does not speak HTTP/2: another service than a coordinator listens there")]
    NotHttp2,
    /// Its certificate carries no name of ours.
    #[error("its certificate does not name a coordinator: {0}")]
    Nameless(#[source] IdentityError),
    /// It is of the farm, and not a coordinator.
    #[error("its certificate names {peer}, which is not a coordinator")]
    NotCoordinator {
        /// Who it is.
        peer: PeerIdentity,
    },
    /// It is of another farm.
    #[error("it is a coordinator of farm {theirs:?}, our certificate is of farm {ours:?}")]
    OtherFarm {
        /// Its farm.
        theirs: String,
        /// Ours.
        ours: String,
    },
}

/// Plain bytes, or those under TLS.
#[derive(Debug)]
pub(super) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection that we opened: its bytes, and what is listened to among them.
#[derive(Debug)]
pub(super) struct Opened {
    io: Io,
    complaints: Complaints,
}

impl Opened {
    pub(super) fn new(io: Io, complaints: Complaints) -> Self {
        Self { io, complaints }
    }
}

/// Opens a connection to `host`, which may have several addresses; each gets its share of `limit`, and again as long for
/// its handshake.
pub(super) async fn open(
    host: &str,
    port: u16,
    tls: Option<&ClientTls>,
    limit: Duration,
) -> Result<Io, OpenError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((bare, port))
        .await
        .map_err(OpenError::Resolve)?
        .take(MOST_ADDRESSES)
        .collect();
    open_any(bare, &addresses, tls, limit).await
}

/// The first of the addresses that proves to be the coordinator; otherwise what was wrong with the last.
async fn open_any(
    host: &str,
    addresses: &[SocketAddr],
    tls: Option<&ClientTls>,
    limit: Duration,
) -> Result<Io, OpenError> {
    let share = u32::try_from(addresses.len()).map_or(limit, |count| limit / count.max(1));
    let share = share.max(LEAST_WAIT).min(limit);
    let mut last = OpenError::Resolve(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    for address in addresses {
        match open_one(host, *address, tls, share).await {
            Ok(opened) => return Ok(opened),
            Err(error) => {
                tracing::debug!(host, %address, %error, "this address is not the coordinator");
                last = error;
            }
        }
    }
    Err(last)
}

async fn open_one(
    host: &str,
    address: SocketAddr,
    tls: Option<&ClientTls>,
    limit: Duration,
) -> Result<Io, OpenError> {
    let connecting = timeout(limit, TcpStream::connect(address)).await;
    let stream = connecting.map_err(|_| OpenError::Silent(limit))?.map_err(OpenError::Tcp)?;
    // A socket that refuses is closing; its first read says so.
    let _refused = stream.set_nodelay(true);
    let Some(tls) = tls else { return Ok(Io::Plain(stream)) };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| OpenError::Name(host.to_owned()))?;
    let shaking_hands = TlsConnector::from(Arc::clone(&tls.config)).connect(name, stream);
    let stream = timeout(limit, shaking_hands).await.map_err(|_| OpenError::Silent(limit))?;
    let stream = stream.map_err(OpenError::Handshake)?;
    let (_, session) = stream.get_ref();
    let leaf = session.peer_certificates().unwrap_or_default().first();
    let leaf = leaf.ok_or(OpenError::Nameless(IdentityError::NoName))?;
    check_coordinator(PeerIdentity::from_certificate(leaf).map_err(OpenError::Nameless)?, &tls.farm)?;
    if session.alpn_protocol() != Some(b"h2") {
        return Err(OpenError::NotHttp2);
    }
    Ok(Io::Tls(Box::new(stream)))
}

/// Whether a peer may be told what only a coordinator of our farm may know.
fn check_coordinator(peer: PeerIdentity, ours: &str) -> Result<(), OpenError> {
    if !peer.has_role(Role::Coordinator) {
        return Err(OpenError::NotCoordinator { peer });
    }
    match peer.farm {
        Some(farm) if farm != ours => Err(OpenError::OtherFarm { theirs: farm, ours: ours.to_owned() }),
        _ => Ok(()),
    }
}

impl AsyncRead for Opened {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, complaints } = self.get_mut();
        let before = buf.filled().len();
        let read = match io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        };
        complaints.hear(buf.filled().get(before..).unwrap_or_default());
        read
    }
}

impl AsyncWrite for Opened {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::test_pki::Authority;
    use crate::tls::{Alpn, TlsFiles};

    const LIMIT: Duration = Duration::from_secs(5);

    struct Farm {
        folder: tempfile::TempDir,
        authority: Authority,
    }

    impl Farm {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new() }
        }

        fn files(&self, farm: &str, role: &str) -> TlsFiles {
            let leaf = self.authority.issue(|params| {
                let uri = format!("usher://{farm}/{role}/x");
                params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
            });
            self.authority.write_leaf(self.folder.path(), &format!("{farm}-{role}"), &leaf)
        }

        fn agent(&self) -> ClientTls {
            self.files("test", "agent").client().unwrap()
        }
    }

    /// Something that shakes hands as often as it is asked to.
    async fn serve(config: Arc<ServerConfig>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whether the other side likes us is its matter.
                let _ = TlsAcceptor::from(config.clone()).accept(stream).await;
            }
        });
        address
    }

    async fn refusal(addresses: &[SocketAddr], tls: &ClientTls) -> String {
        open_any("localhost", addresses, Some(tls), LIMIT).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn only_a_coordinator_of_our_own_farm_is_believed() {
        let farm = Farm::new();
        let us = farm.agent();
        let server = |name: &str, role: &str| farm.files(name, role).server_config(Alpn::H2).unwrap();
        let right = serve(server("test", "coordinator")).await;
        open_any("localhost", &[right], Some(&us), LIMIT).await.unwrap();

        let error = refusal(&[serve(server("test", "agent")).await], &us).await;
        assert!(error.contains("names agent/x, which is not a coordinator"), "{error}");
        let error = refusal(&[serve(server("other", "coordinator")).await], &us).await;
        assert!(error.contains("of farm \"other\", our certificate is of farm \"test\""), "{error}");
        let nameless = farm.authority.issue(|_| {});
        let nameless = farm.authority.write_leaf(farm.folder.path(), "nameless", &nameless);
        let error = refusal(&[serve(nameless.server_config(Alpn::H2).unwrap()).await], &us).await;
        assert!(error.contains("does not name a coordinator"), "{error}");
        let other_protocol = farm.files("test", "coordinator").server_config(Alpn::Http11).unwrap();
        let error = refusal(&[serve(other_protocol).await], &us).await;
        assert!(error.contains("HTTP/2") || error.contains("NoApplicationProtocol"), "{error}");
        let unnamed_client = nameless.client().unwrap_err().to_string();
        assert!(unnamed_client.contains("nameless.crt cannot be used"), "{unnamed_client}");
    }

    #[tokio::test]
    async fn case_123_an_address_that_something_else_has_taken_over_is_passed_over() {
        let (farm, strangers) = (Farm::new(), Farm::new());
        let us = farm.agent();
        let stranger = serve(strangers.files("test", "coordinator").server_config(Alpn::H2).unwrap()).await;
        let error = refusal(&[stranger], &us).await;
        assert!(error.contains("TLS handshake failed"), "{error}");
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let right = serve(farm.files("test", "coordinator").server_config(Alpn::H2).unwrap()).await;
        open_any("localhost", &[closed, stranger, right], Some(&us), LIMIT).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_accepts_and_says_nothing_takes_only_its_share_of_the_time() {
        let farm = Farm::new();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let right = serve(farm.files("test", "coordinator").server_config(Alpn::H2).unwrap()).await;
        let addresses = [silent.local_addr().unwrap(), right];
        let begun = std::time::Instant::now();
        open_any("localhost", &addresses, Some(&farm.agent()), Duration::from_secs(2)).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}
