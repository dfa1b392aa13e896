//! With which keys do we speak, and whom do we believe?
//!
//! Both sides of every connection off this machine show a certificate of the farm's own authority. The
//! three files are read and checked as a whole before anything is built from them, so that a half-written
//! pair or an expired certificate is one clear line that names the file, not a handshake that fails
//! somewhere later. The ring provider is named explicitly: a process-wide default would depend on who
//! came first.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{Faults, Validate};
use crate::identity::{IdentityError, PeerIdentity};

/// The table `[tls]` of a configuration file: all three files, or none for plain loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// Our certificate and the chain above it, PEM.
    pub cert: Option<PathBuf>,
    /// The private key of `cert`, PEM, readable by us only.
    pub key: Option<PathBuf>,
    /// The certificates of the farm's authority, PEM. Peers are believed only if it signed them.
    pub ca: Option<PathBuf>,
}

impl TlsSettings {
    /// The files, if all three are named.
    pub fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { cert: self.cert.clone()?, key: self.key.clone()?, ca: self.ca.clone()? })
    }
}

impl Validate for TlsSettings {
    fn validate(&self, faults: &mut Faults) {
        let all = [("cert", &self.cert), ("key", &self.key), ("ca", &self.ca)];
        if all.iter().all(|(_, path)| path.is_none()) {
            return;
        }
        for (name, _) in all.iter().filter(|(_, path)| path.is_none()) {
            faults.refuse(name, "is missing: TLS needs cert, key and ca, or none of the three");
        }
    }
}

/// Where our certificate, its key and the farm's authority are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate and the chain above it, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The farm's authority, PEM.
    pub ca: PathBuf,
}

/// The protocol that a TLS listener agrees to by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2, for gRPC.
    H2,
    /// HTTP/1.1.
    Http11,
}

impl Alpn {
    fn wire_name(self) -> &'static [u8] {
        match self {
            Self::H2 => b"h2",
            Self::Http11 => b"http/1.1",
        }
    }
}

/// Why the certificate files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {what} in PEM form", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// "certificate" or "private key".
        what: &'static str,
    },
    /// A file holds something broken.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The key belongs to another certificate; also seen for a moment while a pair is being replaced.
    #[error("private key {} does not belong to certificate {}", key.display(), cert.display())]
    KeyMismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        cert: PathBuf,
    },
    /// Our certificate does not say who we are.
    #[error("certificate {} cannot be used: {source}", path.display())]
    Nameless {
        /// The file.
        path: PathBuf,
        /// Why.
        source: IdentityError,
    },
    /// Our certificate is no longer valid.
    #[error("certificate {} expired at {at}: replace the file by a renewed one", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// When, RFC 3339 in UTC.
        at: String,
    },
    /// Our certificate is not valid yet.
    #[error("certificate {} is valid only from {from}: check this machine's clock", path.display())]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// When, RFC 3339 in UTC.
        from: String,
    },
}

/// A client's side of TLS.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Shows our certificate and believes servers of the farm's authority only.
    pub config: Arc<ClientConfig>,
    /// The farm of our certificate: servers must be of the same.
    pub farm: String,
}

/// The files, read and checked.
struct Material {
    key: CertifiedKey,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl TlsFiles {
    /// The server's side: shows our certificate and demands one of the farm's authority from each client.
    ///
    /// # Errors
    /// When a file is missing, broken, mismatched or out of its time.
    pub fn server_config(&self, alpn: Alpn) -> Result<Arc<ServerConfig>, TlsError> {
        let Material { key, roots, provider } = self.load(SystemTime::now())?;
        let ca_unusable = |reason: String| TlsError::Unusable { path: self.ca.clone(), reason };
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| ca_unusable(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| self.cert_unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![alpn.wire_name().to_vec()];
        Ok(Arc::new(config))
    }

    /// The client's side of an HTTP/2 connection to a coordinator.
    ///
    /// # Errors
    /// As [`TlsFiles::server_config`]; also when our certificate does not name us, and with us our farm.
    pub fn client(&self) -> Result<ClientTls, TlsError> {
        let Material { key, roots, provider } = self.load(SystemTime::now())?;
        let own = key.cert.first().ok_or(IdentityError::NoName).and_then(PeerIdentity::from_certificate);
        let nameless = |source| TlsError::Nameless { path: self.cert.clone(), source };
        let farm = own.and_then(|own| own.farm.ok_or(IdentityError::NoName)).map_err(nameless)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| self.cert_unusable(&error))?
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![Alpn::H2.wire_name().to_vec()];
        Ok(ClientTls { config: Arc::new(config), farm })
    }

    /// Whom our own certificate names.
    ///
    /// # Errors
    /// When it cannot be read, or names nobody.
    pub fn own_identity(&self) -> Result<PeerIdentity, TlsError> {
        let chain = read_certificates(&self.cert)?;
        let own = chain.first().ok_or(IdentityError::NoName).and_then(PeerIdentity::from_certificate);
        own.map_err(|source| TlsError::Nameless { path: self.cert.clone(), source })
    }

    fn load(&self, now: SystemTime) -> Result<Material, TlsError> {
        let chain = read_certificates(&self.cert)?;
        let authorities = read_certificates(&self.ca)?;
        let key = read_key(&self.key)?;
        if let Some(leaf) = chain.first() {
            self.check_time(leaf, now)?;
        }
        let provider = Arc::new(ring::default_provider());
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::KeyMismatch { key: self.key.clone(), cert: self.cert.clone() }
            }
            other => TlsError::Unusable { path: self.key.clone(), reason: other.to_string() },
        })?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots
                .add(authority)
                .map_err(|error| TlsError::Unusable { path: self.ca.clone(), reason: error.to_string() })?;
        }
        Ok(Material { key, roots, provider })
    }

    fn check_time(&self, leaf: &CertificateDer<'_>, now: SystemTime) -> Result<(), TlsError> {
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|error| self.cert_unusable(&error))?;
        let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
        let (from_s, until_s) =
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        if now_s > until_s {
            return Err(TlsError::Expired { path: self.cert.clone(), at: rfc3339(until_s) });
        }
        if now_s < from_s {
            return Err(TlsError::NotYetValid { path: self.cert.clone(), from: rfc3339(from_s) });
        }
        Ok(())
    }

    fn cert_unusable(&self, error: &dyn std::error::Error) -> TlsError {
        TlsError::Unusable { path: self.cert.clone(), reason: error.to_string() }
    }
}

