use super::*;
use crate::Error;
use backend::Cpu;
use backend::Mode;
use formats::families::tensor_kind;
use kernels::Isa;
use kernels::quant::QuantType;
use kernels::quant::{BF16, F32, Q4_K, Q8_0, fp8::FP8_128};
use std::path::Path;

/// A model of three layers, the first dense and the others with experts.
fn model() -> Vec<TensorInfo> {
    let tensor = |name: &str, shape: &[usize], ty: &'static QuantType| {
        let bytes = ty.bytes_for(shape.iter().product()).unwrap();
        TensorInfo::new(name, shape, ty, bytes)
    };
    let mut all = vec![
        tensor("token_embd.weight", &[512, 256], &Q8_0),
        tensor("output_norm.weight", &[256], &F32),
        tensor("output.weight", &[512, 256], &Q8_0),
        tensor("blk.0.ffn_up.weight", &[512, 256], &Q4_K),
    ];
    for layer in 0..3 {
        all.push(tensor(&format!("blk.{layer}.attn_norm.weight"), &[256], &F32));
        all.push(tensor(&format!("blk.{layer}.attn_q.weight"), &[256, 256], &Q4_K));
        all.push(tensor(&format!("blk.{layer}.attn_q.bias"), &[256], &F32));
    }
    for layer in 1..3 {
        all.push(tensor(&format!("blk.{layer}.ffn_gate_inp.weight"), &[8, 256], &Q8_0));
        all.push(tensor(&format!("blk.{layer}.ffn_up_exps.weight"), &[8, 64, 256], &Q4_K));
        all.push(tensor(&format!("blk.{layer}.ffn_up_shexp.weight"), &[64, 256], &Q4_K));
    }
    all
}

fn parse(text: &str) -> Result<Placement, Error> {
    Placement::parse(text, Path::new("rules.yaml"))
}

fn cpu(mode: Mode, isa: Isa) -> Cpu {
    Cpu::with_isa(1, mode, isa).unwrap()
}

fn resolve_in(text: &str, mode: Mode) -> Result<Vec<Placed>, Error> {
    parse(text)?.resolve(&model(), &cpu(mode, Isa::available()[0]))
}

fn placed(text: &str, name: &str) -> Placed {
    let all = resolve_in(text, Mode::Fast).unwrap();
    all.into_iter().find(|placed| placed.name == name).unwrap()
}

/// One rule in flow style.
fn rule(matches: &str, place: &str) -> String {
    format!("- match: {{{matches}}}\n  place: {{{place}}}\n")
}

fn check_refused(text: &str, expected: &str) {
    let error = resolve_in(text, Mode::Fast).unwrap_err().to_string();
    assert!(error.starts_with("rules.yaml: "), "{error}");
    assert!(error.contains(expected), "expected {expected}, found {error}");
}

#[test]
fn without_rules_the_mode_decides_but_routers_and_norms_are_exact() {
    for text in ["", "# nothing\n\n"] {
        let of = |name| {
            let Placed { rule, mode, ty, memory, .. } = placed(text, name);
            (rule, mode, ty.name, memory)
        };
        assert_eq!(of("blk.1.attn_q.weight"), (None, Mode::Fast, "q4_k", TensorMemory::Packed));
        assert_eq!(
            of("blk.1.ffn_up_exps.weight"),
            (None, Mode::Fast, "q4_k", TensorMemory::Packed)
        );
        assert_eq!(
            of("blk.1.ffn_gate_inp.weight"),
            (None, Mode::Exact, "q8_0", TensorMemory::Mapped)
        );
        assert_eq!(of("blk.1.attn_norm.weight"), (None, Mode::Exact, "f32", TensorMemory::Copied));
        assert_eq!(of("blk.1.attn_q.bias"), (None, Mode::Exact, "f32", TensorMemory::Copied));
        assert_eq!(of("token_embd.weight"), (None, Mode::Fast, "q8_0", TensorMemory::Mapped));
    }
    for placed in resolve_in("", Mode::Exact).unwrap() {
        assert_eq!(placed.mode, Mode::Exact);
        assert_ne!(placed.memory, TensorMemory::Packed);
    }
}

#[test]
fn the_first_rule_that_matches_decides_alone() {
    let text = rule("layers: 1", "threads: 3") + &rule("kind: attention", "memory: locked");
    let first = placed(&text, "blk.1.attn_q.weight");
    assert_eq!(
        (first.rule, first.memory, first.decode_threads),
        (Some(1), TensorMemory::Packed, Some(3))
    );
    let second = placed(&text, "blk.2.attn_q.weight");
    assert_eq!(
        (second.rule, second.memory, second.decode_threads),
        (Some(2), TensorMemory::Locked, None)
    );
    assert_eq!(placed(&text, "output.weight").rule, None);
    // The built-in rules fill what it leaves open.
    assert_eq!(placed(&text, "blk.1.ffn_gate_inp.weight").mode, Mode::Exact);
    let text = rule("kind: router", "mode: fast, threads: 1");
    assert_eq!(placed(&text, "blk.1.ffn_gate_inp.weight").mode, Mode::Fast);
}

