//! The hyperparameters that files give as one value each.

use super::super::fields::{
    MAX_EXPERTS, MAX_HEADS, MAX_ITERATIONS, MAX_NGRAM, MAX_RATIO, MAX_STATE, MAX_TOKENS, MAX_WIDTH,
};
use super::super::yarn;
use super::row::{Absent, FieldPlace, FieldRow, Kind};
use kernels::conv::MAX_KERNEL;
use kernels::hyper::MAX_STREAMS;

/// A place: a field, a field of a part that the model may lack, or either that is optional itself.
macro_rules! place {
    ($($field:ident).+) => {
        FieldPlace {
            get: |model| Some(model.$($field).+),
            set: |model, value| model.$($field).+ = value.unwrap_or_default(),
        }
    };
    (? $($field:ident).+) => {
        FieldPlace { get: |model| model.$($field).+, set: |model, value| model.$($field).+ = value }
    };
    ($part:ident / $($field:ident).+) => {
        FieldPlace {
            get: |model| model.$part.as_ref().map(|part| part.$($field).+),
            set: |model, value| {
                if let (Some(part), Some(value)) = (&mut model.$part, value) {
                    part.$($field).+ = value;
                }
            },
        }
    };
    ($part:ident / ? $($field:ident).+) => {
        FieldPlace {
            get: |model| model.$part.as_ref().and_then(|part| part.$($field).+),
            set: |model, value| {
                if let Some(part) = &mut model.$part {
                    part.$($field).+ = value;
                }
            },
        }
    };
}

/// Rows: what they are, names, what may be absent, kinds and places.
macro_rules! rows {
    ($(
        #[doc = $about:literal]
        $name:ident: $absent:ident $kind:ident $(($max:expr))?
            [$($hf:literal),*] [$($gguf:literal),*] $(= $place:expr)?;
    )*) => {
        $(
            #[doc = $about]
            pub(crate) const $name: FieldRow = FieldRow {
                about: $about,
                hf: &[$($hf),*],
                gguf: &[$($gguf),*],
                absent: Absent::$absent,
                kind: rows!(@ $kind $(($max))? $(, $place)?),
            };
        )*

        /// All rows.
        pub(crate) const ALL: &[FieldRow] = &[$($name),*];
    };
    (@ Other) => { Kind::Other };
    (@ Number, $place:expr) => { Kind::Number($place) };
    (@ Flag, $place:expr) => { Kind::Flag($place) };
    (@ $kind:ident ($max:expr), $place:expr) => { Kind::$kind { max: $max, place: $place } };
}

