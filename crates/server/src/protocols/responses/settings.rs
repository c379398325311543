//! Items that change the settings of a conversation: `configuration_update`.
//!
//! Source: the types of OpenAI's official clients. Each setting holds until a later item replaces
//! it, and takes precedence over the member of the request.

use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use crate::http::random;
use crate::http::wire;
use crate::protocols::responses::request::{CreateResponse, Format};
use serde_json::{Value, json};

/// The type of items that change settings.
pub(crate) const UPDATE: &str = "configuration_update";

/// Settings of the answers from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigurationItem {
    pub id: String,
    pub effort: Option<String>,
    /// The member `format` of `text`.
    pub format: Option<Value>,
}

impl ConfigurationItem {
    /// Reads an item.
    ///
    /// # Errors
    /// If a member is missing or cannot be read.
    pub fn read(fields: &ObjectReader<'_>) -> Result<Self, HttpError> {
        let effort = match fields.fields("reasoning")? {
            Some(reasoning) => reasoning.text("effort")?.map(str::to_owned),
            None => None,
        };
        let format = match fields.fields("text")? {
            Some(text) => {
                let format = text.value("format").ok_or_else(|| text.missing("format"))?;
                let path = text.path("format");
                wire::part::<Format>(format, &path)?.grammar(&path)?;
                Some(format.clone())
            }
            None => None,
        };
        let given = fields.text("id")?.filter(|id| !id.is_empty()).map(str::to_owned);
        Ok(Self { id: given.unwrap_or_else(|| random::id("cu_")), effort, format })
    }

    /// Approximate bytes of the settings in memory.
    pub fn size(&self) -> usize {
        let format = self.format.as_ref().map_or(0, |format| format.to_string().len());
        self.effort.as_ref().map_or(0, String::len) + format
    }

    /// The JSON that lists the item.
    pub fn json(&self) -> Value {
        let mut item = json!({ "id": self.id, "type": UPDATE });
        if let Some(effort) = &self.effort {
            item["reasoning"] = json!({ "effort": effort });
        }
        if let Some(format) = &self.format {
            item["text"] = json!({ "format": format });
        }
        item
    }
}

/// Gives `asked` the settings that `items` end with.
pub(crate) fn apply<'a>(
    asked: &mut CreateResponse,
    items: impl IntoIterator<Item = &'a ConfigurationItem>,
) -> Result<(), HttpError> {
    for ConfigurationItem { effort, format, .. } in items {
        if let Some(effort) = effort {
            asked.reasoning.get_or_insert_default().effort = Some(effort.clone());
        }
        if let Some(format) = format {
            let format = wire::part(format, "text.format")?;
            asked.text.get_or_insert_default().format = Some(format);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(update: Value) -> Result<ConfigurationItem, HttpError> {
        ConfigurationItem::read(&ObjectReader::of(&update, "input[0]")?)
    }

    #[test]
    fn later_settings_replace_earlier_ones_each_by_itself() {
        let schema = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}});
        let updates = [
            json!({"reasoning": {"effort": "low"}, "text": {"format": schema}}),
            json!({"reasoning": {"effort": "high"}}),
            json!({}),
        ];
        let items = updates.map(|update| item(update).unwrap());
        let mut asked: CreateResponse =
            wire::read(&json!({"reasoning": {"effort": "none", "summary": "auto"}})).unwrap();
        apply(&mut asked, &items).unwrap();
        let reasoning = asked.reasoning.unwrap();
        assert_eq!(reasoning.effort.as_deref(), Some("high"));
        assert!(reasoning.summary.is_some());
        assert_eq!(asked.text.unwrap().format.unwrap().kind, "json_schema");
    }

    #[test]
    fn items_are_listed_as_they_came() {
        for update in [
            json!({"id": "a", "type": UPDATE, "reasoning": {"effort": "low"}}),
            json!({"id": "a", "type": UPDATE, "text": {"format": {"type": "text"}}}),
        ] {
            assert_eq!(item(update.clone()).unwrap().json(), update);
        }
    }

    #[test]
    fn faults_name_their_place() {
        let check = |update: Value, param: &str| {
            let error = item(update.clone()).expect_err(&update.to_string());
            assert_eq!(error.body()["error"]["param"], param, "{update}");
        };
        check(json!({"reasoning": 3}), "input[0].reasoning");
        check(json!({"reasoning": {"effort": 3}}), "input[0].reasoning.effort");
        check(json!({"text": {}}), "input[0].text.format");
        check(json!({"text": {"format": {"type": "x"}}}), "input[0].text.format.type");
        check(json!({"text": {"format": {"type": "json_schema"}}}), "input[0].text.format.schema");
    }
}
