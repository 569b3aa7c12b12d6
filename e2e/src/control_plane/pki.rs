//! Certificates and keys of a control plane that lives for one test run.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// A certificate authority and what it has signed, as files in a directory.
pub struct Pki {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Makes the authority, the serving certificate and the service account key.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("key")?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name = subject("dragoman-e2e", &[]);
        let certificate = params.self_signed(&key).context("authority")?;
        let pki = Self { directory: directory.to_owned(), issuer: Issuer::new(params, key) };
        pki.write("ca.crt", &certificate.pem())?;
        let hosts = ["127.0.0.1", "localhost", "kubernetes", "10.0.0.1"].map(str::to_owned);
        let mut serving = CertificateParams::new(hosts).context("hosts")?;
        serving.distinguished_name = subject("kube-apiserver", &[]);
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        pki.sign("apiserver", &serving)?;
        let accounts = KeyPair::generate().context("key")?;
        pki.write("sa.key", &accounts.serialize_pem())?;
        pki.write("sa.pub", &accounts.public_key_pem())?;
        Ok(pki)
    }

    /// The path of a file.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Makes a kubeconfig for `user` in `groups`, with a client certificate.
    pub fn kubeconfig(
        &self,
        file: &str,
        server: &str,
        user: &str,
        groups: &[&str],
    ) -> anyhow::Result<PathBuf> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, &params)?;
        let path = |file: String| self.path(&file).display().to_string();
        let text = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": path("ca.crt".to_owned())}}],
            "users": [{"name": user, "user": {
                "client-certificate": path(format!("{file}.crt")),
                "client-key": path(format!("{file}.key")),
            }}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        });
        self.write(&format!("{file}.kubeconfig"), &text.to_string())?;
        Ok(self.path(&format!("{file}.kubeconfig")))
    }

    fn sign(&self, name: &str, params: &CertificateParams) -> anyhow::Result<()> {
        let key = KeyPair::generate().context("key")?;
        let certificate = params.signed_by(&key, &self.issuer).with_context(|| name.to_owned())?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.path(file), text).with_context(|| file.to_owned())
    }
}

fn subject(common_name: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    // rcgen keeps one value for a type, and one group is enough for every user here.
    if let Some(group) = groups.first() {
        name.push(DnType::OrganizationName, *group);
    }
    name
}
