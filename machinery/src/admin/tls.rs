//! TLS for the admin port, with a certificate that may be renewed while the process runs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::locked;

/// Age after which the files are read again: the kubelet renews a mounted Secret within about a minute,
/// and a certificate is renewed long before its end.
const PERIOD: Duration = Duration::from_mins(1);

/// The certificate and the key, from files in PEM.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    files: Files,
    acceptor: TlsAcceptor,
    read: Instant,
}

#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    /// A file cannot be read, or the two make no identity of a server.
    pub fn read(certificate: PathBuf, key: PathBuf) -> Result<Self, String> {
        let files = Files::read(&certificate, &key)?;
        let acceptor = files.acceptor()?;
        let loaded = Loaded { files, acceptor, read: Instant::now() };
        Ok(Self { certificate, key, loaded: Mutex::new(loaded) })
    }

    /// Returns the TLS acceptor for a connection. Reads the files again once a minute; a useless pair
    /// leaves the last certificate in force.
    pub fn acceptor(&self) -> TlsAcceptor {
        let mut loaded = locked(&self.loaded);
        if loaded.read.elapsed() >= PERIOD {
            loaded.read = Instant::now();
            if let Err(error) = self.renew(&mut loaded) {
                tracing::warn!(error, "the certificate of the admin port stays as it is");
            }
        }
        loaded.acceptor.clone()
    }

    fn renew(&self, loaded: &mut Loaded) -> Result<(), String> {
        let files = Files::read(&self.certificate, &self.key)?;
        if files != loaded.files {
            loaded.acceptor = files.acceptor()?;
            loaded.files = files;
        }
        Ok(())
    }
}

impl Files {
    fn read(certificate: &PathBuf, key: &PathBuf) -> Result<Self, String> {
        let read =
            |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Self { certificate: read(certificate)?, key: read(key)? })
    }

    fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| format!("key: {error}"))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| format!("certificate and key: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    /// A fresh folder with a certificate for `localhost`.
    pub(in crate::admin) struct Folder(PathBuf);

    impl Folder {
        pub(in crate::admin) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dragoman-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("folder");
            Self(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// Writes a new certificate. Returns a client that trusts only this one.
        pub(in crate::admin) fn renew(&self) -> TlsConnector {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("certificate");
            std::fs::write(self.file("tls.crt"), made.cert.pem()).expect("certificate");
            std::fs::write(self.file("tls.key"), made.signing_key.serialize_pem()).expect("key");
            let mut roots = RootCertStore::empty();
            roots.add(made.cert.der().clone()).expect("root");
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        }

        pub(in crate::admin) fn tls(&self) -> Result<Tls, String> {
            Tls::read(self.file("tls.crt"), self.file("tls.key"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).expect("removal");
        }
    }

    pub(in crate::admin) fn localhost() -> ServerName<'static> {
        ServerName::try_from("localhost").expect("name")
    }

    /// Whether a client trusts the server.
    async fn trusts(client: &TlsConnector, server: &Tls) -> bool {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (connected, accepted) =
            tokio::join!(client.connect(localhost(), ours), server.acceptor().accept(theirs));
        connected.is_ok() && accepted.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_certificate_is_used_without_a_restart() {
        let folder = Folder::new("renewed");
        let old = folder.renew();
        let server = folder.tls().expect("identity");
        assert!(trusts(&old, &server).await);
        let new = folder.renew();
        assert!(!trusts(&new, &server).await, "it is not read at each connection");
        tokio::time::advance(PERIOD).await;
        assert!(trusts(&new, &server).await);
        // A Secret that is half written.
        std::fs::write(folder.file("tls.key"), "").expect("write");
        tokio::time::advance(PERIOD).await;
        assert!(trusts(&new, &server).await);
    }

    #[test]
    fn a_file_that_is_of_no_use_is_named() {
        let folder = Folder::new("useless");
        drop(folder.renew());
        let missing = Tls::read(folder.file("tls.crt"), Path::new("/nowhere/tls.key").to_owned());
        assert!(missing.err().is_some_and(|error| error.contains("/nowhere/tls.key")));
        std::fs::write(folder.file("tls.key"), "nothing").expect("write");
        assert!(folder.tls().err().is_some_and(|error| error.contains("key")));
    }
}
