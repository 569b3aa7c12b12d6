//! The variable `device`.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use cel::ExecutionError;
use cel::common::traits::{self, Container, Indexer, Iterable, Sizer};
use cel::common::types::{CelBool, CelInt, CelList, CelMap, CelMapKey, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use dragoman_objects::{Attribute, Device, Name};
use dragoman_quantity::Quantity;

use super::types::{QuantityVal, SemverVal};

/// A device as an expression sees it. Its values are converted when the first expression reads
/// them.
#[derive(Debug)]
pub struct BoundDevice {
    driver: Name,
    device: Arc<Device>,
    value: OnceLock<Result<DeviceVal, Arc<str>>>,
}

impl BoundDevice {
    /// Binds a device of a driver.
    pub fn new(driver: Name, device: Arc<Device>) -> Self {
        Self { driver, device, value: OnceLock::new() }
    }

    pub(super) fn value(&self) -> Result<&DeviceVal, Arc<str>> {
        let value = self.value.get_or_init(|| DeviceVal::new(&self.driver, &self.device));
        value.as_ref().map_err(Arc::clone)
    }
}

static DEVICE: Type = Type::new_unspecified_type("kubernetes.DRADevice");

/// The value of `device`.
#[derive(Debug, Clone)]
pub(super) struct DeviceVal(Arc<Fields>);

#[derive(Debug)]
struct Fields {
    driver: CelString<'static>,
    attributes: Domains,
    capacity: Domains,
    allow_multiple_allocations: CelBool,
}

impl DeviceVal {
    fn new(driver: &str, device: &Device) -> Result<Self, Arc<str>> {
        let mut attributes: BTreeMap<&str, HashMap<CelMapKey<'static>, Box<dyn Val>>> = BTreeMap::new();
        // If an attribute has a qualified and an unqualified name, the qualified one counts, as for
        // constraints.
        let (with, without): (Vec<_>, Vec<_>) =
            device.attributes.iter().partition(|(name, _)| name.contains('/'));
        for (name, attribute) in with.into_iter().chain(without) {
            let value = value_of(attribute).map_err(|why| format!("attribute {name}: {why}"))?;
            let (domain, id) = qualified(name, driver);
            attributes.entry(domain).or_default().entry(id.to_owned().into()).or_insert(value);
        }
        let mut capacity: BTreeMap<&str, HashMap<CelMapKey<'static>, Box<dyn Val>>> = BTreeMap::new();
        for (name, amount) in &*device.capacity {
            let (domain, id) = qualified(name, driver);
            let value = Box::new(QuantityVal(amount.value));
            capacity.entry(domain).or_default().insert(id.to_owned().into(), value);
        }
        Ok(Self(Arc::new(Fields {
            driver: driver.to_owned().into(),
            attributes: Domains::new(attributes),
            capacity: Domains::new(capacity),
            allow_multiple_allocations: device.allow_multiple_allocations.into(),
        })))
    }

    fn field(&self, name: &str) -> Option<&(dyn Val + 'static)> {
        match name {
            "driver" => Some(&self.0.driver),
            "attributes" => Some(&self.0.attributes),
            "capacity" => Some(&self.0.capacity),
            "allowMultipleAllocations" => Some(&self.0.allow_multiple_allocations),
            _ => None,
        }
    }
}

/// Returns the domain and the id of a name. The domain of an unqualified name is the driver.
pub(crate) fn qualified<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn value_of(attribute: &Attribute) -> Result<Box<dyn Val>, String> {
    let version = |text: &Name| -> Result<SemverVal, String> {
        SemverVal::parse(text).map_err(|why| format!("parse semantic version: {why}"))
    };
    Ok(match attribute {
        Attribute::Int(number) => Box::new(CelInt::from(*number)),
        Attribute::Bool(truth) => Box::new(CelBool::from(*truth)),
        Attribute::String(text) => Box::new(CelString::from(text.to_string())),
        Attribute::Version(text) => Box::new(version(text)?),
        Attribute::Ints(numbers) => list(numbers.iter().map(|number| Box::new(CelInt::from(*number)) as _)),
        Attribute::Bools(truths) => list(truths.iter().map(|truth| Box::new(CelBool::from(*truth)) as _)),
        Attribute::Strings(texts) => {
            list(texts.iter().map(|text| Box::new(CelString::from(text.to_string())) as _))
        }
        Attribute::Versions(texts) => {
            let versions: Vec<SemverVal> = texts.iter().map(version).collect::<Result<_, _>>()?;
            list(versions.into_iter().map(|version| Box::new(version) as _))
        }
        Attribute::Unknown => return Err("unsupported attribute value".to_owned()),
    })
}

fn list(values: impl Iterator<Item = Box<dyn Val>>) -> Box<dyn Val> {
    Box::new(CelList::from(values.collect::<Vec<_>>()))
}

/// Returns the attribute that a value represents.
pub(super) fn attribute_of(value: &CowVal<'_, '_>) -> Option<Attribute> {
    if let Some(scalar) = scalar_of(value.as_ref()) {
        return Some(scalar);
    }
    let items = value.as_iterable().filter(|_| value.get_type().name() == "list")?;
    let mut items = items.iter();
    let (mut ints, mut bools, mut strings, mut versions, mut count) = (vec![], vec![], vec![], vec![], 0);
    while let Some(item) = items.next() {
        count += 1;
        match scalar_of(item)? {
            Attribute::Int(number) => ints.push(number),
            Attribute::Bool(truth) => bools.push(truth),
            Attribute::String(text) => strings.push(text),
            Attribute::Version(text) => versions.push(text),
            _ => return None,
        }
    }
    match count {
        0 => Some(Attribute::Strings(strings)),
        n if n == ints.len() => Some(Attribute::Ints(ints)),
        n if n == bools.len() => Some(Attribute::Bools(bools)),
        n if n == strings.len() => Some(Attribute::Strings(strings)),
        n if n == versions.len() => Some(Attribute::Versions(versions)),
        _ => None,
    }
}

fn scalar_of(value: &dyn Val) -> Option<Attribute> {
    if let Some(number) = value.downcast_ref::<CelInt>() {
        Some(Attribute::Int(*number.inner()))
    } else if let Some(truth) = value.downcast_ref::<CelBool>() {
        Some(Attribute::Bool(*truth.inner()))
    } else if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        Some(Attribute::String(text.inner().into()))
    } else {
        value.downcast_ref::<SemverVal>().map(|version| Attribute::Version(version.to_string().into()))
    }
}

