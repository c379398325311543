//! Whether the embedding is the output head too, by the tensors of a checkpoint.

use crate::config::ModelConfig;
use crate::tensor::TensorView;

/// Bytes compared at a time.
const RUN: usize = 1 << 20;

/// Leaves one of the two matrices where the configuration ties them and they are equal, or one is
/// missing. Where they differ, each is used, and the returned warning says so. Models that do not
/// generate have no output head.
pub(super) fn settle(views: &mut Vec<TensorView>, config: &mut ModelConfig) -> Option<String> {
    let find = |name| views.iter().position(|view| view.name == name);
    let head = find(OUTPUT)?;
    match find(EMBEDDING) {
        None if config.said.tied_embeddings => {
            views[head] = views[head].named(EMBEDDING.to_owned());
            None
        }
        Some(_) if !config.generates() => {
            views.remove(head);
            None
        }
        Some(embedding) if config.said.tied_embeddings => {
            if are_equal(&views[embedding], &views[head]) {
                views.remove(head);
                return None;
            }
            *config = config.with(|said| said.tied_embeddings = false);
            let (embedding, head) = (&views[embedding].source_name, &views[head].source_name);
            Some(format!(
                "the configuration ties the output head to the embedding, but the tensors \
                 {embedding} and {head} differ: each is used"
            ))
        }
        _ => None,
    }
}

/// Whether two tensors are stored alike and have the same bytes.
fn are_equal(a: &TensorView, b: &TensorView) -> bool {
    if (a.ty, &a.shape, &a.order) != (b.ty, &b.shape, &b.order) {
        return false;
    }
    let (a, b) = (a.bytes(), b.bytes());
    let runs = (0..a.len()).step_by(RUN).map(|start| start..a.len().min(start + RUN));
    { runs }.all(|run| a.read(run.clone()) == b.read(run))
}

pub(super) const EMBEDDING: &str = "token_embd.weight";

pub(super) const OUTPUT: &str = "output.weight";
