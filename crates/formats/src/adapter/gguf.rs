//! Adapters in GGUF files, as llama.cpp's converter writes them.
//!
//! Source: `convert_lora_to_gguf.py` and `src/llama-adapter.cpp` of llama.cpp. Factors have the
//! name of their matrix with `.lora_a` and `.lora_b`; query and key rows lie as in GGUF files of
//! the family.

use std::path::Path;

use crate::adapter::pair::AdapterPair;
use crate::adapter::reader::{Factor, Found, Reader, Source, add};
use crate::checkpoint::gguf_name;
use crate::config::family::Family;
use crate::error::Result;
use crate::gguf::GgufFile;

/// Reads the adapter in `file` for a model of `family`.
pub(super) fn read(reader: &Reader<'_>, file: &Path, family: &Family) -> Result<Vec<AdapterPair>> {
    let gguf = GgufFile::open(file)?;
    let metadata = gguf.metadata();
    let expect = |key: &str, expected: &[&str]| {
        let found = metadata.opt_text(key)?;
        if found.is_some_and(|found| expected.contains(&found)) {
            return Ok(());
        }
        let found = found.map_or_else(|| "no such key".to_owned(), crate::error::shown);
        Err(metadata.error(key, format!("expected {}, found {found}", expected.join(" or "))))
    };
    expect("general.type", &["adapter"])?;
    expect("adapter.type", &["lora"])?;
    expect("general.architecture", &family.gguf_names().collect::<Vec<_>>())?;
    const INVOCATION: &str = "adapter.alora.invocation_tokens";
    if metadata.get(INVOCATION).is_some() {
        return Err(metadata.error(INVOCATION, "activated adapters are not supported"));
    }
    let alpha = metadata.opt_float("adapter.lora.alpha")?.unwrap_or(0.0);
    if !alpha.is_finite() {
        let problem = format!("expected a finite number, found {alpha}");
        return Err(metadata.error("adapter.lora.alpha", problem));
    }
    let mut found = Found::new();
    for view in gguf.tensors() {
        let (matrix, factor) = match view.source_name.rsplit_once('.') {
            Some((matrix, "lora_a")) => (matrix, Factor::A),
            Some((matrix, "lora_b")) => (matrix, Factor::B),
            _ => return Err(view.error("expected a factor .lora_a or .lora_b, found another name")),
        };
        add(&mut found, gguf_name(family, matrix), factor, view)?;
    }
    // Without alpha, the product is added as it is.
    let scale = move |_: &_, rank| Ok(if alpha == 0.0 { 1.0 } else { alpha / rank as f32 });
    let source = Source { found, layout: family.gguf.rope, scale: Box::new(scale) };
    reader.pairs(family, &source)
}
