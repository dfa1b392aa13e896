//! How is a handshake measured with a server that we may not know?
//!
//! Without certificates to hold against, any will do: the time of the handshake is asked for, and nothing is said to
//! the peer that would be worth hiding. With them, a peer that is not signed by one of them is a failure.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Why there is no handshake.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of certificates.
    #[error("cannot take certificates from {path}: {reason}")]
    Roots {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The library refuses the settings.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
    /// The peer has no name that TLS knows.
    #[error("is no name for TLS: {0}")]
    Name(#[from] InvalidDnsNameError),
    /// The handshake failed.
    #[error("no TLS handshake: {0}")]
    Handshake(#[from] std::io::Error),
}

/// Shakes hands.
#[derive(Clone)]
pub(super) struct TlsClient(TlsConnector);

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsClient")
    }
}

impl TlsClient {
    /// One that believes whoever is signed by a certificate in `ca_file`; without, anybody. Blocks.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(super) fn new(ca_file: Option<&Path>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let mut config = match ca_file {
            Some(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
                .with_no_client_auth(),
        };
        // Each try is a whole handshake, as a newcomer's is, and leaves nothing behind on the other side.
        config.resumption = Resumption::disabled();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with whoever is called `host`.
    pub(super) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, TlsError> {
        let name = ServerName::try_from(host.to_owned())?;
        Ok(self.0.connect(name, stream).await?)
    }
}

/// Whether TLS can call a server by this name.
pub(super) fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let wrong = |reason: String| TlsError::Roots { path: path.display().to_string(), reason };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error: pem::Error| wrong(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there are none in it".to_owned()));
    }
    Ok(roots)
}

/// Takes any certificate, if its owner has the key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
