//! The pre-tokenizers that GGUF vocabularies name in `tokenizer.ggml.pre`.
//!
//! Names and expressions are those of llama.cpp; where llama.cpp approximates an expression of the
//! original tokenizer, the original is used. Each expression splits the pieces that the expressions
//! before it left; text that no expression matches stays a piece.

/// Contractions in any case.
macro_rules! contractions {
    () => {
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}

/// The tail that most expressions share: punctuation with line ends, then white space.
macro_rules! tail {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}

/// ASCII punctuation before letters, words, other punctuation, white space.
macro_rules! deepseek3_words {
    () => {
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Words that break where lower case ends: an upper part, a lower part, a contraction.
macro_rules! cased_words {
    ($suffix:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix
        )
    };
}

/// The expression of GPT-2, which `ByteLevel` stages split by.
pub const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|", tail!());
const QWEN2: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", tail!());
const QWEN35: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str =
    concat!(cased_words!(""), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const GPT4O: &str = concat!(
    cased_words!(concat!(contractions!(), "?")),
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const SEED_CODER: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const BAILING: &str = concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
);
/// The letters with case that DeepSeek LLM splits on, with a space before them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}",
    r"\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}",
    r"\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}",
    r"\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}",
    r"\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}",
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}",
    r"\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}",
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}",
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}",
    r"\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}",
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}-\x{2184}\x{2C00}-\x{2C7B}",
    r"\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}",
    r"\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}",
    r"\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}",
    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+",
);
/// Ideographs and Hangul, as DeepSeek has them.
const DEEPSEEK_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const DEEPSEEK_LLM: &[&str] = &[
    r"[\r\n]",
    DEEPSEEK_LETTERS,
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    r"\s+$",
    DEEPSEEK_CJK,
    r"\p{N}+",
];
const DEEPSEEK_CODER: &[&str] = &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"];
const DEEPSEEK3: &[&str] = &[r"\p{N}{1,3}", DEEPSEEK3_CJK, deepseek3_words!()];
const DEFAULT: &[&str] = &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"];
const FALCON: &[&str] = &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"];
/// Ideographs and kana, as DeepSeek V3 has them.
const DEEPSEEK3_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
const SPARK: &[&str] = &[
    r"\p{N}{1,3}",
    DEEPSEEK3_CJK,
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
    ),
    r"\p{N}",
];
const YOUTU: &[&str] = &[
    concat!(
        r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+",
        r"|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}",
        r"\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+",
        r"|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
    ),
    concat!(
        cased_words!(concat!(contractions!(), "?")),
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
];
/// Runs of ideographs, and words without them.
const KIMI: &str = concat!(
    r"[\p{Han}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    contractions!(),
    r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    contractions!(),
    r"?|\p{N}{1,3}|",
    tail!()
);
/// Digits in groups of three, counted from the end of a run: what is left over comes first.
const GROUPED: &str = r"(?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{3}|\p{N}+";
/// The same within a run of numbers that may have others than digits.
const GROUPED_DIGITS: &str = r"(?<!\d)\d{1,2}(?=(?:\d{3})+(?!\d))|\d{3}";
/// The same for runs before the end of a word; others stay.
const GROUPED_WORDS: &str = r"(?<!\d)\d{1,3}(?=(?:\d{3})*\b)|\G(?<=\d)\d{3}";
const AFMOE: &[&str] = &[
    GROUPED,
    concat!(
        r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}",
        r"\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}",
        r"\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}",
        r"\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
    ),
    deepseek3_words!(),
];
const CHAMELEON: &[&str] = &[
    "<sentinel:[0-9]+>",
    "IMGIMG[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT2,
];
const EXAONE_MOE: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
);
const JAIS2: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)",
    r"|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s"
);
const MINICPM5: &[&str] =
    &[r"\p{N}{1,3}", concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|", tail!())];
const UFAKZEKA: &str = concat!(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", tail!());
const VIKING_WORDS: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+";

/// One kind of pre-tokenizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreType {
    /// Expressions, applied one after the other.
    pub expressions: &'static [&'static str],
    /// Whether a piece that is a token is taken whole, without merges.
    pub ignore_merges: bool,
    /// Whether a begin-of-sequence token is added if the file does not say.
    pub add_bos: bool,
    /// Whether two texts have a separator between them if the file does not say; `None`: they
    /// follow each other.
    pub separates: Option<bool>,
    /// Whether characters are composed first (NFC).
    pub composes: bool,
    /// The characters that tokens are written in.
    pub alphabet: Alphabet,
}

/// The characters that the tokens of byte-pair encoding are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// One character for each byte, as GPT-2 has it.
    Bytes,
    /// Text whose spaces are `▁`; merges cross them, and a begin-of-sequence token is always added
    /// (`false`: as the file says).
    Marked(bool),
    /// The words of the text; white space is left out.
    Words,
}

impl PreType {
    /// The kind of most vocabularies: merges always, no begin-of-sequence token.
    const fn plain(expressions: &'static [&'static str]) -> Self {
        PreType {
            expressions,
            ignore_merges: false,
            add_bos: false,
            separates: None,
            composes: false,
            alphabet: Alphabet::Bytes,
        }
    }

    /// The kind in which a piece that is a token needs no merges.
    const fn merged(expressions: &'static [&'static str]) -> Self {
        PreType { ignore_merges: true, ..Self::plain(expressions) }
    }

    /// The kind of Llama 3 and Tekken.
    const fn whole(expressions: &'static [&'static str]) -> Self {
        PreType { add_bos: true, ..Self::merged(expressions) }
    }
}

