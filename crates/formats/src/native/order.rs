//! The group of each input, and the order that makes the inputs of a group contiguous.

use std::sync::Arc;

use crate::error::Result;
use crate::native::parts::{check_shape, check_type};
use crate::tensor::TensorView;

/// Inputs per quant block, which share a scale and a zero point.
pub(super) const BLOCK: usize = 32;

/// The inputs of a matrix, as blocks of one group each.
pub(super) struct InputGroups {
    /// Inputs per group, where all groups have equally many consecutive inputs.
    every: usize,
    /// Otherwise the inputs sorted by group.
    listed: Option<Listed>,
}

/// Inputs sorted by group.
struct Listed {
    order: Arc<[u32]>,
    /// The group of each block.
    groups: Vec<u32>,
}

impl InputGroups {
    /// `cols` inputs in `groups` groups, where `index` has the group of each input if they are not
    /// in order. `configured` is the group size of the settings that has so many groups.
    ///
    /// # Errors
    /// If rows have no whole blocks, or the groups do not fit the inputs.
    pub fn new(
        view: &TensorView,
        cols: usize,
        groups: usize,
        configured: Option<usize>,
        index: Option<&TensorView>,
    ) -> Result<Self> {
        if !cols.is_multiple_of(BLOCK) {
            let problem = format!("expected rows of whole blocks of {BLOCK} values, found {cols}");
            return Err(view.error(problem));
        }
        let every = match configured {
            Some(size) if cols.div_ceil(size) == groups => Some(size.min(cols)),
            _ => cols.is_multiple_of(groups.max(1)).then(|| cols / groups.max(1)),
        };
        let every = every.filter(|_| groups > 0).ok_or_else(|| {
            view.error(format!("expected groups of one size, found {groups} for {cols} inputs"))
        })?;
        let listed = index.map(|index| Listed::new(index, cols, groups, every)).transpose()?;
        if let Some(listed) = listed.flatten() {
            return Ok(Self { every, listed: Some(listed) });
        }
        if groups > 1 && !every.is_multiple_of(BLOCK) {
            let problem = format!("expected groups of a multiple of {BLOCK} inputs, found {every}");
            return Err(view.error(problem));
        }
        Ok(Self { every, listed: None })
    }

    /// Whether inputs of a group are not consecutive.
    pub fn is_ordered(&self) -> bool {
        self.listed.is_some()
    }

    /// For each stored column its input, where the order differs.
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
    /// The inputs sorted by group; `None` if they already are.
    fn new(view: &TensorView, cols: usize, groups: usize, every: usize) -> Result<Option<Self>> {
        check_type(view, &["i32"])?;
        check_shape(view, &[&[cols]])?;
        view.check_here()?;
        let bytes = view.bytes();
        let bytes = bytes.read(0..bytes.len());
        let index: Vec<i32> = bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        // compressed-tensors writes -1 where inputs are in order.
        if index.iter().all(|group| *group == -1) {
            return Ok(None);
        }
        let known = |group: i32| usize::try_from(group).is_ok_and(|group| group < groups);
        if let Some(at) = index.iter().position(|group| !known(*group)) {
            let problem = format!("expected groups from 0 to {}, found {}", groups - 1, index[at]);
            return Err(view.error(format!("{problem} of input {at}")));
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
            one.then_some(group as u32).ok_or_else(|| view.error(problem))
        });
        let groups = groups.collect::<Result<_>>()?;
        Ok(Some(Self { order: order.into(), groups }))
    }
}
