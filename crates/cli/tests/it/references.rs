//! Every reference checkpoint of a supported architecture agrees with its reference outputs.

use crate::gannet::{check_error, run, succeed, tiny};
use std::io::Write;
use std::path::Path;

/// Checkpoints under `next/models` of families that can be run, and GGUF files under `next/gguf`.
const NEXT: [&str; 38] = [
    "cohere2",
    "deepseek_v32",
    "deepseek_v3_mtp",
    "deepseek_v4_mtp",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "falcon_h1",
    "gemma3_mm",
    "gemma3_text",
    "gemma4_mm",
    "gemma4_moe",
    "gemma4_text",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4_moe_mtp",
    "glm_moe_dsa",
    "gpt2",
    "granite",
    "granitemoehybrid",
    "hunyuan_v1_dense",
    "kimi_linear",
    "lfm2",
    "llama4_text",
    "minimax_m2",
    "ministral3",
    "nemotron_h",
    "olmo3",
    "phi3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_mtp",
    "qwen3_5_text",
    "qwen3_next_mtp",
    "seed_oss",
    "smollm3",
    "starcoder2",
];
/// Those of Gemma 3 do not say which of their layers have windows.
const NEXT_FILES: [&str; 11] = [
    "deepseek_v4_fp8_fp4-mxfp4",
    "gemma4_moe-q8_0",
    "gemma4_text-f16",
    "gemma4_text-q8_0",
    "glm4_moe-f16",
    "glm4_moe-q8_0",
    "qwen3_5-f16",
    "qwen3_5-q8_0",
    "qwen3_5_mtp-q8_0",
    "qwen3_next-f16",
    "qwen3_next-q8_0",
];

/// What is said of checkpoints of unknown families.
const UNKNOWN: &str = "is not supported (supported: ";

fn verify(device: &str, model: &Path, reference: &Path) {
    let paths = [model, reference].map(|path| path.to_str().unwrap());
    let args = ["verify", paths[0], "--reference", paths[1], "--mode", "exact"];
    succeed(&[&args[..], &["--device", device]].concat());
}

/// Verifies the checkpoints in a folder on the CPU; returns their number.
fn verify_all(folder: &Path, is_wanted: impl FnMut(&Path) -> bool) -> usize {
    verify_all_on("cpu", folder, is_wanted)
}

fn verify_all_on(device: &str, folder: &Path, mut is_wanted: impl FnMut(&Path) -> bool) -> usize {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let wanted: Vec<_> = entries.filter(|path| is_wanted(path)).collect();
    for path in &wanted {
        match path.is_dir() {
            true => verify(device, path, &path.join("reference.json")),
            false => verify(device, path, &path.with_extension("reference.json")),
        }
    }
    wanted.len()
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gguf")
}

#[test]
fn checkpoints_agree_with_hugging_face() {
    let Some(models) = fixtures::find("models") else { return };
    let verified = verify_all(&models, |_| true);
    assert!(verified >= 18, "{verified} checkpoints");
}

/// The tests of the engine compare all families on a GPU with the CPU.
#[test]
fn checkpoints_agree_with_hugging_face_on_a_gpu() {
    let (Some(device), Some(models)) = (fixtures::gpu(), fixtures::find("models")) else { return };
    let verified = verify_all_on(&device, &models, |_| true);
    assert!(verified >= 18, "{verified} checkpoints");
}

/// Families and options that the folder of all references has no checkpoint of.
#[test]
fn further_configurations_agree_with_hugging_face() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let all = ["lfm2_biased", "nemotron_3", "nemotron_3_mtp", "mistral_4"];
    for model in all.map(|name| models.join(name)) {
        verify("cpu", &model, &model.join("reference.json"));
    }
}

#[test]
fn embedding_models_and_rerankers_agree_with_hugging_face() {
    let Some(models) = fixtures::find("embeddings") else { return };
    let mut verified = 0;
    for entry in models.read_dir().unwrap() {
        let model = entry.unwrap().path();
        let reference = model.join("reference.json");
        let paths = [&model, &reference].map(|path| path.to_str().unwrap());
        for mode in ["exact", "fast"] {
            succeed(&["verify", paths[0], "--reference", paths[1], "--mode", mode]);
        }
        verified += 1;
    }
    assert!(verified >= 6, "{verified} checkpoints");
}

#[test]
fn gguf_files_agree_with_what_they_hold() {
    let Some(models) = fixtures::find("gguf/models") else { return };
    let verified = verify_all(&models, is_gguf);
    assert!(verified >= 12, "{verified} files");
}

#[test]
fn families_that_joined_later_agree_with_their_references() {
    let Some(models) = fixtures::find("next/models") else { return };
    let named = |path: &Path| path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
    let verified =
        verify_all(&models, |path| named(path).is_some_and(|name| NEXT.contains(&name.as_str())));
    assert_eq!(verified, NEXT.len());
    let Some(files) = fixtures::find("next/gguf") else { return };
    let verified = verify_all(&files, |path| {
        is_gguf(path) && named(path).is_some_and(|name| NEXT_FILES.contains(&name.as_str()))
    });
    assert_eq!(verified, NEXT_FILES.len());
}

/// Heads and assistants draft what the reference drafts, on the CPU and on a GPU.
#[test]
fn heads_draft_what_their_references_draft() {
    let Some(heads) = fixtures::find("next/drafters") else { return };
    let Some(models) = fixtures::find("next/models") else { return };
    let devices = [Some("cpu".to_owned()), fixtures::gpu()];
    let mut verified = 0;
    for head in heads.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(head.join("reference.json")).unwrap();
        let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
        let target = Path::new(reference["target"].as_str().unwrap()).file_name().unwrap();
        let paths = [&models.join(target), &head].map(|path| path.to_str().unwrap().to_owned());
        for device in devices.iter().flatten() {
            succeed(&["verify", &paths[0], "--draft-model", &paths[1], "--device", device]);
        }
        verified += 1;
    }
    assert!(verified >= 4, "{verified} heads");
}

/// Those of families that are not known are refused as such, and printed.
#[test]
fn families_of_autumn_2026_agree_with_hugging_face() {
    let Some(models) = fixtures::find("next/autumn/models") else { return };
    let mut unknown = Vec::new();
    let verified = verify_all(&models, |model| {
        let refused = run(&["verify", model.to_str().unwrap()]);
        let is_known = !refused.err.contains(UNKNOWN);
        if !is_known {
            unknown.push(model.file_name().unwrap().to_owned());
        }
        is_known
    });
    let report = format!("{verified} checkpoints of autumn 2026 agree; of no family: {unknown:?}");
    writeln!(std::io::stderr(), "{report}").unwrap();
}

#[test]
fn a_reference_beside_the_model_is_found() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    succeed(&["verify", model]);
    check_error(&run(&["verify", &tiny()]), "expected --reference");
    check_error(&run(&["verify", model, "--reference", "nofile"]), "cannot read nofile");
}
