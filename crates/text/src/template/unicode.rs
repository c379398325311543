//! Properties and case of characters as Python's strings have them, where they are not those of
//! Rust.

use regex_syntax::hir::{Class, ClassUnicode, HirKind};
use std::sync::LazyLock;

/// A set of characters, by an expression for one of them.
struct CharSet(LazyLock<ClassUnicode>);

impl CharSet {
    fn contains(&self, c: char) -> bool {
        let ranges = self.0.ranges();
        let after = ranges.partition_point(|range| range.end() < c);
        ranges.get(after).is_some_and(|range| range.start() <= c)
    }
}

macro_rules! char_set {
    ($expression:literal) => {
        CharSet(LazyLock::new(|| class($expression)))
    };
}

fn class(expression: &str) -> ClassUnicode {
    let parsed = regex_syntax::parse(expression).map(regex_syntax::hir::Hir::into_kind);
    match parsed {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => unreachable!("{expression} is not a class"),
    }
}

static LETTERS: CharSet = char_set!(r"\p{L}");
static DECIMALS: CharSet = char_set!(r"\p{Nd}");
static NUMBERS: CharSet = char_set!(r"\p{N}");
static TITLES: CharSet = char_set!(r"\p{Lt}");
static UNPRINTABLE: CharSet = char_set!(r"[\p{C}\p{Z}--\x20]");
static NAME_STARTS: CharSet = char_set!(r"[_\p{XIDS}]");
static NAME_PARTS: CharSet = char_set!(r"[\p{XIDC}]");
/// Numbers besides the decimal ones that are digits: superscripts, digits in circles and others.
static OTHER_DIGITS: CharSet = CharSet(LazyLock::new(|| {
    class(concat!(
        r"[\x{B2}-\x{B3}\x{B9}\x{1369}-\x{1371}\x{19DA}\x{2070}\x{2074}-\x{2079}\x{2080}-\x{2089}",
        r"\x{2460}-\x{2468}\x{2474}-\x{247C}\x{2488}-\x{2490}\x{24EA}\x{24F5}-\x{24FD}\x{24FF}",
        r"\x{2776}-\x{277E}\x{2780}-\x{2788}\x{278A}-\x{2792}\x{10A40}-\x{10A43}\x{10E60}-",
        r"\x{10E68}\x{11052}-\x{1105A}\x{1F100}-\x{1F10A}]",
    ))
}));
/// Ideographs that are numbers.
static NUMERALS: CharSet = CharSet(LazyLock::new(|| {
    class(concat!(
        r"[\x{3405}\x{3483}\x{382A}\x{3B4D}\x{4E00}\x{4E03}\x{4E07}\x{4E09}\x{4E5D}\x{4E8C}",
        r"\x{4E94}\x{4E96}\x{4EBF}-\x{4EC0}\x{4EDF}\x{4EE8}\x{4F0D}\x{4F70}\x{5104}\x{5146}",
        r"\x{5169}\x{516B}\x{516D}\x{5341}\x{5343}-\x{5345}\x{534C}\x{53C1}-\x{53C4}\x{56DB}",
        r"\x{58F1}\x{58F9}\x{5E7A}\x{5EFE}-\x{5EFF}\x{5F0C}-\x{5F0E}\x{5F10}\x{62FE}\x{634C}",
        r"\x{67D2}\x{6F06}\x{7396}\x{767E}\x{8086}\x{842C}\x{8CAE}\x{8CB3}\x{8D30}\x{9621}\x{9646}",
        r"\x{964C}\x{9678}\x{96F6}\x{F96B}\x{F973}\x{F978}\x{F9B2}\x{F9D1}\x{F9D3}\x{F9FD}",
        r"\x{20001}\x{20064}\x{200E2}\x{20121}\x{2092A}\x{20983}\x{2098C}\x{2099C}\x{20AEA}",
        r"\x{20AFD}\x{20B19}\x{22390}\x{22998}\x{23B1B}\x{2626D}\x{2F890}]",
    ))
}));

pub(super) fn is_letter(c: char) -> bool {
    LETTERS.contains(c)
}

pub(super) fn is_decimal(c: char) -> bool {
    DECIMALS.contains(c)
}

pub(super) fn is_digit(c: char) -> bool {
    is_decimal(c) || OTHER_DIGITS.contains(c)
}

pub(super) fn is_numeric(c: char) -> bool {
    NUMBERS.contains(c) || NUMERALS.contains(c)
}