rows! {
    /// Width of the residual stream.
    HIDDEN: Refused Count(MAX_WIDTH) ["hidden_size"] ["embedding_length"] = place!(hidden_size);
    /// Query heads.
    HEADS: Refused Count(MAX_HEADS)
        ["num_attention_heads"] ["attention.head_count"] = place!(heads);
    /// Width of the MLPs.
    MLP_WIDTH: Kept Other ["intermediate_size"] ["feed_forward_length"];
    /// The same where the field before is the width of experts.
    DENSE_WIDTH: Kept Other ["intermediate_size_mlp"] [];
    /// Layers.
    LAYERS: Refused Other ["num_hidden_layers"] ["block_count"];
    /// Key and value heads.
    KV_HEADS: Nullable Other ["num_key_value_heads"] ["attention.head_count_kv"];
    /// Values per head.
    HEAD_DIM: Kept Other ["head_dim", "qk_head_dim"] ["attention.key_length"];
    /// Last layers that attend to the keys and values of earlier ones.
    SHARED_KV: Kept Other ["num_kv_shared_layers"] ["attention.shared_kv_layers"];
    /// For each layer, the one whose latent rows it attends to.
    KV_SOURCES: Kept Other ["kv_source_layers"] ["attention.kv_source_layers"];
    /// Values of a head that are rotated: a share of them, or how many.
    ROTATED: Kept Other
        ["partial_rotary_factor", "qk_rope_head_dim"] ["rope.dimension_count"];
    /// Base of rotary frequencies.
    THETA: Kept Other ["rope_theta"] ["rope.freq_base"];
    /// Base of rotary frequencies of layers with compressed rows.
    COMPRESSED_THETA: Kept Other ["compress_rope_theta"] ["attention.compress_rope_freq_base"];
    /// Scaling of rotary frequencies.
    ROPE_SCALING: Kept Other ["rope_scaling"] ["rope.scaling.factor"];
    /// Longest context the model was trained for, in tokens.
    CONTEXT: Refused Count(MAX_TOKENS)
        ["max_position_embeddings"] ["context_length"] = place!(context_length);
    /// Rows of the embedding; GGUF files may leave it to the tensor.
    VOCAB: Refused Count(MAX_TOKENS) ["vocab_size"] [] = place!(vocab_size);

    /// Factor of the embeddings.
    EMBEDDING_SCALE: Factor Number
        ["embedding_multiplier"] ["embedding_scale"] = place!(embedding_scale);
    /// Factor of what sublayers add to the residual stream.
    RESIDUAL_SCALE: Factor Number
        ["residual_multiplier"] ["residual_scale"] = place!(residual_scale);
    /// Factor of attention scores, where it is not that of the values of a head.
    ATTENTION_SCALE: Kept Number [] ["attention.scale"] = FieldPlace {
        get: |model| {
            let of_heads = yarn::attention_scale(model.head_dim, 1.0);
            Some(model.attention_scale).filter(|scale| *scale != of_heads)
        },
        set: |model, value| model.attention_scale = value.unwrap_or(1.0),
    };
    /// Factor of attention scores.
    ATTENTION_MULTIPLIER: Kept Number ["attention_multiplier"] [] = place!(attention_scale);
    /// Factor of values.
    VALUE_SCALE: Nullable Number
        ["attention_value_scale"] ["attention.value_scale"] = place!(?grouped.value_scale);
    /// Factor of the logits.
    LOGIT_SCALE: Factor Number ["logit_scale"] ["logit_scale"] = place!(logit_scale);
    /// Divisor of the logits.
    LOGIT_DIVISOR: Factor Number ["logits_scaling"] ["logit_scale"] = FieldPlace {
        get: |model| Some(1.0 / model.logit_scale),
        set: |model, value| model.logit_scale = 1.0 / value.unwrap_or(1.0),
    };
    /// Bound of the logits.
    LOGIT_CAP: Kept Number
        ["final_logit_softcapping"] ["final_logit_softcapping"] = place!(?logit_cap);

    /// Rank of the projection of queries in latent attention.
    Q_RANK: Nullable Count(MAX_WIDTH)
        ["q_lora_rank"] ["attention.q_lora_rank"] = place!(latent / ?q_rank);
    /// Values of the row that keys and values are expanded from.
    KV_RANK: Refused Count(MAX_WIDTH)
        ["kv_lora_rank"] ["attention.kv_lora_rank"] = place!(latent / kv_rank);
    /// Values of a query or key head that are not rotated.
    NOPE_DIM: Refused Count(MAX_HEADS) ["qk_nope_head_dim"] [] = place!(latent / nope_dim);
    /// Values of a query or key head that are rotated.
    ROPE_DIM: Refused Size(MAX_HEADS) ["qk_rope_head_dim"] [] = place!(latent / rope_dim);
    /// Values of a value head.
    VALUE_DIM: Refused Count(MAX_HEADS) ["v_head_dim"] [] = place!(latent / value_dim);

    /// Query heads of an index over positions.
    INDEX_HEADS: Refused Count(MAX_HEADS)
        ["index_n_heads"] ["attention.indexer.head_count"] = place!(index / heads);
    /// Values of its queries and keys.
    INDEX_DIM: Refused Count(MAX_HEADS)
        ["index_head_dim"] ["attention.indexer.key_length"] = place!(index / dim);
    /// Most positions that it chooses.
    INDEX_TOP: Refused Count(MAX_TOKENS)
        ["index_topk"] ["attention.indexer.top_k"] = place!(index / top);
    /// Consecutive positions whose keys are pooled to one.
    INDEX_POOL: Kept Count(MAX_TOKENS)
        ["index_kpool"] ["attention.indexer.kpool"] = place!(index / ?pool);

    /// Rank of the projection of queries in attention to compressed rows.
    COMPRESSED_Q_RANK: Refused Count(MAX_WIDTH)
        ["q_lora_rank"] ["attention.q_lora_rank"] = place!(compressed / q_rank);
    /// Groups of heads that are projected together.
    GROUPS: Refused Count(MAX_HEADS)
        ["o_groups"] ["attention.output_group_count"] = place!(compressed / groups);
    /// Values that a group is projected to.
    OUT_RANK: Refused Count(MAX_WIDTH)
        ["o_lora_rank"] ["attention.output_lora_rank"] = place!(compressed / out_rank);
    /// Query heads of an index over compressed rows.
    ROW_INDEX_HEADS: Refused Count(MAX_HEADS)
        ["index_n_heads"] ["attention.indexer.head_count"] = place!(compressed / index_heads);
    /// Values of its queries and keys.
    ROW_INDEX_DIM: Refused Count(MAX_HEADS)
        ["index_head_dim"] ["attention.indexer.key_length"] = place!(compressed / index_dim);
    /// Most rows that it chooses.
    ROW_INDEX_TOP: Refused Count(MAX_TOKENS)
        ["index_topk"] ["attention.indexer.top_k"] = place!(compressed / index_top);
    /// Residual streams.
    STREAMS: Refused Count(MAX_STREAMS)
        ["hc_mult"] ["hyper_connection.count"] = place!(hyper / streams);
    /// Iterations that make their mixture doubly stochastic.
    STREAM_ITERATIONS: Refused Count(MAX_ITERATIONS)
        ["hc_sinkhorn_iters"] ["hyper_connection.sinkhorn_iterations"] = FieldPlace {
            get: |model| Some(model.hyper?.iterations).filter(|iterations| *iterations > 0),
            set: |model, value| {
                if let (Some(streams), Some(value)) = (&mut model.hyper, value) {
                    streams.iterations = value;
                }
            },
        };
    /// Epsilon of that.
    STREAM_EPS: Refused Number ["hc_eps"] ["hyper_connection.epsilon"] = place!(hyper / eps);
    /// Factor of what is written to streams that are not mixed.
    STREAM_MAGNITUDE: Refused Number
        ["hc_magnitude"] ["hyper_connection.magnitude"] = place!(hyper / ?magnitude);

    /// Gated residual streams.
    GATED_STREAMS: Refused Count(MAX_STREAMS)
        ["hc_count"] ["hyper_connection.count"] = place!(gated_streams / streams);
    /// Values between the products of their gates.
    GATED_RANK: Refused Count(MAX_WIDTH)
        ["hc_lowrank"] ["hyper_connection.low_rank"] = place!(gated_streams / rank);

    /// Query heads of an index over blocks of positions.
    BLOCK_INDEX_HEADS: Refused Count(MAX_HEADS)
        ["indexer_n_heads"] ["attention.indexer.head_count"] = place!(block_index / heads);
    /// Values of its queries and keys.
    BLOCK_INDEX_DIM: Refused Count(MAX_HEADS)
        ["indexer_head_dim"] ["attention.indexer.key_length"] = place!(block_index / dim);
    /// Positions of a block.
    BLOCK_INDEX_EVERY: Refused Count(MAX_RATIO)
        ["indexer_compress_ratio"] [] = place!(block_index / every);
    /// Most positions of all chosen blocks.
    BLOCK_INDEX_BUDGET: Refused Count(MAX_TOKENS)
        ["indexer_budget"] ["attention.indexer.top_k"] = place!(block_index / budget);

    /// Query heads of an index over blocks by their greatest scores, one for each KV head.
    MAXIMA_HEADS: Refused Count(MAX_HEADS)
        ["index_n_heads"] ["attention.indexer.head_count"] = place!(block_index / heads);
    /// Values of its queries and keys.
    MAXIMA_DIM: Refused Count(MAX_HEADS)
        ["index_head_dim"] ["attention.indexer.key_length"] = place!(block_index / dim);
    /// Positions of a block.
    MAXIMA_EVERY: Refused Count(MAX_RATIO)
        ["index_block_size"] ["attention.indexer.block_size"] = place!(block_index / every);
    /// Last blocks that are always chosen.
    MAXIMA_LOCAL: Refused Count(MAX_TOKENS)
        ["index_local_blocks"] ["attention.indexer.local_blocks"] = place!(block_index / ?local);
    /// Most chosen blocks.
    MAXIMA_TOP: Refused Count(MAX_TOKENS)
        ["index_topk_blocks"] ["attention.indexer.top_k"] = FieldPlace {
            get: |model| model.block_index.as_ref().map(|index| index.budget / index.every.max(1)),
            set: |model, value| {
                if let (Some(index), Some(value)) = (&mut model.block_index, value) {
                    index.budget = value.saturating_mul(index.every);
                }
            },
        };

    /// The layer with embeddings of n-grams: counted from one in config.json.
    NGRAM_LAYERS: Kept Other ["ple_layer_ids"] ["ple.layers"];
    /// Most tokens of an n-gram.
    NGRAM_SIZE: Refused Count(MAX_NGRAM)
        ["ngram_size"] ["ple.ngram_size"] = place!(ngrams / hash.size);
    /// Rows of an n-gram of each length.
    NGRAM_HEADS: Refused Count(MAX_EXPERTS)
        ["heads_per_ngram"] ["ple.heads_per_ngram"] = place!(ngrams / hash.heads);
    /// Values of all rows of a token.
    NGRAM_WIDTH: Refused Count(MAX_WIDTH) ["ple_embed_dim"] [] = place!(ngrams / width);
    /// Positions that the convolution of these embeddings covers.
    NGRAM_KERNEL: Refused Count(MAX_KERNEL)
        ["ple_conv_kernel_size"] ["ple.conv_kernel"] = place!(ngrams / kernel);

    /// Key heads of Gated DeltaNet.
    DELTA_KEY_HEADS: Refused Count(MAX_HEADS)
        ["linear_num_key_heads"] ["ssm.group_count"] = place!(delta / spec.key_heads);
    /// Value heads.
    DELTA_VALUE_HEADS: Refused Count(MAX_HEADS)
        ["linear_num_value_heads"] ["ssm.time_step_rank"] = place!(delta / spec.value_heads);
    /// Values of a key head.
    DELTA_KEY_DIM: Refused Count(MAX_STATE)
        ["linear_key_head_dim"] ["ssm.state_size"] = place!(delta / spec.key_dim);
    /// Values of a value head.
    DELTA_VALUE_DIM: Refused Count(MAX_STATE)
        ["linear_value_head_dim"] [] = place!(delta / spec.value_dim);
    /// Positions that its convolution covers.
    DELTA_KERNEL: Refused Count(MAX_KERNEL)
        ["linear_conv_kernel_dim"] ["ssm.conv_kernel"] = place!(delta / spec.kernel);
    /// Least logarithm of decays, where they have a bound.
    DELTA_LEAST: Nullable Other ["linear_lower_bound"] ["kda.gate_lower_bound"];

    /// Heads of a state space.
    SPACE_HEADS: Refused Count(MAX_HEADS)
        ["mamba_n_heads"] ["ssm.time_step_rank"] = place!(mamba / spec.heads);
    /// Groups of heads that share keys and queries.
    SPACE_GROUPS: Refused Count(MAX_HEADS)
        ["mamba_n_groups"] ["ssm.group_count"] = place!(mamba / spec.groups);
    /// Values of a key.
    SPACE_STATE: Refused Count(MAX_STATE)
        ["mamba_d_state"] ["ssm.state_size"] = place!(mamba / spec.state);
    /// Positions that its convolution covers.
    SPACE_KERNEL: Refused Count(MAX_KERNEL)
        ["mamba_d_conv"] ["ssm.conv_kernel"] = place!(mamba / spec.kernel);
    /// Heads of a state space, as Nemotron calls them; so the next three.
    NEMOTRON_HEADS: Refused Count(MAX_HEADS)
        ["mamba_num_heads"] [] = place!(mamba / spec.heads);
    /// Groups of heads that share keys and queries.
    NEMOTRON_GROUPS: Refused Count(MAX_HEADS) ["n_groups"] [] = place!(mamba / spec.groups);
    /// Values of a key.
    NEMOTRON_STATE: Refused Count(MAX_STATE) ["ssm_state_size"] [] = place!(mamba / spec.state);
    /// Positions that its convolution covers.
    NEMOTRON_KERNEL: Refused Count(MAX_KERNEL) ["conv_kernel"] [] = place!(mamba / spec.kernel);
    /// Positions that a short convolution covers.
    CONV_KERNEL: Refused Count(MAX_KERNEL)
        ["conv_L_cache"] ["shortconv.l_cache"] = place!(convs / spec.kernel);

    /// Routed experts of a layer.
    EXPERT_COUNT: Nullable Other
        ["n_routed_experts", "num_local_experts", "num_experts"] ["expert_count"];
    /// Shared experts of a layer.
    SHARED_EXPERTS: Nullable Other ["n_shared_experts"] ["expert_shared_count"];
    /// Width of the shared expert.
    SHARED_WIDTH: Kept Other
        ["shared_expert_intermediate_size", "shared_intermediate_size",
         "moe_shared_expert_intermediate_size"] ["expert_shared_feed_forward_length"];
    /// Layers before the first with experts.
    DENSE_LAYERS: Kept Other ["first_k_dense_replace"] ["leading_dense_block_count"];
    /// Groups of experts.
    EXPERT_GROUPS: Nullable Other ["n_group"] ["expert_group_count"];
    /// Groups that experts are chosen from.
    CHOSEN_GROUPS: Nullable Other ["topk_group"] ["expert_group_used_count"];
    /// Experts that each token is sent to.
    CHOSEN: Refused Count(MAX_EXPERTS)
        ["num_experts_per_tok"] ["expert_used_count"] = place!(experts / chosen);
    /// Width of a routed expert.
    EXPERT_WIDTH: Kept Count(MAX_WIDTH)
        ["moe_intermediate_size"] ["expert_feed_forward_length"] = place!(experts / width);
    /// Values that routed experts read and give.
    EXPERT_LATENT: Nullable Count(MAX_WIDTH)
        ["moe_latent_size"] ["moe_latent_size"] = place!(experts / ?latent);
    /// Bound of the logits of a router.
    ROUTER_CAP: Kept Number
        ["router_logit_softcapping"] ["router_logit_softcapping"] = place!(experts / ?cap);
    /// Whether the weights of chosen experts are divided by their sum.
    NORMALISE: Kept Flag
        ["norm_topk_prob"] ["expert_weights_norm"] = place!(experts / normalise);
    /// Factor of the weights of experts.
    EXPERT_SCALE: Kept Number
        ["routed_scaling_factor"] ["expert_weights_scale"] = place!(experts / scale);

    /// Values of the input that each layer has of its own for each token.
    LAYER_INPUTS: Kept Size(MAX_WIDTH)
        ["hidden_size_per_layer_input"] ["embedding_length_per_layer_input"] = place!(layer_inputs);
}

