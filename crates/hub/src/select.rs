//! Selects the files of a repository that a model needs.

use crate::error::Error;
use crate::reference::{ModelRef, is_path};

/// Files of a Hugging Face checkpoint other than weights, each optional.
const SMALL_FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    // Settings of quantised weights.
    "quantize_config.json",
    "quant_config.json",
    "hf_quant_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];
const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
const MAX_NAMED: usize = 8;

/// The files to fetch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// A checkpoint: these files, and the shards of the index where `INDEX` is among them.
    Folder(Vec<String>),
    /// A GGUF model: its parts in order.
    Gguf(Vec<String>),
}

impl Selection {
    pub(crate) fn files(&self) -> &[String] {
        match self {
            Self::Folder(files) | Self::Gguf(files) => files,
        }
    }
}

/// Chooses among the files of a repository.
pub(crate) fn select(model: &ModelRef, files: &[String]) -> Result<Selection, Error> {
    let selection = match &model.file {
        Some(wanted) => gguf_named(model, files, wanted)?,
        None => match weights(files) {
            Some(weights) => {
                let small = files.iter().filter(|file| SMALL_FILES.contains(&file.as_str()));
                Selection::Folder(small.cloned().chain([weights]).collect())
            }
            None => only_gguf(model, files)?,
        },
    };
    check_names(model, selection.files())?;
    Ok(selection)
}

/// The shards an index names, each checked to be a plain file of the repository.
pub(crate) fn shards(model: &ModelRef, index: &str) -> Result<Vec<String>, Error> {
    let error = |problem: String| contents(model, format!("{INDEX}: {problem}"));
    let json: serde_json::Value =
        serde_json::from_str(index).map_err(|e| error(format!("not valid JSON: {e}")))?;
    let map = json.get("weight_map").and_then(|map| map.as_object());
    let map = map.ok_or_else(|| error("expected a weight_map, found none".into()))?;
    let plain =
        |name: &str| name.split('/').filter(|part| *part != ".").collect::<Vec<_>>().join("/");
    let names = map.values().map(|name| name.as_str().map(plain));
    let names: Option<Vec<String>> = names.collect();
    let mut names = names.ok_or_else(|| error("expected names of shards as strings".into()))?;
    names.sort();
    names.dedup();
    check_names(model, &names)?;
    Ok(names)
}

fn weights(files: &[String]) -> Option<String> {
    let has = |name: &&str| files.iter().any(|file| file == name);
    if let Some(name) = [SINGLE, INDEX].iter().find(|name| has(name)) {
        return Some((*name).to_owned());
    }
    let mut others = files.iter().filter(|f| f.ends_with(".safetensors") && !f.contains('/'));
    let only = others.next()?;
    others.next().is_none().then(|| only.clone())
}

/// Models of a repository, each as the list of its parts.
fn gguf_models(files: &[String]) -> Vec<Vec<String>> {
    let mut names: Vec<_> = files.iter().filter(|f| f.ends_with(".gguf")).cloned().collect();
    names.sort();
    let same = |a: &String, b: &String| part_of(a).is_some() && part_of(a) == part_of(b);
    names.chunk_by(same).filter(|parts| is_whole(parts)).map(<[String]>::to_vec).collect()
}

/// Whether no part is missing: part 2 of 3 alone is not a model.
fn is_whole(parts: &[String]) -> bool {
    let count = part_of(&parts[0]).and_then(|(_, count)| count.parse().ok());
    count.is_none_or(|count: usize| count == parts.len())
}

/// `x-00001-of-00003.gguf` to `x` and `00003`.
fn part_of(file: &str) -> Option<(&str, &str)> {
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    (digits(number) && digits(count)).then_some((prefix, count))
}

fn gguf_named(model: &ModelRef, files: &[String], wanted: &str) -> Result<Selection, Error> {
    let models = gguf_models(files);
    let exact = models.iter().find(|parts| parts.iter().any(|part| part == wanted));
    if let Some(parts) = exact {
        return Ok(Selection::Gguf(parts.clone()));
    }
    let ending: Vec<_> = models.iter().filter(|parts| has_ending(&parts[0], wanted)).collect();
    match ending.as_slice() {
        [parts] => Ok(Selection::Gguf((*parts).clone())),
        _ => {
            let count = ending.len();
            let problem = format!("expected one GGUF file {wanted}, found {count}");
            Err(contents(model, format!("{problem}; {}", listed(&models))))
        }
    }
}

