//! The line of numbers below the editor.

use super::printable::printable;
use super::shown::TurnStatus;
use super::wrap::fitted;

/// What stands between the numbers.
const BETWEEN: &str = " · ";

/// The numbers in `width` cells: the most important ones, in a fixed order.
pub(super) fn line(status: &TurnStatus, is_working: bool, width: usize) -> String {
    let mut parts = parts(status, is_working);
    loop {
        let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
        let line = texts.join(BETWEEN);
        let least = parts.iter().enumerate().max_by_key(|(_, (rank, _))| *rank);
        match least {
            Some((at, _)) if parts.len() > 1 && line.chars().count() > width => {
                parts.remove(at);
            }
            _ => return fitted(&line, width),
        }
    }
}

/// The parts with their ranks: the highest is left out first.
fn parts(status: &TurnStatus, is_working: bool) -> Vec<(u8, String)> {
    let mut parts = Vec::new();
    if is_working {
        parts.push((0, "working".to_owned()));
    }
    if let Some((done, of)) = status.prefill {
        parts.push((2, format!("prefill {}/{}", short(done), short(of))));
    }
    if let Some(percent) = status.used.saturating_mul(100).checked_div(status.context) {
        let (used, context) = (short(status.used), short(status.context));
        parts.push((1, format!("{used}/{context} ({percent}%)")));
    }
    parts.push((6, format!("{} cached", short(status.cached))));
    parts.push((7, format!("{} computed", short(status.computed))));
    parts.push((8, format!("{} generated", short(status.generated))));
    if let Some(rate) = status.prefill_rate {
        parts.push((9, format!("prefill {rate:.0} tok/s")));
    }
    if let Some(rate) = status.rate {
        parts.push((3, format!("{rate:.1} tok/s")));
    }
    if status.jobs > 0 {
        parts.push((4, format!("{} job{}", status.jobs, if status.jobs == 1 { "" } else { "s" })));
    }
    for (rank, text) in [(5, &status.sandbox), (4, &status.mode)] {
        if !text.is_empty() {
            parts.push((rank, printable(text).replace('\n', " ")));
        }
    }
    parts
}

/// A count of tokens in at most five characters up to a billion.
fn short(count: usize) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..100_000 => format!("{}.{}k", count / 1000, count % 1000 / 100),
        100_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> TurnStatus {
        TurnStatus {
            context: 32_768,
            used: 12_345,
            cached: 1_000,
            computed: 345,
            generated: 99,
            prefill_rate: Some(512.4),
            rate: Some(41.27),
            prefill: Some((512, 2048)),
            jobs: 2,
            sandbox: "workspace".into(),
            mode: "plan".into(),
        }
    }

    #[test]
    fn all_numbers_stand_in_a_wide_line() {
        let expected = "working · prefill 512/2.0k · 12.3k/32.7k (37%) · 1.0k cached · \
                        345 computed · 99 generated · prefill 512 tok/s · 41.3 tok/s · \
                        2 jobs · workspace · plan";
        assert_eq!(line(&status(), true, 160), expected);
    }

    #[test]
    fn a_narrow_line_has_what_matters_most() {
        assert_eq!(line(&status(), true, 30), "working · 12.3k/32.7k (37%)");
        assert_eq!(line(&status(), false, 10), "12.3k/32.…");
        assert_eq!(line(&status(), false, 0), "");
        for width in 0..160 {
            assert!(line(&status(), true, width).chars().count() <= width);
        }
    }

    #[test]
    fn a_full_context_and_none_are_no_problem() {
        let full = TurnStatus { context: 1, used: usize::MAX, ..TurnStatus::default() };
        assert!(line(&full, false, 80).contains('%'));
        assert!(!line(&TurnStatus::default(), false, 80).contains('%'));
    }
}
