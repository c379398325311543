//! Finds a model: a folder, a file, `owner/name` on a hub, or the built-in model.

use crate::error::OpenError;
use base::user_folders;
use formats::gguf;
use hub::{HubSettings, ModelRef};
use std::path::{Path, PathBuf};

/// The name of the built-in model as an option.
pub(crate) const BUILTIN: &str = "builtin";

/// The folder or file of `model`, downloaded first from the hub at `endpoint`, or else that of the
/// environment.
pub(crate) fn locate(model: &str, endpoint: Option<&str>) -> Result<PathBuf, OpenError> {
    let path = Path::new(model);
    if path.exists() {
        return Ok(path.to_owned());
    }
    if model == BUILTIN {
        let unpacked = tiny::unpack_below(user_folders::cache(), |_, _| {});
        return unpacked.map_err(OpenError::Unpack);
    }
    let on_hub = ModelRef::of_argument(model);
    let reference = on_hub.ok_or_else(|| OpenError::NotFound(model.to_owned()))?;
    let fetched = reference.and_then(|reference| {
        let settings = HubSettings::from_vars(|name| match (name, endpoint) {
            ("HF_ENDPOINT", Some(endpoint)) => Some(endpoint.to_owned()),
            _ => std::env::var(name).ok(),
        })?;
        hub::fetch(&settings, &reference, &mut |_| {})
    });
    let fetched = fetched.map_err(|source| OpenError::Hub { model: model.to_owned(), source })?;
    Ok(fetched.path)
}

/// The name that answers have where it is not that of the model's folder.
pub(crate) fn public_name(model: &str) -> Option<String> {
    match Path::new(model) {
        path if path.exists() => gguf::model_name(path),
        _ if model == BUILTIN => Some(tiny::NAME.to_owned()),
        _ => Some(model.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_model_is_named() {
        let error = locate("no/such/thing.gguf", None).unwrap_err().to_string();
        assert_eq!(error, "no/such/thing.gguf: no such file or folder");
        let error = locate("thing", None).unwrap_err().to_string();
        assert_eq!(error, "thing: no such file or folder");
    }

    #[test]
    fn a_hub_that_refuses_is_told_apart_from_a_missing_file() {
        let error = locate("owner/name", Some("no address")).unwrap_err().to_string();
        assert!(error.contains("owner/name") && error.contains("HF_ENDPOINT"), "{error}");
    }
}
