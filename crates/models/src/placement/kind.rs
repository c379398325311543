//! The kind of a tensor, from its canonical name.

/// The purpose of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorKind {
    /// The embedding table.
    Embed,
    /// Projections of attention, or of a recurrence in its place, with their biases.
    Attention,
    /// Projections whose outputs are pooled into compressed rows.
    Compressor,
    /// Products that mix residual streams.
    HyperConnection,
    /// The MLP of a layer without experts.
    Dense,
    /// The router's matrix and biases.
    Router,
    /// Experts that every token passes through, and their gate.
    SharedExpert,
    /// Experts that the router chooses.
    RoutedExpert,
    /// Norms.
    Norm,
    /// The output head.
    Head,
    /// Tensors with other names.
    Other,
}

impl TensorKind {
    /// All in order, with their names in rules and tables.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Embed, "embed"),
        (Self::Attention, "attention"),
        (Self::Compressor, "compressor"),
        (Self::HyperConnection, "hyper_connection"),
        (Self::Dense, "dense"),
        (Self::Router, "router"),
        (Self::SharedExpert, "shared_expert"),
        (Self::RoutedExpert, "routed_expert"),
        (Self::Norm, "norm"),
        (Self::Head, "head"),
        (Self::Other, "other"),
    ];

    /// The name in rules and tables.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The kind of the tensor with this canonical name, and its layer if it is in one.
    pub fn of(canonical: &str) -> (Self, Option<usize>) {
        let parts = canonical.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        match parts.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))) {
            Some((layer, rest)) => (Self::in_layer(rest), Some(layer)),
            None => (Self::outside(canonical), None),
        }
    }

    fn outside(name: &str) -> Self {
        match name.split('.').next().unwrap_or_default() {
            part if part.contains("norm") => Self::Norm,
            "token_embd" | "position_embd" | "token_types" | "per_layer_token_embd" => Self::Embed,
            "per_layer_model_proj" => Self::Dense,
            "output" | "cls" => Self::Head,
            part if part.starts_with("output_hc_") => Self::HyperConnection,
            _ => Self::Other,
        }
    }

    fn in_layer(name: &str) -> Self {
        match name.split('.').next().unwrap_or_default() {
            part if part.contains("norm") => Self::Norm,
            _ if name == "ffn_down_exps.scale" => Self::Router,
            part if part.ends_with("_shexp") => Self::SharedExpert,
            part if part.ends_with("_exps") => Self::RoutedExpert,
            "ffn_gate_inp" | "ffn_gate_tid2eid" | "exp_probs_b" => Self::Router,
            "ffn_gate" | "ffn_up" | "ffn_down" if is_of_one_expert(name) => Self::RoutedExpert,
            "ffn_gate" | "ffn_up" | "ffn_down" | "inp_gate" | "proj" => Self::Dense,
            part if part.contains("_compressor_") => Self::Compressor,
            part if part.starts_with("hc_") => Self::HyperConnection,
            part if part.starts_with("attn_") || part.starts_with("ssm_") => Self::Attention,
            "indexer" | "shortconv" => Self::Attention,
            _ => Self::Other,
        }
    }
}

/// Whether this is the matrix of one expert, `ffn_gate.7.weight`, as older files have it.
fn is_of_one_expert(name: &str) -> bool {
    let expert = name.split('.').nth(1).unwrap_or_default();
    !expert.is_empty() && expert.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, kind: TensorKind, layer: impl Into<Option<usize>>) {
        assert_eq!(TensorKind::of(name), (kind, layer.into()), "{name}");
    }

    #[test]
    fn names_tell_kinds_and_layers() {
        check("token_embd.weight", TensorKind::Embed, None);
        check("output.weight", TensorKind::Head, None);
        check("position_embd.weight", TensorKind::Embed, None);
        check("cls.output.weight", TensorKind::Head, None);
        check("output_norm.weight", TensorKind::Norm, None);
        check("rope_freqs.weight", TensorKind::Other, None);
        check("blk.0.attn_q.weight", TensorKind::Attention, 0);
        check("blk.12.attn_output.bias", TensorKind::Attention, 12);
        check("blk.1.attn_kv_a_mqa.weight", TensorKind::Attention, 1);
        check("blk.1.attn_q_norm.weight", TensorKind::Norm, 1);
        check("blk.1.attn_norm.weight", TensorKind::Norm, 1);
        check("blk.1.post_attention_norm.weight", TensorKind::Norm, 1);
        check("blk.3.ffn_gate.weight", TensorKind::Dense, 3);
        check("blk.3.ffn_down.bias", TensorKind::Dense, 3);
        check("blk.3.ffn_gate_inp.weight", TensorKind::Router, 3);
        check("per_layer_token_embd.weight", TensorKind::Embed, None);
        check("blk.3.inp_gate.weight", TensorKind::Dense, 3);
        check("blk.3.ffn_down_exps.scale", TensorKind::Router, 3);
        check("blk.3.exp_probs_b.bias", TensorKind::Router, 3);
        check("blk.3.ffn_up_shexp.weight", TensorKind::SharedExpert, 3);
        check("blk.3.ffn_gate_inp_shexp.weight", TensorKind::SharedExpert, 3);
        check("blk.3.ffn_gate_exps.weight", TensorKind::RoutedExpert, 3);
        check("blk.3.ffn_up_exps.bias", TensorKind::RoutedExpert, 3);
        check("blk.3.ffn_gate.17.weight", TensorKind::RoutedExpert, 3);
        check("blk.3.shortconv.in_proj.weight", TensorKind::Attention, 3);
        check("blk.3.ssm_out.weight", TensorKind::Attention, 3);
        check("blk.3.ssm_norm.weight", TensorKind::Norm, 3);
        check("blk.3.indexer.attn_q_b.weight", TensorKind::Attention, 3);
        check("blk.3.attn_compressor_kv.weight", TensorKind::Compressor, 3);
        check("blk.3.attn_compressor_norm.weight", TensorKind::Norm, 3);
        check("blk.3.indexer_compressor_gate.weight", TensorKind::Compressor, 3);
        check("blk.3.hc_attn_fn.weight", TensorKind::HyperConnection, 3);
        check("output_hc_fn.weight", TensorKind::HyperConnection, None);
        check("blk.3.ffn_gate_tid2eid.weight", TensorKind::Router, 3);
        check("blk.3.time_mix.weight", TensorKind::Other, 3);
        check("blk.x.attn_q.weight", TensorKind::Other, None);
        check("", TensorKind::Other, None);
    }
}
