//! Text of tenants on a terminal.

/// Text of objects without what a terminal would obey, or show in another order: tenants write names of gates, messages
/// and annotations.
pub fn printable(text: &str) -> String {
    let is_obeyed =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_obeyed(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn no_object_sends_commands_to_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\nc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}");
        assert_eq!(printable("a\u{202e}b"), "a\u{fffd}b");
    }
}
