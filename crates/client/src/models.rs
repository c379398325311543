//! Lists of models.

use super::error::ClientError;
use super::origin::AnswerOrigin;
use super::wire::at_most;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Maximum size of a list in bytes.
pub(super) const MAX_LIST: usize = 4 << 20;
/// Maximum number of models.
const MAX_MODELS: usize = 1 << 14;

/// A model that a server lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// The name that requests give.
    pub id: String,
    /// Tokens that the context holds, if the server says so.
    pub context_length: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct WireModels {
    #[serde(deserialize_with = "at_most::<MAX_MODELS, _, _>")]
    data: Vec<WireModel>,
}

/// The length of the context has a name for each family of servers: Gannet's and OpenRouter's,
/// vLLM's, Groq's, LM Studio's, and llama.cpp's in `meta`.
#[derive(Debug, Deserialize)]
struct WireModel {
    id: String,
    context_length: Option<WireLength>,
    max_model_len: Option<WireLength>,
    context_window: Option<WireLength>,
    max_context_length: Option<WireLength>,
    meta: Option<WireMeta>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WireMeta {
    Known { n_ctx: Option<WireLength> },
    Other(IgnoredAny),
}

/// A number, or something else that is passed over.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum WireLength {
    Known(u64),
    Other(IgnoredAny),
}

/// Reads the body of a list.
///
/// # Errors
/// If it is no list of models.
pub(super) fn read(body: &[u8], origin: &AnswerOrigin) -> Result<Vec<ListedModel>, ClientError> {
    let list: WireModels = serde_json::from_slice(body).map_err(|error| {
        let expected = format!("a list of models ({error})");
        origin.malformed(&expected, &String::from_utf8_lossy(body))
    })?;
    Ok(list.data.into_iter().map(WireModel::listed).collect())
}

impl WireModel {
    fn listed(self) -> ListedModel {
        let meta = match self.meta {
            Some(WireMeta::Known { n_ctx }) => n_ctx,
            Some(WireMeta::Other(_)) | None => None,
        };
        let lengths = [
            self.context_length,
            self.max_model_len,
            self.context_window,
            self.max_context_length,
            meta,
        ];
        let known = |count| match count {
            WireLength::Known(count) => (count > 0).then_some(count),
            WireLength::Other(_) => None,
        };
        let context_length = lengths.into_iter().flatten().find_map(known);
        ListedModel { id: self.id, context_length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> AnswerOrigin {
        AnswerOrigin { url: "http://a/v1/models".into(), key: None }
    }

    fn check(model: &str, context_length: Option<u64>) {
        let body = format!(r#"{{"object": "list", "data": [{model}]}}"#);
        let expected = vec![ListedModel { id: "m".into(), context_length }];
        assert_eq!(read(body.as_bytes(), &origin()).unwrap(), expected, "{model}");
    }

    #[test]
    fn the_context_is_found_under_every_name() {
        check(r#"{"id": "m", "context_length": 7, "max_model_len": 8}"#, Some(7));
        check(r#"{"id": "m", "max_model_len": 8}"#, Some(8));
        check(r#"{"id": "m", "context_window": 9}"#, Some(9));
        check(r#"{"id": "m", "max_context_length": 10}"#, Some(10));
        check(r#"{"id": "m", "meta": {"n_ctx": 11, "n_ctx_train": 12}}"#, Some(11));
    }

    #[test]
    fn a_context_that_is_no_number_is_unknown() {
        check(r#"{"id": "m", "object": "model"}"#, None);
        check(r#"{"id": "m", "context_length": null, "meta": null}"#, None);
        check(r#"{"id": "m", "context_length": "many", "meta": "x"}"#, None);
        check(r#"{"id": "m", "context_length": -1, "max_model_len": 0}"#, None);
        check(r#"{"id": "m", "context_length": "many", "context_window": 9}"#, Some(9));
    }

    #[test]
    fn what_is_no_list_is_named() {
        for body in ["", "[]", "{}", r#"{"data": [{}]}"#, r#"{"data": 1}"#] {
            let refused = read(body.as_bytes(), &origin()).unwrap_err().to_string();
            assert!(refused.contains("expected a list of models"), "{refused}");
        }
    }
}