/// Whether the model's name ends in `-Q4_K_M` or `.Q4_K_M`, in any case.
fn has_ending(first_part: &str, wanted: &str) -> bool {
    let stem = part_of(first_part).map(|(prefix, _)| prefix);
    let stem = stem.or_else(|| first_part.strip_suffix(".gguf")).unwrap_or(first_part);
    let stem = stem.to_ascii_lowercase();
    let rest = stem.strip_suffix(&wanted.to_ascii_lowercase());
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '.', '/']))
}

fn only_gguf(model: &ModelRef, files: &[String]) -> Result<Selection, Error> {
    let models = gguf_models(files);
    match models.as_slice() {
        [parts] => Ok(Selection::Gguf(parts.clone())),
        [] => Err(contents(model, "expected safetensors or GGUF files, found none".into())),
        _ => {
            let count = models.len();
            let problem = format!("holds {count} GGUF models: name one as {model}:FILE");
            Err(contents(model, format!("{problem}; {}", listed(&models))))
        }
    }
}

fn listed(models: &[Vec<String>]) -> String {
    let names: Vec<_> = models.iter().take(MAX_NAMED).map(|parts| parts[0].as_str()).collect();
    let more = if models.len() > MAX_NAMED { ", …" } else { "" };
    format!("it has {}{more}", if names.is_empty() { "none".into() } else { names.join(", ") })
}

fn check_names(model: &ModelRef, files: &[String]) -> Result<(), Error> {
    match files.iter().find(|file| !is_path(file)) {
        None => Ok(()),
        Some(bad) => {
            let shown = bad.escape_debug().take(200).collect::<String>();
            Err(contents(model, format!("refusing the file name \"{shown}\"")))
        }
    }
}

pub(crate) fn contents(model: &ModelRef, problem: String) -> Error {
    Error::Contents { repository: model.repository(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(model: &str, files: &[&str], expected: Result<&[&str], &str>) {
        let files: Vec<String> = files.iter().map(|f| (*f).to_owned()).collect();
        match (select(&model.parse().unwrap(), &files), expected) {
            (Ok(selection), Ok(expected)) => assert_eq!(selection.files(), expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{model}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn only_needed_files_are_chosen() {
        let files = ["README.md", "config.json", "model.safetensors", "consolidated.safetensors"];
        check("a/b", &files, Ok(&["config.json", "model.safetensors"]));
        // Settings of quantised weights, which config.json may lack.
        let files = ["hf_quant_config.json", "quant_config.json", "quantize_config.json"];
        let all = [&files[..], &["model.safetensors"]].concat();
        check("a/b", &all, Ok(&all));
        let files = ["pytorch_model.bin", INDEX, "m-1.safetensors", "m-2.safetensors"];
        check("a/b", &files, Ok(&[INDEX]));
        check("a/b", &["README.md"], Err("found none"));
        check("a/b", &["../model.gguf"], Err("refusing the file name"));
    }

    #[test]
    fn one_gguf_is_chosen_by_name_or_type_with_all_its_parts() {
        let files = ["x-Q8_0.gguf", "x-Q4_K_M-00001-of-00002.gguf", "x-Q4_K_M-00002-of-00002.gguf"];
        check("a/b", &files, Err("holds 2 GGUF models"));
        check("a/b:q8_0", &files, Ok(&["x-Q8_0.gguf"]));
        check("a/b:x-Q8_0.gguf", &files, Ok(&["x-Q8_0.gguf"]));
        check("a/b:Q4_K_M", &files, Ok(&files[1..]));
        check("a/b:K_M", &files, Err("found 0"));
        check("a/b:Q5", &files, Err("found 0"));
        check("a/b", &files[1..], Ok(&files[1..]));
        check("a/b", &files[2..], Err("found none"));
    }

    #[test]
    fn shards_outside_the_repository_are_refused() {
        let model: ModelRef = "a/b".parse().unwrap();
        let index = r#"{"weight_map": {"x": "m-2.safetensors", "y": "m-1.safetensors"}}"#;
        assert_eq!(shards(&model, index).unwrap(), ["m-1.safetensors", "m-2.safetensors"]);
        let index = r#"{"weight_map": {"x": "./m.safetensors", "y": "w/./m.safetensors"}}"#;
        assert_eq!(shards(&model, index).unwrap(), ["m.safetensors", "w/m.safetensors"]);
        assert!(shards(&model, r#"{"weight_map": {"x": "../../m"}}"#).is_err());
        assert!(shards(&model, "[]").is_err());
    }
}
