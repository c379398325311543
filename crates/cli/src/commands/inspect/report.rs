//! The report about a model, as JSON and as text.

use super::values::{float, metadata_json, short, shown};
use engine::{BLOCK, CacheBytes};
use formats::layers::{OpSpec, RopeConfig, TensorForm};
use formats::{ModelConfig, ModelFiles, TensorView, names};
use indexmap::IndexMap;
use kernels::kv::KvType;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// The report about a model.
#[derive(Debug)]
pub(super) struct InspectReport<'a> {
    pub files: &'a ModelFiles,
    /// The configuration, or why there is none.
    pub config: Result<ModelConfig, String>,
    /// The chat templates in use, if there are any.
    pub chat_template: Option<String>,
    /// Tokens that the KV cache is to hold.
    pub context: usize,
    /// Layers that can draft tokens.
    pub mtp: Option<MtpLayers>,
    /// Tensors that contradict the configuration.
    pub warnings: Vec<String>,
}

/// Layers of multi-token prediction, which are loaded if all weights fit in memory with them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MtpLayers {
    pub layers: usize,
    pub bytes: usize,
}

/// Memory that one sequence takes in the cache.
#[derive(Clone, Debug)]
struct CacheMemory {
    bytes: CacheBytes,
    /// Bytes of the rows that it sees through windows.
    windows: usize,
    /// Bytes of its blocks for the whole context.
    whole: usize,
}

/// Totals of the tensors of one type.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Total {
    tensors: usize,
    parameters: usize,
    bytes: usize,
}

