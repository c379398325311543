//! The index: which extents a folder has, which blocks they hold, and which go first.

use crate::header::Header;
use crate::layout::ExtentName;
use crate::worth::Worth;
use base::Name;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// Number of an extent in the index, which no other extent ever has.
pub(crate) type ExtentId = u64;

/// What an extent's header adds to the name of its file.
#[derive(Clone, Debug)]
struct Contents {
    parent: Name,
    depth: u32,
    blocks: Box<[Name]>,
    /// Microseconds that it took to compute.
    micros: u64,
}

/// An extent of the folder.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub root: Name,
    pub name: ExtentName,
    pub bytes: u64,
    pub worth: Worth,
    /// `None` until its header was read.
    contents: Option<Contents>,
    /// Number of reads under way.
    pins: u32,
}

impl Extent {
    /// Microseconds that it took to compute, if its header was read.
    pub fn micros(&self) -> Option<u64> {
        self.contents.as_ref().map(|contents| contents.micros)
    }

    /// Number of its blocks, if its header was read.
    pub fn blocks(&self) -> Option<u64> {
        self.contents.as_ref().map(|contents| contents.blocks.len() as u64)
    }

    fn rank(&self, id: ExtentId) -> Rank {
        let depth = self.contents.as_ref().map_or(0, |contents| contents.depth);
        (self.worth, Reverse(depth), id)
    }
}

/// The lowest goes first: the least worth, and of equal ones the deepest.
type Rank = (Worth, Reverse<u32>, ExtentId);

/// What tells apart blocks of one name: their kind, and a number for their root and the layers that
/// they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockPart {
    kind: u32,
    held: u32,
}

/// A root, and the layers that extents below it hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldLayers {
    root: Name,
    layers: Range<usize>,
}

/// Part of a block: some of its layers, in an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub extent: ExtentId,
    /// Index of the block in the extent.
    pub at: u32,
    pub layers: Range<usize>,
}

/// All extents of a folder.
#[derive(Debug, Default)]
pub(crate) struct Index {
    extents: HashMap<ExtentId, Extent>,
    /// Numbers given so far.
    given: ExtentId,
    files: HashMap<(Name, ExtentName), ExtentId>,
    /// What extents hold, by number.
    held: Vec<HeldLayers>,
    /// Blocks of extents whose headers were read: the extent, and the block's index in it.
    blocks: HashMap<(BlockPart, Name), (ExtentId, u32)>,
    /// Number of extents that follow a block.
    following: HashMap<(BlockPart, Name), u32>,
    order: BTreeSet<Rank>,
    bytes: u64,
    /// Files that are there and cannot be used.
    ignored: HashSet<(Name, ExtentName)>,
}

