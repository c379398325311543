//! Consistency checks of a configuration, the same for both kinds of files.

use super::fields::MAX_WIDTH;
use super::rows::{self, FieldRow, FieldSource};
use crate::config::schema::ExpertsConfig;
use crate::config::schema::{CompressedConfig, Hyperparameters};
use crate::error::Result;
use crate::layers::{ExpertGroups, GroupRank, RopeConfig, RopeScaling};

impl FieldSource<'_> {
    /// An error that names the field of a row, unless something `holds`.
    pub(super) fn expect(
        self,
        holds: bool,
        row: &FieldRow,
        problem: impl FnOnce() -> String,
    ) -> Result<()> {
        if holds { Ok(()) } else { Err(self.error(row, problem())) }
    }
}

/// Checks that what a file says of a model is consistent.
pub(super) fn check(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    let head_dim = model.head_dim;
    check_heads(model, source)?;
    if model.rope.dim > 0 || model.unrotated.contains(&false) {
        check_rotated(model.rope.dim, head_dim, source)?;
    }
    if let Some(windowed) = &model.windowed {
        check_rotated(windowed.rope.dim, windowed.head_dim, source)?;
    }
    check_shared(model, source)?;
    check_scaling(&model.rope, &rows::THETA, source)?;
    if let Some(windowed) = &model.windowed {
        check_scaling(&windowed.rope, &rows::THETA, source)?;
    }
    if let Some(sizes) = &model.compressed {
        check_scaling(&sizes.rope, &rows::COMPRESSED_THETA, source)?;
    }
    for factor in [model.rope.magnitude, model.attention_scale] {
        source.expect(factor.is_finite() && factor > 0.0, &rows::ROPE_SCALING, || {
            format!("expected a factor of attention above 0 and finite, found {factor}")
        })?;
    }
    if let Some(sizes) = &model.compressed {
        check_compressed(model, sizes, source)?;
    }
    check_index(model, source)?;
    check_blocks(model, source)?;
    super::ngrams::check(model, source)?;
    model.experts.as_ref().map_or(Ok(()), |experts| check_experts(experts, source))
}

/// Checks the numbers of heads of each layer.
fn check_heads(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    (0..model.layers).try_for_each(|layer| {
        let (heads, kv_heads) = (model.heads_of(layer), model.kv_heads_of(layer));
        source.expect(kv_heads > 0 && heads.is_multiple_of(kv_heads), &rows::HEADS, || {
            let kv = source.name(&rows::KV_HEADS);
            format!("expected a multiple of {kv} ({kv_heads}) in layer {layer}, found {heads}")
        })
    })?;
    let alike = model.latent.is_none() && model.compressed.is_none();
    source.expect(model.layer_heads.is_none() || alike, &rows::HEADS, || {
        "expected the same number of heads in all layers".to_owned()
    })
}

/// Checks the number of rotated values of a head.
fn check_rotated(dim: usize, head_dim: usize, source: FieldSource) -> Result<()> {
    let fits = dim > 0 && dim <= head_dim && dim.is_multiple_of(2);
    source.expect(fits, &rows::ROTATED, || {
        let name = source.name(&rows::HEAD_DIM);
        format!("expected an even number up to {name} ({head_dim}), found {dim}")
    })
}

/// Checks the scaling of rotary frequencies.
fn check_scaling(rope: &RopeConfig, theta_row: &FieldRow, source: FieldSource) -> Result<()> {
    let (pairs, theta) = (rope.dim / 2, rope.theta);
    match &rope.scaling {
        RopeScaling::LongRope { short, long, .. } => {
            [short, long].into_iter().try_for_each(|factors| {
                let good = factors.iter().all(|factor| factor.is_finite() && *factor > 0.0);
                source.expect(factors.len() == pairs && good, &rows::ROPE_SCALING, || {
                    format!("expected {pairs} factors above 0, found {factors:?}")
                })
            })
        }
        RopeScaling::Yarn { .. } => source.expect(theta > 1.0, theta_row, || {
            format!("expected more than 1 for YaRN, found {theta}")
        }),
        _ => Ok(()),
    }
}

/// Checks the index over the positions of latent attention.
fn check_index(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    let (Some(index), Some(latent)) = (&model.index, model.latent) else { return Ok(()) };
    source.expect(index.normed_input || latent.q_rank.is_some(), &rows::Q_RANK, || {
        "expected a rank, which the index needs; found none".to_owned()
    })?;
    check_index_dim(index.dim, model.rope.dim, &rows::INDEX_DIM, source)?;
    if let Some(pool) = index.pool {
        source.expect(index.top.is_multiple_of(pool), &rows::INDEX_TOP, || {
            let name = source.name(&rows::INDEX_POOL);
            format!("expected a multiple of {name} ({pool}), found {}", index.top)
        })?;
    }
    let first = (0..model.layers).find(|layer| model.attends(*layer));
    source.expect(first.is_none_or(|first| index.layers[first]), &rows::LAYERS, || {
        "expected an index of its own in the first layer".to_owned()
    })
}