impl InspectReport<'_> {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        let total = self.total();
        json!({
            "path": self.files.path().display().to_string(),
            "format": self.format(),
            "config": self.config.as_ref().ok().map(config_json),
            "unsupported": self.config.as_ref().err(),
            "chat_template": self.chat_template,
            "metadata": self.files.gguf().map(metadata_json),
            "parameters": total.parameters,
            "bytes": total.bytes,
            "types": self.types(),
            "other_modalities": self.other_modalities(),
            "mtp": self.mtp,
            "warnings": self.warnings,
            "memory": self.memory_json(),
            "tensors": self.files.tensors().iter().map(tensor_json).collect::<Json>(),
        })
    }

    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}  ({})\n", self.files.path().display(), self.format());
        self.config_text(&mut out);
        if let Some(gguf) = self.files.gguf() {
            out += "\nmetadata\n";
            for (key, value) in gguf.metadata().iter() {
                let _ = writeln!(out, "  {key:<44} {}", short(value));
            }
        }
        self.tensors_text(&mut out);
        self.totals_text(&mut out);
        self.memory_text(&mut out);
        self.warnings.iter().for_each(|warning| out += &format!("\nwarning: {warning}\n"));
        out
    }

    fn format(&self) -> String {
        match self.files.gguf() {
            Some(gguf) if gguf.parts.len() > 1 => {
                format!("GGUF version {}, {} parts", gguf.version, gguf.parts.len())
            }
            Some(gguf) => format!("GGUF version {}", gguf.version),
            None if self.described().is_some() => "config.json without weights".to_owned(),
            None => "safetensors".to_owned(),
        }
    }

    /// The configuration of a model of which there are no weights, and no file that could have any.
    fn described(&self) -> Option<&ModelConfig> {
        let alone = self.files.gguf().is_none() && self.files.tensors().is_empty();
        self.config.as_ref().ok().filter(|_| alone)
    }

    /// The table of n-grams, where the model has one: its rows, the values of each, and the rows
    /// that a token reads.
    fn table(&self) -> Option<[usize; 3]> {
        let ngrams = self.config.as_ref().ok()?.hyperparameters().ngrams.as_ref()?;
        let read = ngrams.hash.count();
        Some([ngrams.rows, ngrams.width / read.max(1), read])
    }

    fn config_text(&self, out: &mut String) {
        let config = match &self.config {
            Ok(config) => config_json(config),
            Err(why) => return *out += &format!("\ncannot be run: {why}\n"),
        };
        *out += "\nmodel\n";
        for (key, value) in config.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), shown);
            let _ = writeln!(out, "  {key:<20} {text}");
        }
        let template = self.chat_template.as_deref().map_or_else(|| "none".to_owned(), shown);
        let _ = writeln!(out, "  {:<20} {template}", "chat_template");
    }

    fn tensors_text(&self, out: &mut String) {
        let tensors = self.files.tensors();
        if self.described().is_some() {
            return;
        }
        if tensors.is_empty() {
            return *out += "\nno tensors: a vocabulary\n";
        }
        let width = tensors.iter().map(|t| t.source_name.chars().count()).max().unwrap_or(0);
        *out += "\ntensors\n";
        for tensor in tensors {
            let name = shown(&tensor.source_name);
            let (shape, bytes) = (format!("{:?}", tensor.shape), size(tensor.bytes().len()));
            let _ =
                writeln!(out, "  {name:<width$}  {:<8} {shape:<18} {bytes:>10}", tensor.ty.name);
        }
    }

    fn totals_text(&self, out: &mut String) {
        // Codes, scales and zero points together become weights.
        let native = self.config.is_ok() && self.files.gguf().is_none();
        let unsupported = |name: &str| {
            let known = kernels::quant::by_name(name).is_some_and(|ty| ty.is_supported());
            let mut of_type = self.files.tensors().iter().filter(|t| t.ty.name == name);
            let known = known || of_type.all(|t| names::holds_ids(&t.source_name));
            if known || native { "" } else { "  (cannot be computed with yet)" }
        };
        *out += "\ntypes\n";
        for (name, Total { tensors, parameters, bytes }) in self.types() {
            let bytes = size(bytes);
            let note = unsupported(name);
            let _ = writeln!(
                out,
                "  {name:<8} {tensors:>6} tensors {parameters:>16} values {bytes:>10}{note}"
            );
        }
        let total = self.total();
        let parameters = total.parameters;
        let _ = writeln!(out, "\nparameters  {parameters} ({:.1} M)", parameters as f64 / 1e6);
        let _ = writeln!(out, "weights     {}", size(total.bytes));
        if let Some(Total { tensors, bytes, .. }) = self.other_modalities() {
            let bytes = size(bytes);
            let _ = writeln!(out, "left alone  {tensors} tensors of other modalities, {bytes}");
        }
        if let Some(MtpLayers { layers, bytes }) = self.mtp {
            let (s, bytes) = (if layers == 1 { "" } else { "s" }, size(bytes));
            let name = format!("{layers} layer{s} of multi-token prediction");
            let _ =
                writeln!(out, "drafters    {name}, {bytes}, loaded if all weights fit in memory");
        }
    }

    /// Totals of the tensors of modalities other than text, which are never loaded.
    fn other_modalities(&self) -> Option<Total> {
        let config = self.config.as_ref().ok().filter(|_| self.files.gguf().is_none())?;
        let names = formats::families::name_table(&config.architecture)?;
        let mut total = Total::default();
        let tensors = self.files.tensors().iter();
        tensors
            .filter(|tensor| names.is_of_other_modality(&tensor.source_name))
            .for_each(|tensor| total.add(tensor));
        (total.tensors > 0).then_some(total)
    }

    /// Bytes of the weights that are loaded, which a table of n-grams is not.
    fn loaded_bytes(&self) -> usize {
        let table = self.described().and_then(|_| self.table());
        let table = table.map_or(0, |[rows, values, _]| bf16_bytes(rows.saturating_mul(values)));
        let others = self.other_modalities().map_or(0, |others| others.bytes);
        let drafters = self.mtp.map_or(0, |mtp| mtp.bytes);
        self.total().bytes.saturating_sub(others.saturating_add(table).saturating_add(drafters))
    }

    fn memory_text(&self, out: &mut String) {
        for ty in self.kv_types() {
            let Some(CacheMemory { bytes, windows, whole }) = self.cache(ty) else { return };
            let windows = match windows {
                0 => String::new(),
                windows => format!(" and {} per sequence", size(windows)),
            };
            let _ = writeln!(
                out,
                "KV cache    {} per token{windows}, {} for {} tokens in {}",
                size(bytes.per_token()),
                size(whole),
                self.context,
                ty.name(),
            );
        }
        if let Some(slot) = self.cache(KvType::ALL[0]).map(|it| it.bytes.slot).filter(|&it| it > 0)
        {
            let _ = writeln!(out, "states      {} per sequence and per snapshot", size(slot));
        }
        if let Some([rows, values, read]) = self.table() {
            let bytes = size(bf16_bytes(rows.saturating_mul(values)));
            let _ = writeln!(
                out,
                "table       {rows} rows of {values} values, {bytes} in bf16, in the file; a token \
                 reads {read} rows"
            );
        }
        let config = self.config.as_ref().ok();
        if let Some((dim, values)) = config.and_then(models::latent_rows) {
            let _ = writeln!(
                out,
                "latent      {dim} values per token and layer instead of {values}, {:.1} times fewer",
                values as f64 / dim as f64
            );
        }
    }

    fn memory_json(&self) -> Json {
        let kv = |ty| {
            self.cache(ty).map(|CacheMemory { bytes, windows, whole }| {
                let cache = whole.saturating_add(bytes.slot);
                json!({
                    "kv_bytes_per_token": bytes.per_token(),
                    "kv_bytes_per_sequence": windows,
                    "kv_bytes": whole,
                    "state_bytes_per_slot": bytes.slot,
                    "total_bytes": cache.saturating_add(self.loaded_bytes()),
                })
            })
        };
        let mut memory = json!({
            "weights_bytes": self.loaded_bytes(),
            "context": self.context,
        });
        if let Some([rows, values, read]) = self.table() {
            memory["table"] = json!({"rows": rows, "row_values": values, "rows_per_token": read});
        }
        for ty in self.kv_types() {
            memory[ty.name()] = json!(kv(ty));
        }
        memory
    }

    /// The types in which the model's rows can be cached.
    fn kv_types(&self) -> Vec<KvType> {
        self.config.as_ref().map_or(Vec::new(), |config| engine::kv_types(config, true))
    }

    /// The memory of the cache; `None` for sizes that no cache can have.
    fn cache(&self, ty: KvType) -> Option<CacheMemory> {
        let config = self.config.as_ref().ok()?;
        // They would overflow.
        config
            .hyperparameters()
            .kv_heads
            .checked_mul(config.hyperparameters().head_dim)?
            .checked_mul(16 * BLOCK)?;
        let layers = models::layer_caches(config, true);
        let bytes = CacheBytes::of(&layers, BLOCK, ty);
        let (windows, whole) = (bytes.per_sequence()?, bytes.of_tokens(self.context)?);
        Some(CacheMemory { bytes, windows, whole })
    }

    fn types(&self) -> IndexMap<&'static str, Total> {
        if self.described().is_some() {
            return IndexMap::from([(kernels::quant::BF16.name, self.total())]);
        }
        let mut types = IndexMap::<_, Total>::new();
        for tensor in self.files.tensors() {
            types.entry(tensor.ty.name).or_default().add(tensor);
        }
        types
    }

    fn total(&self) -> Total {
        let mut total = Total::default();
        if let Some(config) = self.described() {
            for (_, shape) in config.tensors(TensorForm::Gguf) {
                let values = shape.iter().copied().fold(1, usize::saturating_mul);
                total.tensors += 1;
                total.parameters = total.parameters.saturating_add(values);
            }
            total.bytes = bf16_bytes(total.parameters);
        }
        self.files.tensors().iter().for_each(|tensor| total.add(tensor));
        total
    }
}

