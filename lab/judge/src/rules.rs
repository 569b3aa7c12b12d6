//! The shipped alert rules, as a run of minutes needs them.

/// The shipped rules with seconds in place of minutes, so that an alert for an hour fires after a minute. The file writes
/// every time in minutes: in `for` and ranges as `15m`, and ages as `15 * 60`.
///
/// # Errors
/// Never: the pattern is a constant.
pub fn in_seconds(rules: &str) -> anyhow::Result<String> {
    let time = regex::Regex::new(r"(for: |\[)(\d+)m")?;
    Ok(time.replace_all(rules, "${1}${2}s").replace(" * 60", " * 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_and_nothing_else_changes() {
        let rules = "expr: rate(x_total[10m]) > 3 * 60 and y{reason=\"5m\"} > 15\nfor: 5m\n";
        let fast = in_seconds(rules).expect("a pattern");
        assert_eq!(fast, "expr: rate(x_total[10s]) > 3 * 1 and y{reason=\"5m\"} > 15\nfor: 5s\n");
    }
}
