//! What blocks consist of, and how files are named.

use base::Name;
use std::ops::Range;

/// What the blocks of one kind hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Bytes of each layer of the model in a block.
    pub layer_bytes: Vec<u64>,
    /// Whether a block belongs to a state, and its name is [`Name::state`] of the tokens since the
    /// last full block: the state itself, or the rows of these tokens.
    pub is_state: bool,
}

/// What the blocks below a root consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Positions of a block of rows.
    pub positions: usize,
    /// Layers that this process holds, of all layers of the model.
    pub layers: Range<usize>,
    /// The kinds of blocks.
    pub kinds: Vec<Kind>,
}

impl Layout {
    /// Bytes that this process holds of a block of a kind.
    pub fn block_bytes(&self, kind: usize) -> usize {
        let bytes: u64 = self.kinds[kind].layer_bytes[self.layers.clone()].iter().sum();
        usize::try_from(bytes).expect("a block is in memory")
    }
}

/// What the name of a file says of the extent in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentName {
    /// Name of the last block.
    pub last: Name,
    /// Kind of the blocks.
    pub kind: u32,
    /// The first layer that the blocks hold.
    pub first_layer: u32,
    /// Number of layers that they hold.
    pub layers: u32,
}

/// Extension of the files.
const EXTENSION: &str = ".gkv";

impl ExtentName {
    /// The layers that the blocks hold.
    pub fn layers(&self) -> Range<usize> {
        self.first_layer as usize..self.first_layer as usize + self.layers as usize
    }

    /// Path of the file below the folder of its root.
    pub fn path(&self) -> String {
        let Self { last, kind, first_layer, layers } = self;
        let last = last.to_string();
        format!("{}/{last}-{kind}-{first_layer}-{layers}{EXTENSION}", &last[..2])
    }

    /// Reads the name of a file; `None` for files that are not extents.
    pub fn parse(file: &str) -> Option<Self> {
        let mut parts = file.strip_suffix(EXTENSION)?.split('-');
        let last = parts.next()?.parse().ok()?;
        let mut number = || parts.next()?.parse::<u32>().ok();
        let name = Self { last, kind: number()?, first_layer: number()?, layers: number()? };
        // Names have one spelling.
        name.path().ends_with(&format!("/{file}")).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_read_again() {
        let last = Name::root(b"model");
        let name = ExtentName { last, kind: 1, first_layer: 10, layers: 18 };
        let path = name.path();
        assert_eq!(path, "93/9372c470eeadd5ecd9c3c74c2b3cb633-1-10-18.gkv");
        let file = path.split_once('/').unwrap().1;
        assert_eq!(ExtentName::parse(file), Some(name));
        assert_eq!(name.layers(), 10..28);
        for wrong in ["", ".gkv", "lock", &file[1..], &file.replace("-10-", "-010-"), &file[..40]] {
            assert_eq!(ExtentName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn blocks_have_the_bytes_of_own_layers() {
        let kind = |layer_bytes: &[u64]| Kind { layer_bytes: layer_bytes.into(), is_state: false };
        let kinds = vec![kind(&[1, 2, 4, 8]), kind(&[0, 16, 0, 0])];
        let layout = Layout { positions: 32, layers: 1..3, kinds };
        assert_eq!([0, 1].map(|kind| layout.block_bytes(kind)), [6, 16]);
    }
}
