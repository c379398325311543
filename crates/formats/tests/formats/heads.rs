//! Heads that draft tokens, in checkpoints of their own: both published forms are one head, and a
//! head for another model is refused with what differs.

use formats::layers::{KeySource, OpSpec};
use formats::{
    Checkpoint, DraftConfig, Eagle3Config, ModelFiles, OpenOptions, StreamNorm, TensorView,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HEADS: &str = "next/drafters";

fn open(name: &str) -> Option<Checkpoint> {
    let path = fixtures::find(&format!("next/models/{name}"))?;
    Some(Checkpoint::open(&path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}")))
}

/// The model with the head in this folder.
fn joined(model: &str, head: &Path) -> Result<Checkpoint, String> {
    let files = ModelFiles::open(head).map_err(|error| error.to_string())?;
    open(model).unwrap().with_head(&files).map_err(|error| error.to_string())
}

fn head_of(checkpoint: &Checkpoint) -> &Eagle3Config {
    match &checkpoint.config().drafter {
        Some(DraftConfig::Eagle3(head)) => head,
        other => panic!("{other:?}"),
    }
}

/// A copy of a head whose config.json is changed.
fn changed(head: &Path, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(head.join("config.json")).unwrap();
    let mut config = serde_json::from_str(&text).unwrap();
    change(&mut config);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::copy(head.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    folder
}

#[test]
fn both_published_forms_are_one_head() {
    let Some(form) = fixtures::find(&format!("{HEADS}/smollm3_eagle3")) else { return };
    let Some(other) = fixtures::find(&format!("{HEADS}/smollm3_eagle3-speculators")) else {
        return;
    };
    let [form, other]: [Checkpoint; 2] =
        [form, other].map(|path: PathBuf| joined("smollm3", &path).unwrap());
    let head = head_of(&form);
    assert_eq!(head, head_of(&other));
    let sizes = (head.width, &head.taps[..], head.words, head.stream_norm);
    assert_eq!(sizes, (64, &[1, 2, 3][..], 528, StreamNorm::None));
    let words = form.drafted_words().unwrap().unwrap();
    assert_eq!(words, other.drafted_words().unwrap().unwrap());
    assert!(words.len() == 528 && words.is_sorted() && words[527] > 527);
    let bytes = |checkpoint: &Checkpoint| {
        let view = |view: &TensorView| {
            (view.name.clone(), view.bytes().read(0..view.bytes().len()).into_owned())
        };
        checkpoint.tensors().map(view).collect::<BTreeMap<String, Vec<u8>>>()
    };
    assert!(bytes(&form) == bytes(&other));
}

#[test]
fn norms_of_a_head_are_read() {
    let path = format!("{HEADS}/olmo3_eagle3_norms-speculators");
    let Some(path) = fixtures::find(&path) else { return };
    let checkpoint = joined("olmo3", &path).unwrap();
    let head = head_of(&checkpoint);
    assert_eq!(head.stream_norm, StreamNorm::Whole);
    assert_eq!(head.layer.input, formats::MtpInput::Paired { normed: true });
    assert!(!head.normed_states);
    let each = changed(&path, |config| {
        config["fc_norm"] = json!(true);
        config["norm_output"] = json!(true);
        config["eagle_aux_hidden_state_layer_ids"] = json!([0, 1, 4]);
    });
    let checkpoint = joined("olmo3", each.path()).unwrap();
    let head = head_of(&checkpoint);
    assert!(head.normed_states && head.taps == [0, 1, 4]);
    let usual = changed(&path, |it| it["eagle_aux_hidden_state_layer_ids"] = json!([]));
    assert_eq!(head_of(&joined("olmo3", usual.path()).unwrap()).taps, [1, 2, 2]);
}

#[test]
fn a_head_for_another_model_is_refused_with_what_differs() {
    let Some(path) = fixtures::find(&format!("{HEADS}/smollm3_eagle3")) else { return };
    let refused = |change: &dyn Fn(&mut Value), expected: &str| {
        let folder = changed(&path, change);
        let error = joined("smollm3", folder.path()).unwrap_err();
        assert!(error.contains(expected), "{error}: {expected}");
        assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
    };
    let taps = "eagle_config";
    refused(&|it| it["vocab_size"] = json!(640), "vocabulary size 704, found one for 640");
    refused(&|it| it["target_hidden_size"] = json!(32), "hidden size 64, found one for 32");
    let beyond = |it: &mut Value| it[taps]["eagle_aux_hidden_state_layer_ids"] = json!([1, 2, 5]);
    refused(&beyond, "of a model of 4, found layer 5");
    let many = |it: &mut Value| it[taps]["eagle_aux_hidden_state_layer_ids"] = json!(vec![1; 9]);
    refused(&many, "at most 8 layers, found 9");
    let text = |it: &mut Value| it[taps]["eagle_aux_hidden_state_layer_ids"] = json!(["1"]);
    refused(&text, "numbers of layers from 0 on, found something else");
    refused(&|it| it["draft_vocab_size"] = json!(500), "500 numbers of words in d2t, found 528");
    refused(&|it| it["norm_before_fc"] = json!(true), "fc_norm.weight");
    refused(&|it| it["num_hidden_layers"] = json!(2), "head of 1 layer, found 2");
    refused(&|it| it["hidden_size"] = json!(32), "embeddings of its own");
    refused(&|it| it["speculators_model_type"] = json!("eagle"), "expected eagle3, found eagle");
    let error = joined("smollm3", &fixtures::find("next/models/olmo3").unwrap()).unwrap_err();
    assert!(error.contains("expected a head that drafts tokens, found none"), "{error}");
    let error = Checkpoint::open(&path, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("found a head that drafts tokens for one (eagle3"), "{error}");
}

#[test]
fn an_assistant_is_for_a_model_with_its_layers() {
    let Some(path) = fixtures::find(&format!("{HEADS}/gemma4_text_assistant")) else { return };
    let checkpoint = joined("gemma4_text", &path).unwrap();
    let Some(DraftConfig::Assistant(assistant)) = &checkpoint.config().drafter else { panic!() };
    let sources: Vec<KeySource> = assistant
        .layers
        .iter()
        .flat_map(|layer| layer.ops())
        .filter_map(|op| if let OpSpec::Grouped(spec) = op { Some(spec.keys) } else { None })
        .collect();
    // The model's last layers share those of layers 1 and 2.
    assert_eq!(sources, [1, 1, 1, 2].map(KeySource::Layer));
    // The assistant's queries are after all rows with keys, and see one row more than the model's.
    let kept =
        |checkpoint: &Checkpoint| checkpoint.config().layers[0].cache(0, false).rows[0].window;
    assert_eq!((kept(&checkpoint), kept(&open("gemma4_text").unwrap())), (Some(18), Some(16)));
    let refused = |change: &dyn Fn(&mut Value), expected: &str| {
        let folder = changed(&path, change);
        let error = joined("gemma4_text", folder.path()).unwrap_err();
        assert!(error.contains(expected), "{error}: {expected}");
    };
    refused(&|it| it["backbone_hidden_size"] = json!(128), "hidden size 64, found one for 128");
    refused(&|it| it["text_config"]["vocab_size"] = json!(620), "640, found one for 620");
    refused(
        &|it| it["text_config"]["sliding_window"] = json!(8),
        "a window of 16 as the model has, found 8",
    );
    refused(&|it| it["text_config"]["head_dim"] = json!(32), "heads of 16 values");
    let ordered = |it: &mut Value| {
        it["use_ordered_embeddings"] = json!(true);
        it["num_centroids"] = json!(7);
    };
    refused(&ordered, "centroids that divide 640 words");
    let missing = |it: &mut Value| {
        it["use_ordered_embeddings"] = json!(true);
        it["num_centroids"] = json!(64);
    };
    refused(&missing, "masked_embd_centroids.weight");
    let files = ModelFiles::open(&path).unwrap();
    let error = open("smollm3").unwrap().with_head(&files).unwrap_err().to_string();
    assert!(error.contains("vocabulary size 704, found one for 640"), "{error}");
}
