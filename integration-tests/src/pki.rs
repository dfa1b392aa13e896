//! Certificates of a farm, made for one test and gone with its folder.
//!
//! Every one is valid for this machine's loopback and names its holder as `usher://FARM/ROLE/NAME`, so the same files
//! serve a coordinator, an agent or a client. What is wrong with a certificate (its authority, its time, its farm) is
//! the test's choice.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use usher_runtime::tls::TlsFiles;

/// Who signs the certificates of a farm.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority: nobody believes what another one signed.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().context("making the key of an authority")?;
        let pem = params.self_signed(&key).context("signing an authority")?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Certificate, key and authority of `usher://FARM/ROLE/NAME`, written into `folder`.
    ///
    /// # Errors
    /// When the name is no URI, or the folder cannot be written to.
    pub fn issue(&self, folder: &Path, uri: &str) -> anyhow::Result<TlsFiles> {
        self.issue_with(folder, uri, |_| {})
    }

    /// The same, expired years ago.
    ///
    /// # Errors
    /// As [`Authority::issue`].
    pub fn issue_expired(&self, folder: &Path, uri: &str) -> anyhow::Result<TlsFiles> {
        self.issue_with(folder, uri, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2024, 1, 1);
        })
    }

    fn issue_with(
        &self,
        folder: &Path,
        uri: &str,
        edit: impl FnOnce(&mut CertificateParams),
    ) -> anyhow::Result<TlsFiles> {
        let hosts = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        let mut params = CertificateParams::new(hosts).context("naming this machine")?;
        let name = uri.to_owned().try_into().with_context(|| format!("naming a certificate {uri}"))?;
        params.subject_alt_names.push(SanType::URI(name));
        edit(&mut params);
        let key = KeyPair::generate().context("making a key")?;
        let certificate =
            params.signed_by(&key, &self.issuer).with_context(|| format!("signing the certificate of {uri}"))?;

        // A folder of its own for each, so that two certificates of one name can stand beside each other.
        let own = tempfile::Builder::new().prefix("pki-").tempdir_in(folder)?.keep();
        let files =
            TlsFiles { cert: own.join("cert.pem"), key: own.join("key.pem"), ca: own.join("ca.pem") };
        let texts =
            [(&files.cert, certificate.pem()), (&files.key, key.serialize_pem()), (&files.ca, self.pem.clone())];
        for (path, text) in texts {
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600))?;
        Ok(files)
    }
}

/// The table `[tls]` of a settings file.
#[must_use]
pub fn tls_table(files: &TlsFiles) -> String {
    let line = |key: &str, path: &Path| format!("{key} = {:?}\n", path.display().to_string());
    let lines = [line("cert", &files.cert), line("key", &files.key), line("ca", &files.ca)];
    format!("[tls]\n{}", lines.concat())
}
