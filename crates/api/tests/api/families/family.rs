//! The families under test: template, and the special tokens of the vocabulary.

use serde_json::{Value, json};
use std::path::Path;
use text::tool_formats::deepseek::{DEEPSEEK_V3, DEEPSEEK_V31};
use text::tool_formats::{atem::ATEM, glm::GLM, hy::HY, minimax_m3::MINIMAX_M3};
use text::tool_formats::{
    dsml::DSML, harmony::HARMONY, hermes::HERMES, llama::LLAMA, mistral::MISTRAL,
};
use text::{TextAssets, Tokenizer, ToolFormat};

/// Small vocabularies and templates.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../text/tests/data");

/// Templates in the form of published ones.
const OWN_DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

/// A family of models.
#[derive(Debug)]
pub struct Family {
    /// The file of its template.
    pub name: &'static str,
    pub format: &'static ToolFormat,
    /// The vocabulary of the family's text.
    base: &'static str,
    bos: Option<&'static str>,
    eos: &'static str,
    /// Control tokens.
    control: &'static [&'static str],
    /// Further markers that are tokens.
    markers: &'static [&'static str],
    /// Tokens that end an answer, in addition to its own end.
    pub ends: &'static [&'static str],
    /// The text before an answer in a conversation, and the text after a turn of calls.
    pub header: &'static str,
    pub end: &'static str,
    /// Whether reasoning is enclosed in tags.
    pub thinks: bool,
    /// The parts of a turn that the template renders besides the calls.
    pub content: bool,
    pub reasoning: bool,
    /// Several calls in a turn.
    pub many: bool,
}

const CHATML: &[&str] = &["<|im_start|>", "<|endoftext|>"];
const TOOL_CALL: &[&str] = &["<tool_call>", "</tool_call>"];
const DEEPSEEK: &[&str] = &[
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
];

const QWEN25: Family = Family {
    name: "Qwen-Qwen2.5-7B-Instruct",
    format: &HERMES,
    base: "qwen3",
    bos: None,
    eos: "<|im_end|>",
    control: CHATML,
    markers: TOOL_CALL,
    ends: &["<|endoftext|>"],
    header: "<|im_start|>assistant\n",
    end: "<|im_end|>",
    thinks: false,
    content: true,
    reasoning: false,
    many: true,
};

const V31: Family = Family {
    name: "deepseek-ai-DeepSeek-V3.1",
    format: &DEEPSEEK_V31,
    base: "qwen3",
    bos: Some("<｜begin▁of▁sentence｜>"),
    eos: "<｜end▁of▁sentence｜>",
    control: &[],
    markers: DEEPSEEK,
    ends: &[],
    header: "<｜Assistant｜>",
    end: "<｜end▁of▁sentence｜>",
    thinks: true,
    content: true,
    reasoning: false,
    many: true,
};

pub static FAMILIES: [Family; 9] = [
    QWEN25,
    Family {
        name: "Qwen-Qwen3-0.6B",
        markers: &["<tool_call>", "</tool_call>", "<think>", "</think>"],
        thinks: true,
        reasoning: true,
        ..QWEN25
    },
    Family {
        name: "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        base: "llama3",
        bos: Some("<|begin_of_text|>"),
        control: &["<|im_start|>"],
        ends: &[],
        content: false,
        ..QWEN25
    },
    Family {
        name: "meta-llama-Llama-3.1-8B-Instruct",
        format: &LLAMA,
        base: "llama3",
        bos: Some("<|begin_of_text|>"),
        eos: "<|eot_id|>",
        control: &["<|python_tag|>", "<|eom_id|>"],
        markers: &[],
        ends: &["<|end_of_text|>", "<|eom_id|>"],
        header: "<|start_header_id|>assistant<|end_header_id|>\n\n",
        end: "<|eot_id|>",
        content: false,
        many: false,
        ..QWEN25
    },
    Family {
        name: "mistralai-Mistral-Nemo-Instruct-2407",
        format: &MISTRAL,
        base: "mistral",
        bos: Some("<s>"),
        eos: "</s>",
        control: &[
            "[INST]",
            "[/INST]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
            "[TOOL_CALLS]",
        ],
        markers: &[],
        ends: &[],
        header: "[/INST]",
        end: "</s>",
        content: false,
        ..QWEN25
    },
    V31,
    Family {
        name: "deepseek-ai-DeepSeek-V4",
        format: &DSML,
        markers: &["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"],
        reasoning: true,
        ..V31
    },
    Family {
        name: "openai-gpt-oss-120b",
        format: &HARMONY,
        base: "llama3",
        bos: None,
        eos: "<|return|>",
        control: &[
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|channel|>",
            "<|constrain|>",
            "<|call|>",
        ],
        markers: &[],
        ends: &["<|call|>", "<|end_of_text|>"],
        header: "<|start|>assistant",
        end: "<|call|>",
        content: false,
        reasoning: true,
        many: false,
        ..QWEN25
    },
    Family {
        name: "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        format: &DEEPSEEK_V3,
        content: false,
        ..V31
    },
];

