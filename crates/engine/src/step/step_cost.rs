//! The time of a step without prompts, by its number of rows.
//!
//! It is no line: products take rows in panels of a few widths, and on a GPU a few rows more are
//! free. So each number of rows has a mean of its own, of the time over that of other steps of the
//! same minutes: contexts grow and other programs come and go, which changes the time of all steps
//! alike. The times between are interpolated.

use std::time::Duration;

/// Most rows that have a mean.
const MAX_ROWS: usize = 32;
/// Numbers of rows that are measured before there are requests, those first that say most.
pub(crate) const MEASURED: [usize; 10] = [1, 2, 4, 8, 3, 6, 5, 12, 9, 17];
/// Part of a new time in the means of its number of rows, and in the pace of all steps.
const NEW: f64 = 0.1;
const NEW_PACE: f64 = 0.2;
/// What a row is assumed to add to the time of a step of one row, before any measurement.
const ASSUMED: f64 = 0.25;
/// A step that takes this factor of what it should was held up.
const HELD_UP: f64 = 3.0;

/// The times of the steps so far.
#[derive(Clone, Debug)]
pub(crate) struct StepCost {
    /// Seconds by number of rows, at the pace of 1; 0 where none is known.
    means: [f64; MAX_ROWS + 1],
    /// Time of the latest steps over what the means say.
    pace: f64,
}

impl StepCost {
    pub fn new() -> Self {
        Self { means: [0.0; MAX_ROWS + 1], pace: 1.0 }
    }

    /// Sets the time of a step of `rows` rows that was measured, unless a shorter one was.
    pub fn measure(&mut self, rows: usize, took: Duration) {
        if let Some(mean) = self.means.get_mut(rows) {
            let shorter = if *mean == 0.0 { f64::INFINITY } else { *mean };
            *mean = took.as_secs_f64().min(shorter);
        }
    }

    /// Records the time of a step of `rows` rows of sequences that decode.
    pub fn observe(&mut self, rows: usize, took: Duration) {
        if !(1..=MAX_ROWS).contains(&rows) {
            return;
        }
        let seconds = took.as_secs_f64();
        if self.means.iter().all(|mean| *mean == 0.0) {
            self.means[rows] = seconds;
            return;
        }
        let expected = self.pace * self.mean(rows);
        let ratio = (seconds / expected).clamp(1.0 / HELD_UP, HELD_UP);
        // The first time of a number of rows is better than what was assumed of it.
        let new = if self.means[rows] == 0.0 { 1.0 } else { NEW };
        self.means[rows] = self.mean(rows) * (1.0 + new * (ratio - 1.0));
        self.pace *= 1.0 + NEW_PACE * (1.0 - new) * (ratio - 1.0);
    }

    /// Seconds of a step of `rows` rows; of no known unit before the first step.
    pub fn seconds(&self, rows: usize) -> f64 {
        self.pace * self.mean(rows)
    }

    /// The same, if any step was measured.
    pub fn known_seconds(&self, rows: usize) -> Option<f64> {
        let is_known = self.means.iter().any(|mean| *mean > 0.0);
        is_known.then(|| self.seconds(rows))
    }

    /// The mean of `rows` rows, interpolated, or continued from the largest known.
    fn mean(&self, rows: usize) -> f64 {
        let known = |rows: &usize| self.means[*rows] > 0.0;
        let below = (1..=rows.min(MAX_ROWS)).rev().find(known);
        let above = (rows..=MAX_ROWS).find(known);
        match (below, above) {
            (Some(below), Some(above)) if below < above => {
                let part = (rows - below) as f64 / (above - below) as f64;
                self.means[below] + part * (self.means[above] - self.means[below])
            }
            (Some(same), Some(_)) => self.means[same],
            (Some(below), None) => {
                let row = self.row_after(below);
                self.means[below] + row * (rows - below) as f64
            }
            (None, Some(above)) => self.means[above] * assumed(rows) / assumed(above),
            (None, None) => assumed(rows),
        }
    }

    /// Seconds of a row after the largest number of rows that is known.
    fn row_after(&self, known: usize) -> f64 {
        let one = self.means[known] / assumed(known);
        match (1..known).find(|rows| self.means[*rows] > 0.0) {
            None => ASSUMED * one,
            Some(least) => {
                ((self.means[known] - self.means[least]) / (known - least) as f64).max(0.0)
            }
        }
    }
}

fn assumed(rows: usize) -> f64 {
    1.0 + ASSUMED * (rows as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// Milliseconds of a step of `rows` rows.
    fn check(cost: &StepCost, rows: usize, wanted: f64) {
        let found = 1e3 * cost.seconds(rows);
        assert!((found - wanted).abs() < 0.02 * wanted, "{rows} rows: {found} for {wanted}");
    }

    #[test]
    fn times_are_interpolated_and_continued() {
        let mut cost = StepCost::new();
        assert_eq!(cost.seconds(5) / cost.seconds(1), assumed(5));
        assert_eq!(cost.known_seconds(1), None);
        for (rows, time) in [(1, 10.0), (1, 12.0), (2, 11.0), (4, 11.0), (8, 19.0), (17, 37.0)] {
            cost.measure(rows, ms(time));
        }
        for (rows, wanted) in [(1, 10.0), (3, 11.0), (6, 15.0), (17, 37.0), (33, 64.0)] {
            check(&cost, rows, wanted);
        }
        assert_eq!(cost.known_seconds(3), Some(cost.seconds(3)));
    }

    #[test]
    fn a_machine_that_becomes_slower_is_slower_for_all_rows() {
        let mut cost = StepCost::new();
        for (rows, time) in [(1, 10.0), (2, 12.0), (4, 16.0), (8, 24.0)] {
            cost.measure(rows, ms(time));
        }
        for step in 0..60 {
            let rows = [1, 1, 1, 2][step % 4];
            cost.observe(rows, ms(1.4 * (8.0 + 2.0 * rows as f64)));
        }
        // One was held up by something else.
        cost.observe(1, ms(5000.0));
        cost.observe(1, ms(14.0));
        for rows in [1, 2, 4, 8] {
            let ratio = cost.seconds(rows) / cost.seconds(1);
            let wanted = (8.0 + 2.0 * rows as f64) / 10.0;
            assert!((0.8..1.25).contains(&(ratio / wanted)), "{rows}: {ratio} for {wanted}");
        }
        for _ in 0..40 {
            cost.observe(1, ms(14.0));
        }
        check(&cost, 1, 14.0);
    }

    #[test]
    fn what_was_not_measured_is_learnt() {
        let mut cost = StepCost::new();
        cost.observe(2, ms(20.0));
        check(&cost, 1, 16.0);
        for _ in 0..100 {
            cost.observe(1, ms(10.0));
            cost.observe(4, ms(100.0));
            cost.observe(100, ms(1.0));
        }
        check(&cost, 1, 10.0);
        check(&cost, 4, 100.0);
    }
}
