//! Attributes of allocated devices, as text.

use std::collections::BTreeMap;

use dragoman_accounting::cluster::AllocatedDevice;
use dragoman_objects::Attribute;

use crate::protocol::shown;

/// The value of an attribute of a device. A name without a domain is in that of the driver.
///
/// # Errors
/// No slice has the device, the device has no such attribute, or the attribute is a list.
pub(crate) fn attribute(device: &AllocatedDevice<'_>, name: &str) -> Result<String, String> {
    let place = format!("{}/{}/{}", device.driver, device.pool, device.device);
    let Some(text) = device.attributes else { return Err(format!("no ResourceSlice has device {place}")) };
    let attributes: BTreeMap<&str, Attribute> = serde_json::from_str(text).unwrap_or_default();
    let own = format!("{}/", device.driver);
    let same = |known: &str| {
        known == name || known.strip_prefix(&own) == Some(name) || name.strip_prefix(&own) == Some(known)
    };
    match attributes.iter().find(|(known, _)| same(known)).map(|(_, value)| value) {
        Some(Attribute::String(text) | Attribute::Version(text)) => Ok(text.to_string()),
        Some(Attribute::Int(number)) => Ok(number.to_string()),
        Some(Attribute::Bool(is)) => Ok(is.to_string()),
        Some(_) => {
            Err(format!("attribute {} of device {place} is neither text, number nor yes or no", shown(name)))
        }
        None => Err(format!("device {place} has no attribute {}", shown(name))),
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
        let of = |name: &str| attribute(&device, name);
        assert_eq!(
            ["model", "lanes", "v", "ecc"].map(of).map(Result::unwrap_or_default),
            ["x", "4", "1.2.3", "true"]
        );
        assert_eq!(of("d.example/model"), Ok("x".to_owned()), "a name without a domain is the driver's");
        assert_eq!(of("other/model"), Err("device d.example/p/1 has no attribute other/model".to_owned()));
        assert!(of("odd").is_err_and(|why| why.contains("neither text")));
        let gone = AllocatedDevice { attributes: None, ..device };
        assert_eq!(attribute(&gone, "model"), Err("no ResourceSlice has device d.example/p/1".to_owned()));
    }
}
