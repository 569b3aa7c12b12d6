//! Sockets of the driver, and its registration at kubelet.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use prost::Message as _;
use tokio::net::{UnixListener, UnixStream};

use crate::frames;
use crate::metrics::Metrics;
use crate::wire::{PLUGIN_TYPE, PluginInfo, RegistrationStatus, SERVICES};

/// The longest path of a socket that Linux takes.
const LONGEST: usize = 107;
/// Interval between checks that a socket still exists (kubelet's folders may be emptied), and pause after
/// a connection that cannot be accepted.
const LOOK: Duration = Duration::from_secs(5);

/// Listens on a socket, in place of what an earlier process left there.
///
/// # Errors
/// The path is too long, or cannot be used.
pub(crate) fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let named = || path.display().to_string();
    ensure!(
        path.as_os_str().len() <= LONGEST,
        "{} is too long for a socket ({LONGEST} bytes)",
        path.display()
    );
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(named)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(named),
        _ => {}
    }
    UnixListener::bind(path).with_context(named)
}

/// Accepts connections on a socket, and makes the socket anew where it was removed.
pub(crate) async fn accept(listener: &mut UnixListener, path: &Path) -> anyhow::Result<UnixStream> {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => return Ok(stream),
                // Too many files are open, for example: that passes.
                Err(error) => {
                    tracing::warn!("{}: {error}", path.display());
                    tokio::time::sleep(LOOK).await;
                }
            },
            () = tokio::time::sleep(LOOK) => if !path.exists() {
                *listener = bind(path)?;
            },
        }
    }
}

/// Registers the driver whenever kubelet asks, which it does for every socket in its folder.
pub(crate) struct Registration {
    /// The socket that kubelet finds.
    pub(crate) socket: PathBuf,
    /// The socket of the services.
    pub(crate) endpoint: PathBuf,
    /// The name of the driver.
    pub(crate) driver: String,
    pub(crate) metrics: Metrics,
}

impl Registration {
    /// Answers until it is dropped.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        let mut listener = bind(&self.socket)?;
        let socket = self.socket.clone();
        let this = Arc::new(self);
        loop {
            let stream = accept(&mut listener, &socket).await?;
            let this = Arc::clone(&this);
            tokio::spawn(async move {
                match frames::serve(stream, |question| this.answer(question)).await {
                    // kubelet closes the connection once it has its answer.
                    Err(error)
                        if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
                    {
                        tracing::warn!("registration: {error}");
                    }
                    _ => {}
                }
            });
        }
    }

    /// The answer to `GetInfo`, whose question is empty, or to `NotifyRegistrationStatus`, whose is not.
    fn answer(&self, question: &[u8]) -> Vec<u8> {
        if question.is_empty() {
            let info = PluginInfo {
                r#type: PLUGIN_TYPE.to_owned(),
                name: self.driver.clone(),
                endpoint: self.endpoint.display().to_string(),
                supported_versions: SERVICES.map(str::to_owned).into(),
            };
            return info.encode_to_vec();
        }
        match RegistrationStatus::decode(question) {
            Ok(status) if status.registered => {
                self.metrics.registered.set(1);
                tracing::info!("registered at kubelet");
            }
            Ok(status) => {
                self.metrics.registered.set(0);
                tracing::error!("kubelet refuses the registration: {}", status.error);
            }
            Err(error) => tracing::warn!("registration: {error}"),
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reinstalled kubelet, or a cleaned-up node: the folder of the sockets is empty, or gone.
    #[tokio::test(start_paused = true)]
    async fn a_socket_comes_back_after_its_folder_was_emptied() {
        let folder = std::env::temp_dir().join(format!("dragoman-registration-{}", std::process::id()));
        let socket = folder.join("gpu.example.com-reg.sock");
        let mut listener = bind(&socket).expect("a socket");
        std::fs::remove_dir_all(&folder).expect("it was there");
        let connect = async {
            loop {
                match UnixStream::connect(&socket).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::time::sleep(LOOK / 2).await,
                }
            }
        };
        let both = async { tokio::join!(accept(&mut listener, &socket), connect) };
        let (accepted, _stream) = tokio::time::timeout(3 * LOOK, both).await.expect("it came back");
        accepted.expect("a connection");
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
