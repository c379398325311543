//! Llama 4: layers with rotary embedding attend to chunks of the context, the others to all of it
//! with queries that grow; experts beside a shared one, whose inputs are weighted.

use super::prelude::*;

pub(super) static LLAMA4: Family = Family {
    name: "llama4",
    hf: HfRules {
        class: "Llama4ForCausalLM",
        wrapper: "Llama4ForConditionalGeneration",
        types: &[TEXT],
        rope: RopeLayout::Interleaved,
        stored_experts: ExpertFiles::Transposed,
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "head_dim": 128,
                "rope_theta": 500_000.0,
                "num_local_experts": 16,
                "num_experts_per_tok": 1,
                "intermediate_size": 8192,
                "intermediate_size_mlp": 16384,
            })
        },
        declared: &[("attention_bias", false, &ATTENTION_BIASES)],
        windows,
        experts: read_experts,
        more: hf_more,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "llama4",
        rope: RopeLayout::Interleaved,
        window_period: Some(PERIOD),
        window: Some(CHUNK),
        experts: GgufExperts {
            scores: RouterScores::PlainSigmoid,
            normalise: false,
            ..BASE.gguf.experts
        },
        more: gguf_more,
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            &[
                ("feed_forward.gate_proj.weight", "ffn_gate.weight"),
                ("feed_forward.up_proj.weight", "ffn_up.weight"),
                ("feed_forward.down_proj.weight", "ffn_down.weight"),
                ("feed_forward.router.weight", "ffn_gate_inp.weight"),
                ("feed_forward.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
                ("feed_forward.experts.down_proj", "ffn_down_exps.weight"),
                ("feed_forward.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
                ("feed_forward.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
                ("feed_forward.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
            ],
        ],
        wrapped: WRAPPED,
        modalities: &["vision_model.", "multi_modal_projector."],
        ..DENSE
    },
    layer,
    fixed,
    tiny,
    ..BASE
};

const TEXT: &str = "llama4_text";
/// Layers to one without rotary embedding, where files do not say.
const PERIOD: usize = 4;
/// Positions to a step of the growth of queries, and its slope, where files do not say.
const FLOOR: usize = 8192;
const SLOPE: f32 = 0.1;
const CHUNK: usize = 8192;

/// Whether each layer has rotary embedding: by a list of numbers, or all but every fourth.
fn rotated(config: Object, layers: usize) -> Result<Vec<bool>> {
    const KEY: &str = "no_rope_layers";
    let list = config.array(KEY)?.filter(|list| !list.is_empty());
    let Some(list) = list else {
        let period = config.setting("no_rope_layer_interval", MAX_LAYERS, PERIOD)?;
        return Ok((1..=layers).map(|number| !number.is_multiple_of(period)).collect());
    };
    if list.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", list.len());
        return Err(config.error(KEY, problem));
    }
    let number = |entry: &Json| match entry.as_u64() {
        Some(number @ 0..=1) => Ok(number == 1),
        _ => Err(config.error(KEY, format!("expected 0 or 1, found {}", describe(entry)))),
    };
    list.iter().map(number).collect()
}

fn windows(config: Object, layers: usize) -> Result<Windows> {
    let chunk = config.nullable("attention_chunk_size", MAX_TOKENS, Some(CHUNK))?;
    Ok(rotated(config, layers)?.into_iter().map(|rotated| chunk.filter(|_| rotated)).collect())
}

fn read_experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config)? else { return Ok(None) };
    let (chosen, width) =
        (experts::chosen(config)?, config.positive("intermediate_size", MAX_WIDTH)?);
    let step = config.setting("interleave_moe_layer_step", MAX_LAYERS, 1)?;
    let has = match config.array("moe_layers")? {
        None => (1..=layers).map(|number| number.is_multiple_of(step)).collect(),
        Some(listed) => {
            let is_listed =
                |layer: usize| listed.iter().any(|one| one.as_u64() == Some(layer as u64));
            (0..layers).map(is_listed).collect()
        }
    };
    Ok(Some(ExpertsConfig {
        layers: has,
        shared_width: width,
        scores: RouterScores::PlainSigmoid,
        normalise: false,
        ..ExpertsConfig::plain(count, chosen, width, layers)
    }))
}

