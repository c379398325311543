//! A plot of a run as SVG: times to first token over the run, and the distribution of inter-token
//! latencies.

use super::run::LoadRun;
use std::fmt::Write;

const PANEL: (f64, f64) = (420.0, 260.0);
const LEFT: f64 = 62.0;
const TOP: f64 = 62.0;
/// From one panel to the next.
const STRIDE: f64 = 510.0;
/// Maximum number of points of a panel; more are indistinguishable.
const MAX_POINTS: usize = 4000;

const STYLE: &str = "text{font:12px sans-serif;fill:#333}.title{font-size:14px}.end{text-anchor:end}\
    .mid{text-anchor:middle}.grid{stroke:#ddd}.frame{fill:none;stroke:#888}.dot{fill:#2563a8;\
    fill-opacity:.55}.bad{stroke:#c0392b;stroke-width:1.5}.red{fill:#c0392b}.line{fill:none;\
    stroke:#2563a8;stroke-width:1.8}";

/// The picture of a run.
pub(super) fn svg(run: &LoadRun, title: &str) -> String {
    let (width, height) = (LEFT + STRIDE + PANEL.0 + 30.0, TOP + PANEL.1 + 56.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\"><style>{STYLE}</style>\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    write_text(&mut text, "title", (LEFT, 24.0), title);
    first_tokens(&mut text, run);
    gaps(&mut text, run);
    text.push_str("</svg>\n");
    text
}

/// The time to first token of each request over the time it was sent.
fn first_tokens(text: &mut String, run: &LoadRun) {
    let points = || run.outcomes.iter().filter_map(|o| Some((o.at, o.result.as_ref().ok()?.first)));
    let failed = run.outcomes.iter().filter(|o| o.result.is_err()).map(|o| o.at);
    let failed: Vec<f64> = failed.collect();
    let last = run.outcomes.iter().map(|outcome| outcome.at).fold(0.0, f64::max);
    let slowest = points().map(|(_, first)| 1e3 * first).fold(0.0, f64::max);
    let panel = Panel { left: LEFT, x: Axis::linear(last), y: Axis::linear(slowest) };
    panel.frame(text, "time to first token, ms", "time since the first request, s");
    for &(at, first) in thinned(&points().collect::<Vec<_>>()) {
        let (x, y) = panel.place(at, 1e3 * first);
        let _ = writeln!(text, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }
    for &at in thinned(&failed) {
        let (x, y) = panel.place(at, 0.0);
        let _ = writeln!(text, "<path class=\"bad\" d=\"M{x:.1} {y:.1}v-9\"/>");
    }
    if !failed.is_empty() {
        panel.note(text, &format!("{} failed", failed.len()));
    }
}

/// The cumulative distribution of inter-token latencies in milliseconds.
fn gaps(text: &mut String, run: &LoadRun) {
    let answers = run.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    let mut gaps: Vec<f64> =
        answers.flat_map(|answer| &answer.gaps).map(|&gap| 1e3 * f64::from(gap)).collect();
    gaps.sort_by(f64::total_cmp);
    let [least, most] = [gaps.first().unwrap_or(&1.0), gaps.last().unwrap_or(&10.0)];
    let x = Axis::logarithmic(*least, *most);
    let panel = Panel { left: LEFT + STRIDE, x, y: Axis::linear(100.0) };
    panel.frame(text, "cumulative share of inter-token latencies, %", "inter-token latency, ms");
    let all = gaps.len() as f64;
    let steps: Vec<(f64, f64)> =
        gaps.iter().enumerate().map(|(at, &gap)| (gap, 100.0 * (at + 1) as f64 / all)).collect();
    let places = thinned(&steps).chain(steps.last()).map(|&(gap, share)| {
        let (x, y) = panel.place(gap, share);
        format!("{x:.1},{y:.1} ")
    });
    let _ = writeln!(text, "<polyline class=\"line\" points=\"{}\"/>", places.collect::<String>());
    if gaps.is_empty() {
        panel.note(text, "no gaps");
    }
}

/// Evenly spaced elements, at most [`MAX_POINTS`].
fn thinned<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(MAX_POINTS).max(1))
}

