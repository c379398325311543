//! Creates the cache of a model that is being loaded.

use super::cache_bytes::CacheBytes;
use super::cache_size::{CacheRequest, KvMemory, StateRequest};
use super::error::Error;
use super::options::LoadOptions;
use crate::observe::drafter::MAX_DRAFTED;
use backend::{Backend, CacheSpec, FreeMemory, GroupSize, KvType, LayerCache};

/// What the layers of this rank keep.
pub(super) struct CacheNeeds<'a> {
    pub layers: &'a [LayerCache],
    /// Windows of the groups of the whole model.
    pub windows: &'a [Option<usize>],
    /// Whether a layer of the whole model has states.
    pub recurrent: bool,
    pub kv_type: KvType,
    /// Blocks of each group in addition, for rows of drafted tokens.
    pub spare: usize,
    /// Memory that is left.
    pub free: Option<FreeMemory>,
}

pub(super) fn is_recurrent(layer: &LayerCache) -> bool {
    layer.state.is_some()
}

/// A cache that was made.
pub(super) struct CacheMade {
    /// Without spare blocks, which come after them.
    pub groups: Vec<GroupSize>,
    pub spare: usize,
    pub states: usize,
    pub context: usize,
    pub note: Option<String>,
}

/// Creates the cache that `options` request, for prompts in chunks of `chunk` tokens.
pub(super) fn make_cache(
    backend: &mut dyn Backend,
    needs: &CacheNeeds<'_>,
    trained: usize,
    (options, chunk): (&LoadOptions, usize),
) -> Result<CacheMade, Error> {
    let LoadOptions { block, context, kv_memory: memory, parallel, ranks, .. } = options;
    let free = needs.free;
    let bytes = CacheBytes::of_groups(
        needs.layers,
        needs.windows,
        *block,
        |rows| backend.block_bytes(rows, *block, needs.kv_type),
        |state| backend.state_bytes(state),
    );
    let slot_bytes = bytes.slot;
    let request = StateRequest { memory: options.state_memory, slot_bytes, parallel: *parallel };
    let states = request.size(free)?;
    let free = free.map(|free| free.without(states.slots * slot_bytes));
    let request = CacheRequest {
        memory: *memory,
        context: *context,
        trained,
        block: *block,
        groups: &bytes.groups,
        parallel: states.parallel,
        chunk,
    };
    let mut size = request.size(free)?;
    // All ranks use the size of the smallest. One without recurrent layers has any number of slots.
    let own = if slot_bytes == 0 && needs.recurrent { 2 * states.parallel } else { states.slots };
    let slots = ranks.least(own)?;
    // A system may have less memory than it reports, and a device may bound the rows of a layer; a
    // default size shrinks to it.
    let sizes = loop {
        let sizes = needs.windows.iter().zip(&size.blocks);
        let sizes: Vec<_> = sizes.map(|(&window, &blocks)| GroupSize { window, blocks }).collect();
        let with_spare =
            |group: &GroupSize| GroupSize { blocks: group.blocks + needs.spare, ..*group };
        let all: Vec<_> = sizes.iter().map(with_spare).collect();
        let spec = CacheSpec {
            layers: needs.layers,
            block: *block,
            groups: &all,
            states: slots,
            guesses: MAX_DRAFTED,
            ty: needs.kv_type,
        };
        let Err(error) = backend.cache(&spec) else { break sizes };
        let may_shrink = context.is_none() && !matches!(memory, KvMemory::Bytes(_));
        match error {
            backend::Error::Memory(_) | backend::Error::Device(_)
                if may_shrink && size.blocks[0] > 1 =>
            {
                size.blocks[0] /= 2;
            }
            error => return Err(error.into()),
        }
        size.context = size.context.min(size.blocks[0] * block);
    };
    let least = |group: GroupSize| Ok(GroupSize { blocks: ranks.least(group.blocks)?, ..group });
    Ok(CacheMade {
        groups: sizes.into_iter().map(least).collect::<Result<_, models::Error>>()?,
        spare: needs.spare,
        states: slots,
        context: ranks.least(size.context)?,
        note: states.note,
    })
}
