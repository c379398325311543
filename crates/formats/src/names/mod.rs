//! Canonical tensor names: those of GGUF files (`blk.0.attn_q.weight`).
//!
//! Invariant: a table maps two different source names never to one canonical name.

mod dense;

pub use dense::DENSE;

/// How the tensors of Hugging Face checkpoints of some families are called, one table per
/// group of families that agree.
#[derive(Debug)]
pub struct NameTable {
    /// Tensors outside the layers: (source, canonical).
    pub globals: &'static [(&'static str, &'static str)],
    /// What comes before the layer number in a source name.
    pub layer_prefix: &'static str,
    /// Tensors of a layer, after the number and a dot: (source, canonical).
    pub layer: &'static [(&'static str, &'static str)],
    /// Buffers that older checkpoints carry and nobody reads: ends of source names.
    pub ignored: &'static [&'static str],
}

impl NameTable {
    /// The canonical name of a source tensor, or `None` if the table does not know it.
    pub fn canonical(&self, source: &str) -> Option<String> {
        if let Some((layer, rest)) = self.split_layer(source) {
            let (_, canonical) = self.layer.iter().find(|(known, _)| *known == rest)?;
            return Some(format!("blk.{layer}.{canonical}"));
        }
        let (_, canonical) = self.globals.iter().find(|(known, _)| *known == source)?;
        Some((*canonical).to_owned())
    }

    /// The source name of a canonical tensor, or `None` if the table does not know it.
    pub fn source(&self, canonical: &str) -> Option<String> {
        if let Some((layer, rest)) = canonical.strip_prefix("blk.").and_then(split_number) {
            let (source, _) = self.layer.iter().find(|(_, known)| *known == rest)?;
            return Some(format!("{}{layer}.{source}", self.layer_prefix));
        }
        let (source, _) = self.globals.iter().find(|(_, known)| *known == canonical)?;
        Some((*source).to_owned())
    }

    /// Whether the source tensor is a buffer that nobody reads.
    pub fn is_ignored(&self, source: &str) -> bool {
        self.ignored.iter().any(|end| source.ends_with(end))
    }

    fn split_layer<'a>(&self, source: &'a str) -> Option<(&'a str, &'a str)> {
        split_number(source.strip_prefix(self.layer_prefix)?)
    }
}

/// `12.rest` to (`12`, `rest`); the number in its shortest form only.
pub(crate) fn split_number(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.split_once('.')?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let shortest = number == "0" || !number.starts_with('0');
    (digits && shortest).then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: Option<&str>) {
        assert_eq!(DENSE.canonical(source).as_deref(), expected, "{source}");
    }

    #[test]
    fn names_map_to_their_canonical_form() {
        check("model.embed_tokens.weight", Some("token_embd.weight"));
        check("lm_head.weight", Some("output.weight"));
        check("model.layers.0.self_attn.q_proj.weight", Some("blk.0.attn_q.weight"));
        check("model.layers.12.self_attn.k_proj.bias", Some("blk.12.attn_k.bias"));
        check("model.layers.7.post_attention_layernorm.weight", Some("blk.7.ffn_norm.weight"));
        check("model.layers.01.self_attn.q_proj.weight", None);
        check("model.layers..self_attn.q_proj.weight", None);
        check("model.layers.0.self_attn.rotary_emb.inv_freq", None);
        check("blk.0.attn_q.weight", None);
    }

    #[test]
    fn every_name_maps_back_to_its_source() {
        let globals = DENSE.globals.iter().map(|(source, _)| (*source).to_owned());
        let layer = DENSE.layer.iter().map(|(source, _)| format!("model.layers.3.{source}"));
        for source in globals.chain(layer) {
            let canonical = DENSE.canonical(&source).unwrap();
            assert_eq!(DENSE.source(&canonical), Some(source));
        }
    }
}
