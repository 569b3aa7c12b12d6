//! The prepared claims of a Pod. Classes are looked up, selectors compiled and errors found once
//! for the Pod, not once for each node (docs/allocator.md 1.3).

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_objects::{
    AllocationMode, Class, Constraint, DerivedAttribute, Name, Request, Selector, SubRequest, Toleration,
};
use dragoman_quantity::Quantity;

use crate::error::{Object, PodError};
use crate::gates::Gates;
use crate::input::Claim;
use crate::selectors::{Derivation, Selectors};
use crate::snapshot::Snapshot;

/// The claims of a Pod, in the Pod's order, with the data that is needed of their classes.
#[derive(Debug, Clone)]
pub struct PodClaims(Arc<Prepared>);

#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) gates: Gates,
    pub(crate) classes_revision: u64,
    /// The claims without an allocation.
    pub(crate) wanted: Vec<PreparedClaim>,
    /// The claims with an allocation.
    pub(crate) fixed: Vec<Arc<Claim>>,
    /// The number of devices of every request, where it does not depend on the node.
    pub(crate) counts: Option<AllWanted>,
    /// Whether every solution is known to need a device that is not held exclusively. False with
    /// admin access, because such a request may take held devices.
    pub(crate) needs_a_device: bool,
    /// The attribute that all devices of the Pod have to share.
    pub(crate) aligned_by: Option<Name>,
    given: Vec<Arc<Claim>>,
}

#[derive(Debug)]
pub(crate) struct PreparedClaim {
    pub(crate) claim: Arc<Claim>,
    pub(crate) requests: Vec<PreparedRequest>,
    pub(crate) constraints: Vec<PreparedConstraint>,
    /// The first error of a constraint.
    pub(crate) error: Option<PodError>,
}

#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) name: Name,
    /// Whether the request has `firstAvailable`.
    pub(crate) first_available: bool,
    pub(crate) asked: Vec<Asked>,
    /// The first error of the request.
    pub(crate) error: Option<PodError>,
}

/// The specification of a request or a sub-request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// `request` or `request/subrequest`.
    pub(crate) name: Name,
    /// The path of the field, for example `spec.devices.requests[0].exactly`.
    pub(crate) path: Name,
    pub(crate) class: Arc<Class>,
    /// The selectors of the class alone.
    of_class: Arc<Selectors>,
    pub(crate) selectors: Arc<Selectors>,
    pub(crate) all: bool,
    /// `count` of mode `ExactCount`.
    pub(crate) count: usize,
    pub(crate) admin: bool,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) capacity: Vec<(Name, Quantity)>,
    pub(crate) derived: Vec<(Name, Arc<Derivation>)>,
}

#[derive(Debug)]
pub(crate) struct PreparedConstraint {
    pub(crate) attribute: Name,
    pub(crate) distinct: bool,
    /// Names of requests (with all their sub-requests) or `request/subrequest`; empty: all
    /// requests.
    requests: Vec<Name>,
}

impl PreparedConstraint {
    /// Whether the constraint applies to a request or sub-request.
    pub(crate) fn covers(&self, request: &PreparedRequest, asked: &Asked) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| *name == request.name || *name == asked.name)
    }
}

/// The largest number of devices in one claim (`AllocationResultsMaxSize`).
pub(crate) const MOST_RESULTS: usize = 32;

/// The number of devices that a request or sub-request wants, and the devices themselves if it
/// wants all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) count: usize,
    pub(crate) all: Option<Vec<usize>>,
}

/// Indexed by claim, request and sub-request.
pub(crate) type AllWanted = Arc<[Vec<Vec<Wanted>>]>;

/// Returns the number of devices of every request. `None` if that depends on the node, or if a
/// claim has an error.
fn counts(claims: &[PreparedClaim]) -> Option<AllWanted> {
    let mut all = Vec::with_capacity(claims.len());
    for claim in claims {
        let requests = claim.requests.iter().map(|request| {
            let asked = request.asked.iter().filter(|_| request.error.is_none());
            let counts = asked.map(|asked| (!asked.all).then_some(Wanted { count: asked.count, all: None }));
            counts.collect::<Option<Vec<Wanted>>>().filter(|counts| !counts.is_empty())
        });
        let requests = requests.collect::<Option<Vec<_>>>()?;
        let least = |wanted: &Vec<Wanted>| wanted.iter().map(|wanted| wanted.count).min();
        let sum = requests.iter().filter_map(least).fold(0, usize::saturating_add);
        if claim.error.is_some() || sum > MOST_RESULTS {
            return None;
        }
        all.push(requests);
    }
    Some(all.into())
}

