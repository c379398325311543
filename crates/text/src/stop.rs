//! Stop strings in a stream of text pieces.
//!
//! Text is held back only while it may still become a stop string. The text before a stop string is
//! given out, the stop string and all text after it never. The output is the same for all ways to
//! cut the text into pieces.

/// Watches a text for the first of several stop strings.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

/// The result of one more piece of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopStep {
    /// Text that holds no part of a stop string.
    pub text: String,
    /// The index of the stop string that was found, if any.
    pub stopped: Option<usize>,
}

impl StopStrings {
    /// A matcher for `stops`; empty strings are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        StopStrings { stops: stops.into_iter().collect(), ..Self::default() }
    }

    /// Takes the next piece. After a stop string, all text is dropped.
    pub fn push(&mut self, piece: &str) -> StopStep {
        if self.stopped.is_some() {
            return StopStep { text: String::new(), stopped: self.stopped };
        }
        self.held.push_str(piece);
        let safe = match self.first_stop() {
            Some((at, index)) => {
                self.stopped = Some(index);
                at
            }
            None => self.held.len() - self.longest_possible_start(),
        };
        let rest = self.held.split_off(safe);
        let text = std::mem::replace(&mut self.held, rest);
        StopStep { text, stopped: self.stopped }
    }

    /// Takes the end and returns the text held back, unless a stop string was found.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if self.stopped.is_some() { String::new() } else { held }
    }

    /// Returns place and index of the stop string that is complete first; of several complete at
    /// the same place, the one that starts first.
    fn first_stop(&self) -> Option<(usize, usize)> {
        let stops = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let found = stops.filter_map(|(index, stop)| Some((self.held.find(stop)?, index)));
        found.min_by_key(|&(at, index)| (at + self.stops[index].len(), at))
    }

    /// Returns the length of the longest end of the held text that begins a stop string.
    fn longest_possible_start(&self) -> usize {
        let longest = |stop: &String| {
            let mut ends = stop.char_indices().rev().map(|(at, _)| at).filter(|&at| at > 0);
            ends.find(|&len| self.held.ends_with(&stop[..len])).unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut matcher = StopStrings::new(stops.iter().map(|s| s.to_string()));
        let mut text = String::new();
        let mut stopped = None;
        for piece in pieces {
            let step = matcher.push(piece);
            text.push_str(&step.text);
            stopped = step.stopped;
        }
        text.push_str(&matcher.finish());
        (text, stopped)
    }

    #[test]
    fn stop_string_across_pieces_is_held_back() {
        assert_eq!(run(&["STOP"], &["a S", "TO", "P b"]), ("a ".into(), Some(0)));
        assert_eq!(run(&["STOP"], &["a S", "TO"]), ("a STO".into(), None));
        assert_eq!(run(&["é!"], &["aé", "é!"]), ("aé".into(), Some(0)));
    }

    #[test]
    fn only_what_may_become_a_stop_is_held() {
        let mut matcher = StopStrings::new(["\n\nUser:".to_string()]);
        assert_eq!(matcher.push("line\n").text, "line");
        assert_eq!(matcher.push("next").text, "\nnext");
    }

    #[test]
    fn nothing_follows_a_stop() {
        assert_eq!(run(&["x", ""], &["axb", "c"]), ("a".into(), Some(0)));
    }

    #[test]
    fn the_stop_that_is_complete_first_wins() {
        assert_eq!(run(&["bcd", "c"], &["abcd"]), ("ab".into(), Some(1)));
        assert_eq!(run(&["bc", "c"], &["abcd"]), ("a".into(), Some(0)));
    }

    proptest! {
        #[test]
        fn cutting_makes_no_difference(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            cuts in prop::collection::vec(0usize..24, 0..6),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut places: Vec<usize> =
                cuts.into_iter().filter(|&c| c <= text.len() && text.is_char_boundary(c)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let pieces: Vec<&str> = places.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            let by_char: Vec<String> = text.chars().map(String::from).collect();
            let by_char: Vec<&str> = by_char.iter().map(String::as_str).collect();
            prop_assert_eq!(run(&stops, &pieces), run(&stops, &by_char));
        }
    }
}
