//! Which group each input belongs to, and the order in which inputs of a group lie together.

use std::sync::Arc;

use super::{check_shape, check_type, error};
use crate::error::Result;
use crate::tensor::TensorView;

/// Inputs that have their scale and zero point together.
pub(super) const BLOCK: usize = 32;

/// The inputs of a matrix as blocks of one group each.
pub(super) struct InputGroups {
    /// Inputs of a group, where all groups have as many and none is in another order.
    every: usize,
    /// Otherwise: the inputs by group, those of one group as they were.
    listed: Option<Listed>,
}

/// Inputs in another order.
struct Listed {
    order: Arc<[u32]>,
    /// The group of each block.
    groups: Vec<u32>,
}

impl InputGroups {
    /// `cols` inputs of `groups` groups, in the order of `index` (the group of each input) if there
    /// is one. `configured` is what the configuration says of a group's size.
    pub fn new(
        view: &TensorView,
        (cols, groups): (usize, usize),
        configured: Option<usize>,
        index: Option<&TensorView>,
    ) -> Result<Self> {
        if !cols.is_multiple_of(BLOCK) {
            let problem = format!("expected rows of whole blocks of {BLOCK} values, found {cols}");
            return Err(error(view, problem));
        }
        let every = match configured {
            Some(size) if cols.div_ceil(size) == groups => Some(size.min(cols)),
            _ => cols.is_multiple_of(groups.max(1)).then(|| cols / groups.max(1)),
        };
        let every = every.filter(|_| groups > 0).ok_or_else(|| {
            error(view, format!("expected groups of one size, found {groups} for {cols} inputs"))
        })?;
        let listed = index.map(|index| Listed::new(index, (cols, groups), every)).transpose()?;
        if let Some(listed) = listed.flatten() {
            return Ok(Self { every, listed: Some(listed) });
        }
        if groups > 1 && !every.is_multiple_of(BLOCK) {
            let problem = format!("expected groups of a multiple of {BLOCK} inputs, found {every}");
            return Err(error(view, problem));
        }
        Ok(Self { every, listed: None })
    }

    /// For each column as stored the input it belongs to, if not the same.
    pub fn order(&self) -> Option<Arc<[u32]>> {
        self.listed.as_ref().map(|listed| listed.order.clone())
    }

    /// The group of a block, and its inputs.
    pub fn block(&self, block: usize) -> (usize, [usize; BLOCK]) {
        let first = block * BLOCK;
        match &self.listed {
            Some(Listed { order, groups }) => {
                (groups[block] as usize, std::array::from_fn(|i| order[first + i] as usize))
            }
            None => (first / self.every, std::array::from_fn(|i| first + i)),
        }
    }
}

impl Listed {
    /// The inputs by group, unless they are so already.
    fn new(
        view: &TensorView,
        (cols, groups): (usize, usize),
        every: usize,
    ) -> Result<Option<Self>> {
        check_type(view, &["i32"])?;
        check_shape(view, &[&[cols]])?;
        let bytes = view.bytes();
        let bytes = bytes.read(0..bytes.len());
        let index: Vec<i32> = bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        // compressed-tensors writes this where inputs are in order.
        if index.iter().all(|group| *group == -1) {
            return Ok(None);
        }
        let known = |group: i32| usize::try_from(group).is_ok_and(|group| group < groups);
        if let Some(at) = index.iter().position(|group| !known(*group)) {
            let problem = format!("expected groups from 0 to {}, found {}", groups - 1, index[at]);
            return Err(error(view, format!("{problem} of input {at}")));
        }
        if index.iter().enumerate().all(|(input, group)| input / every == *group as usize) {
            return Ok(None);
        }
        let mut order: Vec<u32> = (0..cols as u32).collect();
        order.sort_by_key(|input| index[*input as usize]);
        let groups = order.chunks_exact(BLOCK).map(|block| {
            let group = index[block[0] as usize];
            let one = block.iter().all(|input| index[*input as usize] == group);
            let problem = format!("expected a multiple of {BLOCK} inputs of group {group}");
            one.then_some(group as u32).ok_or_else(|| error(view, problem))
        });
        let groups = groups.collect::<Result<_>>()?;
        Ok(Some(Self { order: order.into(), groups }))
    }
}