/// Sizes of latent attention.
pub(crate) const LATENT: &[FieldRow] = &[Q_RANK, KV_RANK, NOPE_DIM, ROPE_DIM, VALUE_DIM];
/// Sizes of an index over positions.
pub(crate) const INDEX: &[FieldRow] = &[INDEX_HEADS, INDEX_DIM, INDEX_TOP, INDEX_POOL];
/// Sizes of attention to compressed rows.
pub(crate) const COMPRESSED: &[FieldRow] = &[COMPRESSED_Q_RANK, GROUPS, OUT_RANK];
/// Sizes of an index over them.
pub(crate) const ROW_INDEX: &[FieldRow] = &[ROW_INDEX_HEADS, ROW_INDEX_DIM, ROW_INDEX_TOP];
/// Sizes of hyper-connections.
pub(crate) const HYPER: &[FieldRow] = &[STREAMS, STREAM_ITERATIONS, STREAM_EPS];
/// Sizes of hyper-connections of streams that are not mixed.
pub(crate) const APART: &[FieldRow] = &[STREAMS, STREAM_EPS, STREAM_MAGNITUDE];
/// Sizes of gated residual streams.
pub(crate) const GATED: &[FieldRow] = &[GATED_STREAMS, GATED_RANK];
/// Sizes of an index over blocks of positions.
pub(crate) const BLOCK_INDEX: &[FieldRow] =
    &[BLOCK_INDEX_HEADS, BLOCK_INDEX_DIM, BLOCK_INDEX_EVERY, BLOCK_INDEX_BUDGET];
