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
    ///
    /// # Errors
    /// If the model has no tokens for infilling, or the texts have more tokens than the context.
    pub fn infill(&self, request: &InfillRequest) -> Result<Infill, ApiError> {
        let Some(marks) = &self.tokenizer().infill else {
            let message = "the model has no tokens that mark a gap to be filled in";
            return Err(ApiError::invalid("suffix", message));
        };
        let mut ids = self.tokenizer().prefix_ids().to_vec();
        self.add_files(&request.files, marks, &mut ids)?;
        let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
        self.add_plain(&request.prefix, ids.len(), &mut prefix)?;
        self.add_plain(&request.suffix, ids.len() + prefix.len(), &mut suffix)?;
        ids.extend(marks.around(&prefix, &suffix));
        self.add_plain(&request.opening, 0, &mut ids)?;
        Ok(Infill { prompt: ids, stop_ids: marks.ends.clone() })
    }

    /// Adds the ids of the other files, with their names if the model has tokens for names.
    fn add_files(
        &self,
        files: &[(String, String)],
        marks: &InfillTokens,
        ids: &mut Vec<u32>,
    ) -> Result<(), ApiError> {
        let (Some(repository), Some(file)) = (marks.repository, marks.file) else {
            return files.iter().try_for_each(|(_, text)| self.add_plain(text, 0, ids));
        };
        if files.is_empty() {
            return Ok(());
        }
        ids.push(repository);
        self.add_plain(&format!("{REPOSITORY}\n"), 0, ids)?;
        for (name, text) in files {
            ids.push(file);
            self.add_plain(&format!("{name}\n{text}\n"), 0, ids)?;
        }
        ids.push(file);
        self.add_plain(&format!("{THIS_FILE}\n"), 0, ids)
    }

    /// Adds the ids of `text`, in which marks are plain text, to `ids`, which have `before` others
    /// before them.
    fn add_plain(&self, text: &str, before: usize, ids: &mut Vec<u32>) -> Result<(), ApiError> {
        ids.extend(self.prompt_tokens(text, EncodeOptions::default(), before + ids.len())?);
        Ok(())
    }
}