#[test]
fn all_conditions_of_a_rule_must_hold() {
    let matched = |conditions: &str| {
        let all = resolve_in(&rule(conditions, "threads: 1"), Mode::Fast).unwrap();
        all.iter().filter(|placed| placed.rule.is_some()).count()
    };
    assert_eq!(matched("name: ."), model().len());
    assert_eq!(matched(r"name: '^blk\.1\.'"), 6);
    assert_eq!(matched("layers: 1"), 6);
    assert_eq!(matched("layers: 1, kind: attention"), 2);
    assert_eq!(matched("layers: 1, kind: [attention, norm]"), 3);
    assert_eq!(matched("layers: 1, kind: attention, name: weight"), 1);
    assert_eq!(matched("kind: [embed, head]"), 2);
}

#[test]
fn layers_are_numbers_ranges_or_lists_of_them() {
    let layers = |text: &str| {
        let all = resolve_in(
            &rule(&format!("layers: {text}, name: attn_q.weight"), "threads: 1"),
            Mode::Fast,
        );
        let all = all.unwrap().into_iter().filter(|placed| placed.rule.is_some());
        all.map(|placed| tensor_kind(&placed.name).1.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(layers("1"), [1]);
    assert_eq!(layers("0-1"), [0, 1]);
    assert_eq!(layers("1-99"), [1, 2]);
    assert_eq!(layers("[0, '2']"), [0, 2]);
    assert_eq!(layers("[0-0, 2-2]"), [0, 2]);
    for wrong in ["7-3", "x", "-1", "1.5", "[1, a]", "3-", "true"] {
        check_refused(
            &rule(&format!("layers: {wrong}"), "threads: 1"),
            "match.layers: expected a layer",
        );
    }
}

#[test]
fn threads_may_differ_between_prefill_and_decode() {
    let threads = |place: &str| {
        let placed = placed(&rule("kind: head", place), "output.weight");
        (placed.prefill_threads, placed.decode_threads)
    };
    assert_eq!(threads("threads: 4"), (Some(4), Some(4)));
    assert_eq!(threads("threads: 4, decode: {threads: 2}"), (Some(4), Some(2)));
    assert_eq!(threads("prefill: {threads: 8}"), (Some(8), None));
}

#[test]
fn weights_can_be_converted_and_are_then_copies() {
    let text = rule("kind: attention", "type: q8_0") + &rule("kind: head", "type: f32");
    let packed = placed(&text, "blk.0.attn_q.weight");
    assert_eq!((packed.ty.name, packed.memory), ("q8_0", TensorMemory::Packed));
    assert_eq!(packed.bytes, 256 * 256 / 32 * 34);
    let copied = placed(&text, "output.weight");
    assert_eq!(
        (copied.ty.name, copied.memory, copied.bytes),
        ("f32", TensorMemory::Copied, 512 * 1024)
    );
    let kept = placed(&rule("kind: head", "type: q8_0, memory: locked"), "output.weight");
    assert_eq!((kept.ty.name, kept.memory), ("q8_0", TensorMemory::Locked));
}

#[test]
fn memory_says_which_bytes_are_held() {
    let bytes = |memory: &str| {
        let rules = rule("kind: routed_expert", &format!("memory: {memory}"));
        let placed = placed(&rules, "blk.1.ffn_up_exps.weight");
        (placed.mode, placed.bytes)
    };
    let stored = 8 * 64 * 256 / 256 * 144;
    assert_eq!(bytes("mapped"), (Mode::Fast, stored));
    assert_eq!(bytes("locked"), (Mode::Fast, stored));
    assert_eq!(bytes("disk"), (Mode::Fast, 0));
    assert_eq!(
        bytes("packed").1,
        8 * kernels::layout::packed(&Q4_K, 256, Isa::SCALAR)
            .unwrap()
            .bytes(&Q4_K, 64, 256)
            .unwrap()
    );
}

#[test]
fn a_shared_head_takes_the_bytes_that_the_embedding_leaves() {
    let mut tensors = model();
    tensors[2].bytes = 0;
    let head = |text: &str| {
        let placed = parse(text).unwrap().resolve(&tensors, &cpu(Mode::Exact, Isa::available()[0]));
        placed.unwrap()[2].bytes
    };
    assert_eq!(head(""), 0);
    assert_eq!(head(&rule("kind: embed", "memory: locked")), 0);
    for place in ["memory: disk", "type: f16"] {
        assert_eq!(head(&rule("kind: embed", place)), 512 * 256 / 32 * 34, "{place}");
    }
}

#[test]
fn only_what_decides_bits_is_in_the_digest() {
    let of = |text: &str| {
        let resolve = |text: &str| resolve_in(text, Mode::Fast).unwrap();
        digest(&resolve(text), &resolve(""))
    };
    let same = ["", "memory: packed", "threads: 1", "mode: fast", "type: q4_k"];
    for place in &same[1..] {
        assert_eq!(of(&rule("kind: attention", place)), "", "{place}");
    }
    let others = ["mode: exact", "type: q8_0", "memory: mapped", "mode: exact, type: q8_0"];
    let mut all = others.map(|place| of(&rule("kind: dense", place))).to_vec();
    all.push(of(&rule("layers: 0", "mode: exact")));
    all.push(String::new());
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6);
    let stored = of(&rule("kind: dense", "memory: mapped"));
    assert_eq!(of(&rule("kind: dense", "memory: locked, threads: 2")), stored);
}

#[test]
fn nodes_that_weights_cannot_be_bound_to_are_refused() {
    check_refused(&rule("kind: head", "numa: 1"), "place.numa 1: weights cannot be bound");
    let one = resolve_in(&rule("kind: head", "numa: 0"), Mode::Fast);
    assert_eq!(one.is_ok(), base::numa::nodes() == 1);
}

#[test]
fn a_rule_that_does_nothing_is_named() {
    check_refused(
        &(rule("kind: head", "threads: 1") + &rule("layers: 7, kind: attention", "threads: 1")),
        "rule 2 (line 3, layers: 7, kind: attention): expected to match a tensor",
    );
    check_refused(
        &(rule("layers: 0-2", "threads: 1") + &rule("kind: router", "threads: 1")),
        "rule 2 (line 3, kind: router): decides nothing: earlier rules",
    );
    check_refused(
        &rule("kind: norm", "type: q8_0"),
        "rule 1 (line 1, kind: norm): expected to decide",
    );
    check_refused(&rule("name: bias$", "memory: locked"), "norms, biases and the like");
    resolve_in(&rule("kind: norm", "mode: exact, type: f32, threads: 1"), Mode::Fast).unwrap();
}

#[test]
fn what_cannot_be_is_refused_by_rule_and_tensor() {
    check_refused(
        &rule("kind: head", "mode: exact, memory: packed"),
        "rule 1 (line 1, kind: head): place.memory packed: expected mode fast",
    );
    check_refused(
        &rule("kind: router", "memory: packed"),
        "blk.1.ffn_gate_inp.weight: place.memory packed: expected mode fast",
    );
    check_refused(
        &rule("kind: embed", "memory: packed"),
        "token_embd.weight: place.memory packed: there is no packed layout for q8_0",
    );
    check_refused(&rule("kind: head", "type: f32, memory: packed"), "no packed layout for f32");
    check_refused(
        &rule("kind: head", "type: f16, memory: mapped"),
        "weights converted to f16 are not those of the file",
    );
    check_refused(
        &rule("kind: attention", "type: f16, memory: disk"),
        "weights converted to f16 are not those of the file",
    );
    resolve_in(&rule("kind: [embed, attention, head]", "memory: disk"), Mode::Exact).unwrap();
    let all = rule("kind: head", "memory: packed");
    let error = resolve_in(&all, Mode::Exact).unwrap_err().to_string();
    assert!(error.contains("expected mode fast, found exact"), "{error}");
}

#[test]
fn only_matrices_that_inputs_are_multiplied_with_have_arithmetic() {
    let place = |name: &str| {
        let tensors = [TensorInfo::new(name, &[64, 32], &BF16, 64 * 32 * 2)];
        let placed = parse("").unwrap().resolve(&tensors, &cpu(Mode::Fast, Isa::SCALAR));
        let placed = placed.unwrap().remove(0);
        (placed.arithmetic.is_some(), placed.ty.name)
    };
    for name in ["attn_q", "shortconv.in_proj", "ssm_out", "ffn_latent_down"] {
        assert_eq!(place(&format!("blk.0.{name}.weight")), (true, "bf16"), "{name}");
    }
    for name in ["ssm_conv1d", "ssm_conv1d_v", "shortconv.conv", "ple_conv1d", "attn_norm"] {
        assert_eq!(place(&format!("blk.0.{name}.weight")), (false, "f32"), "{name}");
    }
    // Nothing reads the last one.
    for name in ["token_embd.weight", "blk.0.time_mix.weight"] {
        assert_eq!(place(name), (false, "bf16"), "{name}");
    }
}

#[test]
fn fp8_is_packed_in_fast_mode() {
    let tensors = [TensorInfo::new("blk.0.attn_q.weight", &[40, 256], &FP8_128, 40 * 2 * 132)];
    for isa in Isa::available() {
        let memory =
            |mode| parse("").unwrap().resolve(&tensors, &cpu(mode, isa)).unwrap().remove(0);
        let fast = memory(Mode::Fast);
        assert_eq!((fast.memory, fast.bytes), (TensorMemory::Packed, 48 * 2 * 132));
        assert_eq!(memory(Mode::Exact).memory, TensorMemory::Mapped);
    }
}

#[test]
fn rows_must_be_whole_blocks_of_the_new_type() {
    let tensors = [TensorInfo::new("blk.0.attn_q.weight", &[4, 96], &BF16, 4 * 96 * 2)];
    let resolve = |ty| {
        let rules = parse(&rule("kind: attention", &format!("type: {ty}"))).unwrap();
        rules.resolve(&tensors, &cpu(Mode::Fast, Isa::available()[0]))
    };
    assert_eq!(resolve("q8_0").unwrap()[0].ty.name, "q8_0");
    let error = resolve("q4_k").unwrap_err().to_string();
    assert!(error.contains("blocks of q4_k (256 values), found shape [4, 96]"), "{error}");
}

#[test]
fn unknown_fields_and_values_are_refused_with_the_nearest_known() {
    let ok = "kind: head";
    check_refused(
        &rule(ok, "thread: 1"),
        "rule 1 (line 1, kind: head): place.thread: no such field; did you mean threads?",
    );
    check_refused(
        &rule("kinds: head", "threads: 1"),
        "match.kinds: no such field; did you mean kind?",
    );
    check_refused("- mach: {}\n", "rule 1 (line 1): mach: no such field; did you mean match?");
    check_refused(&rule("kind: rooter", "threads: 1"), "did you mean router?, found rooter");
    check_refused(&rule(ok, "mode: quick"), "place.mode: expected one of exact, fast");
    check_refused(&rule(ok, "type: q9_0"), "place.type: expected keep or one of");
    check_refused(&rule(ok, "type: q8_1"), "a type that weights can be converted to");
    check_refused(&rule(ok, "memory: copied"), "expected one of packed, mapped, locked, disk");
    check_refused(
        &rule(ok, "device: cuda"),
        "place.device: expected cpu, gpu, gpu:N or reference, found cuda",
    );
    check_refused(&rule(ok, "device: gpu:x"), "place.device: expected cpu, gpu");
    check_refused(&rule(ok, "threads: 0"), "place.threads: expected at least 1 thread, found 0");
    check_refused(
        &rule(ok, "numa: -1"),
        "place.numa: expected the number of a NUMA node, found -1",
    );
    check_refused(&rule(ok, "decode: {thread: 1}"), "place.decode.thread: no such field");
    check_refused(&rule("name: '('", "threads: 1"), "match.name: expected a regular expression");
}

#[test]
fn modes_and_memory_are_one_for_prefill_and_decode() {
    check_refused(
        &rule("kind: head", "prefill: {mode: fast}"),
        "place.prefill.mode: the mode is one",
    );
    check_refused(
        &rule("kind: head", "decode: {memory: locked}"),
        "place.decode.memory: weights are held once",
    );
    check_refused(
        &rule("kind: head", "decode: {type: q8_0}"),
        "place.decode.type: weights are held once",
    );
}

#[test]
fn what_is_no_list_of_rules_is_refused() {
    check_refused("match: {kind: head}\n", "expected a list of rules");
    check_refused("- [\n", "expected a list of rules in YAML: unclosed bracket '[' at line 1");
    check_refused("- 7\n", "rule 1 (line 1): expected a mapping with match, place, found 7");
    check_refused(
        "- match: {}\n  place: {threads: 1}\n",
        "match: expected a mapping with name, layers, kind, found nothing",
    );
    check_refused("- match: {kind: head}\n", "expected place, found no such field");
    check_refused("- place: {threads: 1}\n", "expected match, found no such field");
    check_refused(&rule("kind: head, kind: embed", "threads: 1"), "kind");
}

#[test]
fn the_example_of_the_documents_is_read_and_followed() {
    let page = include_str!("../../../../docs/placement.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    assert_eq!(placed(text, "blk.2.ffn_up_exps.weight").memory, TensorMemory::Disk);
    assert_eq!(placed(text, "output.weight").memory, TensorMemory::Locked);
    let attention = placed(text, "blk.2.attn_q.weight");
    assert_eq!((attention.ty.name, attention.decode_threads), ("q4_0", Some(4)));
}
