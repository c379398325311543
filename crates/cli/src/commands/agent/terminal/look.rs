//! How kinds of text look: colours of the terminal's own sixteen and attributes, or neither.

use ratatui_core::style::{Color, Modifier, Style};
use std::env;

/// A kind of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Look {
    /// The model's text.
    #[default]
    Plain,
    /// Reasoning, results and what surrounds the editor.
    Dim,
    /// A call of a tool.
    Call,
    /// A failure.
    Bad,
    /// What the user wrote.
    User,
    /// A note of the program.
    Note,
    /// A question.
    Question,
}

/// What a terminal may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    /// Colours and attributes.
    Colours,
    /// Attributes only: `NO_COLOR` is set.
    Attributes,
    /// Plain text: the terminal is a dumb one.
    Plain,
}

impl Theme {
    /// The theme that the environment asks for.
    pub fn of_environment() -> Self {
        let has_no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match env::var_os("TERM") {
            Some(term) if term == "dumb" => Self::Plain,
            _ if has_no_colour => Self::Attributes,
            _ => Self::Colours,
        }
    }

    /// The style of a kind of text.
    pub fn style(self, look: Look) -> Style {
        let style = Style::new();
        let (style, colour) = match look {
            Look::Plain => (style, None),
            Look::Dim => (style.add_modifier(Modifier::DIM), None),
            Look::Call => (style, Some(Color::Cyan)),
            Look::Bad => (style, Some(Color::Red)),
            Look::User => (style.add_modifier(Modifier::BOLD), None),
            Look::Note => (style, Some(Color::Yellow)),
            Look::Question => (style.add_modifier(Modifier::BOLD), Some(Color::Magenta)),
        };
        match (self, colour) {
            (Self::Plain, _) => Style::new(),
            (Self::Colours, Some(colour)) => style.fg(colour),
            (Self::Attributes | Self::Colours, _) => style,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_theme_with_colours_has_some() {
        let looks = [Look::Plain, Look::Dim, Look::Call, Look::Bad, Look::User, Look::Note];
        for look in looks {
            assert_eq!(Theme::Plain.style(look), Style::new());
            assert_eq!(Theme::Attributes.style(look).fg, None);
        }
        assert_eq!(Theme::Colours.style(Look::Call).fg, Some(Color::Cyan));
    }
}
