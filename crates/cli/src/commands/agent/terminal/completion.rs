//! Completion of the commands that begin with `/`.

/// Width up to which a command widens the column of all.
const MAX_WIDTH: usize = 20;

/// Commands with their arguments and their help: `confirm outside|writes`.
pub(super) type Commands = &'static [(&'static str, &'static str)];

/// What the text of the editor means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A message; a doubled slash at its start stands for one.
    Message(String),
    /// A command of the list.
    Command {
        /// Its name, without the slash.
        name: &'static str,
        /// What follows the name.
        argument: String,
    },
    /// Something with a slash that is no command.
    Unknown(String),
}

/// What a text means.
pub(super) fn meaning(commands: Commands, text: &str) -> Meaning {
    let text = text.trim();
    let Some(rest) = text.strip_prefix('/') else { return Meaning::Message(text.to_owned()) };
    if rest.starts_with('/') {
        return Meaning::Message(rest.to_owned());
    }
    let (word, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let word = match word {
        "?" => "help",
        "quit" => "exit",
        word => word,
    };
    match names(commands).find(|name| *name == word) {
        Some(name) => Meaning::Command { name, argument: argument.trim().to_owned() },
        None => Meaning::Unknown(word.to_owned()),
    }
}

/// What the word that is being written may become: the names of commands, or the values of one.
pub(super) fn candidates(commands: Commands, text: &str) -> Vec<String> {
    words(commands, text).map_or_else(Vec::new, |(_, words)| words)
}

/// The text that a beginning of a command or of a value is completed to.
pub(super) fn completed(commands: Commands, text: &str) -> Option<String> {
    let (before, words) = words(commands, text)?;
    let (first, rest) = words.split_first()?;
    if rest.is_empty() {
        return Some(format!("{before}{first} "));
    }
    let mut common = first.len();
    for name in rest {
        let same = first.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        common = common.min(same);
    }
    let completed = format!("{before}{}", &first[..first.floor_char_boundary(common)]);
    (completed != text).then_some(completed)
}

/// The text before the word that is being written, and what that may become.
fn words(commands: Commands, text: &str) -> Option<(&str, Vec<String>)> {
    let after = text.strip_prefix('/')?;
    let starting = |words: &[&str], begin: &str| -> Vec<String> {
        words.iter().filter(|it| it.starts_with(begin)).map(|&it| it.to_owned()).collect()
    };
    let Some((name, argument)) = after.split_once(char::is_whitespace) else {
        let names: Vec<String> = names(commands).map(|name| format!("/{name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Some(("", starting(&names, text)));
    };
    let values = values(commands, name);
    Some((&text[..text.len() - argument.len()], starting(&values, argument)))
}

/// The list of the commands, a line for each.
pub(super) fn help(commands: Commands) -> String {
    let widths = commands.iter().map(|(name, _)| name.len());
    let width = widths.filter(|width| *width <= MAX_WIDTH).max().unwrap_or_default();
    let line = |&(name, help): &(&'static str, &str)| format!("/{:<width$}  {help}\n", bare(name));
    commands.iter().map(line).collect()
}

/// The values of a command's argument, which stand after its name with `|` between them.
fn values(commands: Commands, name: &str) -> Vec<&'static str> {
    let argument = commands.iter().find_map(|(usage, _)| {
        let (found, argument) = bare(usage).split_once(' ')?;
        (found == name && argument.contains('|')).then_some(argument)
    });
    argument.into_iter().flat_map(|argument| argument.split('|')).collect()
}

/// The names, without slashes and arguments.
fn names(commands: Commands) -> impl Iterator<Item = &'static str> {
    commands.iter().filter_map(|(name, _)| bare(name).split_whitespace().next())
}

fn bare(name: &'static str) -> &'static str {
    name.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: Commands = &[
        ("help", "this list"),
        ("compact [TEXT]", "shorten"),
        ("confirm on|off", ""),
        ("exit", ""),
    ];

    #[test]
    fn a_beginning_is_completed_as_far_as_it_is_clear() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(completed(COMMANDS, text).as_deref(), expected, "{text}");
        };
        check("/h", Some("/help "));
        check("/c", Some("/co"));
        check("/co", None);
        check("/com", Some("/compact "));
        check("/x", None);
        check("hello", None);
        check("/compact a", None);
        check("/exit", Some("/exit "));
        check("/exit ", None);
        check("/confirm ", Some("/confirm o"));
        check("/confirm of", Some("/confirm off "));
        check("/confirm off ", None);
        check("/confirm x", None);
        assert_eq!(candidates(COMMANDS, "/co"), ["/compact", "/confirm"]);
        assert_eq!(candidates(COMMANDS, "/confirm o"), ["on", "off"]);
        assert_eq!(candidates(COMMANDS, "hello"), [""; 0]);
    }

    #[test]
    fn messages_and_commands_are_distinguished() {
        let check =
            |text: &str, expected: Meaning| assert_eq!(meaning(COMMANDS, text), expected, "{text}");
        let command = |name, argument: &str| Meaning::Command { name, argument: argument.into() };
        check(" hello ", Meaning::Message("hello".into()));
        check("//help", Meaning::Message("/help".into()));
        check("/compact  the tests ", command("compact", "the tests"));
        check("/?", command("help", ""));
        check("/quit", command("exit", ""));
        check("/usr/bin", Meaning::Unknown("usr/bin".into()));
    }

    #[test]
    fn the_help_names_every_command() {
        assert_eq!(help(COMMANDS).lines().count(), COMMANDS.len());
        assert!(help(COMMANDS).contains("/compact [TEXT]  shorten\n"));
    }
}
