//! TLS of the clients.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

/// The TLS configuration of `config`.
///
/// rustls reads the client certificate only to compare it with its key, and its reader knows version
/// 3 alone. `openssl x509 -req` without extensions makes version 1, which API servers take. Such a
/// certificate is sent as it is; it is for the API server to judge.
///
/// # Errors
/// Names what is wrong with the certificates or the key.
pub(super) fn config(config: &Config) -> Result<ClientConfig, String> {
    let error = match config.rustls_client_config() {
        Ok(tls) => return Ok(tls),
        Err(error) => error,
    };
    if !format!("{error:?}").contains("UnsupportedCertVersion") {
        return Err(error.to_string());
    }
    let auth = &config.auth_info;
    if auth.client_certificate.is_none() && auth.client_certificate_data.is_none() {
        // Of an exec plugin, or of a certificate authority.
        return Err(format!(
            "{error}: a certificate is of X.509 version 1; issue it again with an extension, for example with \
             `openssl x509 -req -extfile`"
        ));
    }
    let mut anonymous = config.clone();
    let nobody = &mut anonymous.auth_info;
    (nobody.client_certificate, nobody.client_certificate_data) = (None, None);
    (nobody.client_key, nobody.client_key_data) = (None, None);
    let mut tls = anonymous.rustls_client_config().map_err(|e| e.to_string())?;
    tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity(auth, &tls)?));
    Ok(tls)
}

/// The client certificate with its key, not compared.
fn identity(auth: &AuthInfo, tls: &ClientConfig) -> Result<CertifiedKey, String> {
    let key = auth.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let chain = pem(
        "client-certificate",
        auth.client_certificate_data.as_deref(),
        auth.client_certificate.as_deref(),
    )?;
    let key = pem("client-key", key, auth.client_key.as_deref())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|e| format!("client-certificate: {e}"))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| format!("client-key: {e}"))?;
    let key = tls.crypto_provider().key_provider.load_private_key(key);
    Ok(CertifiedKey::new(chain, key.map_err(|e| format!("client-key: {e}"))?))
}

/// A field of a kubeconfig that is there as data or as the name of a file; data go first.
fn pem(field: &str, data: Option<&str>, file: Option<&str>) -> Result<Vec<u8>, String> {
    match (data, file) {
        (Some(data), _) => STANDARD.decode(data.trim()).map_err(|e| format!("{field}-data: {e}")),
        (None, Some(file)) => std::fs::read(Path::new(file)).map_err(|e| format!("{field} {file}: {e}")),
        (None, None) => Err(format!("{field} is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openssl x509 -req` without extensions.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBNTCB3AIUVIaGsxTXSDhoJqpFTCNtY5cWaeUwCgYIKoZIzj0EAwIwDTELMAkG\n\
A1UEAwwCY2EwIBcNMjYxMTIzMDkzNTEyWhgPMjEyNjEwMzAwOTM1MTJaMCwxETAP\n\
BgNVBAMMCGRyYWdvbWFuMRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqG\n\
SM49AgEGCCqGSM49AwEHA0IABOfmVfTsai8aUBHe7mngnOUDA5vpUFdb00EzCqar\n\
UcgExLXM3hMONuiCPs4/9zMEUNty598Mj9rgRB2xG9/StJowCgYIKoZIzj0EAwID\n\
SAAwRQIhAIZnY9rYtnsPnXatyUum1XkVCTUZpllzgFCKu3QRdO0fAiA+Zy6DlteA\n\
XaICbbdMtjrrieDtzRfv+ntlJ8GhQlhOUQ==\n\
-----END CERTIFICATE-----\n";

    fn with_certificate(certificate: &str) -> Config {
        let mut config = Config::new("https://127.0.0.1:6443".parse().expect("url"));
        config.root_cert = Some(Vec::new());
        // Its own key is nowhere: the two are not compared.
        let key = rcgen::KeyPair::generate().expect("key").serialize_pem();
        config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        config
    }

    #[test]
    fn a_client_certificate_of_version_1_is_sent_as_it_is() {
        let tls = super::config(&with_certificate(VERSION_1)).expect("it is taken");
        assert!(tls.client_auth_cert_resolver.has_certs());
        let identity = identity(&with_certificate(VERSION_1).auth_info, &tls).expect("identity");
        assert_eq!(identity.cert.len(), 1);
    }

    #[test]
    fn a_certificate_that_is_none_is_refused() {
        let error = super::config(&with_certificate("nothing")).expect_err("it is no certificate");
        assert!(!error.is_empty());
    }
}