/// Sizes of an index over blocks by their greatest scores.
pub(crate) const BLOCK_MAXIMA: &[FieldRow] =
    &[MAXIMA_HEADS, MAXIMA_DIM, MAXIMA_EVERY, MAXIMA_LOCAL, MAXIMA_TOP];
/// Sizes of embeddings of n-grams.
pub(crate) const NGRAMS: &[FieldRow] = &[NGRAM_SIZE, NGRAM_HEADS, NGRAM_WIDTH, NGRAM_KERNEL];
/// Sizes of Gated DeltaNet.
pub(crate) const DELTA: &[FieldRow] =
    &[DELTA_KEY_HEADS, DELTA_VALUE_HEADS, DELTA_KEY_DIM, DELTA_VALUE_DIM, DELTA_KERNEL];
/// Sizes of state spaces.
pub(crate) const SPACE: &[FieldRow; 4] = &[SPACE_HEADS, SPACE_GROUPS, SPACE_STATE, SPACE_KERNEL];
/// The same in Nemotron's config.json.
pub(crate) const NEMOTRON_SPACE: &[FieldRow; 4] =
    &[NEMOTRON_HEADS, NEMOTRON_GROUPS, NEMOTRON_STATE, NEMOTRON_KERNEL];
/// Numbers of routed experts that every file has in the same form.
pub(crate) const EXPERTS: &[FieldRow] =
    &[CHOSEN, EXPERT_WIDTH, EXPERT_LATENT, EXPERT_SCALE, NORMALISE, ROUTER_CAP];
