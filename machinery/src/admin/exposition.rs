//! The two formats of `/metrics`, and which of them a request gets.
//!
//! The registry writes `OpenMetrics`. The older Prometheus text differs where `promtool` and old
//! scrapers look: a counter is described under the name of its samples, `info` and `unknown` do not
//! exist, and there is no end mark.

/// A format of `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// The format for a request with this `Accept` header. `OpenMetrics` is for those who name it;
    /// everything else, `*/*` included, gets the text that every scraper reads.
    pub fn of(accept: &str) -> Self {
        let weight = |name: &str| {
            let named = |range: &&str| range.split(';').next().is_some_and(|media| media.trim() == name);
            accept.split(',').filter(named).map(quality).fold(0.0, f64::max)
        };
        let wanted = weight(OPEN_METRICS);
        if wanted > 0.0 && wanted >= weight("text/plain") { Self::OpenMetrics } else { Self::Text }
    }

    /// The `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The weight of a media range; 1 without a `q`, 0 with one that is no number.
fn quality(range: &str) -> f64 {
    let parameter = |part: &str| part.trim().strip_prefix("q=").map(|q| q.trim().parse().unwrap_or(0.0));
    range.split(';').skip(1).find_map(parameter).unwrap_or(1.0)
}

/// Turns `OpenMetrics`, as the registry writes it, into Prometheus text. The help of a metric comes
/// before its type there, and there are no exemplars.
pub(super) fn prometheus_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 8);
    let mut help = "";
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_name_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            (OPEN_METRICS, Format::OpenMetrics),
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html, text/plain;q=0.9, */*", Format::Text),
            ("text/plain;version=0.0.4, application/openmetrics-text;q=0.5", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
        ] {
            assert_eq!(Format::of(accept), format, "{accept}");
        }
    }

    #[test]
    fn every_metric_is_described_under_the_name_of_its_samples() {
        let mut registry = Registry::default();
        let counters = Family::<Vec<(&'static str, &'static str)>, Counter>::default();
        counters.get_or_create(&vec![("kind", "Pod # {x}")]).inc();
        registry.register("lists", "Lists begun", counters);
        registry.register("depth", "Keys waiting", Gauge::<i64>::default());
        registry.register("took_seconds", "Seconds", Histogram::new([0.5]));
        let mut open_metrics = String::new();
        encode(&mut open_metrics, &registry).expect("encode");
        let expected = "# HELP lists_total Lists begun.\n# TYPE lists_total counter\n\
                        lists_total{kind=\"Pod # {x}\"} 1\n\
                        # HELP depth Keys waiting.\n# TYPE depth gauge\ndepth 0\n\
                        # HELP took_seconds Seconds.\n# TYPE took_seconds histogram\n\
                        took_seconds_sum 0.0\ntook_seconds_count 0\n\
                        took_seconds_bucket{le=\"0.5\"} 0\ntook_seconds_bucket{le=\"+Inf\"} 0\n";
        assert_eq!(prometheus_text(&open_metrics), expected);
    }
}