/// Whether `repr` shows the character as it is.
pub(super) fn is_printable(c: char) -> bool {
    !UNPRINTABLE.contains(c)
}

pub(super) fn is_title(c: char) -> bool {
    TITLES.contains(c)
}

/// Whether a character has a case: upper, lower or title.
pub(super) fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || is_title(c)
}

pub(super) fn is_identifier(s: &str) -> bool {
    let mut chars = s.chars();
    chars.next().is_some_and(|c| NAME_STARTS.contains(c)) && chars.all(|c| NAME_PARTS.contains(c))
}

/// The character at the beginning of a word in a title.
pub(super) fn title(c: char) -> String {
    let code = u32::from(c);
    let single = match code {
        0x10D0..=0x10FF | 0x1FBC | 0x1FCC | 0x1FFC => Some(code),
        0x1F80..=0x1FAF => Some(code | 8),
        0x1C4..=0x1CC => Some(0x1C5 + (code - 0x1C4) / 3 * 3),
        0x1F1..=0x1F3 => Some(0x1F2),
        0x1FB3 | 0x1FC3 | 0x1FF3 => Some(code + 9),
        _ => None,
    };
    if let Some(single) = single.and_then(char::from_u32) {
        return single.to_string();
    }
    let upper: String = c.to_uppercase().collect();
    match code {
        0x149 => upper,
        // The iota stays below the letter.
        0x1FB2 | 0x1FB4 | 0x1FC2 | 0x1FC4 | 0x1FF2 | 0x1FF4 => upper.replace('Ι', "\u{345}"),
        0x1FB7 => "\u{1FBC}\u{342}".into(),
        0x1FC7 => "\u{1FCC}\u{342}".into(),
        0x1FF7 => "\u{1FFC}\u{342}".into(),
        _ => {
            let mut chars = upper.chars();
            let first = chars.next().into_iter();
            first.chain(chars.flat_map(char::to_lowercase)).collect()
        }
    }
}

/// `str.casefold`.
pub(super) fn case_fold(s: &str) -> String {
    let one = |c: char| -> String {
        match u32::from(c) {
            0x131 | 0x13A0..=0x13F5 => c.into(),
            code @ 0x13F8..=0x13FD => char::from_u32(code - 8).unwrap_or(c).into(),
            code @ 0xAB70..=0xABBF => char::from_u32(code - 0xAB70 + 0x13A0).unwrap_or(c).into(),
            _ => c.to_uppercase().flat_map(char::to_lowercase).collect(),
        }
    };
    s.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters of `all` for which `test` holds.
    fn those(test: fn(char) -> bool, all: &str) -> String {
        all.chars().filter(|c| test(*c)).collect()
    }

    #[test]
    fn kinds_of_numbers_are_those_of_python() {
        let all = "7٣²①Ⅷ½一x";
        assert_eq!(those(is_decimal, all), "7٣");
        assert_eq!(those(is_digit, all), "7٣²①");
        assert_eq!(those(is_numeric, all), "7٣²①Ⅷ½一");
    }

    #[test]
    fn letters_and_printable_characters_are_those_of_python() {
        assert_eq!(those(is_letter, "aß中\u{301}\u{345}ⓐⅧ_"), "aß中");
        assert_eq!(
            those(is_printable, "a \u{a0}\u{200b}\u{2028}é\u{301}\u{ad}\u{e000}\u{7f}🙂"),
            "a é\u{301}🙂"
        );
        let names = ["a1", "_é", "1a", "", "a b", "a\u{301}"].map(is_identifier);
        assert_eq!(names, [true, true, false, false, false, true]);
    }

    #[test]
    fn titles_and_folds_are_those_of_python() {
        let all = "ßǆǅﬁŉაᾳᾀᾷᾲა";
        let titles: Vec<String> = all.chars().map(title).collect();
        assert_eq!(
            titles,
            ["Ss", "ǅ", "ǅ", "Fi", "ʼN", "ა", "ᾼ", "ᾈ", "ᾼ\u{342}", "Ὰ\u{345}", "ა"]
        );
        assert_eq!(
            case_fold("STRAßE ſı Ꭰꭰᏸ ᾀς ΐ"),
            "strasse sı ᎠᎠᏰ ἀισ ΐ".replace("ΐ", "\u{3b9}\u{308}\u{301}")
        );
    }
}
