//! The families of models, by how they write tool calls.
//!
//! A format is recognised from the source of the chat template, which renders earlier calls as
//! the model writes new ones.

pub(crate) mod deepseek;
pub(crate) mod dsml;
mod dsml_tag;
pub(crate) mod harmony;
pub(crate) mod mistral;
pub(crate) mod qwen_coder;

use std::fmt;
use std::str::FromStr;

/// How a family of models writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`: Hermes, Qwen 2.5, Qwen 3.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.
    QwenCoder,
    /// The whole answer is `{"name": .., "parameters": {..}}`: Llama 3.
    Llama,
    /// `[TOOL_CALLS]` before a JSON array, or before a name and `[ARGS]`.
    Mistral,
    /// DeepSeek V3 and R1: the arguments in a fenced block.
    DeepSeekV3,
    /// DeepSeek V3.1: the arguments bare.
    DeepSeekV31,
    /// DeepSeek's markup of invocations and parameters.
    Dsml,
    /// Messages with channels and recipients: gpt-oss.
    Harmony,
}

/// What there is to know of a format but its grammar.
struct Facts {
    format: ToolFormat,
    name: &'static str,
    markers: &'static [&'static str],
    block_starts: &'static [&'static str],
}

const DEEPSEEK_MARKERS: &[&str] = &[
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
];

const FACTS: [Facts; 8] = [
    Facts {
        format: ToolFormat::Hermes,
        name: "hermes",
        markers: &["<tool_call>", "</tool_call>"],
        block_starts: &["<tool_call>"],
    },
    Facts {
        format: ToolFormat::QwenCoder,
        name: "qwen-coder",
        markers: &["<tool_call>", "</tool_call>"],
        block_starts: &["<tool_call>", "<function="],
    },
    Facts {
        format: ToolFormat::Llama,
        name: "llama",
        markers: &["<|python_tag|>"],
        block_starts: &["<|python_tag|>", "{\"name\":"],
    },
    Facts {
        format: ToolFormat::Mistral,
        name: "mistral",
        markers: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
        block_starts: &["[TOOL_CALLS]"],
    },
    Facts {
        format: ToolFormat::DeepSeekV3,
        name: "deepseek-v3",
        markers: DEEPSEEK_MARKERS,
        block_starts: &["<｜tool▁calls▁begin｜>"],
    },
    Facts {
        format: ToolFormat::DeepSeekV31,
        name: "deepseek-v3.1",
        markers: DEEPSEEK_MARKERS,
        block_starts: &["<｜tool▁calls▁begin｜>"],
    },
    Facts {
        format: ToolFormat::Dsml,
        name: "dsml",
        markers: &["｜DSML｜"],
        block_starts: &[
            "<｜DSML｜tool_calls",
            "<DSML｜tool_calls",
            "<tool_calls",
            "<｜DSML｜function_calls",
            "<｜DSML｜invoke",
        ],
    },
    Facts {
        format: ToolFormat::Harmony,
        name: "harmony",
        markers: &harmony::MARKERS,
        block_starts: &["<|channel|>commentary to=functions.", " to=functions."],
    },
];

impl ToolFormat {
    /// Every format.
    pub const ALL: &[Self] = &[
        Self::Hermes,
        Self::QwenCoder,
        Self::Llama,
        Self::Mistral,
        Self::DeepSeekV3,
        Self::DeepSeekV31,
        Self::Dsml,
        Self::Harmony,
    ];

    /// Its name, as options and [`FromStr`] have it.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The format that a chat template's source shows, if it shows one.
    pub fn detect(template: &str) -> Option<Self> {
        let has = |text: &str| template.contains(text);
        let found = [
            (has("｜DSML｜"), Some(Self::Dsml)),
            (has("<|channel|>") && has("<|message|>"), Some(Self::Harmony)),
            (has("<｜tool▁sep｜>") && has("```json"), Some(Self::DeepSeekV3)),
            (has("<｜tool▁sep｜>"), Some(Self::DeepSeekV31)),
            (has("<function="), Some(Self::QwenCoder)),
            // Keys and values in tags of their own: not a format that is known here.
            (has("<arg_key>"), None),
            (has("<tool_call>"), Some(Self::Hermes)),
            (has("[TOOL_CALLS]"), Some(Self::Mistral)),
            (has("<|python_tag|>"), Some(Self::Llama)),
            (has("<|start_header_id|>") && has("\"parameters\": "), Some(Self::Llama)),
        ];
        found.into_iter().find(|(shown, _)| *shown)?.1
    }

    /// Texts which, where they are special tokens of the vocabulary, the parser must be shown.
    pub fn markers(self) -> &'static [&'static str] {
        self.facts().markers
    }

    /// Literals with which a block of calls can begin, without the white space before them.
    pub fn block_starts(self) -> &'static [&'static str] {
        self.facts().block_starts
    }

    fn facts(self) -> &'static Facts {
        FACTS.iter().find(|facts| facts.format == self).expect("every format has its facts")
    }
}

impl fmt::Display for ToolFormat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool format \"{found}\" (known: {known})")]
pub struct UnknownFormat {
    found: String,
    known: String,
}

impl FromStr for ToolFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.iter().find(|format| format.name() == name);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
            UnknownFormat { found: name.to_owned(), known: known.join(", ") }
        })
    }
}
