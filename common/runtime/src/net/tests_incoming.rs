//! Real handshakes on loopback, and listeners that misbehave.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::identity::{PeerIdentity, Role};
use crate::test_pki::Authority;
use crate::tls::{Alpn, TlsFiles};

const PATIENCE: Duration = Duration::from_secs(20);

struct Farm {
    folder: tempfile::TempDir,
    authority: Authority,
    server: TlsFiles,
}

impl Farm {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let server = authority.write(folder.path(), "coordinator", "c1");
        Self { folder, authority, server }
    }

    fn peer(&self, role: &str, name: &str) -> TlsFiles {
        self.authority.write(self.folder.path(), role, name)
    }

    async fn listen(&self, limits: Limits) -> (Incoming, SocketAddr) {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let tls = self.server.server_config(Alpn::H2).unwrap();
        (Incoming::start(listener, Some(tls), limits), addr)
    }

    /// A client that believes the farm's authority but shows nothing.
    fn client_without_certificate(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}

/// A gRPC health service that answers only an agent named `app1`, if TLS is asked for.
fn serve(incoming: Incoming, stop: CancellationToken) -> tokio::task::JoinHandle<()> {
    #[allow(clippy::result_large_err, reason = "the signature of tonic's interceptors")]
    fn only_app1(request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        let info =
            request.extensions().get::<PeerInfo>().ok_or_else(|| tonic::Status::internal("no peer"))?;
        match info.caller(Some("app1")) {
            Ok(Some(peer)) if peer.has_role(Role::Agent) && peer.name == "app1" => Ok(request),
            other => Err(tonic::Status::permission_denied(format!("{other:?}"))),
        }
    }
    tokio::spawn(async move {
        let (_reporter, health) = tonic_health::server::health_reporter();
        let layer = tonic::service::InterceptorLayer::new(only_app1);
        tonic::transport::Server::builder()
            .layer(layer)
            .add_service(health)
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
            .await
            .unwrap();
    })
}

async fn check(target: &str, files: Option<&TlsFiles>) -> Result<(), tonic::Code> {
    let channel = connect(target, files, &Timeouts::default()).await.map_err(|_| tonic::Code::Unavailable)?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    answer.map(|_| ()).map_err(|status| status.code())
}

#[tokio::test]
async fn grpc_over_mutual_tls_knows_its_caller() {
    let farm = Farm::new();
    let (incoming, addr) = farm.listen(Limits::default()).await;
    let stop = CancellationToken::new();
    let server = serve(incoming, stop.clone());
    for target in [addr.to_string(), format!("localhost:{}", addr.port())] {
        assert_eq!(check(&target, Some(&farm.peer("agent", "app1"))).await, Ok(()));
    }
    let gateway = farm.peer("gateway", "app1");
    let refused = check(&addr.to_string(), Some(&gateway)).await;
    assert_eq!(refused, Err(tonic::Code::PermissionDenied), "case 156");
    stop.cancel();
    timeout(PATIENCE, server).await.unwrap().unwrap();
}

