//! Executes plans about Pods and PodGroups.

use std::collections::BTreeSet;
use std::time::Duration;

use dragoman_crds::wire::{self, Name};
use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::kind::{Kind, POD, RESOURCE_CLAIM};
use dragoman_machinery::refusal::{Refusal, Retry};
use dragoman_machinery::work::Verdict;
use dragoman_machinery::write::{Action, Write};
use serde::Deserialize;

use super::claim_body::{BadTemplate, For, claim_body, dropped_fields};
use super::claim_name::{Generation, claim_name};
use super::controller::ClaimLifecycle;
use super::facts::{ClaimFacts, PodFacts, TemplateFacts};
use super::index::Kept;
use super::key::{Key, Subject};
use super::plan_holder::{Creation, HolderPlan, Note, Reservation, plan_holder, publication, reservation};
use super::snapshot::{HolderKind, HolderSnapshot, TemplateState};

/// Names tried before giving up; two collisions in a row are one in 10^11.
const SALTS: u32 = 8;

/// Why a claim was not created.
enum CreateError {
    /// The template is unusable until somebody changes it.
    Template(BadTemplate),
    /// The API server refused.
    Refused(Refusal),
}

/// The most urgent of several verdicts.
fn sooner(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Failed(why), _) | (_, Verdict::Failed(why)) => Verdict::Failed(why),
        (Verdict::After(a), Verdict::After(b)) => Verdict::After(a.min(b)),
        (Verdict::After(delay), Verdict::Done) | (Verdict::Done, Verdict::After(delay)) => {
            Verdict::After(delay)
        }
        (Verdict::Done, Verdict::Done) => Verdict::Done,
    }
}

impl ClaimLifecycle {
    /// Brings the claims of a Pod or PodGroup in line with it.
    pub(super) async fn reconcile_holder(&self, key: &Key) -> Verdict {
        let (holder, mut plan) = match self.settled_plan(key).await {
            Ok(Some(settled)) => settled,
            Ok(None) => {
                self.quota_passed(key);
                return Verdict::Done;
            }
            Err(why) => return Verdict::Failed(why),
        };
        let Some(kind) = self.kind_of(key) else { return Verdict::Done };
        for Note { entry, trouble } in &plan.notes {
            self.complain(kind, &holder, entry, &trouble.to_string());
        }
        // A claim was lost. If that is because its holder is gone, and only our index
        // does not know yet, a new one would be lost the same way, and so on.
        if plan.create.iter().any(|creation| creation.predecessor.is_some()) {
            match self.holder_lives(kind, &holder).await {
                Ok(true) => {}
                Ok(false) => return Verdict::Done,
                Err(refusal) => return self.holder_refused("confirm the holder", &refusal),
            }
        }
        let mut verdict = Verdict::Done;
        for creation in &plan.create {
            // One entry that fails does not hold up the others.
            match self.create(key, kind, &holder, creation).await {
                Ok((entry, claim)) => {
                    plan.settled.insert(entry, claim);
                }
                Err(trouble) => {
                    verdict = sooner(verdict, self.create_refused(key, kind, &holder, creation, trouble));
                }
            }
        }
        if verdict == Verdict::Done {
            self.quota_passed(key);
        }
        if let Some(write) = publication(kind, &holder, &plan.settled) {
            let kept = match holder.kind {
                HolderKind::Pod => Kept::Pods,
                HolderKind::PodGroup => Kept::Groups,
            };
            if let Err(refusal) = self.send(key, kept, &write).await {
                if matches!(refusal, Refusal::NotFound | Refusal::Replaced) {
                    self.proven_gone(&holder.uid);
                }
                verdict = sooner(verdict, self.holder_refused("publish claim names", &refusal));
            }
        }
        if !plan.reserve.is_empty() {
            verdict = sooner(verdict, self.reserve(key, kind, &holder, &plan.reserve).await);
        }
        verdict
    }

    /// Asks the API server whether the holder is still there.
    async fn holder_lives(&self, kind: Kind, holder: &HolderSnapshot) -> Result<bool, Refusal> {
        #[derive(Deserialize)]
        struct Existing {
            metadata: wire::Meta,
        }
        self.ground.machinery.live_get(kind.kind);
        let lives = match self.ground.api.get::<Existing>(kind, &holder.namespace, &holder.name).await? {
            Live::Found(existing) => existing.metadata.uid == holder.uid,
            Live::NotFound => false,
        };
        if !lives {
            self.proven_gone(&holder.uid);
        }
        Ok(lives)
    }

    fn kind_of(&self, key: &Key) -> Option<Kind> {
        match key.subject {
            Subject::PodGroup => self.read(|index| index.groups_kind),
            Subject::Pod | Subject::Claim => Some(POD),
        }
    }

