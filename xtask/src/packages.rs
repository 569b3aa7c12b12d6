//! The packages of a release: overlays, chart and bundle that name the image by its digest, which cannot be moved as a tag can.

use anyhow::Context as _;

use crate::{output, root};

/// Writes `config/` into `target/packages`, with the image that was pushed.
///
/// # Errors
/// The image is not named by its digest, or a file cannot be read or written.
pub(crate) fn write(image: &str) -> anyhow::Result<()> {
    let (repository, digest) = named(image)?;
    let place = root()?.join("target/packages");
    if place.exists() {
        std::fs::remove_dir_all(&place).context("old packages")?;
    }
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "config"];
    for file in output("git", &list)?.lines() {
        let text = std::fs::read_to_string(root()?.join(file)).with_context(|| file.to_owned())?;
        let path = place.join(file.trim_start_matches("config/"));
        std::fs::create_dir_all(path.parent().context("directory")?).context("target/packages")?;
        std::fs::write(&path, by_digest(&text, repository, digest))
            .with_context(|| path.display().to_string())?;
    }
    println!("target/packages");
    Ok(())
}

/// The repository and the digest of an image.
fn named(image: &str) -> anyhow::Result<(&str, &str)> {
    let named = image.split_once('@');
    let is_digest = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit())
    };
    let named = named.filter(|(_, digest)| is_digest(digest));
    named.with_context(|| format!("{image:?} is no image by its digest (REPOSITORY@sha256:…)"))
}

/// A file of `config/` with the image by its digest: `image:` and `containerImage:` of manifests, and the values of the
/// chart.
fn by_digest(text: &str, repository: &str, digest: &str) -> String {
    let shipped = format!("mage: dragoman:{}\n", env!("CARGO_PKG_VERSION"));
    text.replace(&shipped, &format!("mage: {repository}@{digest}\n"))
        .replace("\n  repository: \"\"\n", &format!("\n  repository: {repository}\n"))
        .replace("\n  digest: \"\"\n", &format!("\n  digest: {digest}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_by_its_digest_is_named() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert!(named(&format!("registry.example/dragoman@{digest}")).is_ok());
        for wrong in ["dragoman:0.1.0", "dragoman@sha256:12", &format!("dragoman@{digest}z")] {
            let why = named(wrong).expect_err(wrong).to_string();
            assert!(why.contains("is no image by its digest"), "{why}");
        }
    }
}
