//! Base 64.

/// Encodes in base 64 with padding (RFC 4648).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| LETTERS.get((bits & 63) as usize).map_or('A', |letter| char::from(*letter));
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letters = [18, 12, 6, 0].map(|shift| letter(bits >> shift));
        let pad = 3 - chunk.len();
        text.extend(letters.iter().take(4 - pad));
        text.extend(std::iter::repeat_n('=', pad));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_padded() {
        for (text, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(super::base64(text.as_bytes()), encoded);
        }
    }
}
