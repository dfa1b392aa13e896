//! Certificates for tests, made in memory and written where a test wants them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls_pki_types::CertificateDer;

use crate::tls::TlsFiles;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

pub(crate) struct Leaf {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for `localhost` and the loopback addresses, changed by `edit`.
    pub(crate) fn issue(&self, edit: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let mut params = CertificateParams::new(names).unwrap();
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { der: certificate.der().clone(), pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// Writes certificate, key and authority of `usher://test/ROLE/NAME` into a folder.
    pub(crate) fn write(&self, folder: &Path, role: &str, name: &str) -> TlsFiles {
        let leaf = self.issue(|params| {
            let uri = format!("usher://test/{role}/{name}");
            params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        });
        self.write_leaf(folder, name, &leaf)
    }

    pub(crate) fn write_leaf(&self, folder: &Path, name: &str, leaf: &Leaf) -> TlsFiles {
        let files = TlsFiles {
            cert: folder.join(format!("{name}.crt")),
            key: folder.join(format!("{name}.key")),
            ca: folder.join(format!("{name}.ca.crt")),
        };
        std::fs::write(&files.cert, &leaf.pem).unwrap();
        std::fs::write(&files.key, &leaf.key_pem).unwrap();
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&files.ca, &self.pem).unwrap();
        files
    }
}
