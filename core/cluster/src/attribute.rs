//! Attributes of allocated devices, as text.

use std::collections::BTreeMap;

use dragoman_accounting::cluster::AllocatedDevice;
use dragoman_objects::Attribute;

use dragoman_crds::protocol::shown;

/// The attributes of a device, read once for several names.
pub struct Attributes<'a> {
    device: &'a AllocatedDevice<'a>,
    /// Nothing where no slice has the device.
    values: Option<BTreeMap<&'a str, Attribute>>,
}

impl<'a> Attributes<'a> {
    /// Reads the attributes of a device. Text that does not decode has none.
    pub fn of(device: &'a AllocatedDevice<'a>) -> Self {
        let read = |text| serde_json::from_str(text).unwrap_or_default();
        Self { device, values: device.attributes.map(read) }
    }

    /// The value of an attribute. A name without a domain is in that of the driver.
    ///
    /// # Errors
    /// No slice has the device, the device has no such attribute, or the attribute is a list.
    pub fn value(&self, name: &str) -> Result<String, String> {
        let AllocatedDevice { driver, pool, device, .. } = self.device;
        let place = format!("{driver}/{pool}/{device}");
        let Some(values) = &self.values else { return Err(format!("no ResourceSlice has device {place}")) };
        let own = format!("{driver}/");
        let same = |known: &str| {
            known == name || known.strip_prefix(&own) == Some(name) || name.strip_prefix(&own) == Some(known)
        };
        match values.iter().find(|(known, _)| same(known)).map(|(_, value)| value) {
            Some(Attribute::String(text) | Attribute::Version(text)) => Ok(text.to_string()),
            Some(Attribute::Int(number)) => Ok(number.to_string()),
            Some(Attribute::Bool(is)) => Ok(is.to_string()),
            Some(_) => Err(format!(
                "attribute {} of device {place} is neither text, number nor yes or no",
                shown(name)
            )),
            None => Err(format!("device {place} has no attribute {}", shown(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_texts_and_a_missing_one_names_device_and_attribute() {
        let attributes = r#"{"model": {"string": "x"}, "d.example/lanes": {"int": 4}, "v": {"version": "1.2.3"},
            "ecc": {"bool": true}, "odd": {"strings": ["a"]}}"#;
        let device =
            AllocatedDevice { driver: "d.example", pool: "p", device: "1", attributes: Some(attributes) };
        let of = |name: &str| Attributes::of(&device).value(name);
        assert_eq!(
            ["model", "lanes", "v", "ecc"].map(of).map(Result::unwrap_or_default),
            ["x", "4", "1.2.3", "true"]
        );
        assert_eq!(of("d.example/model"), Ok("x".to_owned()), "a name without a domain is the driver's");
        assert_eq!(of("other/model"), Err("device d.example/p/1 has no attribute other/model".to_owned()));
        assert!(of("odd").is_err_and(|why| why.contains("neither text")));
        let gone = AllocatedDevice { attributes: None, ..device };
        assert_eq!(
            Attributes::of(&gone).value("model"),
            Err("no ResourceSlice has device d.example/p/1".to_owned())
        );
    }
}