const THINKERS: Family = Family {
    base: "qwen3",
    bos: Some("<|begin_of_text|>"),
    thinks: true,
    reasoning: true,
    ends: &[],
    markers: &[],
    ..QWEN25
};

/// Families whose arguments are plain text, and whose reasoning has tags or messages of its own.
pub static AUTUMN: [Family; 4] = [
    Family {
        name: "muse-glimmer",
        format: &ATEM,
        base: "llama3",
        eos: "<|eot|>",
        control: &["<|start|>", "<|message|>", "<|eom|>"],
        header: "<|start|>assistant",
        end: "<|eot|>",
        thinks: false,
        content: false,
        ..THINKERS
    },
    Family {
        name: "glm-5.3",
        format: &GLM,
        eos: "<|user|>",
        control: &["<|system|>", "<|assistant|>", "<|observation|>"],
        markers: &["<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"],
        ends: &["<|observation|>"],
        header: "<|assistant|>",
        end: "<|observation|>",
        ..THINKERS
    },
    Family {
        name: "hy3",
        format: &HY,
        eos: "<｜hy_eos:opensource｜>",
        control: &["<｜hy_User:opensource｜>", "<｜hy_Assistant:opensource｜>"],
        markers: &[
            "<think:opensource>",
            "</think:opensource>",
            "<tool_calls:opensource>",
            "</tool_calls:opensource>",
            "<tool_call:opensource>",
            "<tool_sep:opensource>",
            "</arg_value:opensource>",
        ],
        header: "<｜hy_Assistant:opensource｜>",
        end: "<｜hy_eos:opensource｜>",
        ..THINKERS
    },
    Family {
        name: "minimax-m3",
        format: &MINIMAX_M3,
        eos: "[e~[",
        control: &["]~!b[", "]~b]", "]<]minimax[>["],
        markers: &["<mm:think>", "</mm:think>"],
        header: "]~b]ai\n",
        end: "[e~[",
        ..THINKERS
    },
];

/// Families whose templates have no place for tools, which are written as text.
pub static TOOLS_AS_TEXT: [Family; 2] = [
    Family {
        name: "gemma-3",
        base: "llama3",
        bos: Some("<bos>"),
        eos: "<end_of_turn>",
        control: &["<start_of_turn>"],
        markers: &[],
        ends: &[],
        header: "<start_of_turn>model\n",
        end: "<end_of_turn>",
        ..QWEN25
    },
    Family { name: "smollm2", markers: &[], ..QWEN25 },
];

impl Family {
    /// The source of its template, if that is at hand.
    pub fn template(&self) -> Option<String> {
        let file = format!("templates/{}.jinja", self.name);
        let own = [DATA, OWN_DATA].map(|folder| Path::new(folder).join(&file));
        if let Some(own) = own.iter().find(|own| own.is_file()) {
            return Some(read(own));
        }
        Some(read(&fixtures::find(&file)?))
    }

    /// The tokenizer of the family, with the names of its tokens.
    pub fn assets(&self) -> TextAssets {
        let folder = Path::new(DATA).join(self.base);
        let mut assets = TextAssets::from_folder(&folder).expect("the fixture is sound");
        let mut file: Value = json_of(&folder.join("tokenizer.json"));
        let first = assets.tokenizer.vocab_size();
        let added = file["added_tokens"].as_array_mut().expect("the fixture has added tokens");
        let model = added[0].clone();
        let control = self.control.iter().chain(&self.bos).chain([&self.eos]);
        let all = control.map(|text| (text, true)).chain(self.markers.iter().map(|m| (m, false)));
        let mut next = first;
        for (text, special) in all {
            if added.iter().any(|token| token["content"] == **text) {
                continue;
            }
            let mut token = model.clone();
            token["id"] = next.into();
            token["content"] = (*text).into();
            token["special"] = special.into();
            added.push(token);
            next += 1;
        }
        let config = json!({"bos_token": self.bos, "eos_token": self.eos}).to_string();
        let tokenizer =
            Tokenizer::from_json_bytes(file.to_string().as_bytes(), Some(config.as_bytes()));
        assets.tokenizer = tokenizer.expect("the vocabulary is sound");
        assets.special.bos = self.bos.map(str::to_owned);
        assets.special.eos = Some(self.eos.to_owned());
        assets.templates = Default::default();
        assets
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&read(path)).expect("the fixture is JSON")
}

#[test]
fn every_template_shows_its_format() {
    for family in &FAMILIES {
        let Some(template) = family.template() else { continue };
        assert_eq!(ToolFormat::detect(&template), Some(family.format), "{}", family.name);
        let assets = family.assets();
        for text in family.control.iter().chain(family.markers).chain(family.ends) {
            assert!(assets.tokenizer.token_to_id(text).is_some(), "{}: {text}", family.name);
        }
    }
}
