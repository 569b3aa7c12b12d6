//! Prepare and unprepare: what is prepared, in which order things are written, and what is refused.
//!
//! A prepare writes what it is about to do, then the driver acts, then the CDI file is written, then the record says so.
//! A crash in between leaves a record without its end: the next prepare does it all again, and an unprepare undoes it.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::attributes;
use crate::cdi::{self, Spec};
use crate::checkpoint::{self, Checkpoint, Held, Record, Restored};
use crate::claim::{Claim, ClaimReference, main_request};
use crate::locks::Locks;
use crate::metrics::Metrics;
use crate::{Driver, counters, wire};

/// Where claims are read.
pub(crate) trait Claims: Send + Sync + 'static {
    /// The claim as the API server has it; `None` if there is none of this name.
    fn get(&self, claim: &ClaimReference) -> impl Future<Output = anyhow::Result<Option<Value>>> + Send;
}

/// The places on the node.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Directory of this driver alone, kept over restarts of the node.
    pub(crate) state: PathBuf,
    /// Directory in which container runtimes read CDI files.
    pub(crate) cdi: PathBuf,
}

/// Preparer of claims: prepares and unprepares them.
pub(crate) struct Preparer<D, C> {
    pub(crate) driver: D,
    name: String,
    claims: C,
    places: Places,
    checkpoint: Checkpoint,
    known: Mutex<Restored>,
    of_claims: Locks<String>,
    of_devices: Locks<(String, String)>,
    metrics: Metrics,
}

impl<D: Driver, C: Claims> Preparer<D, C> {
    /// Reads what an earlier process prepared, and writes the CDI files of that anew: a restart of the node removes them.
    ///
    /// # Errors
    /// A directory or a CDI file cannot be made.
    pub(crate) fn open(
        driver: D,
        name: &str,
        claims: C,
        places: Places,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let (checkpoint, known) = Checkpoint::open(places.state.join("claims"), boot())?;
        std::fs::create_dir_all(&places.cdi).with_context(|| places.cdi.display().to_string())?;
        cdi::clean(&places.cdi, name)?;
        for (uid, record) in &known.records {
            if let Some(spec) = &record.spec {
                spec.write(&places.cdi, name, uid)?;
            }
        }
        let preparer = Self {
            driver,
            name: name.to_owned(),
            claims,
            places,
            checkpoint,
            known: Mutex::new(known),
            of_claims: Locks::default(),
            of_devices: Locks::default(),
            metrics,
        };
        preparer.count();
        for why in preparer.known().unreadable.values() {
            tracing::error!(
                "{why}: nothing is prepared until the claim is unprepared or the file is moved away"
            );
        }
        Ok(preparer)
    }

    /// The claims for which a device is prepared.
    pub(crate) fn holders(&self, pool: &str, device: &str) -> Vec<ClaimReference> {
        let known = self.known();
        let holds =
            |record: &&Record| record.devices.iter().any(|of| (&*of.pool, &*of.device) == (pool, device));
        known.records.values().filter(holds).map(|record| record.claim.clone()).collect()
    }

