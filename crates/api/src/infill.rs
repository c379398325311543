//! Infill: prompts for the missing middle of a text.

use crate::error::ApiError;
use crate::service::Service;
use text::{EncodeOptions, InfillTokens};

/// A text with a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfillRequest {
    /// Text before the gap.
    pub prefix: String,
    /// Text after the gap.
    pub suffix: String,
    /// Other files for context: name and text.
    pub files: Vec<(String, String)>,
    /// The beginning of the infilled text.
    pub opening: String,
}

/// The prompt for a text with a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infill {
    /// Prompt ids, including the marks.
    pub prompt: Vec<u32>,
    /// Stop ids in addition to the model's.
    pub stop_ids: Vec<u32>,
}

/// Repository name in prompts with files.
const REPOSITORY: &str = "repository";
/// Name of the file with the gap.
const THIS_FILE: &str = "file";

impl Service {
    /// Whether the model has infill tokens.
    pub fn fills(&self) -> bool {
        self.tokenizer().infill.is_some()
    }

    /// Builds the prompt of an infill request. Marks in the request's texts are plain text.
    pub fn infill(&self, request: &InfillRequest) -> Result<Infill, ApiError> {
        let Some(marks) = &self.tokenizer().infill else {
            let message = "the model has no tokens that mark a gap to be filled in";
            return Err(ApiError::invalid("suffix", message));
        };
        let mut ids = self.tokenizer().prefix_ids().to_vec();
        ids.extend(self.files(&request.files, marks)?);
        ids.extend(marks.around(&self.plain(&request.prefix)?, &self.plain(&request.suffix)?));
        ids.extend(self.plain(&request.opening)?);
        Ok(Infill { prompt: ids, stop_ids: marks.ends.clone() })
    }

    /// The ids of the other files, with their names if the model has tokens for names.
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
        self.prompt_tokens(text, EncodeOptions::default())
    }
}