/// Bytes of as many values in bf16.
fn bf16_bytes(values: usize) -> usize {
    values.saturating_mul(2)
}

impl Total {
    fn add(&mut self, tensor: &TensorView) {
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(tensor.elements());
        self.bytes = self.bytes.saturating_add(tensor.bytes().len());
    }
}

fn config_json(config: &ModelConfig) -> Json {
    let windows = config.hyperparameters().windows.iter().flatten();
    let mut json = json!({
        "architecture": config.architecture,
        "name": config.name,
        "layers": config.layers.len(),
        "hidden_size": config.hidden,
        "heads": config.hyperparameters().heads,
        "kv_heads": config.hyperparameters().kv_heads,
        "head_dim": config.hyperparameters().head_dim,
        "intermediate_size": config.hyperparameters().intermediate_size,
        "vocab_size": config.vocab,
        "context_length": config.context,
        "rope_theta": float(config.hyperparameters().rope.theta),
        "rope_scaling": rope_scaling(&config.hyperparameters().rope),
        "windowed_layers": windows.clone().count(),
        "window": windows.max(),
        "tied_embeddings": config.hyperparameters().tied_embeddings,
        "rms_norm_eps": float(config.hyperparameters().rms_norm_eps),
        "bos": config.special.bos,
        "eos": config.special.eos,
    });
    if let Some(experts) = &config.hyperparameters().experts {
        json["experts"] = experts.count.into();
        json["experts_chosen"] = experts.chosen.into();
        json["expert_width"] = experts.width.into();
        json["shared_expert_width"] = experts.shared_width.into();
        json["layers_with_experts"] = experts.layers.iter().filter(|has| **has).count().into();
    }
    add_mixers(&mut json, config);
    if let Some(sizes) = &config.hyperparameters().compressed {
        json["q_rank"] = sizes.q_rank.into();
        json["rope_dim"] = sizes.rope_dim.into();
        json["output_groups"] = sizes.groups.into();
        json["output_rank"] = sizes.out_rank.into();
        json["compress_ratios"] = json!(sizes.ratios);
        json["layers_with_index"] = sizes.indexed.iter().filter(|has| **has).count().into();
        json["index_heads"] = sizes.index_heads.into();
        json["index_dim"] = sizes.index_dim.into();
        json["index_top"] = sizes.index_top.into();
        json["compress_rope_theta"] = float(sizes.rope.theta);
        json["compress_rope_scaling"] = rope_scaling(&sizes.rope).into();
    }
    let by_token = config.hyperparameters().experts.iter().flat_map(|experts| &experts.by_token);
    let by_token = by_token.filter(|by_token| **by_token).count();
    if by_token > 0 {
        json["layers_by_token"] = by_token.into();
    }
    if let Some(hyper) = config.hyperparameters().hyper {
        json["residual_streams"] = hyper.streams.into();
    }
    json
}

