//! Characters that a reader does not see.

/// Whether a character is a control, sets the direction of text, or has no width and no use in
/// writing a language. Joiners stay, because scripts and emoji need them, and so do the variants of
/// emoji.
///
/// ```
/// assert!(client::is_hidden('\u{202e}') && !client::is_hidden('\u{200d}'));
/// ```
pub fn is_hidden(char: char) -> bool {
    let hidden = matches!(char,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}'
        | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        | '\u{e0100}'..='\u{e01ef}');
    hidden || char.is_control()
}

#[cfg(test)]
mod tests {
    use super::is_hidden;

    #[test]
    fn what_no_script_needs_is_hidden() {
        for char in
            "\0\n\u{1b}\u{9b}\u{ad}\u{61c}\u{115f}\u{180e}\u{3164}\u{e0100}\u{e01ef}".chars()
        {
            assert!(is_hidden(char), "{char:?}");
        }
        for char in "aé漢 👩\u{200d}\u{fe0f}\u{301}".chars() {
            assert!(!is_hidden(char), "{char:?}");
        }
    }
}
