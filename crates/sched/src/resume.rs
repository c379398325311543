//! Positions at which later sequences are likely to continue.

use std::cmp::Reverse;

/// Messages of a prompt whose ends are remembered: the last ones.
const MAX_MARKS: usize = 8;
/// Tokens by which a template begins an answer, at most.
const BEGINNING: usize = 64;

/// Where sequences that begin like this one are likely to differ from it: there the state is worth
/// a snapshot, and rows with a window are worth keeping.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResumePoints {
    /// Ends of messages, the last position of the prompt, and where others wait, ascending.
    marks: Vec<usize>,
    /// Where the sequence leaves a known chain; 0 if it shares none.
    branch: usize,
    /// The last of them in the prompt.
    end: usize,
    /// Positions between regular ones before that; 0 for none.
    every: usize,
}

impl ResumePoints {
    /// The points of a prompt of `prompt` tokens whose messages end at `marks`, at most `most`, and
    /// one every `every` positions before the last of them.
    pub fn new(mut marks: Vec<usize>, prompt: usize, every: usize, most: usize) -> Self {
        let last = prompt - 1;
        marks.retain(|&mark| mark < last);
        marks.sort_unstable_by_key(|&mark| Reverse(mark));
        marks.dedup();
        marks.truncate(MAX_MARKS);
        // A message that ends close before the last token serves both the same prompt and one
        // that differs after the message.
        let first = marks.first().is_some_and(|&mark| last - mark <= BEGINNING);
        marks.insert(usize::from(first), last);
        marks.truncate(most);
        marks.retain(|&mark| mark > 0);
        marks.sort_unstable();
        let end = marks.last().copied().unwrap_or_default();
        Self { marks, branch: 0, end, every }
    }

    /// Adds a position from which a sequence that waits is going to continue.
    pub fn add(&mut self, position: usize) {
        if let Err(index) = self.marks.binary_search(&position) {
            self.marks.insert(index, position);
        }
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
        let regular = regular.filter(|&regular| regular < self.end);
        [mark, branch, regular].into_iter().flatten().min()
    }

    /// Blocks of `block` positions that need not be computed again thanks to what is kept at
    /// `point`: all before it, or at a regular position those since the regular one before.
    pub fn depth(&self, point: usize, block: usize) -> usize {
        let is_own = self.branch == point || self.marks.contains(&point);
        if is_own { point / block } else { point.min(self.every) / block }
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
        let mut points = ResumePoints::new(vec![9, 3, 0, 30, 9, 19], 20, 8, 9);
        let all = |points: &ResumePoints| points.between(0, 100).collect::<Vec<_>>();
        assert_eq!(all(&points), [3, 8, 9, 16, 19]);
        points.branch_at(25);
        assert_eq!(all(&points), [3, 8, 9, 16, 19, 25]);
        assert_eq!(points.between(8, 19).collect::<Vec<_>>(), [9, 16, 19]);
        assert_eq!(points.after(25), None);
        [12, 12, 3].into_iter().for_each(|position| points.add(position));
        assert_eq!(all(&points), [3, 8, 9, 12, 16, 19, 25]);
        // Without the regular position before it, and without anything.
        assert_eq!([16, 19].map(|point| points.depth(point, 4)), [2, 4]);
        assert_eq!(all(&ResumePoints::new(Vec::new(), 1, 0, 9)), [0; 0]);
    }

    #[test]
    fn the_last_marks_are_kept() {
        let points = |end, most| {
            let points = ResumePoints::new((1..=end).collect(), 200, 0, most);
            points.between(0, 200).collect::<Vec<_>>()
        };
        assert_eq!(points(99, 100), [92, 93, 94, 95, 96, 97, 98, 99, 199]);
        assert_eq!(points(99, 3), [98, 99, 199]);
        // Alone, the end of a message close before the last token is better than that.
        assert_eq!([points(99, 1), points(190, 1), points(190, 0)], [vec![199], vec![190], vec![]]);
        assert_eq!(points(190, 2), [190, 199]);
    }
}