/// Adds the sizes of what layers have in place of plain attention.
fn add_mixers(json: &mut Json, config: &ModelConfig) {
    if let Some(latent) = config.hyperparameters().latent {
        json["q_rank"] = latent.q_rank.into();
        json["kv_rank"] = latent.kv_rank.into();
        json["nope_dim"] = latent.nope_dim.into();
        json["rope_dim"] = latent.rope_dim.into();
        json["value_dim"] = latent.value_dim.into();
    }
    if let Some(index) = &config.hyperparameters().index {
        let own = |op: &&OpSpec| matches!(op, OpSpec::Latent(spec) if spec.index().is_some());
        json["layers_with_index"] = config.ops().filter(own).count().into();
        json["index_heads"] = index.heads.into();
        json["index_dim"] = index.dim.into();
        json["index_top"] = index.top.into();
        if let Some(pool) = index.pool {
            json["index_pool"] = pool.into();
        }
    }
    if let Some(delta) = &config.hyperparameters().delta {
        json["linear_layers"] = delta.layers.iter().filter(|linear| **linear).count().into();
        json["linear_heads"] = json!([delta.spec.key_heads, delta.spec.value_heads]);
        json["linear_head_dims"] = json!([delta.spec.key_dim, delta.spec.value_dim]);
        json["linear_kernel"] = delta.spec.kernel.into();
    }
    if let Some(mamba) = &config.hyperparameters().mamba {
        json["mamba_layers"] = mamba.layers.iter().filter(|has| **has).count().into();
        json["mamba_heads"] = mamba.spec.heads.into();
        json["mamba_head_dim"] = mamba.spec.head_dim.into();
        json["mamba_groups"] = mamba.spec.groups.into();
        json["mamba_state"] = mamba.spec.state.into();
        json["mamba_kernel"] = mamba.spec.kernel.into();
    }
    if let Some(convs) = &config.hyperparameters().convs {
        json["convolution_layers"] = convs.layers.iter().filter(|has| **has).count().into();
        json["convolution_kernel"] = convs.spec.kernel.into();
    }
}

fn rope_scaling(rope: &RopeConfig) -> String {
    match &rope.scaling {
        formats::layers::RopeScaling::Factors { factors } => format!("{} factors", factors.len()),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn tensor_json(tensor: &TensorView) -> Json {
    json!({
        "name": tensor.source_name,
        "type": tensor.ty.name,
        "shape": tensor.shape,
        "bytes": tensor.bytes().len(),
        "supported": tensor.ty.is_supported() || names::holds_ids(&tensor.source_name),
    })
}

/// A number of bytes with a unit.
pub(super) fn size(bytes: usize) -> String {
    indicatif::BinaryBytes(bytes as u64).to_string()
}
