//! Vectors of texts, for every protocol that has them.

use crate::app::App;
use crate::fault::Fault;
use crate::guard::RequestId;
use api::{Embed, EncodeOptions, Prompt, Service, Terms};
use futures_util::{StreamExt, TryStreamExt, stream};

/// Most texts of one request.
pub(crate) const MOST_TEXTS: usize = 2048;
/// Texts that are computed at a time; the others wait outside the engine's queue.
const AT_A_TIME: usize = 16;

/// The vectors of one request, and the tokens of its texts.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    pub vectors: Vec<Vec<f32>>,
    pub tokens: usize,
}

/// The ids of texts, of which there must be 1 to [`MOST_TEXTS`] in the field `param`.
pub(crate) fn prompts(
    service: &Service,
    texts: Vec<Prompt>,
    param: &str,
) -> Result<Vec<Prompt>, Fault> {
    if !(1..=MOST_TEXTS).contains(&texts.len()) {
        let message = format!("{param} must hold 1 to {MOST_TEXTS} texts, not {}", texts.len());
        return Err(Fault::invalid(param, message));
    }
    let options = EncodeOptions { add_special: true, parse_special: false };
    let ids = |prompt: Prompt| match prompt {
        Prompt::Text(text) => service.tokenize(&text, options).map(Prompt::Ids),
        ids @ Prompt::Ids(_) => Ok(ids),
    };
    let ids: Result<Vec<Prompt>, _> = texts.into_iter().map(ids).collect();
    ids.map_err(|error| Fault::of(error, param))
}

/// The vectors of all `prompts`, in their order.
pub(crate) async fn compute(
    app: &App,
    prompts: Vec<Prompt>,
    embed: Embed,
    terms: &Terms,
    id: &RequestId,
) -> Result<Vectors, Fault> {
    // Each is paid for once it is there, whatever becomes of the others.
    let one = |prompt: Prompt| async move {
        let found = app.service.embed(&prompt, embed, terms).await;
        found.inspect(|found| id.spend(found.usage.prompt_tokens))
    };
    let all = stream::iter(prompts).map(one).buffered(AT_A_TIME.min(app.service.queue()));
    let found: Vec<_> = all.try_collect().await.map_err(|error| Fault::of(error, "input"))?;
    let tokens = found.iter().map(|one| one.usage.prompt_tokens).sum();
    Ok(Vectors { vectors: found.into_iter().map(|one| one.vector).collect(), tokens })
}
