//! Prompts that ask for what is missing in the middle of a text.

use crate::error::ApiError;
use crate::service::Service;
use text::{EncodeOptions, InfillTokens};

/// A text with a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfillRequest {
    /// What stands before the gap.
    pub prefix: String,
    /// What stands after it.
    pub suffix: String,
    /// Other files that may help, by name.
    pub files: Vec<(String, String)>,
    /// What the filling begins with.
    pub opening: String,
}

/// The prompt for a text with a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infill {
    /// Ids of the prompt, marks included.
    pub prompt: Vec<u32>,
    /// Ids that end the filling, besides those of the model.
    pub stop_ids: Vec<u32>,
}

/// What files are said to belong to.
const REPOSITORY: &str = "repository";
/// What the file with the gap is called.
const THIS_FILE: &str = "file";

impl Service {
    /// Whether the model can fill in what is missing in the middle of a text.
    pub fn fills(&self) -> bool {
        self.tokenizer().infill().is_some()
    }

    /// The prompt that asks for what is missing. Marks in the request's own texts stay text.
    pub fn infill(&self, request: &InfillRequest) -> Result<Infill, ApiError> {
        let Some(marks) = self.tokenizer().infill() else {
            let message = "the model has no tokens that mark a gap to be filled in";
            return Err(ApiError::invalid("suffix", message));
        };
        let mut ids = self.tokenizer().prefix_ids().to_vec();
        ids.extend(self.files(&request.files, marks)?);
        ids.extend(marks.around(&self.plain(&request.prefix)?, &self.plain(&request.suffix)?));
        ids.extend(self.plain(&request.opening)?);
        Ok(Infill { prompt: ids, stop_ids: marks.ends.clone() })
    }

    /// The files before the one with the gap, each under its name where the model knows of names.
    fn files(
        &self,
        files: &[(String, String)],
        marks: &InfillTokens,
    ) -> Result<Vec<u32>, ApiError> {
        let mut ids = Vec::new();
        let (Some(repository), Some(file)) = (marks.repository, marks.file) else {
            for (_, text) in files {
                ids.extend(self.plain(text)?);
            }
            return Ok(ids);
        };
        if files.is_empty() {
            return Ok(ids);
        }
        ids.push(repository);
        ids.extend(self.plain(&format!("{REPOSITORY}\n"))?);
        for (name, text) in files {
            ids.push(file);
            ids.extend(self.plain(&format!("{name}\n{text}\n"))?);
        }
        ids.push(file);
        ids.extend(self.plain(&format!("{THIS_FILE}\n"))?);
        Ok(ids)
    }

    fn plain(&self, text: &str) -> Result<Vec<u32>, ApiError> {
        self.tokenize(text, EncodeOptions::default())
    }
}
