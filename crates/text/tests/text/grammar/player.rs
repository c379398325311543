//! A model that chooses tokens at random and prefers to end the answer.

use base::Rng;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use text::{
    CompiledGrammar, GgufOptions, GrammarCompiler, GrammarSource, Matcher, TextAssets, Thinking,
    TokenKind, Tokenizer, ToolFormat,
};

/// Tokens before an answer counts as endless.
const PATIENCE: usize = 4000;
/// What ends texts of all kinds.
const ENDS: [&str; 7] =
    ["\"", "}", "]", "\n</parameter>\n", "</｜DSML｜parameter>\n", "</think>", "z"];
/// The same in calls that begin with other tags.
const TAG_ENDS: [&str; 7] =
    ["\"", "</atem:parameter>\n", "}", "</arg_value>\n", "]", "]<]minimax[>[", "z"];

pub struct Player {
    pub assets: Arc<TextAssets>,
    pub compiler: GrammarCompiler,
}

/// The built-in vocabulary of 2048 tokens.
pub static TINY: LazyLock<Player> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tiny/model");
    Player::of(TextAssets::from_folder(&folder).unwrap())
});

/// The built-in vocabulary, with the markers of all formats as tokens.
pub static MARKED: LazyLock<Player> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tiny/model");
    let mut assets = TextAssets::from_folder(&folder).unwrap();
    let mut file = crate::common::json(&folder.join("tokenizer.json"));
    let added = file["added_tokens"].as_array_mut().unwrap();
    let first = added[0].clone();
    let mut id = assets.tokenizer.vocab_size();
    for marker in ToolFormat::ALL.iter().flat_map(|format| format.markers) {
        if added.iter().all(|token| token["content"] != *marker) {
            let mut token = first.clone();
            token["content"] = (*marker).into();
            token["id"] = id.into();
            token["special"] = false.into();
            added.push(token);
            id += 1;
        }
    }
    assets.tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes(), None).unwrap();
    Player::of(assets)
});

impl Player {
    pub fn of(assets: TextAssets) -> Self {
        let assets = Arc::new(assets);
        Self { compiler: GrammarCompiler::new(Arc::clone(&assets)), assets }
    }

    /// A large vocabulary, where it is at hand.
    pub fn shared(vocabulary: &str) -> Option<Self> {
        let file = fixtures::find(&format!("vocab/{vocabulary}"))?;
        Some(Self::of(TextAssets::load(&file, &GgufOptions::default()).unwrap()))
    }

    pub fn compile(&self, source: &GrammarSource) -> CompiledGrammar {
        self.compiler.compile(source, Thinking::None).unwrap_or_else(|e| panic!("{source:?}: {e}"))
    }

    /// The ids of an answer, and the state at its end.
    pub fn play(&self, grammar: &CompiledGrammar, rng: &mut Rng) -> (Vec<u32>, Matcher) {
        let (mut matcher, mut ids) = (grammar.start(), Vec::new());
        let phase = rng.below(200) as usize;
        while !matcher.is_complete() {
            let mut forced = Vec::new();
            matcher.forced(&mut forced);
            assert_eq!(matcher.allowed_prefix(&forced).unwrap(), forced.len());
            let (allowed, may_end) = allowed(&mut matcher);
            if let Some(first) = forced.first() {
                assert_eq!((&allowed[..], may_end), (&[*first][..], false));
            }
            if may_end && (allowed.is_empty() || rng.below(3) == 0) {
                break;
            }
            assert!(!allowed.is_empty(), "a dead end after {:?}", self.text(&ids));
            let id = self.choose(&ids, &allowed, phase, rng);
            assert_eq!(matcher.allowed_prefix(&[id]).unwrap(), 1);
            matcher.accept(id).unwrap();
            ids.push(id);
            assert!(ids.len() < PATIENCE, "no end: {}", self.text(&ids));
        }
        (ids, matcher)
    }

    /// The text of a random answer.
    pub fn answer(&self, grammar: &CompiledGrammar, rng: &mut Rng) -> String {
        let (ids, _) = self.play(grammar, rng);
        self.text(&ids)
    }

    pub fn text(&self, ids: &[u32]) -> String {
        self.assets.tokenizer.decode(ids, false)
    }

    /// Any token, the later the rather one that ends something.
    fn choose(&self, ids: &[u32], allowed: &[u32], phase: usize, rng: &mut Rng) -> u32 {
        let (tokenizer, any) = (&self.assets.tokenizer, allowed[pick(rng, allowed.len())]);
        if (rng.below(40) as usize) >= ids.len() {
            return any;
        }
        let tail: Vec<u8> = ids[ids.len().saturating_sub(40)..]
            .iter()
            .flat_map(|id| tokenizer.token_bytes(*id))
            .copied()
            .collect();
        let begun = self.text(&ids[..ids.len().min(60)]);
        let tagged = ["<atem:", "<arg_key>", "]<]minimax"].iter().any(|tag| begun.contains(tag));
        let ends = if tagged { TAG_ENDS } else { ENDS };
        let goal = ends[(phase + ids.len()) / 20 % ends.len()].as_bytes();
        let begun = (0..goal.len()).rev().find(|len| tail.ends_with(&goal[..*len])).unwrap_or(0);
        let bytes = |id: &&u32| tokenizer.token_bytes(**id);
        let is_marker = |id: &&u32| {
            tokenizer.token_kind(**id) == Some(TokenKind::Added) && bytes(id).starts_with(b"<")
        };
        let towards = |id: &&u32| !bytes(id).is_empty() && goal[begun..].starts_with(bytes(id));
        let end = allowed.iter().find(is_marker).filter(|_| rng.below(2) == 0);
        *end.or(allowed.iter().filter(towards).max_by_key(|id| bytes(id).len())).unwrap_or(&any)
    }
}

/// The ids that may come next, and whether the end may.
pub fn allowed(matcher: &mut Matcher) -> (Vec<u32>, bool) {
    let mut ids = Vec::new();
    let may_end = matcher.mask(|words| {
        let bits = words.iter().zip(0..).flat_map(|(word, at)| {
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 32 + bit)
        });
        ids.extend(bits);
    });
    (ids, may_end.unwrap())
}

/// A number below `count`.
pub fn pick(rng: &mut Rng, count: usize) -> usize {
    rng.below(count as u64) as usize
}
