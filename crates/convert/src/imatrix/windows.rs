//! The windows of a text.

/// Rows computed at once.
pub(super) const ROWS: usize = 64;

/// The tokens of a text.
#[derive(Clone, Copy, Debug)]
pub struct TextIds<'a> {
    /// Tokens that each window begins with.
    pub prefix: &'a [u32],
    /// The text itself.
    pub ids: &'a [u32],
}

/// A text cut into windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows<'a> {
    pub text: TextIds<'a>,
    /// Tokens of a window, which are more than those of the prefix.
    pub context: usize,
    /// Windows to compute.
    pub count: usize,
}

impl Windows<'_> {
    /// The tokens of window `index`.
    pub fn get(&self, index: usize) -> Vec<u32> {
        let share = self.context - self.text.prefix.len();
        [self.text.prefix, &self.text.ids[index * share..][..share]].concat()
    }
}