/// Checks the index over blocks of positions.
fn check_blocks(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    let Some(index) = &model.block_index else { return Ok(()) };
    check_index_dim(index.dim, model.rope.dim, &rows::BLOCK_INDEX_DIM, source)?;
    let blocks = index.budget / index.every.max(1);
    let Some(local) = index.local else {
        return source.expect(blocks > 0, &rows::BLOCK_INDEX_BUDGET, || {
            format!("expected at least one block of {}, found {}", index.every, index.budget)
        });
    };
    source.expect(index.heads == model.kv_heads, &rows::MAXIMA_HEADS, || {
        let name = source.name(&rows::KV_HEADS);
        format!("expected {name} ({}), found {}", model.kv_heads, index.heads)
    })?;
    source.expect(blocks > 1 && blocks >= local, &rows::MAXIMA_TOP, || {
        let name = source.name(&rows::MAXIMA_LOCAL);
        format!("expected at least 2, and {name} ({local}), found {blocks}")
    })
}

fn check_index_dim(dim: usize, rotated: usize, row: &FieldRow, source: FieldSource) -> Result<()> {
    source.expect(dim >= rotated, row, || {
        let name = source.name(&rows::ROTATED);
        format!("expected at least {name} ({rotated}), found {dim}")
    })
}

/// Checks which layers share keys and values.
fn check_shared(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    let Hyperparameters { layers, shared_kv_layers: shared, .. } = *model;
    source.expect(shared < layers, &rows::SHARED_KV, || {
        let name = source.name(&rows::LAYERS);
        format!("expected fewer than {name} ({layers}), found {shared}")
    })?;
    check_sources(model, source)?;
    match (layers - shared..layers).find(|layer| model.kv_layer(*layer) == *layer) {
        None => Ok(()),
        Some(alone) => Err(source.error(
            &rows::SHARED_KV,
            format!(
                "expected an earlier layer of the kind of layer {alone}, whose keys and values it \
                 shares"
            ),
        )),
    }
}

/// Checks whose latent rows layers attend to.
fn check_sources(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    for (layer, of) in model.kv_sources.iter().flatten().copied().enumerate() {
        let known = of <= layer && model.kv_layer(of) == of;
        source.expect(known && model.unrotated[of] == model.unrotated[layer], &rows::KV_SOURCES, {
            || {
                format!(
                    "expected layer {layer} or an earlier one that has latent rows of its own and \
                     rotates them where layer {layer} rotates its queries, found {of}"
                )
            }
        })?;
    }
    Ok(())
}

fn check_compressed(
    model: &Hyperparameters,
    sizes: &CompressedConfig,
    source: FieldSource,
) -> Result<()> {
    let Hyperparameters { heads, kv_heads, .. } = *model;
    let groups = sizes.groups;
    source.expect(kv_heads == 1, &rows::KV_HEADS, || format!("expected 1, found {kv_heads}"))?;
    source.expect(heads.is_multiple_of(groups), &rows::GROUPS, || {
        let name = source.name(&rows::HEADS);
        format!("expected a divisor of {name} ({heads}), found {groups}")
    })?;
    match sizes.indexed.contains(&true) {
        true => check_index_dim(sizes.index_dim, sizes.rope_dim, &rows::ROW_INDEX_DIM, source),
        false => Ok(()),
    }
}

fn check_experts(experts: &ExpertsConfig, source: FieldSource) -> Result<()> {
    let ExpertsConfig { count, chosen, width, shared_width, .. } = *experts;
    source.expect(chosen > 0 && chosen <= count, &rows::CHOSEN, || {
        let name = source.name(&rows::EXPERT_COUNT);
        format!("expected 1 to {name} ({count}), found {chosen}")
    })?;
    source.expect(width > 0, &rows::CHOSEN, || "expected experts of a width above 0".to_owned())?;
    source.expect(shared_width <= MAX_WIDTH, &rows::SHARED_EXPERTS, || {
        format!("expected a width of at most {MAX_WIDTH}, found {shared_width}")
    })?;
    experts.groups.map_or(Ok(()), |groups| check_groups(count, chosen, groups, source))
}

fn check_groups(
    count: usize,
    chosen: usize,
    groups: ExpertGroups,
    source: FieldSource,
) -> Result<()> {
    source.expect(
        groups.count > 0 && count.is_multiple_of(groups.count),
        &rows::EXPERT_GROUPS,
        {
            || {
                let (experts, found) = (source.name(&rows::EXPERT_COUNT), groups.count);
                format!("expected a divisor of {experts} ({count}), found {found}")
            }
        },
    )?;
    let size = count / groups.count;
    let ranked = groups.rank != GroupRank::BestTwo || size >= 2;
    source.expect(ranked, &rows::EXPERT_GROUPS, || {
        format!("expected groups of at least two experts, found {}", groups.count)
    })?;
    let known = groups.chosen > 0 && groups.chosen <= groups.count;
    source.expect(known, &rows::CHOSEN_GROUPS, || {
        let all = source.name(&rows::EXPERT_GROUPS);
        format!("expected 1 to {all} ({}), found {}", groups.count, groups.chosen)
    })?;
    let within = size * groups.chosen;
    source.expect(chosen <= within, &rows::CHOSEN, || {
        format!("expected at most {within}, the chosen groups' experts, found {chosen}")
    })
}

/// Default number of values per head: the hidden size divided by the number of heads.
pub(super) fn even_head_dim(model: &Hyperparameters, source: FieldSource) -> Result<usize> {
    let Hyperparameters { hidden_size: hidden, heads, .. } = *model;
    source.expect(hidden.is_multiple_of(heads), &rows::HIDDEN, || {
        let [heads_name, dim] = [&rows::HEADS, &rows::HEAD_DIM].map(|row| source.name(row));
        format!("expected a multiple of {heads_name} ({heads}), as {dim} is absent; found {hidden}")
    })?;
    Ok(hidden / heads)
}
