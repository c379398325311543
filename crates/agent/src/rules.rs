//! Rules that allow calls without a question: `bash: cargo test`, `bash exactly: cargo test`,
//! `fetch: docs.rs`, `mcp: NAME/TOOL`.
//!
//! Invariant: a rule for commands matches a simple command only, never one with operators,
//! substitutions, redirections, assignments or several lines of the shell, nor one that is shown
//! otherwise than it is. A rule that an answer makes matches that command alone.

use crate::printable::printable;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Characters that mean something to the shell beyond words, quoted or not.
const SHELL: &[char] = &[
    ';', '&', '|', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', '\n', '\r', '{', '}', '*', '?',
    '[', ']', '~', '#', '!', '\0',
];

/// Joiners, which have no width.
const JOINERS: &[char] = &['\u{200c}', '\u{200d}'];

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowRule {
    /// Commands that begin with these words.
    Command(Vec<String>),
    /// The command of these words and no more.
    ExactCommand(Vec<String>),
    /// Pages of a host, and of no host below it.
    Host(String),
    /// A tool of an MCP server.
    Mcp {
        /// The server's name in the settings.
        server: String,
        /// The tool's name there.
        tool: String,
    },
}

/// What rules look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleSubject {
    /// A command of the shell.
    Command(String),
    /// A page of this host.
    Host(String),
    /// A tool of an MCP server.
    Mcp {
        /// The server's name in the settings.
        server: String,
        /// The tool's name there.
        tool: String,
    },
    /// Nothing that a rule may name.
    None,
}

impl AllowRule {
    /// The rule that allows calls about this and no others; `None` if no rule can.
    pub fn of(subject: &RuleSubject) -> Option<Self> {
        match subject.clone() {
            RuleSubject::Command(command) => Some(Self::ExactCommand(words(&command)?)),
            RuleSubject::Host(host) => Some(Self::Host(host_name(&host)?)),
            RuleSubject::Mcp { server, tool } => Some(Self::Mcp { server, tool }),
            RuleSubject::None => None,
        }
    }

    /// Whether calls about this are allowed.
    pub fn allows(&self, subject: &RuleSubject) -> bool {
        match (self, subject) {
            (Self::Command(rule), RuleSubject::Command(command)) => {
                words(command).is_some_and(|words| words.starts_with(rule))
            }
            (Self::ExactCommand(rule), RuleSubject::Command(command)) => {
                words(command).is_some_and(|words| words == *rule)
            }
            (Self::Host(allowed), RuleSubject::Host(host)) => allowed.eq_ignore_ascii_case(host),
            (Self::Mcp { server, tool }, RuleSubject::Mcp { server: name, tool: called }) => {
                server == name && tool == called
            }
            _ => false,
        }
    }
}

/// The words of a simple command; `None` for any other.
fn words(command: &str) -> Option<Vec<String>> {
    let is_shown = printable(command.as_bytes()) == command && !command.contains(JOINERS);
    if command.contains(SHELL) || !is_shown {
        return None;
    }
    let words: Vec<String> = command.split_ascii_whitespace().map(str::to_owned).collect();
    // What comes before the command changes what its words do; after it, `=` is a character.
    let has_command = words.first().is_some_and(|first| !first.contains('='));
    has_command.then_some(words)
}

impl std::fmt::Display for AllowRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(words) => write!(f, "bash: {}", words.join(" ")),
            Self::ExactCommand(words) => write!(f, "bash exactly: {}", words.join(" ")),
            Self::Host(host) => write!(f, "fetch: {host}"),
            Self::Mcp { server, tool } => write!(f, "mcp: {server}/{tool}"),
        }
    }
}

impl FromStr for AllowRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a rule such as `bash: cargo test`, `fetch: docs.rs` or `mcp: NAME/TOOL`, \
                 found `{text}`"
            )
        };
        let (kind, rest) = text.split_once(':').ok_or_else(expected)?;
        let rest = rest.trim();
        match kind.trim() {
            kind @ ("bash" | "bash exactly") => match words(rest) {
                Some(words) if kind == "bash" => Ok(Self::Command(words)),
                Some(words) => Ok(Self::ExactCommand(words)),
                None => Err(format!("expected the words of one command, found `{rest}`")),
            },
            "fetch" => host_name(rest)
                .map(Self::Host)
                .ok_or_else(|| format!("expected a host such as docs.rs, found `{rest}`")),
            "mcp" => match rest.split_once('/') {
                Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                    Ok(Self::Mcp { server: server.to_owned(), tool: tool.to_owned() })
                }
                _ => Err(format!("expected NAME/TOOL, found `{rest}`")),
            },
            _ => Err(expected()),
        }
    }
}

