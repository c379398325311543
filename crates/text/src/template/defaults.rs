//! Variables that servers give to templates beyond those of transformers.

use super::chat_template::ChatTemplate;
use chrono::NaiveDateTime;
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Serializer, Value as Json};

/// What a template has that joins its tools to a text itself.
const JOINS_FUNCTIONS: &str = "+ functions";

impl ChatTemplate {
    /// Adds to an input object what it lacks of the variables that llama.cpp gives to templates:
    /// `date_string`, such as `26 Jul 2024`, and `datetime`, such as `Jul 26 2024`, of the day of
    /// `now`, or of the local day if that is `None`. Both change at midnight only, so that prompts
    /// of a day begin alike. Templates that join `functions` to a text, as firefunction-v2 does,
    /// get the functions of `tools` as JSON.
    pub fn with_defaults(&self, mut input: Json, now: Option<NaiveDateTime>) -> Json {
        let Json::Object(members) = &mut input else { return input };
        let now = now.unwrap_or_else(|| chrono::Local::now().naive_local());
        let tools = || members.get("tools").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        let functions = self.mentions(JOINS_FUNCTIONS).then(|| functions(tools()));
        let date = |format: &str| Some(now.format(format).to_string());
        let defaults = [
            ("date_string", date("%d %b %Y")),
            ("datetime", date("%b %d %Y")),
            ("functions", functions),
        ];
        for (name, text) in defaults {
            if let Some(text) = text {
                members.entry(name).or_insert_with(|| text.into());
            }
        }
        input
    }
}

/// Returns the functions of tools as `json.dumps` writes them with an indent of four.
fn functions(tools: &[Json]) -> String {
    let list: Vec<&Json> = tools.iter().map(|tool| tool.get("function").unwrap_or(tool)).collect();
    let mut out = Vec::new();
    let mut writer = Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    "));
    list.serialize(&mut writer).expect("JSON can be written to memory");
    String::from_utf8(out).expect("JSON is text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::special_tokens::SpecialTokens;
    use serde_json::json;

    fn check(source: &str, input: Json, expected: &str) {
        let template = ChatTemplate::from_source(source).unwrap();
        let now = crate::template::parse_now("2024-07-06T23:59:59").unwrap();
        let input = template.with_defaults(input, Some(now));
        let text = template.render(&input, &SpecialTokens::default(), Some(now)).unwrap();
        assert_eq!(text, expected, "{source}");
    }

    #[test]
    fn templates_get_the_day_unless_the_input_has_it() {
        let llama = "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}\
                     {%- endif %}{{ 'Today Date: ' + date_string }}";
        check(llama, json!({}), "Today Date: 06 Jul 2024");
        check(llama, json!({"date_string": "1 May 2020"}), "Today Date: 1 May 2020");
        let source = "{{ '\\nToday is ' + datetime + '.' }}";
        check(source, json!({}), "\nToday is Jul 06 2024.");
        check(source, json!({"datetime": "now"}), "\nToday is now.");
    }

    #[test]
    fn functions_are_a_text_where_the_template_joins_them() {
        let joins = "{%- set text = 'spec:' + \"\\n\" + functions -%}{{ text }}";
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let expected =
            "spec:\n[\n    {\n        \"name\": \"f\",\n        \"parameters\": {}\n    }\n]";
        check(joins, json!({"tools": tools}), expected);
        check(joins, json!({}), "spec:\n[]");
        check("{{ functions is defined }}", json!({"tools": tools}), "False");
    }
}
