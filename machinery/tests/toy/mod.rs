//! The smallest controller: it writes the number of a Pod's claims into an annotation of the Pod.
//! CONTRIBUTING.md ("Add a controller") leads through it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_machinery::controller::{
    Controller, ControllerSpec, Index, Keeps, ObjectKey, Outcome, Place, Reconcile,
};
use dragoman_machinery::kind::{Kind, POD};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::rights::Rule;
use dragoman_machinery::watch::{Store, StoreState};
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::Pod;

pub const CLAIMS: &str = "toy.dragoman.dev/claims";

// 1. The index: what is kept of every object, and the keys that a change makes dirty.
#[derive(Default)]
pub struct Toy(Store<Facts>);

#[derive(Clone)]
pub struct Facts {
    guard: Guard,
    claims: usize,
    says: Option<String>,
}

impl Index for Toy {
    type Key = ObjectKey;
    type Whole = Self;
    fn stores(&self) -> impl Iterator<Item = (Kind, &dyn StoreState)> {
        std::iter::once((POD, &self.0 as &dyn StoreState))
    }
    fn all_keys(&self) -> Vec<ObjectKey> {
        ObjectKey::all(&self.0)
    }
}

impl Keeps<Pod> for Toy {
    type Projection = Facts;
    fn store_mut(&mut self) -> &mut Store<Facts> {
        &mut self.0
    }
    fn project(&mut self, Pod { metadata, spec, .. }: &Pod) -> Option<Facts> {
        let says = metadata.annotation(CLAIMS).map(ToString::to_string);
        Some(Facts { guard: Guard::of(metadata), claims: spec.resource_claims.len(), says })
    }
    fn changed(&mut self, pod: &Place, _old: Option<&Facts>, _new: Option<&Facts>) -> Vec<ObjectKey> {
        vec![pod.into()]
    }
}

// 2. The plan: a pure function from plain data to the next write, if there is one.
fn plan(ObjectKey { namespace, name }: &ObjectKey, index: &Toy) -> Option<Write> {
    let Facts { guard, claims, says } = index.0.get(namespace, name)?.readable()?;
    let wanted = Some(claims.to_string());
    let annotations = BTreeMap::from([(CLAIMS.to_owned(), wanted.clone())]);
    let action = Action::Merge { guard: guard.clone(), labels: BTreeMap::new(), annotations };
    (*says != wanted).then(|| Write::new(POD, &**namespace, &**name, action))
}

struct ClaimsOfPods(Arc<Controller<Toy>>);

impl Reconcile for ClaimsOfPods {
    type Index = Toy;
    fn controller(&self) -> &Arc<Controller<Toy>> {
        &self.0
    }
    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        self.0.send_one(key, self.0.read(|index| plan(key, index))).await
    }
}

// 3. The rights, declared beside the code that uses them.
const SEE: &[Rule] = &[Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "their claims" }];
const WRITE: &[Rule] = &[Rule { group: "", resource: "pods", verbs: &["patch"], why: "the number" }];

// 4. The row in the table of controllers.
pub fn spec() -> ControllerSpec {
    ControllerSpec {
        works: |mode| mode >= Mode::Assist,
        rights: |mode| match mode {
            Mode::Observe => SEE,
            Mode::Assist => WRITE,
            Mode::Own => &[],
        },
        ..ControllerSpec::new(
            "toy",
            Box::new(|assembly| {
                let kit = assembly.controller::<Toy>("toy", "toy");
                kit.watch::<Pod>(&mut assembly.watches);
                Arc::new(ClaimsOfPods(kit))
            }),
        )
    }
}
