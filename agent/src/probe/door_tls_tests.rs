//! Doors that speak HTTP over TLS, tried as users would find them: right, wrong, expired, silent.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use usher_runtime::config::HumanDuration;

use super::*;

const LONG: Duration = Duration::from_secs(60);
const OK: &[u8] = b"HTTP/1.1 401 Unauthorized\r\n\r\n";

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn server(&self, edit: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let mut params = CertificateParams::new(vec!["desk.example".to_owned()]).unwrap();
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap()
    }
}

/// A door that answers each question with `says`. Its address, and what it was asked.
async fn door(config: ServerConfig, says: &'static [u8]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut buffer = [0; 1024];
            let read = stream.read(&mut buffer).await.unwrap_or_default();
            seen.lock().unwrap().push(String::from_utf8_lossy(&buffer[..read]).into_owned());
            // Whoever has seen enough hangs up.
            let _ = stream.write_all(says).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, asked)
}

struct Tried {
    board: StandingBoard,
    events: mpsc::Receiver<SourceEvent>,
    _settings: watch::Sender<Arc<AgentConfig>>,
    _pool: watch::Sender<DoorKind>,
}

fn trying(address: &str, edit: impl FnOnce(&mut DoorConfig)) -> Tried {
    let mut config = AgentConfig::default();
    config.door.kind = Some(DoorKind::Http);
    config.door.address = Some(address.to_owned());
    config.door.tls = true;
    (config.door.interval, config.door.deadline) =
        (HumanDuration::from_millis(20), HumanDuration::from_secs(10));
    edit(&mut config.door);
    let (settings_in, settings) = watch::channel(Arc::new(config));
    let (pool_in, pool_kind) = watch::channel(DoorKind::None);
    let (events_in, events) = mpsc::channel(1);
    let board = StandingBoard::default();
    let door =
        DoorWatch { endpoints: Vec::new(), settings, pool_kind, board: board.clone(), events: events_in };
    tokio::spawn(door.run(CancellationToken::new()));
    Tried { board, events, _settings: settings_in, _pool: pool_in }
}

impl Tried {
    /// What the collector says after one more try. Absent: the door opened.
    async fn once(&mut self) -> Option<String> {
        tokio::time::timeout(LONG, self.events.recv()).await.expect("in time").expect("a call");
        self.board.parts().collectors[DOOR].error.clone()
    }
}

fn written(folder: &Path, pem: &str) -> Option<PathBuf> {
    let path = folder.join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    Some(path)
}

#[tokio::test]
async fn without_certificates_to_hold_against_any_https_door_that_answers_is_open() {
    let (address, asked) = door(Authority::new().server(|_| {}), OK).await;
    let mut tried = trying(&address, |door| door.path = "/health".into());
    assert_eq!(tried.once().await, None);
    let asked = asked.lock().unwrap()[0].clone();
    assert!(asked.starts_with("GET /health HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("\r\nHost: {address}\r\n")), "{asked}");
    assert!(!asked.contains("Cookie") && !asked.contains("Authorization"), "{asked}");
}

#[tokio::test]
async fn with_certificates_the_name_the_dates_and_the_authority_must_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca_file = written(folder.path(), &authority.pem);
    let (address, asked) = door(authority.server(|_| {}), OK).await;
    let as_desk = |door: &mut DoorConfig| {
        (door.ca_file, door.tls_name) = (ca_file.clone(), Some("desk.example".into()));
    };
    assert_eq!(trying(&address, as_desk).once().await, None);
    let port = address.rsplit(':').next().unwrap();
    assert!(asked.lock().unwrap()[0].contains(&format!("\r\nHost: desk.example:{port}\r\n")));

    let other_name = trying(&address, |door| door.ca_file.clone_from(&ca_file)).once().await.unwrap();
    assert!(
        other_name.contains("no TLS handshake") && other_name.contains("not valid for name"),
        "{other_name}"
    );

    let (expired, _) =
        door(authority.server(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)), OK).await;
    let expired = trying(&expired, as_desk).once().await.unwrap();
    assert!(expired.contains("expired"), "{expired}");

    let (stranger, _) = door(Authority::new().server(|_| {}), OK).await;
    let stranger = trying(&stranger, as_desk).once().await.unwrap();
    assert!(stranger.contains("no TLS handshake"), "{stranger}");
}

#[tokio::test]
async fn an_https_door_that_fails_or_speaks_no_tls_is_shut_after_three_tries() {
    let (broken, _) =
        door(Authority::new().server(|_| {}), b"HTTP/1.1 503 Service Unavailable\r\n\r\n").await;
    let mut tried = trying(&broken, |_| {});
    for _ in 0..3 {
        let error = tried.once().await.unwrap();
        assert!(error.contains("answered with HTTP status 503"), "{error}");
    }
    assert!(tried.board.parts().door_shut.is_some());

    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            let _ = stream.write_all(OK).await;
        }
    });
    let error = trying(&address, |_| {}).once().await.unwrap();
    assert!(error.contains("no TLS handshake"), "{error}");
}

#[tokio::test]
async fn certificates_that_cannot_be_read_say_nothing_of_the_door_until_they_can() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (address, _) = door(authority.server(|_| {}), OK).await;
    let missing = folder.path().join("ca.pem");
    let mut tried = trying(&address, |door| {
        (door.ca_file, door.tls_name) = (Some(missing.clone()), Some("desk.example".into()));
    });
    let told = async {
        while !tried.board.parts().collectors.contains_key(DOOR) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, told).await.expect("told");
    let error = tried.board.parts().collectors[DOOR].error.clone().unwrap();
    assert!(error.starts_with("not tried: ") && error.contains("ca.pem"), "{error}");
    assert_eq!(tried.board.parts().door_shut, None);
    assert!(tried.events.try_recv().is_err(), "no call is counted");
    written(folder.path(), &authority.pem);
    assert_eq!(tried.once().await, None);
}