    /// The claim as the API server has it.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn read(&self, claim: &ClaimReference) -> anyhow::Result<Option<Value>> {
        self.claims.get(claim).await
    }

    /// Prepares a claim, or says what it was prepared as.
    ///
    /// # Errors
    /// For kubelet, which shows the text in the Events of the Pod.
    pub(crate) async fn prepare(&self, claim: &ClaimReference) -> anyhow::Result<Vec<wire::PreparedDevice>> {
        let started = Instant::now();
        let outcome = self.prepared(claim).await;
        self.count();
        self.metrics.called("prepare", outcome.is_ok(), started.elapsed());
        match &outcome {
            Ok(devices) => tracing::info!(%claim, uid = claim.uid, devices = devices.len(), "prepared"),
            Err(error) => tracing::warn!(%claim, uid = claim.uid, "not prepared: {error:#}"),
        }
        outcome
    }

    async fn prepared(&self, reference: &ClaimReference) -> anyhow::Result<Vec<wire::PreparedDevice>> {
        let _claim = self.of_claims.lock(vec![reference.uid.clone()]).await;
        let known = self.known().records.get(&reference.uid).cloned();
        let prepared = known.as_ref().and_then(|record| Some((record, record.spec.as_ref()?)));
        let object = match (self.claims.get(reference).await, prepared) {
            // What is prepared needs no API server.
            (Err(error), Some((record, spec))) => {
                tracing::warn!(claim = %reference, "answered as it was prepared: {error:#}");
                return self.answered(record, spec);
            }
            (read, _) => read?.with_context(|| format!("{reference} does not exist"))?,
        };
        let (claim, allocated) = Claim::read(reference, &object, &self.name)?;
        let mut record = Record::of(reference, &allocated, self.checkpoint.boot());
        if known.as_ref().is_some_and(|known| known.devices != record.devices) {
            bail!(
                "{reference} was prepared with other devices than it has now: it has to be unprepared first"
            );
        }
        if let Some((record, spec)) = prepared {
            return self.answered(record, spec);
        }
        let _devices = self.of_devices.lock(record.keys().collect()).await;
        self.reserve(record.clone())?;
        let mut edits = self.driver.prepare(&claim, &allocated).await?;
        ensure!(
            edits.len() == allocated.len(),
            "the driver prepared {} of {} devices of {reference}",
            edits.len(),
            allocated.len()
        );
        let pools = self.driver.devices().borrow().clone();
        attributes::add(&self.attributes(), &self.name, &pools, &claim, &allocated, &mut edits)?;
        let spec = Spec::of(&self.name, &reference.uid, &edits);
        let answer = self.answered(&record, &spec)?;
        record.spec = Some(spec);
        self.keep(record)?;
        Ok(answer)
    }

    /// Writes the CDI file of a claim, which may be gone, and returns what kubelet is told.
    fn answered(&self, record: &Record, spec: &Spec) -> anyhow::Result<Vec<wire::PreparedDevice>> {
        spec.write(&self.places.cdi, &self.name, &record.claim.uid)?;
        Ok(answer(record, spec))
    }

    /// Undoes a prepare. A claim of which nothing is known is undone already.
    ///
    /// # Errors
    /// For kubelet, which asks again.
    pub(crate) async fn unprepare(&self, claim: &ClaimReference) -> anyhow::Result<()> {
        let started = Instant::now();
        let outcome = self.unprepared(claim).await;
        self.count();
        self.metrics.called("unprepare", outcome.is_ok(), started.elapsed());
        match &outcome {
            Ok(()) => tracing::info!(%claim, uid = claim.uid, "unprepared"),
            Err(error) => tracing::warn!(%claim, uid = claim.uid, "not unprepared: {error:#}"),
        }
        outcome
    }

    async fn unprepared(&self, claim: &ClaimReference) -> anyhow::Result<()> {
        let _claim = self.of_claims.lock(vec![claim.uid.clone()]).await;
        let (record, is_unreadable) = {
            let known = self.known();
            (known.records.get(&claim.uid).cloned(), known.unreadable.contains_key(&claim.uid))
        };
        if record.is_none() && !is_unreadable {
            return Ok(());
        }
        let _devices = self.of_devices.lock(record.iter().flat_map(Record::keys).collect()).await;
        self.driver.unprepare(claim).await?;
        checkpoint::remove(&cdi::path(&self.places.cdi, &self.name, &claim.uid))?;
        attributes::remove(&self.attributes(), &claim.uid)?;
        self.checkpoint.remove(&claim.uid)?;
        let mut known = self.known();
        known.records.remove(&claim.uid);
        known.unreadable.remove(&claim.uid);
        Ok(())
    }

    /// Keeps a claim if its devices are free. Both at once: two claims may have parts of one device, which have no lock
    /// together.
    fn reserve(&self, record: Record) -> anyhow::Result<()> {
        let mut known = self.known();
        self.is_free(&record, &known)?;
        self.checkpoint.write(&record)?;
        known.records.insert(record.claim.uid.clone(), record);
        Ok(())
    }

    /// Whether no other claim has one of the devices. Two shares of a device are two devices.
    fn is_free(&self, wanted: &Record, known: &Restored) -> anyhow::Result<()> {
        if let Some(why) = known.unreadable.values().next() {
            bail!("{why}: it is unknown which devices are in use");
        }
        let others = known.records.values().filter(|other| other.claim.uid != wanted.claim.uid);
        let others: Vec<&Record> = others.collect();
        for (other, holder) in
            others.iter().flat_map(|other| other.devices.iter().map(move |held| (other, held)))
        {
            if let Some(of) = wanted.devices.iter().find(|of| excludes(of, holder)) {
                bail!(
                    "device {}/{} is prepared for {} (uid {})",
                    of.pool,
                    of.device,
                    other.claim,
                    other.claim.uid
                );
            }
        }
        match counters::overdrawn(&self.driver.devices().borrow(), wanted, &others)? {
            Some(why) => bail!(why),
            None => Ok(()),
        }
    }

    /// Writes a record, and then knows it.
    fn keep(&self, record: Record) -> anyhow::Result<()> {
        self.checkpoint.write(&record)?;
        self.known().records.insert(record.claim.uid.clone(), record);
        Ok(())
    }

    fn attributes(&self) -> PathBuf {
        self.places.state.join("attributes")
    }

    fn known(&self) -> MutexGuard<'_, Restored> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) {
        self.metrics.prepared.set(i64::try_from(self.known().records.len()).unwrap_or(i64::MAX));
    }
}

/// Which start of the node this is; empty where that is not known.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Whether one of two claims may not have a device because the other has it.
fn excludes(one: &Held, other: &Held) -> bool {
    let is_same = (&one.pool, &one.device) == (&other.pool, &other.device);
    let are_shares = one.share_id.is_some() && other.share_id.is_some() && one.share_id != other.share_id;
    is_same && !(are_shares || one.admin_access || other.admin_access)
}

fn answer(record: &Record, spec: &Spec) -> Vec<wire::PreparedDevice> {
    let device = |(number, held): (usize, &Held)| wire::PreparedDevice {
        request_names: vec![main_request(&held.request).to_owned()],
        pool_name: held.pool.clone(),
        device_name: held.device.clone(),
        cdi_device_ids: spec.id(&record.claim.uid, number).into_iter().collect(),
        share_id: held.share_id.clone(),
    };
    record.devices.iter().enumerate().map(device).collect()
}

#[cfg(test)]
mod tests;
