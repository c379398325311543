//! Consistency checks of a configuration, the same for both kinds of files.

use super::fields::MAX_WIDTH;
use super::{
    CompressedConfig, ExpertGroups, ExpertsConfig, GroupRank, Hyperparameters, RopeConfig,
    RopeScaling, WindowedConfig,
};
use crate::json::Object;

/// Names of the checked fields in a kind of file.
pub(super) struct FieldNames<'a> {
    pub layers: &'a str,
    pub shared_kv: &'a str,
    pub heads: &'a str,
    pub kv_heads: &'a str,
    pub rope_dim: &'a str,
    pub head_dim: &'a str,
    pub theta: &'a str,
    pub scaling: &'a str,
    pub shared_experts: &'a str,
    pub experts: ExpertFieldNames<'a>,
    pub compressed: CompressedFieldNames<'a>,
    pub index_dim: &'a str,
    pub q_rank: &'a str,
}

/// Names of the sizes of attention to compressed rows in a kind of file.
#[derive(Clone, Copy)]
pub(super) struct CompressedFieldNames<'a> {
    pub groups: &'a str,
    pub index_dim: &'a str,
    pub theta: &'a str,
}

/// Names of the numbers of experts in a kind of file.
#[derive(Clone, Copy)]
pub(crate) struct ExpertFieldNames<'a> {
    pub count: &'a str,
    pub chosen: &'a str,
    pub groups: &'a str,
    pub chosen_groups: &'a str,
}

impl ExpertFieldNames<'static> {
    pub const HF: Self = Self {
        count: "num_experts",
        chosen: "num_experts_per_tok",
        groups: "n_group",
        chosen_groups: "topk_group",
    };

    /// The names that `config` uses: the number of experts has several.
    pub fn of(config: Object) -> Self {
        let names = ["n_routed_experts", "num_local_experts"];
        let count = names.into_iter().find(|name| config.has(name)).unwrap_or(Self::HF.count);
        Self { count, ..Self::HF }
    }
}

/// The first inconsistency, as (field, problem).
pub(super) fn broken<'a>(
    config: &Hyperparameters,
    names: &FieldNames<'a>,
) -> Option<(&'a str, String)> {
    let Hyperparameters { heads, kv_heads, head_dim, .. } = *config;
    let dim = config.rope.dim;
    if !heads.is_multiple_of(kv_heads) {
        let kv = names.kv_heads;
        let problem = format!("expected a multiple of {kv} ({kv_heads}), found {heads}");
        return Some((names.heads, problem));
    }
    if dim == 0 || dim > head_dim || !dim.is_multiple_of(2) {
        let (field, name) = (names.rope_dim, names.head_dim);
        let problem = format!("expected an even number up to {name} ({head_dim}), found {dim}");
        return Some((field, problem));
    }
    if let Some(broken) = broken_by_kinds(config, names) {
        return Some(broken);
    }
    let windowed = config.windowed.as_ref().map(|own| &own.rope);
    let compressed = config.compressed().map(|sizes| &sizes.rope);
    let ropes = [(Some(&config.rope), names.theta), (windowed, names.theta)];
    let ropes = ropes.into_iter().chain([(compressed, names.compressed.theta)]);
    let broken =
        |(rope, theta): (Option<&RopeConfig>, _)| broken_by_scaling(rope?, theta, names.scaling);
    if let Some(broken) = { ropes }.find_map(broken) {
        return Some(broken);
    }
    let factors = [config.rope.magnitude, config.attention_scale];
    if let Some(bad) = factors.into_iter().find(|factor| !factor.is_finite() || *factor <= 0.0) {
        let problem = format!("expected a factor of attention above 0 and finite, found {bad}");
        return Some((names.scaling, problem));
    }
    if let Some(sizes) = config.compressed()
        && let Some(broken) = broken_by_compression(config, sizes, names)
    {
        return Some(broken);
    }
    if let Some(broken) = broken_by_index(config, names) {
        return Some(broken);
    }
    broken_by_experts(config.experts.as_ref()?, names)
}

/// Checks the scaling of rotary frequencies.
fn broken_by_scaling<'a>(
    rope: &RopeConfig,
    theta_name: &'a str,
    scaling_name: &'a str,
) -> Option<(&'a str, String)> {
    let (dim, theta) = (rope.dim, rope.theta);
    match &rope.scaling {
        RopeScaling::LongRope { short, long, .. } => {
            [short, long].into_iter().find_map(|factors| {
                let bad = factors.iter().any(|factor| !factor.is_finite() || *factor <= 0.0);
                let problem = || format!("expected {} factors above 0, found {factors:?}", dim / 2);
                (factors.len() != dim / 2 || bad).then(|| (scaling_name, problem()))
            })
        }
        RopeScaling::Yarn { .. } if theta <= 1.0 => {
            Some((theta_name, format!("expected more than 1 for YaRN, found {theta}")))
        }
        _ => None,
    }
}