    /// Plans until no claim is in doubt any more.
    async fn settled_plan(&self, key: &Key) -> Result<Option<(HolderSnapshot, HolderPlan)>, String> {
        let (mut gone, mut found) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let (namespace, name) = (&*key.namespace, &*key.name);
            let snapshot = self.read(|index| match key.subject {
                Subject::PodGroup => HolderSnapshot::of_group(index, namespace, name),
                Subject::Pod | Subject::Claim => HolderSnapshot::of_pod(index, namespace, name),
            });
            let Some(holder) = snapshot else { return Ok(None) };
            let plan = plan_holder(&holder, &gone, &found);
            let doubtful: Vec<Name> =
                plan.confirm.iter().filter(|c| !gone.contains(*c) && !found.contains(*c)).cloned().collect();
            if doubtful.is_empty() {
                return Ok(Some((holder, plan)));
            }
            for claim in doubtful {
                self.ground.machinery.live_get(RESOURCE_CLAIM.kind);
                match self.ground.api.get::<wire::ResourceClaim>(RESOURCE_CLAIM, namespace, &claim).await {
                    Ok(Live::NotFound) => gone.insert(claim),
                    // The watch will bring it and this key with it.
                    Ok(Live::Found(_)) => found.insert(claim),
                    Err(refusal) => return Err(format!("cannot confirm claim {claim}: {refusal}")),
                };
            }
        }
    }

    /// Creates the claim of an entry; returns the entry and the claim's name.
    async fn create(
        &self,
        key: &Key,
        kind: Kind,
        holder: &HolderSnapshot,
        creation: &Creation,
    ) -> Result<(Name, Name), CreateError> {
        let Some(entry) = holder.entries.get(creation.entry) else {
            return Err(CreateError::Refused(Refusal::Conflict));
        };
        let TemplateState::Present(template) = &entry.template else {
            return Err(CreateError::Refused(Refusal::Conflict));
        };
        let purpose = For { kind, name: &holder.name, uid: &holder.uid, entry: &entry.entry.name };
        let mut predecessor = creation.predecessor.as_deref().map(str::to_owned);
        let mut salt = 0;
        while salt < SALTS {
            let generation = Generation { predecessor: predecessor.as_deref(), salt };
            let name = claim_name(&holder.name, &holder.uid, &entry.entry.name, generation);
            let body = claim_body(template, &holder.namespace, &name, purpose, self.options.born_protected)
                .map_err(CreateError::Template)?;
            let write = Write {
                kind: RESOURCE_CLAIM,
                namespace: holder.namespace.to_string(),
                name: name.clone(),
                action: Action::Create { body },
            };
            let unclear = match self.send(key, Kept::Claims, &write).await {
                Ok(written) => {
                    let facts = decode::<wire::ResourceClaim>(&written.body).map(ClaimFacts::from);
                    let admin = facts.is_ok_and(|f| f.admin_access);
                    self.ground.metrics.created(true, admin, holder.kind);
                    tracing::debug!(namespace = %holder.namespace, holder = %holder.name, claim = %name, "claim created");
                    self.say_dropped(kind, holder, &entry.entry.name, template, &written.body);
                    return Ok((entry.entry.name.clone(), name.into()));
                }
                Err(Refusal::AlreadyExists) => Refusal::Conflict,
                Err(refusal) => {
                    self.ground.metrics.created(false, admin_access(template), holder.kind);
                    // What may have happened is looked at at once: the next plan may know less, and
                    // give the claim another name.
                    if !matches!(refusal, Refusal::Transient(_)) {
                        return Err(CreateError::Refused(refusal));
                    }
                    refusal
                }
            };
            // Whose is it? A lost reply, an index that is late, or a coincidence.
            self.ground.machinery.live_get(RESOURCE_CLAIM.kind);
            let live =
                self.ground.api.get::<wire::ResourceClaim>(RESOURCE_CLAIM, &holder.namespace, &name).await;
            match live.map_err(CreateError::Refused)? {
                Live::NotFound => return Err(CreateError::Refused(unclear)),
                Live::Found(claim) => {
                    let facts = ClaimFacts::from(*claim);
                    if !facts.owned_by(holder.owner_kind(), &holder.uid) {
                        salt += 1;
                    } else if facts.deleting {
                        // Never adopted; its name decides that of its successor.
                        (predecessor, salt) = (Some(name), 0);
                    } else {
                        self.expect(key, Kept::Claims, &facts.version);
                        return Ok((entry.entry.name.clone(), name.into()));
                    }
                }
            }
        }
        Err(CreateError::Refused(Refusal::Conflict))
    }

    fn say_dropped(
        &self,
        kind: Kind,
        holder: &HolderSnapshot,
        entry: &str,
        template: &TemplateFacts,
        answer: &[u8],
    ) {
        let dropped = dropped_fields(template, answer);
        if !dropped.is_empty() {
            self.ground.metrics.trouble("FieldsDropped");
            let regarding = Self::regarding(kind, &holder.namespace, &holder.name, &holder.uid);
            let note = format!(
                "{} {entry}: the API server did not keep these fields of the template: {}",
                prefix(holder.kind),
                dropped.join(", ")
            );
            self.event(regarding, "ResourceClaimFieldsDropped", "CreateClaim", note);
        }
    }

    fn create_refused(
        &self,
        key: &Key,
        kind: Kind,
        holder: &HolderSnapshot,
        creation: &Creation,
        trouble: CreateError,
    ) -> Verdict {
        let entry = holder.entries.get(creation.entry).map(|e| e.entry.name.clone()).unwrap_or_default();
        let refusal = match trouble {
            CreateError::Template(bad) => {
                self.complain(kind, holder, &entry, &bad.to_string());
                return Verdict::Done;
            }
            CreateError::Refused(refusal) => refusal,
        };
        match refusal {
            Refusal::Quota(_) | Refusal::AdminAccess(_) => {
                self.complain(kind, holder, &entry, &refusal.to_string());
                Verdict::After(self.wait_for_quota(key))
            }
            Refusal::Invalid(_) => {
                self.complain(kind, holder, &entry, &refusal.to_string());
                // A change of the template wakes the Pod; admission may change its
                // mind without one.
                Verdict::After(Duration::from_mins(5))
            }
            other => self.holder_refused("create the claim", &other),
        }
    }

    fn holder_refused(&self, what: &str, refusal: &Refusal) -> Verdict {
        self.ground.metrics.trouble(refusal.reason());
        match refusal.retry() {
            Retry::Never => Verdict::Done,
            Retry::Conflict | Retry::Backoff | Retry::Change => Verdict::Failed(format!("{what}: {refusal}")),
        }
    }

    /// Tells the author of the Pod what is wrong with an entry.
    fn complain(&self, kind: Kind, holder: &HolderSnapshot, entry: &str, trouble: &str) {
        self.ground.metrics.trouble("FailedResourceClaimCreation");
        let regarding = Self::regarding(kind, &holder.namespace, &holder.name, &holder.uid);
        let note = format!("{} {entry}: {trouble}", prefix(holder.kind));
        self.event(regarding, "FailedResourceClaimCreation", "CreateClaim", note);
    }

    /// Reserves claims for a Pod that has a node. Both sides are read live first:
    /// the index of claims may lag behind kube-scheduler, which reserves by itself,
    /// and nobody gets a reservation who is not there any more.
    async fn reserve(
        &self,
        key: &Key,
        kind: Kind,
        holder: &HolderSnapshot,
        wanted: &[Reservation],
    ) -> Verdict {
        let (api, namespace) = (&self.ground.api, &*holder.namespace);
        self.ground.machinery.live_get(POD.kind);
        match api.get::<wire::Pod>(POD, namespace, &holder.name).await {
            Ok(Live::Found(pod)) if pod.metadata.uid == holder.uid => {
                let facts = PodFacts::from(*pod);
                if !facts.scheduled || facts.deleting || facts.done() {
                    return Verdict::Done;
                }
            }
            Ok(_) => return Verdict::Done,
            Err(refusal) => return self.holder_refused("read the Pod before reserving", &refusal),
        }
        let mut verdict = Verdict::Done;
        for Reservation { entry, claim, consumer } in wanted {
            self.ground.machinery.live_get(RESOURCE_CLAIM.kind);
            let live = match api.get::<wire::ResourceClaim>(RESOURCE_CLAIM, namespace, claim).await {
                Ok(Live::Found(live)) => *live,
                Ok(Live::NotFound) => continue,
                Err(refusal) => {
                    verdict =
                        sooner(verdict, self.holder_refused("read the claim before reserving", &refusal));
                    continue;
                }
            };
            let uid = live.metadata.uid.to_string();
            let Some(write) = reservation(namespace, claim, &uid, &live.into(), consumer) else { continue };
            match self.send(key, Kept::Claims, &write).await {
                Ok(_) => tracing::debug!(namespace, pod = %holder.name, %claim, "claim reserved"),
                Err(refusal) => {
                    if matches!(refusal, Refusal::Invalid(_)) {
                        self.complain(kind, holder, entry, &refusal.to_string());
                    }
                    verdict = sooner(verdict, self.holder_refused("reserve the claim", &refusal));
                }
            }
        }
        verdict
    }
}

fn prefix(kind: HolderKind) -> &'static str {
    match kind {
        HolderKind::Pod => "PodResourceClaim",
        HolderKind::PodGroup => "PodGroupResourceClaim",
    }
}

/// Whether a template asks for admin access, for the label of a failed creation.
fn admin_access(template: &TemplateFacts) -> bool {
    let Some(spec) = &template.spec else { return false };
    let claim = serde_json::from_str::<wire::ResourceClaim>(&format!(r#"{{"spec":{}}}"#, spec.get()));
    claim.is_ok_and(|claim| claim.admin_access())
}