/// Whether some request wants a device in each of its alternatives, and no request has admin
/// access.
fn need_a_device(claims: &[PreparedClaim], counts: &AllWanted) -> bool {
    let asked = claims.iter().flat_map(|claim| &claim.requests).flat_map(|request| &request.asked);
    let mut wanted = counts.iter().flatten();
    !asked.into_iter().any(|asked| asked.admin) && wanted.any(|subs| subs.iter().all(|sub| sub.count > 0))
}

impl PodClaims {
    /// Prepares claims with the classes of a snapshot. A claim that has an allocation is not
    /// allocated again; its node selector limits the nodes of the Pod.
    pub fn new(snapshot: &Snapshot, claims: Vec<Arc<Claim>>, gates: Gates) -> Self {
        Self::aligned(snapshot, claims, gates, None)
    }

    /// The same, for a Pod whose devices have to share a value of the attribute `aligned_by`, over all its claims: a constraint
    /// `matchAttribute` of the API is about one claim. Devices with admin access are not meant.
    pub fn aligned(
        snapshot: &Snapshot,
        claims: Vec<Arc<Claim>>,
        gates: Gates,
        aligned_by: Option<Name>,
    ) -> Self {
        let (fixed, wanted): (Vec<_>, Vec<_>) =
            claims.iter().cloned().partition(|claim| claim.allocation.is_some());
        let preparing = Preparing { snapshot, gates: &gates };
        let wanted: Vec<PreparedClaim> = wanted.into_iter().map(|claim| preparing.claim(claim)).collect();
        let counts = counts(&wanted);
        Self(Arc::new(Prepared {
            needs_a_device: counts.as_ref().is_some_and(|counts| need_a_device(&wanted, counts)),
            counts,
            wanted,
            classes_revision: snapshot.classes_revision(),
            fixed,
            gates,
            aligned_by,
            given: claims,
        }))
    }

    /// Returns the first error that keeps the claims from every node, whatever devices there are: a class that is missing, a field that
    /// is not understood, a selector that does not compile. An error that only a device brings out is not among them.
    pub fn error(&self) -> Option<PodError> {
        self.0.wanted.iter().find_map(PreparedClaim::own_error)
    }

    /// The drivers whose devices the requests can get, alternatives included, where the selectors of their classes name them; `None` where
    /// a request may get devices of any driver. Selectors of requests are not read: a tenant may write many, and long ones.
    pub fn drivers(&self) -> Option<BTreeSet<Name>> {
        let requests = self.0.wanted.iter().flat_map(|claim| &claim.requests);
        requests.flat_map(|request| &request.asked).map(|asked| asked.of_class.driver().cloned()).collect()
    }

    /// Returns the same claims with the classes of another snapshot.
    pub(crate) fn in_snapshot(&self, snapshot: &Snapshot) -> Arc<Prepared> {
        if self.0.classes_revision == snapshot.classes_revision() {
            self.0.clone()
        } else {
            Self::aligned(snapshot, self.0.given.clone(), self.0.gates, self.0.aligned_by.clone()).0
        }
    }
}

impl PreparedClaim {
    fn own_error(&self) -> Option<PodError> {
        let of_request = |request: &PreparedRequest| {
            let broken = || request.asked.iter().find_map(|asked| asked.broken(&self.claim));
            request.error.clone().or_else(broken)
        };
        self.requests.iter().find_map(of_request).or_else(|| self.error.clone())
    }
}

impl Asked {
    /// The selector of the request or of its class that does not compile.
    fn broken(&self, claim: &Claim) -> Option<PodError> {
        let (is_of_request, number, why) = self.selectors.broken()?;
        let field = format!("selectors[{number}].cel.expression");
        Some(if is_of_request {
            let object = Object::Claim(claim.namespace.clone(), claim.name.clone());
            PodError::new(object, format!("{}.{field}", self.path), why)
        } else {
            PodError::new(Object::Class(self.class.name.clone()), format!("spec.{field}"), why)
        })
    }
}

struct Preparing<'a> {
    snapshot: &'a Snapshot,
    gates: &'a Gates,
}

type Problem = (String, String);