impl Val for DeviceVal {
    fn get_type(&self) -> &Type {
        &DEVICE
    }

    fn cel_type() -> &'static Type {
        &DEVICE
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for DeviceVal {}

impl Indexer for DeviceVal {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = key.downcast_ref::<CelString<'_>>().map_or("", CelString::inner);
        self.field(name).map(CowVal::Borrowed).ok_or_else(|| no_such_key(name))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

fn no_such_key(name: &str) -> ExecutionError {
    ExecutionError::NoSuchKey(Arc::new(name.to_owned()))
}

/// Values by domain and id. An unknown domain is an empty map, not an error.
#[derive(Debug, Clone)]
struct Domains(Arc<ByDomain>);

#[derive(Debug)]
struct ByDomain {
    names: Vec<CelString<'static>>,
    domains: Vec<CelMap<'static>>,
    none: CelMap<'static>,
}

impl Domains {
    fn new(domains: BTreeMap<&str, HashMap<CelMapKey<'static>, Box<dyn Val>>>) -> Self {
        let none = CelMap::from(HashMap::new());
        let names = domains.keys().map(|name| CelString::from((*name).to_owned())).collect();
        let domains = domains.into_values().map(CelMap::from).collect();
        Self(Arc::new(ByDomain { names, domains, none }))
    }

    fn domain(&self, name: &str) -> Option<&CelMap<'static>> {
        let place = self.0.names.iter().position(|domain| domain.inner() == name)?;
        self.0.domains.get(place)
    }
}

impl Val for Domains {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Domains {}

impl Container for Domains {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(key.downcast_ref::<CelString<'_>>().is_some_and(|name| self.domain(name.inner()).is_some()))
    }
}

impl Indexer for Domains {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(name) = key.downcast_ref::<CelString<'_>>() else {
            return Err(ExecutionError::UnexpectedType {
                got: key.get_type().name().to_owned(),
                want: "string".to_owned(),
            });
        };
        Ok(CowVal::Borrowed(self.domain(name.inner()).unwrap_or(&self.0.none)))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

struct Names<'b>(std::slice::Iter<'b, CelString<'static>>);

impl<'b, 'v> traits::Iterator<'b, 'v> for Names<'b> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|name| name as &dyn Val)
    }
}

impl Iterable for Domains {
    fn iter<'b, 'v>(&'b self) -> Box<dyn traits::Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Names(self.0.names.iter()))
    }
}

impl Sizer for Domains {
    fn size(&self) -> CelInt {
        i64::try_from(self.0.names.len()).unwrap_or(i64::MAX).into()
    }
}

/// Converts a capacity into the value that an expression sees.
impl From<Quantity> for QuantityVal {
    fn from(quantity: Quantity) -> Self {
        Self(quantity)
    }
}
