//! Where objects come from: a cluster, or files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dragoman_report::facts::{Facts, Key};

use crate::arguments::{Explained, Place};
use crate::client::Client;
use crate::load;

/// Where objects come from.
pub(crate) enum Source {
    /// A cluster.
    Cluster(Client),
    /// Files, which have everything at once.
    Files(Vec<(PathBuf, String)>),
}

impl Source {
    /// Connects to the cluster, or reads the files; `-` is standard input.
    ///
    /// # Errors
    /// There is no usable kubeconfig, or a file is no dump.
    pub(crate) async fn of(place: &Place) -> anyhow::Result<Self> {
        if place.files.is_empty() {
            return Ok(Self::Cluster(
                Client::connect(place.kubeconfig.as_deref(), place.context.as_deref()).await?,
            ));
        }
        let read = |path: &PathBuf| {
            let text = text_of(path).with_context(|| path.display().to_string())?;
            Ok((path.clone(), text))
        };
        let texts = place.files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let source = Self::Files(texts);
        source.facts()?;
        Ok(source)
    }

    /// The namespace that is asked about.
    pub(crate) fn namespace(&self, place: &Place) -> String {
        place.namespace.clone().unwrap_or_else(|| match self {
            Self::Cluster(client) => client.namespace.clone(),
            Self::Files(_) => "default".to_owned(),
        })
    }

    /// The namespace of an object that is to be explained. Where the files have one object of this name in one namespace alone, and
    /// none was given, it is that one.
    ///
    /// # Errors
    /// Files have such an object in several namespaces.
    pub(crate) fn namespace_of(&self, place: &Place, kind: Explained, name: &str) -> anyhow::Result<String> {
        let given = self.namespace(place);
        if place.namespace.is_some() || place.files.is_empty() {
            return Ok(given);
        }
        let facts = self.facts()?;
        let is_it = |key: &&Key| key.1 == name;
        let found: Vec<&str> = match kind {
            Explained::Pod => facts.pods.keys().filter(is_it).map(|key| key.0.as_str()).collect(),
            Explained::Claim => facts.claims.keys().filter(is_it).map(|key| key.0.as_str()).collect(),
            Explained::Template => facts.templates.keys().filter(is_it).map(|key| key.0.as_str()).collect(),
            Explained::Device | Explained::Node => Vec::new(),
        };
        match found.as_slice() {
            [] => Ok(given),
            [only] => Ok((*only).to_owned()),
            several => bail!("{name} is in namespaces {}: name one with --namespace", several.join(", ")),
        }
    }

    /// The objects of the files; none of a cluster.
    fn facts(&self) -> anyhow::Result<Facts> {
        let mut facts = Facts::default();
        if let Self::Files(texts) = self {
            for (file, text) in texts {
                facts.take_file(file, text)?;
            }
            facts.ensure_any()?;
        }
        Ok(facts)
    }
}

/// The text of a file, or of standard input.
fn text_of(path: &Path) -> std::io::Result<String> {
    if path != Path::new("-") {
        return std::fs::read_to_string(path);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map(|_| text)
}

/// A question to a cluster, or the objects of the files.
macro_rules! ask {
    ($name:ident($($argument:ident: $type:ty),*) -> Facts) => {
        impl Source {
            pub(crate) async fn $name(&self, $($argument: $type),*) -> Facts {
                match self {
                    Self::Cluster(client) => load::$name(client, $($argument),*).await,
                    // They were read once before.
                    Self::Files(_) => self.facts().unwrap_or_default(),
                }
            }
        }
    };
    ($name:ident($($argument:ident: $type:ty),*) -> Result) => {
        impl Source {
            pub(crate) async fn $name(&self, $($argument: $type),*) -> anyhow::Result<Facts> {
                match self {
                    Self::Cluster(client) => load::$name(client, $($argument),*).await,
                    Self::Files(_) => self.facts(),
                }
            }
        }
    };
}

ask!(pod(namespace: &str, name: &str) -> Result);
ask!(template(namespace: &str, name: &str) -> Result);
ask!(devices() -> Facts);
ask!(node(node: &str) -> Facts);
ask!(device(wanted: &str) -> Facts);
ask!(classes() -> Facts);
ask!(drain(node: &str) -> Facts);

/// A question about the objects of one namespace, or of all.
macro_rules! ask_within {
    ($name:ident) => {
        impl Source {
            pub(crate) async fn $name(&self, namespace: Option<&str>) -> Facts {
                match self {
                    Self::Cluster(client) => load::$name(client, namespace).await,
                    Self::Files(_) => self.facts_within(namespace),
                }
            }
        }
    };
}

ask_within!(waiting);
ask_within!(events);
ask_within!(why);

impl Source {
    /// A claim, and what explains it.
    pub(crate) async fn claim(&self, namespace: &str, name: &str) -> anyhow::Result<Facts> {
        let Self::Cluster(client) = self else {
            let mut facts = self.facts()?;
            facts.expect_pods(Some(&(namespace.to_owned(), name.to_owned())));
            return Ok(facts);
        };
        load::claim(client, namespace, name).await
    }

    /// Claims with their consumers as far as these are known, of one namespace or of all.
    pub(crate) async fn claims(&self, namespace: Option<&str>) -> Facts {
        match self {
            Self::Cluster(client) => load::consumers(client, namespace).await,
            Self::Files(_) => self.facts_within(namespace),
        }
    }

    /// Claims and their consumers, of one namespace or of all.
    pub(crate) async fn consumers(&self, namespace: Option<&str>) -> Facts {
        let Self::Cluster(client) = self else {
            let mut facts = self.facts_within(namespace);
            facts.expect_pods(None);
            return facts;
        };
        load::consumers(client, namespace).await
    }

    /// Everything that a page about the cluster shows. Claims of other namespaces hold devices, so that files are not confined.
    pub(crate) async fn report(&self, namespace: Option<&str>) -> Facts {
        match self {
            Self::Cluster(client) => load::report(client, namespace).await,
            // They were read once before.
            Self::Files(_) => self.facts().unwrap_or_default(),
        }
    }

    /// The objects of the files that are in one namespace, or in any.
    fn facts_within(&self, namespace: Option<&str>) -> Facts {
        // They were read once before.
        let mut facts = self.facts().unwrap_or_default();
        namespace.into_iter().for_each(|namespace| facts.confine(namespace));
        facts
    }
}
