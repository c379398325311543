//! Positions at which later sequences are likely to continue.

/// Messages of a prompt whose ends are remembered: the last ones.
const MAX_MARKS: usize = 8;

/// Where sequences that begin like this one are likely to differ from it: there the state is worth
/// a snapshot, and rows with a window are worth keeping.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResumePoints {
    /// Ends of messages, and the last position of the prompt, ascending.
    marks: Vec<usize>,
    /// Where the sequence leaves a chain that is known further than the sequence could use it; 0 if
    /// there is none.
    branch: usize,
    /// Tokens of the prompt.
    prompt: usize,
    /// Positions of a prompt between snapshots; 0 for none.
    every: usize,
}

impl ResumePoints {
    pub fn new(mut marks: Vec<usize>, prompt: usize, every: usize) -> Self {
        marks.retain(|&mark| mark > 0 && mark < prompt);
        marks.sort_unstable();
        marks.dedup();
        marks.drain(..marks.len().saturating_sub(MAX_MARKS));
        let last = prompt - 1;
        if last > 0 && marks.last() != Some(&last) {
            marks.push(last);
        }
        Self { marks, branch: 0, prompt, every }
    }

    /// Adds the position at which the sequence leaves a known chain.
    pub fn branch_at(&mut self, position: usize) {
        self.branch = position;
    }

    /// The first of the positions after `position`.
    pub fn after(&self, position: usize) -> Option<usize> {
        let mark = self.marks.iter().copied().find(|&mark| mark > position);
        let branch = Some(self.branch).filter(|&branch| branch > position);
        let regular = position.checked_div(self.every).map(|count| (count + 1) * self.every);
        let regular = regular.filter(|&regular| regular < self.prompt);
        [mark, branch, regular].into_iter().flatten().min()
    }

    /// The positions after `start`, up to `end`, ascending.
    pub fn between(&self, start: usize, end: usize) -> impl Iterator<Item = usize> {
        let points = std::iter::successors(self.after(start), |&point| self.after(point));
        points.take_while(move |&point| point <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_the_end_of_the_prompt_branches_and_regular_positions_are_points() {
        let mut points = ResumePoints::new(vec![9, 3, 0, 30, 9], 20, 8);
        let all = |points: &ResumePoints| points.between(0, 100).collect::<Vec<_>>();
        assert_eq!(all(&points), [3, 8, 9, 16, 19]);
        points.branch_at(25);
        assert_eq!(all(&points), [3, 8, 9, 16, 19, 25]);
        assert_eq!(points.between(8, 19).collect::<Vec<_>>(), [9, 16, 19]);
        assert_eq!(points.after(25), None);
        assert_eq!(all(&ResumePoints::new(Vec::new(), 1, 0)), [0; 0]);
    }

    #[test]
    fn the_last_marks_are_kept() {
        let points = ResumePoints::new((1..100).collect(), 200, 0);
        assert_eq!(points.between(0, 200).collect::<Vec<_>>()[..3], [92, 93, 94]);
        assert_eq!(points.between(0, 200).count(), MAX_MARKS + 1);
    }
}
