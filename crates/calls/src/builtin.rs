//! The built-in model, which is part of the library and unpacked once into the user's cache, where
//! the program has it as well.

use crate::error::OpenError;
use std::env;
use std::path::PathBuf;

pub(crate) use tiny::NAME;

/// The folder of the model, unpacked first where it is missing or broken: in the user's cache, or
/// in the folder of temporary files.
pub(crate) fn folder() -> Result<PathBuf, OpenError> {
    let name = tiny::folder_name();
    if let Some(folder) = cache().map(|cache| cache.join(&name))
        && tiny::unpack(&folder).is_ok()
    {
        return Ok(folder);
    }
    let folder = env::temp_dir().join(format!("gannet-{name}"));
    tiny::unpack(&folder).map_err(OpenError::Unpack)?;
    Ok(folder)
}

/// The program's folder of files that can be recreated.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("gannet"))
}