impl Preparing<'_> {
    fn claim(&self, claim: Arc<Claim>) -> PreparedClaim {
        let object = || Object::Claim(claim.namespace.clone(), claim.name.clone());
        let error = |(field, message): Problem| PodError::new(object(), field, message);
        let devices = &claim.devices;
        let requests = devices.requests.iter().enumerate().map(|(number, request)| {
            let path = format!("spec.devices.requests[{number}]");
            let prepared = self.request(request, &path);
            let (asked, problem) = match prepared {
                Ok(asked) => (asked, None),
                Err(problem) => (Vec::new(), Some(error(problem))),
            };
            let first_available = !request.first_available.is_empty();
            PreparedRequest { name: request.name.clone(), first_available, asked, error: problem }
        });
        let requests = requests.collect();
        let mut constraints = Vec::new();
        let unreadable = devices.unreadable.as_ref();
        let mut problem = unreadable.map(|why| error(("spec".to_owned(), why.to_string())));
        for (number, constraint) in devices.constraints.iter().enumerate() {
            match prepared(constraint) {
                Ok(constraint) => constraints.push(constraint),
                Err(message) => {
                    let path = format!("spec.devices.constraints[{number}]");
                    problem.get_or_insert_with(|| error((path, message)));
                }
            }
        }
        PreparedClaim { requests, constraints, error: problem, claim }
    }

    fn request(&self, request: &Request, path: &str) -> Result<Vec<Asked>, Problem> {
        if let Some(why) = &request.unreadable {
            return Err((path.to_owned(), format!("request {}: {why}", request.name)));
        }
        if let Some(exactly) = &request.exactly {
            let path = format!("{path}.exactly");
            if exactly.admin_access.is_some() && !self.gates.admin_access {
                return Err((
                    format!("{path}.adminAccess"),
                    format!(
                        "request {}: admin access is requested, but the feature is disabled",
                        request.name
                    ),
                ));
            }
            let admin = exactly.admin_access == Some(true);
            let asked = self.asked(&exactly.asked, request.name.clone(), admin, &path)?;
            return Ok(vec![asked]);
        }
        if request.first_available.is_empty() {
            let message = format!("request {}: empty request (unsupported request type?)", request.name);
            return Err((path.to_owned(), message));
        }
        if !self.gates.prioritized_list {
            let message = format!(
                "request {} has subrequests, but the DRAPrioritizedList feature is disabled",
                request.name
            );
            return Err((format!("{path}.firstAvailable"), message));
        }
        let asked = request.first_available.iter().enumerate().map(|(number, sub)| {
            let name = format!("{}/{}", request.name, sub.name).into();
            self.asked(sub, name, false, &format!("{path}.firstAvailable[{number}]"))
        });
        asked.collect()
    }

    fn asked(&self, asked: &SubRequest, name: Name, admin: bool, path: &str) -> Result<Asked, Problem> {
        let at =
            |field: &str, why: String| Err((format!("{path}.{field}"), format!("request {name}: {why}")));
        if asked.capacity.is_some() && !self.gates.consumable_capacity {
            let why = "has capacity requests, but the DRAConsumableCapacity feature is disabled";
            return at("capacity", why.to_owned());
        }
        if !asked.derived_attributes.is_empty() && !self.gates.derived_attributes {
            let why = "has derived attributes, but the DRADerivedAttributes feature is disabled";
            return at("derivedAttributes", why.to_owned());
        }
        if let Some(number) = asked.selectors.iter().position(|selector| selector.cel.is_none()) {
            let why = "CEL expression empty (unsupported selector type?)".to_owned();
            return at(&format!("selectors[{number}]"), why);
        }
        if asked.device_class_name.is_empty() {
            return at("deviceClassName", "missing device class name (unsupported request type?)".to_owned());
        }
        let Some(class) = self.snapshot.class(&asked.device_class_name) else {
            let why = format!("could not retrieve device class {}", asked.device_class_name);
            return at("deviceClassName", why);
        };
        if let Some(why) = &class.unreadable {
            return at("deviceClassName", format!("device class {}: {why}", asked.device_class_name));
        }
        let all = match &asked.allocation_mode {
            AllocationMode::All => true,
            AllocationMode::ExactCount => false,
            AllocationMode::Unknown(mode) => {
                return at("allocationMode", format!("unsupported count mode {mode}"));
            }
        };
        // No API server stores it; a file may have it.
        if asked.count < 0 && !all {
            return at("count", format!("count is {}, which is no number of devices", asked.count));
        }
        let expressions = |selectors: &[Selector]| -> Vec<Name> {
            selectors.iter().map(|selector| selector.expression().into()).collect()
        };
        let interned = self.snapshot.interned();
        let selectors = interned.selectors(expressions(&class.selectors), expressions(&asked.selectors));
        let derived =
            |derived: &DerivedAttribute| (derived.name.clone(), interned.derivation(&derived.expression));
        Ok(Asked {
            class: class.clone(),
            of_class: interned.selectors(expressions(&class.selectors), Vec::new()),
            selectors,
            all,
            count: usize::try_from(asked.count).unwrap_or_default(),
            admin,
            tolerations: asked.tolerations.clone(),
            capacity: asked.capacity.iter().flat_map(|capacity| capacity.requests.clone()).collect(),
            derived: asked.derived_attributes.iter().map(derived).collect(),
            path: path.into(),
            name,
        })
    }
}

fn prepared(constraint: &Constraint) -> Result<PreparedConstraint, String> {
    let attribute = constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref());
    Ok(PreparedConstraint {
        attribute: attribute.ok_or("empty constraint (unsupported constraint type?)")?.clone(),
        distinct: constraint.match_attribute.is_none(),
        requests: constraint.requests.clone(),
    })
}
