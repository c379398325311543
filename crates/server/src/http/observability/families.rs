//! Texts of several registries as one: each family of metrics comes once, with the samples of all.
//!
//! Source: OpenMetrics 1.0, "MetricFamily": the lines of a family are not interleaved with others.

/// The line with which a text ends.
const END: &str = "# EOF\n";

/// The families of all `texts`, in the order in which they first come.
pub(super) fn merged(texts: &[String]) -> String {
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
    let lines = families.iter().flat_map(|family| family.head.iter().chain(&family.samples));
    lines.copied().chain([END]).collect()
}

/// The description of a family, and its samples.
struct Family<'a> {
    head: Vec<&'a str>,
    samples: Vec<&'a str>,
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
        assert_eq!(merged(&texts.map(str::to_owned)), expected);
        assert_eq!(merged(&[]), "# EOF\n");
    }
}