/// Checks the index over the positions of latent attention.
fn broken_by_index<'a>(
    config: &Hyperparameters,
    names: &FieldNames<'a>,
) -> Option<(&'a str, String)> {
    let (index, rotated) = (config.index.as_ref()?, config.rope.dim);
    if config.latent()?.q_rank.is_none() {
        return Some((names.q_rank, "expected a rank, which the index needs; found none".into()));
    }
    if index.dim < rotated {
        let problem =
            format!("expected at least {} ({rotated}), found {}", names.rope_dim, index.dim);
        return Some((names.index_dim, problem));
    }
    let first = index.layers.first() != Some(&true);
    first.then(|| (names.layers, "expected an index of its own in the first layer".to_owned()))
}

/// Checks what layers with a window have of their own, and which layers share keys and values.
fn broken_by_kinds<'a>(
    config: &Hyperparameters,
    names: &FieldNames<'a>,
) -> Option<(&'a str, String)> {
    let Hyperparameters { heads, layers, shared_kv_layers: shared, .. } = *config;
    if let Some(WindowedConfig { kv_heads, head_dim, ref rope }) = config.windowed {
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let problem =
                format!("expected divisors of {} ({heads}), found {kv_heads}", names.heads);
            return Some((names.kv_heads, problem));
        }
        if rope.dim == 0 || rope.dim > head_dim || !rope.dim.is_multiple_of(2) {
            let (name, found) = (names.head_dim, rope.dim);
            let problem =
                format!("expected an even number up to {name} ({head_dim}), found {found}");
            return Some((names.rope_dim, problem));
        }
    }
    if shared >= layers {
        let problem = format!("expected fewer than {} ({layers}), found {shared}", names.layers);
        return Some((names.shared_kv, problem));
    }
    let alone = (layers - shared..layers).find(|layer| config.kv_layer(*layer) == *layer)?;
    let problem = format!(
        "expected an earlier layer of the kind of layer {alone}, whose keys and values it shares"
    );
    Some((names.shared_kv, problem))
}

fn broken_by_compression<'a>(
    config: &Hyperparameters,
    sizes: &CompressedConfig,
    names: &FieldNames<'a>,
) -> Option<(&'a str, String)> {
    let Hyperparameters { heads, kv_heads, .. } = *config;
    let CompressedConfig { rope_dim, groups, index_dim, .. } = *sizes;
    if kv_heads != 1 {
        return Some((names.kv_heads, format!("expected 1, found {kv_heads}")));
    }
    if !heads.is_multiple_of(groups) {
        let problem = format!("expected a divisor of {} ({heads}), found {groups}", names.heads);
        return Some((names.compressed.groups, problem));
    }
    if sizes.indexed.contains(&true) && index_dim < rope_dim {
        let (field, rotated) = (names.compressed.index_dim, names.rope_dim);
        let problem = format!("expected at least {rotated} ({rope_dim}), found {index_dim}");
        return Some((field, problem));
    }
    None
}

fn broken_by_experts<'a>(
    experts: &ExpertsConfig,
    names: &FieldNames<'a>,
) -> Option<(&'a str, String)> {
    let ExpertsConfig { count, chosen, width, shared_width, .. } = *experts;
    if chosen == 0 || chosen > count {
        let problem = format!("expected 1 to {} ({count}), found {chosen}", names.experts.count);
        return Some((names.experts.chosen, problem));
    }
    if width == 0 {
        return Some((names.experts.chosen, "expected experts of a width above 0".to_owned()));
    }
    if shared_width > MAX_WIDTH {
        let problem = format!("expected a width of at most {MAX_WIDTH}, found {shared_width}");
        return Some((names.shared_experts, problem));
    }
    broken_by_groups(count, chosen, experts.groups?, &names.experts)
}

fn broken_by_groups<'a>(
    count: usize,
    chosen: usize,
    groups: ExpertGroups,
    names: &ExpertFieldNames<'a>,
) -> Option<(&'a str, String)> {
    if groups.count == 0 || !count.is_multiple_of(groups.count) {
        let (experts, found) = (names.count, groups.count);
        let problem = format!("expected a divisor of {experts} ({count}), found {found}");
        return Some((names.groups, problem));
    }
    let size = count / groups.count;
    if groups.rank == GroupRank::BestTwo && size < 2 {
        let problem = format!("expected groups of at least two experts, found {}", groups.count);
        return Some((names.groups, problem));
    }
    if groups.chosen == 0 || groups.chosen > groups.count {
        let (all, found) = (names.groups, groups.chosen);
        let problem = format!("expected 1 to {all} ({}), found {found}", groups.count);
        return Some((names.chosen_groups, problem));
    }
    let within = size * groups.chosen;
    let problem =
        || format!("expected at most {within}, the chosen groups' experts, found {chosen}");
    (chosen > within).then(|| (names.chosen, problem()))
}

/// Default number of values per head: the hidden size divided by the number of heads.
pub(super) fn even_head_dim(
    hidden: usize,
    heads: usize,
    names: &FieldNames,
) -> Result<usize, String> {
    if hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    let (heads_name, dim) = (names.heads, names.head_dim);
    Err(format!(
        "expected a multiple of {heads_name} ({heads}), as {dim} is absent; found {hidden}"
    ))
}