fn fixed(model: &mut Hyperparameters) {
    if let Some(experts) = &mut model.experts {
        experts.scores = RouterScores::PlainSigmoid;
    }
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    model.intermediate_size = config.positive("intermediate_size_mlp", MAX_WIDTH)?;
    model.unrotated = rotated(config, model.layers)?.into_iter().map(|rotated| !rotated).collect();
    model.grouped.bare_norms = config.flag("use_qk_norm")?.unwrap_or(true);
    if config.flag("attn_temperature_tuning")?.unwrap_or(true) {
        let every = config.setting("floor_scale", MAX_TOKENS, FLOOR)?;
        let beta = config.above_zero("attn_scale")?.unwrap_or(SLOPE);
        model.query_growth = Some(Growth { beta, every, offset: 1 });
    }
    Ok(())
}

fn gguf_more(keys: &GgufKeys, _: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    let period = keys.opt_positive("interleave_moe_layer_step", MAX_LAYERS)?;
    model.unrotated = model.windows.iter().map(Option::is_none).collect();
    // Files have no key for the norms; models of 128 experts have none.
    let experts = model.experts.as_ref().map_or(0, |experts| experts.count);
    let normed = keys.metadata.opt_flag(&keys.key("attention.qk_norm"))?;
    model.grouped.bare_norms = normed.unwrap_or(experts != 128);
    let beta = keys.opt_above_zero("attention.temperature_scale")?.unwrap_or(SLOPE);
    let every = keys.opt_count("attention.temperature_length", MAX_TOKENS)?.unwrap_or(FLOOR);
    model.query_growth = Some(Growth { beta, every, offset: 1 });
    if let Some(experts) = &mut model.experts {
        experts.shared_width = experts.width;
        if let Some(period) = period {
            experts.layers = (1..=model.layers).map(|n| n.is_multiple_of(period)).collect();
        }
    }
    Ok(())
}

fn to_json(config: &Hyperparameters) -> Json {
    let growth = config.query_growth;
    let rotated = config.unrotated.iter().map(|unrotated| u8::from(!unrotated));
    let mut json = json!({
        "model_type": TEXT,
        "intermediate_size_mlp": config.intermediate_size,
        "no_rope_layers": rotated.collect::<Vec<_>>(),
        "attention_chunk_size": config.windows.iter().flatten().next(),
        "use_qk_norm": config.grouped.bare_norms,
        "attn_temperature_tuning": growth.is_some(),
        "sliding_window": null,
        "layer_types": null,
    });
    if let Some(Growth { beta, every, .. }) = growth {
        extend(&mut json, json!({"attn_scale": beta, "floor_scale": every}));
    }
    if let Some(experts) = &config.experts {
        let numbers = experts.layers.iter().enumerate().filter(|(_, has)| **has);
        extend(
            &mut json,
            json!({
                "num_local_experts": experts.count,
                (rows::CHOSEN.hf[0]): experts.chosen,
                "intermediate_size": experts.width,
                "moe_layers": numbers.map(|(layer, _)| layer).collect::<Vec<_>>(),
            }),
        );
    }
    json
}

/// The first of four layers and every layer behind it but the fourth have rotary embedding.
fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.rope.layout = RopeLayout::Interleaved;
    config.unrotated = (0..layers).map(|layer| layer % 2 == 1).collect();
    config.windows = config.unrotated.iter().map(|whole| (!whole).then_some(24)).collect();
    config.query_growth = Some(Growth { beta: 0.1, every: 16, offset: 1 });
    let experts = ExpertsConfig {
        layers: (0..layers).map(|layer| layer > 0 || layers == 1).collect(),
        shared_width: 40,
        scores: RouterScores::PlainSigmoid,
        normalise: false,
        ..family::tiny_experts(layers)
    };
    config.grouped.bare_norms = true;
    Hyperparameters { experts: Some(experts), ..config }
}

fn layer(model: &Hyperparameters, at: usize) -> Layer {
    let norms = HeadNormSpec { weights: false, after_rotation: true, ..HeadNormSpec::EACH };
    let normed = model.grouped.bare_norms && !model.unrotated[at];
    let attention = GroupedSpec {
        reach: Reach::Chunk,
        head_norms: normed.then_some(norms),
        growth: model.query_growth.filter(|_| model.unrotated[at]),
        ..model.grouped(at)
    };
    let experts = model.routed_experts(at);
    let experts = experts.map(|experts| ExpertsSpec { weighs_inputs: true, ..experts });
    let feed_forward = experts.map_or_else(|| model.mlp(at).into(), OpSpec::from);
    Layer::of([
        Sublayer::new(model.rms("attn_norm"), attention),
        Sublayer::new(model.rms("ffn_norm"), feed_forward),
    ])
}