#[tokio::test]
async fn grpc_over_plain_loopback_grants_every_role() {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = serve(Incoming::start(listener, None, Limits::default()), stop.clone());
    assert_eq!(check(&addr.to_string(), None).await, Ok(()));
    stop.cancel();
    timeout(PATIENCE, server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_handed_over_connection_carries_bytes_and_identity() {
    let farm = Farm::new();
    let (mut incoming, addr) = farm.listen(Limits::default()).await;
    let files = farm.peer("gateway", "bastion");
    let client =
        tokio::spawn(async move { connect(&addr.to_string(), Some(&files), &Timeouts::default()).await });
    let (mut conn, info) = timeout(PATIENCE, incoming.next_conn()).await.unwrap().unwrap();
    assert_eq!(
        info.identity,
        Some(Arc::new(PeerIdentity::from_uri("usher://test/gateway/bastion").unwrap()))
    );
    let mut preface = [0; 14];
    conn.read_exact(&mut preface).await.unwrap();
    assert_eq!(&preface, b"PRI * HTTP/2.0");
    client.abort();
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let farm = Farm::new();
    let (mut incoming, addr) = farm.listen(Limits::default()).await;
    let tcp = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    // In TLS 1.3 the client's side is done before the server has judged it: the refusal shows at the read.
    if let Ok(mut stream) = farm.client_without_certificate().connect(name, tcp).await {
        let read = timeout(PATIENCE, stream.read_u8()).await.unwrap();
        assert!(read.is_err());
    }
    assert_nobody_came(&farm, &mut incoming, addr).await;
}

#[tokio::test]
async fn a_client_of_another_authority_or_without_a_name_is_refused() {
    let farm = Farm::new();
    let (mut incoming, addr) = farm.listen(Limits::default()).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Authority::new().write(elsewhere.path(), "agent", "stranger");
    let stranger = TlsFiles { ca: farm.server.ca.clone(), ..stranger };
    let nameless = farm.authority.issue(|_| ());
    let nameless = farm.authority.write_leaf(farm.folder.path(), "nameless", &nameless);
    for files in [stranger, nameless] {
        let channel = connect(&addr.to_string(), Some(&files), &Timeouts::default()).await;
        if let Ok(channel) = channel {
            let mut client = HealthClient::new(channel);
            let answer = client.check(HealthCheckRequest::default());
            assert!(timeout(PATIENCE, answer).await.unwrap().is_err());
        }
    }
    assert_nobody_came(&farm, &mut incoming, addr).await;
}

/// The next connection to come out is a good one made now.
async fn assert_nobody_came(farm: &Farm, incoming: &mut Incoming, addr: SocketAddr) {
    let files = farm.peer("agent", "good");
    let client =
        tokio::spawn(async move { connect(&addr.to_string(), Some(&files), &Timeouts::default()).await });
    let (_conn, info) = timeout(PATIENCE, incoming.next_conn()).await.unwrap().unwrap();
    assert_eq!(info.identity.unwrap().name, "good");
    client.abort();
}

#[tokio::test]
async fn case_157_silent_and_plain_text_connections_do_not_block_a_real_one() {
    let farm = Farm::new();
    let (mut incoming, addr) = farm.listen(Limits::default()).await;
    let mut others = Vec::new();
    for index in 0..60 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        if index % 6 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        }
        others.push(stream);
    }
    let started = std::time::Instant::now();
    assert_nobody_came(&farm, &mut incoming, addr).await;
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
}

#[tokio::test]
async fn case_157_a_silent_connection_is_closed_at_its_deadline() {
    let farm = Farm::new();
    let limits = Limits { handshake_timeout: Duration::from_millis(50), ..Limits::default() };
    let (_incoming, addr) = farm.listen(limits).await;
    let mut silent = TcpStream::connect(addr).await.unwrap();
    let read = timeout(PATIENCE, silent.read(&mut [0; 8])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
}

/// A listener that gives what it is told to, then nothing more.
struct Script(VecDeque<io::Result<DuplexStream>>);

impl Accept for Script {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.pop_front() {
            Some(next) => next.map(|io| (io, SocketAddr::from(([127, 0, 0, 1], 9)))),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn case_157_slots_taken_by_silence_are_free_again_after_the_deadline() {
    let farm = Farm::new();
    let tls = farm.server.server_config(Alpn::H2).unwrap();
    let limits = Limits { handshakes: 8, ..Limits::default() };
    let (silent, servers): (Vec<_>, Vec<_>) = (0..24).map(|_| duplex(1024)).unzip();
    let mut incoming = Incoming::start(Script(servers.into_iter().map(Ok).collect()), Some(tls), limits);
    let started = tokio::time::Instant::now();
    for mut client in silent {
        let read = client.read(&mut [0; 8]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "closed by the server");
    }
    assert!(started.elapsed() >= Duration::from_secs(15), "eight at a time, five seconds each");
    assert!(timeout(PATIENCE, incoming.next_conn()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn running_out_of_file_descriptors_delays_and_does_not_end_the_listener() {
    let too_many = || Err(io::Error::from(rustix::io::Errno::MFILE));
    let (_client, server) = duplex(64);
    let mut script: VecDeque<_> = (0..10).map(|_| too_many()).collect();
    script.push_back(Ok(server));
    let mut incoming = Incoming::start(Script(script), None, Limits::default());
    let started = tokio::time::Instant::now();
    let (_conn, info) = timeout(PATIENCE, incoming.next_conn()).await.unwrap().unwrap();
    assert_eq!(info.identity, None);
    let waited = started.elapsed();
    assert!(waited > Duration::from_secs(2) && waited < Duration::from_secs(10), "{waited:?}");
}

/// A listener that nobody calls, and whose end can be watched.
struct Quiet(#[expect(dead_code, reason = "dropped with the listener")] tokio::sync::oneshot::Sender<()>);

impl Accept for Quiet {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_closes_the_listener() {
    let (alive, closed) = tokio::sync::oneshot::channel();
    drop(Incoming::start(Quiet(alive), None, Limits::default()));
    assert!(timeout(PATIENCE, closed).await.unwrap().is_err(), "the listener is gone");
}
