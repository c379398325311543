//! `fetch`: a page of the internet as text.

use crate::fetch::{Fetch, PageUrl};
use crate::other_tools::OtherTools;
use crate::policy::CallReach;
use crate::printable::printable;
use crate::rules::RuleSubject;
use crate::schema::{member, object};
use api::{Tool, ToolCall};

/// The name of the tool.
const NAME: &str = "fetch";

/// The tool, which is always outside: a page may be chosen to tell its server something.
#[derive(Debug, Default)]
pub struct FetchTool(Fetch);

impl FetchTool {
    /// The whole address that a call of the tool asks for, in the form that is sent; `None` of
    /// other calls, and of what is no address.
    pub fn address(call: &ToolCall) -> Option<String> {
        let url = call.arguments["url"].as_str().filter(|_| call.name == NAME)?;
        PageUrl::parse(url).ok().map(|page| page.as_str().to_owned())
    }
}

impl OtherTools for FetchTool {
    fn tools(&self) -> Vec<Tool> {
        vec![Tool {
            name: NAME.to_owned(),
            description: Some(
                "Gets a page (http or https) as text. The user is asked first.".to_owned(),
            ),
            parameters: object(&[("url", member("string", "the whole address"))]),
            strict: true,
            source: None,
        }]
    }

    fn reach(&self, call: &ToolCall) -> Option<CallReach> {
        if call.name != NAME {
            return None;
        }
        // What is no address reaches nothing.
        let page = call.arguments["url"].as_str().and_then(|url| PageUrl::parse(url).ok());
        let subject = page
            .as_ref()
            .map_or(RuleSubject::None, |page| RuleSubject::Host(page.host().to_owned()));
        Some(CallReach { is_inside: page.is_none(), writes: false, subject })
    }

    fn call(&mut self, call: &ToolCall, is_cancelled: &dyn Fn() -> bool) -> (bool, String) {
        let Some(url) = call.arguments["url"].as_str() else {
            return (false, "wrong arguments of fetch: expected url, a text".to_owned());
        };
        match self.0.get(url, is_cancelled) {
            Ok(page) => (page.is_success(), printable(page.report().as_bytes())),
            Err(error) => (false, printable(error.to_string().as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(url: &str) -> ToolCall {
        ToolCall { name: NAME.to_owned(), arguments: json!({"url": url}), ..ToolCall::default() }
    }

    #[test]
    fn rules_see_the_host_that_is_asked() {
        let tool = FetchTool::default();
        let reach = |url: &str| tool.reach(&call(url)).unwrap();
        let docs = reach("https://Docs.rs/a?b#c");
        assert_eq!(docs.subject, RuleSubject::Host("docs.rs".to_owned()));
        assert!(!docs.is_inside);
        let other = reach("http://docs.rs\\@other.example/");
        assert_ne!(other.subject, RuleSubject::Host("other.example".to_owned()));
        assert!(reach("file:///etc/passwd").is_inside);
        assert!(tool.reach(&ToolCall::default()).is_none());
        let sent = FetchTool::address(&call("HTTPS://B\u{fc}cher.example/\u{e9}?q= x"));
        assert_eq!(sent.as_deref(), Some("https://xn--bcher-kva.example/%C3%A9?q=%20x"));
        assert_eq!(FetchTool::address(&call("file:///etc/passwd")), None);
    }

    #[test]
    fn what_cannot_be_fetched_is_an_error_for_the_model() {
        let mut tool = FetchTool::default();
        for url in ["file:///etc/passwd", "http://127.0.0.1/", "http://169.254.169.254/latest"] {
            let (ok, text) = tool.call(&call(url), &|| false);
            assert!(!ok && !text.is_empty(), "{url}");
        }
    }
}
