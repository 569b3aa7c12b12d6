//! Messages of protobuf as the fields that they consist of. What is not changed keeps its bytes, known here or not.
//!
//! The field numbers are those of the struct tags in `k8s.io/api` and `k8s.io/apimachinery`.

/// First bytes of every object of Kubernetes in protobuf.
pub(crate) const MAGIC: &[u8] = b"k8s\0";
/// The number of the field with the object, in the envelope that follows.
pub(crate) const RAW: u64 = 2;

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message(Vec<Field>);

/// A field: its number, its bytes with the tag, and where its content begins. Fields of a fixed size and numbers have no content.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    number: u64,
    bytes: Vec<u8>,
    content: Option<usize>,
}

/// The wire type of what has a length: texts, bytes, and messages.
const LENGTH_DELIMITED: u64 = 2;

impl Field {
    fn new(number: u64, content: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(content.len() + 11);
        put_varint(&mut bytes, (number << 3) | LENGTH_DELIMITED);
        put_varint(&mut bytes, content.len() as u64);
        let begins = bytes.len();
        bytes.extend_from_slice(content);
        Self { number, bytes, content: Some(begins) }
    }

    fn content(&self) -> Option<&[u8]> {
        self.bytes.get(self.content?..)
    }
}

impl Message {
    /// Splits a message into its fields; `None` if the bytes are no message.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut fields, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let whole = rest;
            let tag = take_varint(&mut rest)?;
            let content = match tag & 7 {
                0 => {
                    take_varint(&mut rest)?;
                    None
                }
                1 => {
                    skip(&mut rest, 8)?;
                    None
                }
                LENGTH_DELIMITED => {
                    let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                    let begins = whole.len() - rest.len();
                    skip(&mut rest, length)?;
                    Some(begins)
                }
                5 => {
                    skip(&mut rest, 4)?;
                    None
                }
                _ => return None,
            };
            let bytes = whole.get(..whole.len() - rest.len())?.to_vec();
            fields.push(Field { number: tag >> 3, bytes, content });
        }
        Some(Self(fields))
    }

    /// The bytes of the message.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|field| &field.bytes).copied().collect()
    }

    /// The contents of the fields of this number, in their order.
    pub(crate) fn all(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |field| field.number == number).filter_map(Field::content)
    }

    /// The content of a field that is there once. Of several the last counts, as for every reader of protobuf.
    pub(crate) fn one(&self, number: u64) -> Option<&[u8]> {
        self.all(number).last()
    }

    /// The message in a field that is there once; an empty one where it is not.
    pub(crate) fn message(&self, number: u64) -> Option<Self> {
        self.one(number).map_or_else(|| Some(Self::default()), Self::read)
    }

    /// Adds a field behind the others.
    pub(crate) fn add(&mut self, number: u64, content: &[u8]) {
        self.0.push(Field::new(number, content));
    }

    /// Sets a field that is there once.
    pub(crate) fn set(&mut self, number: u64, content: &[u8]) {
        self.remove_all(number);
        self.add(number, content);
    }

    /// Removes the fields of this number.
    pub(crate) fn remove_all(&mut self, number: u64) {
        self.0.retain(|field| field.number != number);
    }

    /// Removes the field of this number at a position among those; `None` if there is none.
    pub(crate) fn remove(&mut self, number: u64, position: usize) -> Option<()> {
        let mut of_number = self.0.iter().enumerate().filter(|(_, field)| field.number == number);
        let (at, _) = of_number.nth(position)?;
        self.0.remove(at);
        Some(())
    }

    /// Removes the fields of this number whose content satisfies a condition.
    pub(crate) fn remove_where(&mut self, number: u64, is_so: impl Fn(&[u8]) -> bool) {
        self.0.retain(|field| field.number != number || !field.content().is_some_and(&is_so));
    }
}

fn skip(bytes: &mut &[u8], length: usize) -> Option<()> {
    *bytes = bytes.get(length..)?;
    Some(())
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return bytes.push(low & 0x7f);
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_keeps_its_bytes() {
        // 1: a text; 2: 300; 3: eight bytes; 4: four bytes; 1: another text.
        let bytes = b"\x0a\x03one\x10\xac\x02\x19abcdefgh\x25wxyz\x0a\x03two";
        let mut message = Message::read(bytes).expect("a message");
        assert_eq!(message.bytes(), bytes);
        assert_eq!(message.all(1).collect::<Vec<_>>(), [b"one", b"two"]);
        assert_eq!((message.one(1), message.one(2), message.one(9)), (Some(&b"two"[..]), None, None));
        message.remove(1, 0).expect("it is there");
        assert_eq!(message.remove(1, 1), None);
        message.set(200, &[7; 300]);
        let again = Message::read(&message.bytes()).expect("a message");
        assert_eq!((again.one(200), again.one(1)), (Some(&[7; 300][..]), Some(&b"two"[..])));
        assert_eq!(again, message);
    }

    #[test]
    fn what_is_cut_off_or_made_up_is_no_message() {
        let bytes = b"\x0a\x03one\x10\xac\x02\x19abcdefgh\x25wxyz";
        let whole: Vec<usize> =
            (0..=bytes.len()).filter(|end| Message::read(&bytes[..*end]).is_some()).collect();
        assert_eq!(whole, [0, 5, 8, 17, 22]);
        for hostile in [&b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], &[0xff; 40], b"\x0b", b"\x0e"] {
            assert_eq!(Message::read(hostile), None, "{hostile:?}");
        }
    }
}
