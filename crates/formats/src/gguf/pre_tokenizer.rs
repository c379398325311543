//! Whether a file says how its texts are split.

use crate::gguf::metadata::Metadata;

/// What is said of a file that does not name the way in which its byte-level vocabulary splits a
/// text, for which llama.cpp's default stands in.
pub(crate) fn missing_pre_tokenizer(metadata: &Metadata) -> Option<String> {
    let text = |key: &str| metadata.opt_text(key).ok().flatten();
    let is_missing = text("tokenizer.ggml.pre").is_none_or(str::is_empty);
    (is_missing && text("tokenizer.ggml.model") == Some("gpt2")).then(|| {
        "tokenizer.ggml.pre is missing: texts are split by the rule \"default\", so that answers \
         are worse if the model was trained with another one"
            .to_owned()
    })
}