/// One coordinate of a panel.
struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// From 0 to a round number of at least `most`.
    fn linear(most: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let power = 10f64.powf((most / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| most / step <= 5.0).unwrap_or(10.0 * power);
        let count = (most / step - 1e-9).ceil();
        let ticks = (0..=count as usize).map(|tick| tick as f64 * step).collect();
        Self { least: 0.0, most: count * step, logarithmic: false, ticks }
    }

    /// Powers of ten around the values.
    fn logarithmic(least: f64, most: f64) -> Self {
        // Events of one packet have no measurable gap.
        let least = least.max(0.01).log10().floor() as i32;
        let most = (most.max(0.01).log10().ceil() as i32).max(least + 1);
        let ticks: Vec<f64> = (least..=most).map(|power| 10f64.powi(power)).collect();
        Self { least: ticks[0], most: 10f64.powi(most), logarithmic: true, ticks }
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let place = match self.logarithmic {
            true => (value / self.least).log10() / (self.most / self.least).log10(),
            false => (value - self.least) / (self.most - self.least),
        };
        place.clamp(0.0, 1.0)
    }
}

/// A frame with two axes.
struct Panel {
    left: f64,
    x: Axis,
    y: Axis,
}

impl Panel {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + PANEL.0 * self.x.place(x), TOP + PANEL.1 * (1.0 - self.y.place(y)))
    }

    fn frame(&self, text: &mut String, title: &str, label: &str) {
        let (left, (width, height)) = (self.left, PANEL);
        let bottom = TOP + height;
        write_text(text, "start", (left, TOP - 10.0), title);
        for &tick in &self.y.ticks {
            let (_, y) = self.place(self.x.least, tick);
            let _ = writeln!(text, "<path class=\"grid\" d=\"M{left} {y:.1}h{width}\"/>");
            write_text(text, "end", (left - 6.0, y + 4.0), &number(tick));
        }
        for &tick in &self.x.ticks {
            let (x, _) = self.place(tick, self.y.least);
            let _ = writeln!(text, "<path class=\"grid\" d=\"M{x:.1} {TOP}v{height}\"/>");
            write_text(text, "mid", (x, bottom + 18.0), &number(tick));
        }
        let _ = writeln!(
            text,
            "<rect class=\"frame\" x=\"{left}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\"/>"
        );
        write_text(text, "mid", (left + width / 2.0, bottom + 40.0), label);
    }

    /// A note in the upper corner.
    fn note(&self, text: &mut String, remark: &str) {
        write_text(text, "end red", (self.left + PANEL.0, TOP - 10.0), remark);
    }
}

fn write_text(out: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

/// The value of a tick without superfluous digits.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { (1.0 - value.abs().log10().floor()).max(0.0) };
    let text = format!("{value:.*}", digits as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured_answer::{MeasuredAnswer, RequestFailure};
    use super::super::run::{Outcome, RunEnd};
    use super::*;

    fn run(outcomes: Vec<Outcome>) -> LoadRun {
        LoadRun { outcomes, unfinished: 0, seconds: 1.0, ended: RunEnd::Done }
    }

    fn answered(at: f64, first: f64, gaps: &[f32]) -> Outcome {
        let answer = MeasuredAnswer { first, gaps: gaps.to_vec(), ..MeasuredAnswer::default() };
        Outcome { at, late: 0.0, result: Ok(answer) }
    }

    #[test]
    fn every_request_is_in_the_picture() {
        let failed = Outcome {
            at: 2.0,
            late: 0.0,
            result: Err(RequestFailure::new("timeout", "after 1 s")),
        };
        let outcomes = vec![answered(0.0, 0.1, &[0.01, 0.02]), answered(1.0, 0.2, &[0.5]), failed];
        let text = svg(&run(outcomes), "a < b & c");
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(text.contains("1 failed") && text.contains("a &lt; b &amp; c"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn an_empty_run_has_a_picture_too() {
        let text = svg(&run(Vec::new()), "nothing");
        assert!(text.contains("no gaps") && text.ends_with("</svg>\n"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn many_points_are_thinned() {
        let outcomes = (0..50_000).map(|at| answered(f64::from(at), 0.1, &[])).collect();
        let circles = svg(&run(outcomes), "many").matches("<circle").count();
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&circles), "{circles}");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let check = |most: f64, expected: &[f64]| {
            assert_eq!(Axis::linear(most).ticks, expected, "{most}");
        };
        check(100.0, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        check(230.0, &[0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        check(0.0, &[0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Axis::logarithmic(3.0, 700.0).ticks, [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn ticks_have_no_idle_digits() {
        for (value, expected) in
            [(0.0, "0"), (20.0, "20"), (0.25, "0.25"), (1e4, "10000"), (0.6000000000000001, "0.6")]
        {
            assert_eq!(number(value), expected);
        }
    }
}