/// A host as addresses of pages have it: a name in lower case, or an address, of version 6 in
/// brackets; `None` if it is none.
fn host_name(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Some(format!("[{address}]"));
    }
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    (!text.is_empty() && text.chars().all(is_part)).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(text: &str) -> AllowRule {
        text.parse().unwrap()
    }

    fn allows_command(rule: &AllowRule, command: &str) -> bool {
        rule.allows(&RuleSubject::Command(command.to_owned()))
    }

    fn allows_host(rule: &AllowRule, host: &str) -> bool {
        rule.allows(&RuleSubject::Host(host.to_owned()))
    }

    fn allows_mcp(rule: &AllowRule, server: &str, tool: &str) -> bool {
        rule.allows(&RuleSubject::Mcp { server: server.to_owned(), tool: tool.to_owned() })
    }

    #[test]
    fn a_command_matches_by_its_first_words() {
        let tests = rule("bash: cargo test");
        assert!(
            allows_command(&tests, "cargo test") && allows_command(&tests, " cargo  test -p x")
        );
        for other in
            ["cargo", "cargo testx", "cargo build", "xcargo test", "", "RUSTC=x cargo test"]
        {
            assert!(!allows_command(&tests, other), "{other}");
        }
        assert!(allows_command(&tests, "cargo test --features=x a=b"));
    }

    #[test]
    fn a_rule_of_an_answer_is_for_that_command_alone() {
        let of = |command: &str| AllowRule::of(&RuleSubject::Command(command.to_owned()));
        let made = of("touch  build").unwrap();
        assert_eq!(made.to_string(), "bash exactly: touch build");
        assert_eq!(rule("bash exactly: touch build"), made);
        assert!(allows_command(&made, "touch build"));
        for other in ["touch build ../home/x", "touch", "touch builds", "touch build build"] {
            assert!(!allows_command(&made, other), "{other}");
        }
    }

    #[test]
    fn a_rule_never_matches_a_compound_command() {
        let tests = rule("bash: cargo test");
        for more in [
            "; rm x",
            "&& rm x",
            "|| rm x",
            "| sh",
            "& rm x",
            "> /etc/x",
            "< x",
            "$(rm x)",
            "`rm x`",
            "\nrm x",
            "\rrm x",
            "<(rm x)",
            "\\\nrm",
            "{rm,x}",
            "'$x'",
            "\"`rm`\"",
            "~/x",
            "#x",
            "a\u{202e}b",
            "\u{200b}x",
            "x\u{200d}",
            "\u{feff}",
            "\u{85}x",
            "\u{1b}[0m",
        ] {
            let command = format!("cargo test {more}");
            assert!(!allows_command(&tests, &command), "{command}");
            assert_eq!(AllowRule::of(&RuleSubject::Command(command.clone())), None, "{command}");
        }
        for command in ["RUSTC=x cargo test", "=x", "A+=b cargo test"] {
            assert_eq!(AllowRule::of(&RuleSubject::Command(command.to_owned())), None, "{command}");
        }
        for text in
            ["bash: cargo test && x", "bash exactly: a; b", "bash:", "bash: $x", "run: x", "x"]
        {
            assert!(text.parse::<AllowRule>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_and_tools_match_as_a_whole() {
        let docs = rule("fetch: Docs.rs");
        assert!(allows_host(&docs, "docs.rs") && allows_host(&docs, "DOCS.RS"));
        assert!(!allows_host(&docs, "evil-docs.rs") && !allows_host(&docs, "docs.rs.evil.example"));
        for other in ["docs.rs/x", "docs.rs:80", "[::1", "[x]", ""] {
            assert!(format!("fetch: {other}").parse::<AllowRule>().is_err(), "{other}");
        }
        let subject = RuleSubject::Host("[2001:db8::1]".to_owned());
        let offered = AllowRule::of(&subject).unwrap();
        for text in [&*offered.to_string(), "fetch: 2001:DB8:0::1"] {
            assert!(rule(text) == offered && rule(text).allows(&subject), "{text}");
        }
        let tool = rule("mcp: files/read");
        assert!(allows_mcp(&tool, "files", "read") && !allows_mcp(&tool, "files", "write"));
        for text in ["bash: cargo test", "fetch: docs.rs", "mcp: files/read"] {
            assert_eq!(rule(text).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_matches_is_one_command_of_plain_words(rest in "\\PC{0,20}") {
            let command = format!("cargo test {rest}");
            if allows_command(&rule("bash: cargo test"), &command) {
                prop_assert!(!command.contains(SHELL));
            }
        }
    }
}