impl Index {
    /// Bytes of all extents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of blocks that can be found.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub fn get(&self, id: ExtentId) -> Option<&Extent> {
        self.extents.get(&id)
    }

    /// The extent in a file.
    pub fn find(&self, root: Name, name: ExtentName) -> Option<ExtentId> {
        self.files.get(&(root, name)).copied()
    }

    /// The extents below a root.
    pub fn of_root(&self, root: Name) -> impl Iterator<Item = (ExtentId, &Extent)> {
        let known = self.extents.iter().map(|(id, extent)| (*id, extent));
        known.filter(move |(_, extent)| extent.root == root)
    }

    /// Whether a file is there but cannot be used.
    pub fn is_ignored(&self, root: Name, name: ExtentName) -> bool {
        self.ignored.contains(&(root, name))
    }

    /// Forgets an extent that cannot be used, although its file stays.
    pub fn ignore(&mut self, id: ExtentId) -> Option<Extent> {
        let extent = self.remove(id)?;
        self.ignored.insert((extent.root, extent.name));
        Some(extent)
    }

    /// Adds an extent, or updates one that is known. A file of another size is another extent.
    pub fn insert(&mut self, root: Name, name: ExtentName, bytes: u64, worth: Worth) -> ExtentId {
        if let Some(id) = self.find(root, name) {
            if self.get(id).is_some_and(|extent| extent.bytes == bytes) {
                self.set_worth(id, worth);
                return id;
            }
            self.remove(id);
        }
        self.ignored.remove(&(root, name));
        let extent = Extent { root, name, bytes, worth, contents: None, pins: 0 };
        let id = self.given;
        self.given += 1;
        self.files.insert((root, name), id);
        self.order.insert(extent.rank(id));
        self.bytes += bytes;
        self.extents.insert(id, extent);
        id
    }

    /// Adds what the header of an extent says, so that its blocks are found.
    pub fn add_header(&mut self, id: ExtentId, header: &Header) {
        let Some((root, name)) = self.get(id).map(|extent| (extent.root, extent.name)) else {
            return;
        };
        let part = self.part(root, &name);
        let Some(extent) = self.extents.get_mut(&id) else { return };
        if extent.contents.is_some() {
            return;
        }
        self.order.remove(&extent.rank(id));
        let blocks: Box<[Name]> = header.blocks.iter().map(|block| block.name).collect();
        for (&name, at) in blocks.iter().zip(0..) {
            // Of two extents with one block, the first is as good as the other.
            self.blocks.entry((part, name)).or_insert((id, at));
        }
        let Header { parent, outline, .. } = header;
        *self.following.entry((part, *parent)).or_default() += 1;
        let (depth, micros) = (outline.depth, outline.micros);
        extent.contents = Some(Contents { parent: *parent, depth, blocks, micros });
        self.order.insert(extent.rank(id));
    }

    /// Forgets an extent.
    pub fn remove(&mut self, id: ExtentId) -> Option<Extent> {
        let extent = self.extents.remove(&id)?;
        self.order.remove(&extent.rank(id));
        self.files.remove(&(extent.root, extent.name));
        self.bytes -= extent.bytes;
        let Some(contents) = &extent.contents else { return Some(extent) };
        let part = self.part(extent.root, &extent.name);
        for &name in &contents.blocks {
            if self.blocks.get(&(part, name)).is_some_and(|(held, _)| *held == id) {
                self.blocks.remove(&(part, name));
            }
        }
        if let Some(following) = self.following.get_mut(&(part, contents.parent)) {
            *following -= 1;
            if *following == 0 {
                self.following.remove(&(part, contents.parent));
            }
        }
        Some(extent)
    }

    pub fn set_worth(&mut self, id: ExtentId, worth: Worth) {
        let Some(extent) = self.extents.get_mut(&id) else { return };
        self.order.remove(&extent.rank(id));
        extent.worth = worth;
        self.order.insert(extent.rank(id));
    }

    /// Adds a reader, which keeps an extent from being evicted here.
    pub fn pin(&mut self, id: ExtentId) {
        if let Some(extent) = self.extents.get_mut(&id) {
            extent.pins += 1;
        }
    }

    /// Removes a reader. The extent may have vanished in the meantime.
    pub fn unpin(&mut self, id: ExtentId) {
        if let Some(extent) = self.extents.get_mut(&id) {
            extent.pins = extent.pins.saturating_sub(1);
        }
    }

    /// The number of what an extent holds, if others hold the same.
    fn number(&self, root: Name, layers: &Range<usize>) -> Option<u32> {
        let mut held = (0..).zip(&self.held);
        let found = held.find(|(_, held)| held.root == root && held.layers == *layers);
        found.map(|(number, _)| number)
    }

    fn part(&mut self, root: Name, name: &ExtentName) -> BlockPart {
        let held = self.number(root, &name.layers()).unwrap_or_else(|| {
            self.held.push(HeldLayers { root, layers: name.layers() });
            self.held.len() as u32 - 1
        });
        BlockPart { kind: name.kind, held }
    }

    /// Where `layers` of a block below a root are: pieces that follow each other.
    pub fn locate(
        &self,
        root: Name,
        kind: u32,
        layers: &Range<usize>,
        name: Name,
    ) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut start = layers.start;
        while start < layers.end {
            let known = (0..).zip(&self.held);
            let known = known.filter(|(_, held)| held.root == root && held.layers.contains(&start));
            let held = known.filter_map(|(number, held)| {
                let part = BlockPart { kind, held: number };
                let (extent, at) = *self.blocks.get(&(part, name))?;
                Some(Piece { extent, at, layers: start..held.layers.end.min(layers.end) })
            });
            let piece = held.max_by_key(|piece| piece.layers.end)?;
            start = piece.layers.end;
            pieces.push(piece);
        }
        Some(pieces)
    }

    /// Whether an extent of a kind, with any layers, follows a block below a root.
    pub fn is_followed(&self, root: Name, kind: u32, name: Name) -> bool {
        let mut held = (0..).zip(&self.held).filter(|(_, held)| held.root == root);
        held.any(|(held, _)| self.following.contains_key(&(BlockPart { kind, held }, name)))
    }

    /// The extents that hold these layers of a block and of the blocks before it, the last first.
    pub fn chain(&self, root: Name, kind: u32, layers: &Range<usize>, last: Name) -> Vec<ExtentId> {
        let Some(held) = self.number(root, layers) else { return Vec::new() };
        let mut chain = Vec::new();
        let mut name = last;
        while let Some(&(id, _)) = self.blocks.get(&(BlockPart { kind, held }, name)) {
            let extent = self.get(id).and_then(|extent| extent.contents.as_ref());
            let Some(contents) = extent else { break };
            chain.push(id);
            name = contents.parent;
        }
        chain
    }

    /// The extent that goes first, besides `kept` ones, what is being read, and what others
    /// follow.
    pub fn least(&self, kept: &HashSet<ExtentId>) -> Option<ExtentId> {
        let mut order = self.order.iter().map(|&(_, _, id)| id);
        order.find(|id| !kept.contains(id) && self.is_evictable(*id))
    }

    fn is_evictable(&self, id: ExtentId) -> bool {
        let Some(extent) = self.get(id) else { return false };
        let Some(contents) = &extent.contents else { return extent.pins == 0 };
        let number = self.number(extent.root, &extent.name.layers());
        let part = BlockPart { kind: extent.name.kind, held: number.unwrap_or_default() };
        let is_followed = |name: &Name| self.following.contains_key(&(part, *name));
        extent.pins == 0 && !contents.blocks.iter().any(is_followed)
    }
}

#[cfg(test)]
mod tests;
