//! Texts of several registries as one: each family of metrics comes once, with the samples of all.
//!
//! Source: OpenMetrics 1.0, "MetricFamily": the lines of a family are not interleaved with others.

/// The line with which a text ends.
const END: &str = "# EOF\n";

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The families of all `texts`, which are OpenMetrics, in the order in which they first come.
pub(super) fn merged(texts: &[String], form: Exposition) -> String {
    let mut families: Vec<Family<'_>> = Vec::new();
    for text in texts {
        let mut lines = text.split_inclusive('\n').filter(|line| *line != END).peekable();
        while lines.peek().is_some() {
            let head = take_while(&mut lines, |line| line.starts_with('#'));
            let samples = take_while(&mut lines, |line| !line.starts_with('#'));
            match families.iter_mut().find(|family| family.head == head) {
                Some(family) => family.samples.extend(samples),
                None => families.push(Family { head, samples }),
            }
        }
    }
    match form {
        Exposition::OpenMetrics => families.iter().map(Family::text).chain([END.into()]).collect(),
        Exposition::Prometheus => families.iter().map(Family::plain_text).collect(),
    }
}

/// The description of a family, and its samples.
struct Family<'a> {
    head: Vec<&'a str>,
    samples: Vec<&'a str>,
}

impl Family<'_> {
    /// The lines of OpenMetrics.
    fn text(&self) -> String {
        self.head.iter().chain(&self.samples).copied().collect()
    }

    /// The lines of the older format, which describes a counter under the name of its samples and
    /// knows no units.
    fn plain_text(&self) -> String {
        let described = |line: &&str| {
            let mut words = line.splitn(4, ' ');
            let [_, keyword, name, rest] =
                std::array::from_fn(|_| words.next().unwrap_or_default());
            let suffix = if self.is_counter() { "_total" } else { "" };
            (keyword != "UNIT").then(|| format!("# {keyword} {name}{suffix} {rest}"))
        };
        let head = self.head.iter().filter_map(described);
        head.chain(self.samples.iter().map(|&line| line.to_owned())).collect()
    }

    fn is_counter(&self) -> bool {
        let is_type = |line: &&str| line.starts_with("# TYPE ") && line.ends_with(" counter\n");
        self.head.iter().any(is_type)
    }
}

fn take_while<'a>(
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    belongs: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    std::iter::from_fn(|| lines.next_if(|line| belongs(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_come_together() {
        let texts = [
            "# HELP a x.\n# TYPE a counter\na_total{m=\"1\"} 1\n# TYPE b gauge\nb{m=\"1\"} 2\n# EOF\n",
            "# HELP a x.\n# TYPE a counter\na_total{m=\"2\"} 3\n# TYPE c gauge\nc 4\n# EOF\n",
        ];
        let expected = "# HELP a x.\n# TYPE a counter\na_total{m=\"1\"} 1\na_total{m=\"2\"} 3\n\
            # TYPE b gauge\nb{m=\"1\"} 2\n# TYPE c gauge\nc 4\n# EOF\n";
        let texts = texts.map(str::to_owned);
        assert_eq!(merged(&texts, Exposition::OpenMetrics), expected);
        assert_eq!(merged(&[], Exposition::OpenMetrics), "# EOF\n");
        let plain = "# HELP a_total x.\n# TYPE a_total counter\na_total{m=\"1\"} 1\na_total{m=\"2\"} 3\n\
            # TYPE b gauge\nb{m=\"1\"} 2\n# TYPE c gauge\nc 4\n";
        assert_eq!(merged(&texts, Exposition::Prometheus), plain);
        assert_eq!(merged(&[], Exposition::Prometheus), "");
    }
}
