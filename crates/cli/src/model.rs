//! Resolves a model argument: a folder, a file, `owner/name` on a hub, or the built-in model.

use crate::builtin;
#[cfg(feature = "hub")]
use crate::download;
#[cfg(not(feature = "hub"))]
use anyhow::bail;
use anyhow::{Context, Result, anyhow};
use formats::gguf;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of the built-in model as an argument.
pub(crate) const BUILTIN: &str = "builtin";

/// Finds the folder or file of a model, downloading it first from the hub at `endpoint`, or else
/// that of the environment.
pub(crate) fn locate(model: impl AsRef<OsStr>, endpoint: Option<&str>) -> Result<PathBuf> {
    let model = model.as_ref();
    if model == BUILTIN {
        return builtin::folder();
    }
    let path = Path::new(model);
    // Of a model in several files, ranks may have others than the one that is named.
    if path.exists() || (gguf::part_of(path).is_some() && formats::weight_bytes(path) > 0) {
        return Ok(path.to_owned());
    }
    download(on_hub(model)?, endpoint)
}

/// The folder of a model on the hub whose name a setting gives, downloaded first; `None` for the
/// built-in model and a path that begins with `/`, `./`, `../` or `~`. A file or folder of the
/// current folder is never one of that name.
///
/// # Errors
///
/// If the name is none of the hub, or the hub does not provide the model.
#[cfg(feature = "agent")]
pub(crate) fn hub_folder(model: &OsStr, endpoint: Option<&str>) -> Result<Option<PathBuf>> {
    if model == BUILTIN || is_like_path(model.to_string_lossy().as_ref()) {
        return Ok(None);
    }
    download(on_hub(model)?, endpoint).map(Some)
}

/// The path of a model that is on this machine under the name that was given.
pub(crate) fn local_path(model: &OsStr) -> Option<&Path> {
    Some(Path::new(model)).filter(|path| model != BUILTIN && path.exists())
}

#[cfg(feature = "hub")]
fn download(model: &str, endpoint: Option<&str>) -> Result<PathBuf> {
    let missing = || format!("{model}: no such file or folder");
    let fetched = download::fetch(&model.parse().with_context(missing)?, endpoint);
    fetched.with_context(|| missing() + ", and the hub does not provide it")
}

#[cfg(not(feature = "hub"))]
fn download(model: &str, _: Option<&str>) -> Result<PathBuf> {
    bail!(
        "{model}: no such file or folder, and this build downloads no models: build with \
         --features hub"
    )
}

/// The name that clients see where it is not that of the model's folder: for the built-in model, by
/// its own folder too, for a download, whose folder is named after a commit, and for a GGUF file.
pub(crate) fn public_name(model: impl AsRef<OsStr>) -> Option<String> {
    let model = model.as_ref();
    match Path::new(model) {
        _ if model == BUILTIN => Some(builtin::NAME.to_owned()),
        path if builtin::is_unpacked(path) => Some(builtin::NAME.to_owned()),
        path if path.exists() => gguf::model_name(path),
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

/// What can only be a name on a hub; an error where it looks like a path.
fn on_hub(model: &OsStr) -> Result<&str> {
    let missing = || anyhow!("{}: no such file or folder", model.display());
    let model = model.to_str().with_context(missing)?;
    let like_path = is_like_path(model);
    let weights = [".gguf", ".safetensors"].iter().any(|end| model.ends_with(end));
    let like_file = !model.contains(':') && weights;
    let name = model.split(['@', ':']).next().unwrap_or_default();
    match like_path || like_file || name.matches('/').count() != 1 {
        true => Err(missing()),
        false => Ok(model),
    }
}

/// Whether a name can only be a path.
fn is_like_path(model: &str) -> bool {
    ["/", "./", "../", "~"].iter().any(|start| model.starts_with(start))
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

    #[cfg(feature = "agent")]
    #[test]
    fn a_name_of_a_setting_is_no_path_unless_it_looks_like_one() {
        for path in [BUILTIN, "/a/b", "./a", "../a", "~/a"] {
            assert!(matches!(hub_folder(OsStr::new(path), None), Ok(None)), "{path}");
        }
        // A folder of the crate.
        assert!(Path::new("src").exists());
        let error = hub_folder(OsStr::new("src"), None).unwrap_err().to_string();
        assert_eq!(error, "src: no such file or folder");
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
