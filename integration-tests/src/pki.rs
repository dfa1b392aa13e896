//! Who is believed on a farm, and by whom?
//!
//! Certificates made for one test. Each is valid for this machine's loopback, some for further addresses, and names its holder as
//! `usher://FARM/ROLE/NAME`, so the same files serve a coordinator, an agent or a client. What is wrong with one (its
//! authority, its time, its farm) is the test's choice; and a client made here shows whatever it is given, where our
//! own programs would refuse to start with it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};
use tower::{Service, service_fn};

use crate::client::Client;
use crate::netns::Machine;
use crate::wait::LONG;

/// A name that every certificate is valid for, for tests in which it changes where a name leads.
pub const NAME: &str = "usher.test";

/// Who signs the certificates of a farm.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// The files of one holder, in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertFiles {
    /// Its certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that it believes in.
    pub ca: PathBuf,
}

impl Authority {
    /// A new authority, whose certificates are written below `folder`. Nobody who believes in another one believes it.
    pub fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { folder: folder.to_owned(), issuer: Issuer::new(params, key), pem }
    }

    /// The files of `usher://FARM/ROLE/NAME`, or of anything else that is a URI.
    pub fn issue(&self, uri: &str) -> CertFiles {
        self.issue_with(|params| name(params, uri))
    }

    /// The files of a holder at these addresses as well as at loopback.
    pub fn issue_for(&self, uri: &str, addresses: &[IpAddr]) -> CertFiles {
        self.issue_with(|params| {
            name(params, uri);
            params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        })
    }

    /// The files of `usher://FARM/ROLE/NAME`, valid for so long from now.
    pub fn issue_until(&self, uri: &str, valid: Duration) -> CertFiles {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        self.issue_with(|params| {
            name(params, uri);
            params.not_after = date_time_ymd(1970, 1, 1) + since_1970 + valid;
        })
    }

    /// The same, expired years ago.
    pub fn issue_expired(&self, uri: &str) -> CertFiles {
        self.issue_with(|params| {
            name(params, uri);
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2024, 1, 1);
        })
    }

    /// The files of nobody: a certificate of this authority that carries no name of ours.
    pub fn issue_nameless(&self) -> CertFiles {
        self.issue_with(|_| {})
    }

    fn issue_with(&self, edit: impl FnOnce(&mut CertificateParams)) -> CertFiles {
        let mut params = CertificateParams::new(["localhost", "127.0.0.1", NAME].map(str::to_owned)).unwrap();
        params.use_authority_key_identifier_extension = true;
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();

        let own = tempfile::Builder::new().prefix("pki-").tempdir_in(&self.folder).unwrap().keep();
        let files =
            CertFiles { cert: own.join("cert.pem"), key: own.join("key.pem"), ca: own.join("ca.pem") };
        std::fs::write(&files.cert, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&files.ca, &self.pem).unwrap();
        files
    }
}

fn name(params: &mut CertificateParams, uri: &str) {
    params.subject_alt_names.push(SanType::URI(uri.to_owned().try_into().unwrap()));
}

impl CertFiles {
    /// The table `[tls]` of a settings file.
    pub fn table(&self) -> String {
        let line = |key: &str, path: &Path| format!("{key} = {:?}\n", path.display().to_string());
        let lines = [line("cert", &self.cert), line("key", &self.key), line("ca", &self.ca)];
        format!("[tls]\n{}", lines.concat())
    }

    /// This holder, believing in the authority of another one.
    #[must_use]
    pub fn believing(&self, other: &Self) -> Self {
        Self { ca: other.ca.clone(), ..self.clone() }
    }

    /// A client that shows this certificate. It connects when it is first used.
    pub fn client(&self, address: SocketAddr) -> Client {
        let read = |path: &Path| std::fs::read(path).unwrap();
        let identity = Identity::from_pem(read(&self.cert), read(&self.key));
        connect(address, self.tls().identity(identity))
    }

    /// A client on a machine of a network: its connections come from there.
    pub fn client_on(&self, machine: &Machine, address: SocketAddr) -> Client {
        let read = |path: &Path| std::fs::read(path).unwrap();
        let tls = self.tls().identity(Identity::from_pem(read(&self.cert), read(&self.key)));
        let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
        let endpoint = endpoint.tls_config(tls).unwrap().timeout(LONG);
        Client::of(endpoint.connect_with_connector_lazy(connector(machine, address)), None)
    }

    /// A client that believes in the authority and shows nothing.
    pub fn client_without_certificate(&self, address: SocketAddr) -> Client {
        connect(address, self.tls())
    }

    fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(&self.ca).unwrap()))
    }
}

/// Makes connections from a machine: a socket belongs to the one on which it was made.
fn connector(
    machine: &Machine,
    address: SocketAddr,
) -> impl Service<Uri, Response = TokioIo<TcpStream>, Error = io::Error, Future: Send> + Clone + Send + 'static
{
    let machine = machine.clone();
    service_fn(move |_: Uri| {
        let socket = machine.within(TcpSocket::new_v4);
        async move { Ok(TokioIo::new(socket?.connect(address).await?)) }
    })
}

fn connect(address: SocketAddr, tls: ClientTlsConfig) -> Client {
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", address.port())).unwrap();
    Client::of(endpoint.tls_config(tls).unwrap().timeout(LONG).connect_lazy(), None)
}
