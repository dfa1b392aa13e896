//! How do real programs speak over the simulated network?
//!
//! Through the seams that they have for it: a listener, a dialler, a way to try doors. Everything from HTTP/2 upwards is
//! what runs in production. TLS is left out: it is another layer of bytes, and tested elsewhere; so every peer is taken for one
//! on loopback, which may name itself.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::Service;
use turmoil::net::{TcpListener, TcpStream};
use usher_runtime::doors::Knock;
use usher_runtime::net::{Accept, ConnectError, Dial, Dialing, Timeouts};

/// Where coordinators listen.
pub const GRPC_PORT: u16 = 7443;
/// Where the doors of hosts are.
pub const DOOR_PORT: u16 = 22;

/// Listens on a port of the node that runs now.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
}

/// A listener of the simulated network.
#[derive(Debug)]
pub struct Listener(TcpListenerOf);

/// turmoil's has no `Debug`.
struct TcpListenerOf(TcpListener);

impl std::fmt::Debug for TcpListenerOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpListener")
    }
}

impl Listener {
    /// Listens where coordinators do.
    pub async fn of_coordinator() -> io::Result<Self> {
        Ok(Self(TcpListenerOf(listen(GRPC_PORT).await?)))
    }
}

impl Accept for Listener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.0.accept().await?;
        Ok((stream, SocketAddr::from((Ipv4Addr::LOCALHOST, peer.port()))))
    }
}

/// Connects by the name of a node.
#[derive(Debug, Clone)]
struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().to_owned();
            let port = uri.port_u16().unwrap_or(GRPC_PORT);
            TcpStream::connect((host, port)).await.map(TokioIo::new)
        })
    }
}

fn endpoint(node: &str) -> Endpoint {
    // Names of nodes are letters and digits.
    let uri = format!("http://{node}:{GRPC_PORT}");
    let endpoint = Endpoint::from_shared(uri).expect("a node's name makes a URI");
    Timeouts::default().of(endpoint)
}

/// A channel to a coordinator that connects when it is used, and again when it broke.
pub fn channel(node: &str) -> Channel {
    endpoint(node).connect_with_connector_lazy(Connector)
}

/// How agents reach coordinators.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedDial;

impl Dial for SimulatedDial {
    fn dial<'a>(&'a self, target: &'a str) -> Dialing<'a> {
        Box::pin(async move {
            let limit = Timeouts::default().connect.saturating_mul(2);
            let endpoint = endpoint(target);
            match tokio::time::timeout(limit, endpoint.connect_with_connector(Connector)).await {
                Ok(Ok(channel)) => Ok(channel),
                Ok(Err(source)) => Err(ConnectError::Failed {
                    target: target.to_owned(),
                    reason: "no connection".to_owned(),
                    source,
                }),
                Err(_elapsed) => Err(ConnectError::Silent { target: target.to_owned(), limit }),
            }
        })
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// How coordinators try the doors of lost hosts.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedKnock;

impl Knock for SimulatedKnock {
    fn accepts(&self, address: String, port: u16) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async move { TcpStream::connect((address, port)).await.is_ok() })
    }
}
