//! Names of models on a hub: `owner/name`, `owner/name@revision`, `owner/name:FILE.gguf`.
//!
//! Invariant: no part of a parsed name can leave the folder it is joined to.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A model on a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRef {
    /// User or organisation.
    pub owner: String,
    /// Repository.
    pub name: String,
    /// Branch, tag or commit; `main` where not given.
    pub revision: Option<String>,
    /// A GGUF file, or the type it ends in (`Q4_K_M`), of a repository that holds several.
    pub file: Option<String>,
}

impl ModelRef {
    /// `owner/name`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The model that an argument names, which may be a path as well; `None` where it looks like
    /// one, or has no owner.
    ///
    /// # Errors
    /// The inner result is one if the name is not that of a model, a revision or a file.
    pub fn of_argument(model: &str) -> Option<Result<Self, Error>> {
        let like_path = ["/", "./", "../", "~"].iter().any(|start| model.starts_with(start));
        let weights = [".gguf", ".safetensors"].iter().any(|end| model.ends_with(end));
        let like_file = !model.contains(':') && weights;
        let is_path = like_path || like_file || !model.contains('/');
        (!is_path).then(|| model.parse())
    }

    /// The revision asked for.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl FromStr for ModelRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = |problem: &str| Error::Reference { text: text.into(), problem: problem.into() };
        let (rest, file) = split_at_sign(text, ':');
        let (repository, revision) = split_at_sign(rest, '@');
        let (owner, name) = repository.split_once('/').ok_or_else(|| error("no owner"))?;
        if !is_repository_part(owner) || !is_repository_part(name) {
            return Err(error("names have letters, digits, '-', '_' and '.' only"));
        }
        if !revision.is_none_or(is_path) {
            return Err(error("the revision is not a plain name"));
        }
        if !file.is_none_or(is_path) {
            return Err(error("the file is not a plain name"));
        }
        Ok(Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
        self.file.iter().try_for_each(|file| write!(f, ":{file}"))
    }
}

fn split_at_sign(text: &str, sign: char) -> (&str, Option<&str>) {
    text.split_once(sign).map_or((text, None), |(left, right)| (left, Some(right)))
}

fn is_repository_part(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let parted = part.contains("--") || part.contains("..");
    !parted && is_component(part) && part.len() <= 96 && part.chars().all(allowed)
}

/// A relative path of plain components, with `/` between them.
pub(crate) fn is_path(path: &str) -> bool {
    path.len() <= 1024 && path.split('/').all(is_component)
}

/// One name that means a file in its folder on every system.
pub(crate) fn is_component(name: &str) -> bool {
    let special = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.len() <= 255 && !name.contains(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<[&str; 4]>) {
        let parsed = text.parse::<ModelRef>().ok();
        let parts = parsed.as_ref().map(|r| {
            [&r.owner, &r.name, r.revision(), r.file.as_deref().unwrap_or("-")].map(str::to_owned)
        });
        assert_eq!(parts, expected.map(|e| e.map(str::to_owned)), "{text}");
        if let Some(parsed) = parsed {
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn names_are_taken_apart_and_hostile_ones_refused() {
        check("a/b", Some(["a", "b", "main", "-"]));
        check("Org-1/Mo_del.5@v1.0", Some(["Org-1", "Mo_del.5", "v1.0", "-"]));
        check("a/b@refs/pr/1:Q4_K_M", Some(["a", "b", "refs/pr/1", "Q4_K_M"]));
        check("a/b:sub/x.gguf", Some(["a", "b", "main", "sub/x.gguf"]));
        check("a", None);
        check("a/b/c", None);
        check("../b", None);
        check("a/..", None);
        check("/b", None);
        check("a/b@", None);
        check("a/b@../../x", None);
        check("a/b:../x.gguf", None);
        check("a/b:/etc/x.gguf", None);
        check("a/b?x=y", None);
        check("a--c/b", None);
    }
}
