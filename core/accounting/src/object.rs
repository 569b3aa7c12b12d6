//! The Pods and claims that charges are about.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::Uid;

/// A reference to a Pod or a claim: the uid for programs; kind, namespace and name for people.
///
/// The uid says which object it is: two references are equal if their uids are, and they are
/// sorted by uid. All copies of a reference share one text.
#[derive(Clone, Default)]
pub struct ObjectRef {
    /// The uid, followed by `KIND NAMESPACE/NAME` where that is known. One text takes less memory
    /// than four pointers with a text each.
    text: Arc<str>,
    /// The length of the uid.
    uid: usize,
}

impl ObjectRef {
    /// Returns a reference to the object of this uid. One without a name has its uid only.
    pub fn new(kind: &str, namespace: &str, name: &str, uid: &str) -> Self {
        let text: Arc<str> =
            if name.is_empty() { uid.into() } else { [uid, kind, " ", namespace, "/", name].concat().into() };
        Self { text, uid: uid.len() }
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text.get(..self.uid).unwrap_or_default()
    }

    /// The kind; empty where only the uid is known.
    pub fn kind(&self) -> &str {
        self.names().0
    }

    /// `metadata.namespace`; empty where only the uid is known.
    pub fn namespace(&self) -> &str {
        self.names().1
    }

    /// `metadata.name`; empty where only the uid is known.
    pub fn name(&self) -> &str {
        self.names().2
    }

    /// `KIND NAMESPACE/NAME`.
    fn object(&self) -> &str {
        self.text.get(self.uid..).unwrap_or_default()
    }

    /// Kind, namespace and name: no kind has a space, and no namespace a slash.
    fn names(&self) -> (&str, &str, &str) {
        let (kind, names) = self.object().split_once(' ').unwrap_or_default();
        let (namespace, name) = names.split_once('/').unwrap_or_default();
        (kind, namespace, name)
    }
}

impl From<Uid> for ObjectRef {
    fn from(uid: Uid) -> Self {
        Self { uid: uid.len(), text: uid }
    }
}

impl From<&str> for ObjectRef {
    fn from(uid: &str) -> Self {
        Self::from(Uid::from(uid))
    }
}

impl PartialEq for ObjectRef {
    fn eq(&self, other: &Self) -> bool {
        self.uid() == other.uid()
    }
}

impl Eq for ObjectRef {}

impl PartialOrd for ObjectRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uid().cmp(other.uid())
    }
}

/// Maps are asked by uid.
impl Borrow<str> for ObjectRef {
    fn borrow(&self) -> &str {
        self.uid()
    }
}

/// `KIND NAMESPACE/NAME`, or the uid where the name is not known.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object();
        f.write_str(if object.is_empty() { self.uid() } else { object })
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.uid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_known_by_its_uid_and_printed_by_its_name() {
        let pod = ObjectRef::new("Pod", "ns", "web-0", "1234");
        assert_eq!((pod.uid(), pod.kind(), pod.namespace(), pod.name()), ("1234", "Pod", "ns", "web-0"));
        assert_eq!(
            (pod.to_string(), format!("{pod:?}")),
            ("Pod ns/web-0".into(), "Pod ns/web-0 (1234)".into())
        );
        assert_eq!(pod, ObjectRef::from("1234"));
        assert_ne!(pod, ObjectRef::new("Pod", "ns", "web-0", "5678"));
    }

    #[test]
    fn an_object_without_a_name_is_its_uid() {
        for unnamed in [ObjectRef::from("Pod ns/a"), ObjectRef::new("Pod", "", "", "Pod ns/a")] {
            assert_eq!((unnamed.uid(), unnamed.kind(), unnamed.name()), ("Pod ns/a", "", ""));
            assert_eq!(unnamed.to_string(), "Pod ns/a");
        }
    }
}