fn rfc3339(unix_s: i64) -> String {
    jiff::Timestamp::from_second(unix_s)
        .map_or_else(|_| format!("{unix_s} s after 1970"), |time| time.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Unusable { path: path.to_owned(), reason: error.to_string() })?;
    if certificates.is_empty() {
        return Err(TlsError::NotPem { path: path.to_owned(), what: "certificate" });
    }
    Ok(certificates)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(path)?;
    if let Some(mode) = mode_if_open(path) {
        tracing::warn!(path = %path.display(), mode = %format_args!("{mode:04o}"),
            "private key can be read by every user of this machine, make it readable by its owner only");
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NotPem { path: path.to_owned(), what: "private key" },
        other => TlsError::Unusable { path: path.to_owned(), reason: other.to_string() },
    })
}

/// The file's mode if users outside its owner and group may read it. A group is fine: several daemons
/// share keys that way.
fn mode_if_open(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o004 != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::Authority;

    fn set_up() -> (tempfile::TempDir, Authority, TlsFiles) {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.write(folder.path(), "coordinator", "c1");
        (folder, authority, files)
    }

    fn failure(files: &TlsFiles) -> String {
        let error = files.server_config(Alpn::H2).unwrap_err().to_string();
        assert_eq!(error, files.client().unwrap_err().to_string());
        error
    }

    #[test]
    fn good_files_give_both_sides() {
        let (_folder, _authority, files) = set_up();
        assert_eq!(files.server_config(Alpn::H2).unwrap().alpn_protocols, [b"h2"]);
        assert_eq!(files.server_config(Alpn::Http11).unwrap().alpn_protocols, [b"http/1.1"]);
        let client = files.client().unwrap();
        assert_eq!(
            (client.farm.as_str(), client.config.alpn_protocols.as_slice()),
            ("test", [b"h2".to_vec()].as_slice())
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let (_folder, _authority, files) = set_up();
        std::fs::remove_file(&files.ca).unwrap();
        let error = failure(&files);
        assert!(error.starts_with("cannot read") && error.contains("c1.ca.crt"), "{error}");
    }

    #[test]
    fn a_file_without_pem_is_named_with_what_it_should_hold() {
        let (_folder, _authority, files) = set_up();
        std::fs::write(&files.key, "hello").unwrap();
        let error = failure(&files);
        assert!(error.contains("c1.key holds no private key in PEM form"), "{error}");
        std::fs::write(&files.cert, "").unwrap();
        let error = failure(&files);
        assert!(error.contains("c1.crt holds no certificate in PEM form"), "{error}");
    }

    #[test]
    fn case_158_a_key_of_another_certificate_is_refused() {
        let (folder, authority, files) = set_up();
        let other = authority.write(folder.path(), "coordinator", "c2");
        let mixed = TlsFiles { key: other.key.clone(), ..files };
        let error = failure(&mixed);
        assert!(error.contains("c2.key does not belong to certificate"), "{error}");
    }

    #[test]
    fn case_159_an_expired_certificate_says_when() {
        let (folder, authority, _) = set_up();
        let leaf = authority.issue(|params| params.not_after = rcgen::date_time_ymd(2024, 3, 1));
        let error = failure(&authority.write_leaf(folder.path(), "old", &leaf));
        assert!(error.contains("old.crt expired at 2024-03-01T00:00:00Z"), "{error}");
        let leaf = authority.issue(|params| params.not_before = rcgen::date_time_ymd(4000, 1, 1));
        let error = failure(&authority.write_leaf(folder.path(), "new", &leaf));
        assert!(error.contains("valid only from 4000-01-01"), "{error}");
    }

    #[test]
    fn a_key_that_everyone_may_read_is_noticed() {
        let (_folder, _authority, files) = set_up();
        for (mode, open) in [(0o600, None), (0o640, None), (0o644, Some(0o644))] {
            std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(mode_if_open(&files.key), open);
        }
    }

    #[test]
    fn all_three_files_or_none() {
        let check = |settings: &TlsSettings| {
            let mut faults = Faults::default();
            settings.validate(&mut faults);
            faults.iter().map(|fault| fault.key.clone()).collect::<Vec<_>>()
        };
        let mut settings = TlsSettings::default();
        assert!(check(&settings).is_empty() && settings.files().is_none());
        settings.cert = Some("a".into());
        assert_eq!(check(&settings), ["key", "ca"]);
        settings.key = Some("b".into());
        settings.ca = Some("c".into());
        assert!(check(&settings).is_empty() && settings.files().is_some());
    }
}