/// Names, separated by spaces, and their kind.
const TABLE: &[(&str, PreType)] = &[
    ("default", PreType::plain(DEFAULT)),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        PreType::whole(&[LLAMA3]),
    ),
    ("dbrx smaug-bpe chatglm-bpe", PreType::plain(&[LLAMA3])),
    ("glm4 glm5", PreType::merged(&[LLAMA3])),
    ("jais-2", PreType::plain(&[JAIS2])),
    ("minicpm5", PreType::merged(MINICPM5)),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open megrez grok-2",
        PreType::plain(&[QWEN2]),
    ),
    ("qwen35", PreType::plain(&[QWEN35])),
    ("ufakzeka", PreType::plain(&[UFAKZEKA])),
    ("laguna", PreType::plain(&[r"[^\n]+|[\n]+", QWEN2])),
    ("exaone-moe", PreType::plain(&[EXAONE_MOE])),
    ("deepseek-llm", PreType::plain(DEEPSEEK_LLM)),
    ("deepseek-coder", PreType::plain(DEEPSEEK_CODER)),
    ("deepseek-v3 joyai-llm hunyuan-dense hy_v4", PreType::plain(DEEPSEEK3)),
    ("spark2_5", PreType::plain(SPARK)),
    ("youtu", PreType::merged(YOUTU)),
    ("kimi-k2", PreType::plain(&[KIMI])),
    ("afmoe", PreType::plain(AFMOE)),
    ("superbpe", PreType::plain(&[r"\p{N}+", GROUPED_DIGITS])),
    (
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum \
         mpt olmo jais trillion granite-docling exaone4",
        PreType::plain(&[GPT2]),
    ),
    (
        "roberta-bpe jina-v1-en jina-v2-code",
        PreType { separates: Some(true), ..PreType::plain(&[GPT2]) },
    ),
    ("modern-bert", PreType { composes: true, ..PreType::plain(&[GPT2]) }),
    (
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        PreType::plain(&[r"\p{N}", GPT2]),
    ),
    ("falcon", PreType::plain(FALCON)),
    ("tekken", PreType::whole(&[TEKKEN])),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", PreType::plain(&[GPT4O])),
    ("granite-embed-multi-97m", PreType::merged(&[GPT4O])),
    ("tiny_aya cohere2moe", PreType::plain(&[GROUPED_WORDS, GPT4O])),
    ("chameleon", PreType { add_bos: true, ..PreType::plain(CHAMELEON) }),
    ("seed-coder", PreType::plain(&[SEED_CODER])),
    ("bailingmoe bailingmoe2 llada-moe", PreType::plain(&[BAILING])),
    ("poro-chat bloom gpt3-finnish", PreType::plain(&[VIKING_WORDS])),
    ("viking", PreType::plain(&[VIKING_WORDS, r"\p{N}"])),
    (
        "gemma4 granite-embed-multi-311m",
        PreType { alphabet: Alphabet::Marked(true), ..PreType::plain(&[]) },
    ),
    ("sarvam-moe", PreType { alphabet: Alphabet::Marked(false), ..PreType::plain(&[]) }),
    ("whitespace", PreType { alphabet: Alphabet::Words, ..PreType::plain(&[]) }),
];

/// Returns the pre-tokenizer of this name.
pub fn find(name: &str) -> Option<PreType> {
    let row = TABLE.iter().find(|(names, _)| names.split(' ').any(|known| known == name));
    row.map(|(_, found)| *found)
}

/// Returns all names, for error messages.
pub(crate) fn known() -> String {
    let mut names: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.split(' ')).collect();
    names.sort_unstable();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    /// The pieces of a text, as the tokenizer splits it.
    fn split(kind: PreType, text: &str) -> Vec<String> {
        let mut parts = PreTokenizedString::from(text);
        crate::gguf::pre_tokenizer(kind).unwrap().pre_tokenize(&mut parts).unwrap();
        let parts = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        parts.into_iter().map(|(_, (start, end), _)| text[start..end].to_owned()).collect()
    }

    fn goldens() -> Value {
        serde_json::from_str(include_str!("../tests/data/pre_types.json")).unwrap()
    }

    #[test]
    fn every_expression_compiles_and_every_name_is_listed_once() {
        let mut names = Vec::new();
        for (row, kind) in TABLE {
            names.extend(row.split(' '));
            for expression in kind.expressions {
                fancy_regex::Regex::new(expression).unwrap();
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_pre_type_splits_as_published() {
        let goldens = goldens();
        let mut names = Vec::new();
        for row in goldens["rows"].as_array().unwrap() {
            for name in row["names"].as_str().unwrap().split(' ') {
                let kind = find(name).unwrap_or_else(|| panic!("{name} is unknown"));
                assert_eq!(row["whole"], kind.ignore_merges, "{name}");
                names.push(name);
                let texts = goldens["texts"].as_array().unwrap().iter();
                let cases = texts.zip(row["pieces"].as_array().unwrap());
                for (text, pieces) in cases.filter(|_| kind.alphabet == Alphabet::Bytes) {
                    let found = split(kind, text.as_str().unwrap());
                    assert_eq!(serde_json::json!(found), *pieces, "{name}: {text}");
                }
            }
        }
        names.sort_unstable();
        assert_eq!(names.join(", "), known(), "every name has a golden");
    }

    #[test]
    fn long_runs_of_digits_cost_time_in_proportion() {
        let digits = "1".repeat(50_000);
        for name in ["afmoe", "superbpe", "tiny_aya"] {
            let pieces = split(find(name).unwrap(), &digits);
            assert_eq!((pieces.len(), pieces[0].len(), pieces[1].len()), (16_667, 2, 3), "{name}");
        }
    }
}
