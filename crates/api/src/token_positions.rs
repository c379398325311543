//! Positions of the tokens of a prompt in its text.

use text::{RenderedPrompt, TextAssets};

/// Tokens before a mark that are compared with those of their text alone. Text further on does not
/// change how text before these is tokenized.
const SEAM: usize = 64;

/// Where the tokens of a prompt end in its text.
pub(crate) struct TokenPositions<'a> {
    assets: &'a TextAssets,
    prompt: &'a RenderedPrompt,
    tokens: &'a [u32],
    /// The end of each token in bytes; `None` if the text is not that of its tokens, one after
    /// another, as with tokenizers that normalise it.
    ends: Option<Vec<usize>>,
}

impl<'a> TokenPositions<'a> {
    /// The positions of `tokens`, which are those of the text of `prompt`.
    pub fn new(assets: &'a TextAssets, prompt: &'a RenderedPrompt, tokens: &'a [u32]) -> Self {
        let mut rest = prompt.text.as_bytes();
        let end = |&token: &u32| {
            rest = rest.strip_prefix(assets.tokenizer.token_bytes(token))?;
            Some(prompt.text.len() - rest.len())
        };
        let ends = tokens.iter().map(end).collect();
        Self { assets, prompt, tokens, ends }
    }

    /// Number of tokens at the start of the prompt that its text up to `place` has alone.
    pub fn of(&self, place: usize) -> Option<usize> {
        let Self { tokens, prompt, assets, .. } = self;
        let mut from = (0, 0);
        if let Some(ends) = &self.ends {
            let whole = ends.partition_point(|&end| end <= place);
            let is_special = |at: usize| tokens.get(at).is_some_and(|&id| self.is_special(id));
            // Control tokens part the text before it is tokenized.
            if whole > 0 && ends[whole - 1] == place && is_special(whole) {
                return Some(whole);
            }
            let seam = whole.saturating_sub(SEAM);
            let start = (seam..whole).rev().find(|&at| is_special(at)).map_or(seam, |at| at + 1);
            // A token may end within a character.
            let cut = |&at: &usize| at == 0 || prompt.text.is_char_boundary(ends[at - 1]);
            let start = (0..=start).rev().find(cut)?;
            from = (start, if start == 0 { 0 } else { ends[start - 1] });
        }
        let alone = assets.encode(&prompt.part(from.1..place)).ok()?;
        let same = alone.iter().zip(&tokens[from.0..]).take_while(|(a, b)| a == b).count();
        Some(from.0 + same)
    }

    /// The byte of the text at which token `at` begins, if tokens follow one another there.
    pub fn start(&self, at: usize) -> Option<usize> {
        let ends = self.ends.as_ref()?;
        at.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())
    }

    fn is_special(&self, id: u32) -> bool {
        self.assets.tokenizer.is_special(id)
    }
}
