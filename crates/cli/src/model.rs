//! Resolves a model argument: a folder, a file, `owner/name` on a hub, or the built-in model.

use crate::{builtin, progress};
use anyhow::{Context, Result, anyhow};
use formats::gguf;
use hub::{HubSettings, ModelRef, Progress};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of the built-in model as an argument.
pub(crate) const BUILTIN: &str = "builtin";

/// Finds the folder or file of a model, downloading it first from the hub at `endpoint`, or else
/// that of the environment.
pub(crate) fn locate(model: impl AsRef<OsStr>, endpoint: Option<&str>) -> Result<PathBuf> {
    let model = model.as_ref();
    let path = Path::new(model);
    if path.exists() {
        return Ok(path.to_owned());
    }
    if model == BUILTIN {
        return builtin::folder();
    }
    let reference = on_hub(model)?;
    let fetched = fetch(&reference, endpoint);
    fetched.with_context(|| {
        format!("{}: no such file or folder, and the hub does not provide it", model.display())
    })
}

/// The name that clients see where it is not that of the model's folder: for the built-in model, by
/// its own folder too, for a download, whose folder is named after a commit, and for a GGUF file.
pub(crate) fn public_name(model: impl AsRef<OsStr>) -> Option<String> {
    let model = model.as_ref();
    match Path::new(model) {
        path if builtin::is_unpacked(path) => Some(builtin::NAME.to_owned()),
        path if path.exists() => gguf::model_name(path),
        _ if model == BUILTIN => Some(builtin::NAME.to_owned()),
        _ => model.to_str().map(str::to_owned),
    }
}

/// What names the same model in any folder: a path made absolute, or the name as it is. `None` for
/// the built-in model. A path that is not UTF-8 is written with replacement characters, so that it
/// is not found later, and never taken for another model.
pub(crate) fn lasting_name(model: &OsStr) -> Option<String> {
    let path = Path::new(model);
    let named = if path.exists() { std::path::absolute(path).ok()? } else { path.to_owned() };
    Some(named.display().to_string()).filter(|_| model != BUILTIN)
}

/// Parses `model` as a name on a hub; an error where it looks like a path.
fn on_hub(model: &OsStr) -> Result<ModelRef> {
    let missing = || anyhow!("{}: no such file or folder", model.display());
    let model = model.to_str().with_context(missing)?;
    ModelRef::of_argument(model).ok_or_else(missing)?.with_context(missing)
}

fn fetch(model: &ModelRef, endpoint: Option<&str>) -> Result<PathBuf> {
    let settings = HubSettings::from_vars(|name| match (name, endpoint) {
        ("HF_ENDPOINT", Some(endpoint)) => Some(endpoint.to_owned()),
        _ => std::env::var(name).ok(),
    })?;
    let bar = progress::bytes(0);
    let mut shown = String::new();
    let mut report = |progress: Progress| {
        if shown != progress.file {
            shown = progress.file.to_owned();
            bar.set_message(format!("{} ({}/{})", shown, progress.index, progress.count));
            bar.reset_eta();
        }
        bar.set_length(progress.total.unwrap_or(progress.done));
        bar.set_position(progress.done);
    };
    let fetched = hub::fetch(&settings, model, &mut report)?;
    bar.finish_and_clear();
    if fetched.from_cache {
        tracing::info!(%model, "using the cached download without asking the hub");
    }
    Ok(fetched.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn check(model: &str, on_a_hub: bool) {
        assert_eq!(on_hub(OsStr::new(model)).is_ok(), on_a_hub, "{model}");
    }

    #[test]
    fn only_what_can_be_no_path_is_looked_for_on_a_hub() {
        check("owner/name", true);
        check("owner/name@main", true);
        check("owner/name:Q4_K_M", true);
        check("owner/name:x.gguf", true);
        check("name", false);
        check("folder/x.gguf", false);
        check("./owner/name", false);
        check("/owner/name", false);
        check("a/b/c", false);
    }

    #[test]
    fn a_gguf_file_has_the_name_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let check = |file: &str, expected: Option<&str>| {
            let path = folder.path().join(file);
            std::fs::write(&path, "").unwrap();
            assert_eq!(public_name(&path).as_deref(), expected, "{file}");
        };
        check("smol-Q4_1.gguf", Some("smol-Q4_1"));
        check("big-00002-of-00003.gguf", Some("big"));
        check("model.safetensors", None);
        assert_eq!(public_name(folder.path()), None);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = locate("no/such/thing.gguf", None).unwrap_err().to_string();
        assert_eq!(error, "no/such/thing.gguf: no such file or folder");
    }

    #[test]
    fn a_path_that_is_not_utf8_never_names_another_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OsStr::from_bytes(b"mod\xff.gguf"));
        assert_eq!(
            locate(&path, None).unwrap_err().to_string(),
            format!("{}: no such file or folder", path.display())
        );
        std::fs::write(&path, "").unwrap();
        assert_eq!(locate(&path, None).unwrap(), path);
        assert_eq!(public_name(&path).as_deref(), Some("mod\u{fffd}"));
        assert_eq!(lasting_name(path.as_os_str()), Some(path.display().to_string()));
    }
}
