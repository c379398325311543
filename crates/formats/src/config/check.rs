//! Laws between the numbers of a configuration, whichever file they came from.

use super::ModelConfig;

/// What a file calls the fields that the laws are about.
pub(super) struct FieldNames<'a> {
    pub heads: &'a str,
    pub kv_heads: &'a str,
    pub rope_dim: &'a str,
    pub head_dim: &'a str,
}

/// The first law broken, as (field, problem).
pub(super) fn broken<'a>(
    config: &ModelConfig,
    names: &FieldNames<'a>,
) -> Option<(&'a str, String)> {
    let ModelConfig { heads, kv_heads, head_dim, .. } = *config;
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
    None
}

/// Values per head where the file does not say: the hidden size shared out evenly.
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
