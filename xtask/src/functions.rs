//! Where functions begin and end.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from its `fn` to the brace that closes it.
    pub lines: usize,
}

/// The functions of `code`, which must have been through [`code_only`](crate::rust::code_only).
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let starts = code.match_indices("fn ").filter(|(at, _)| begins_word(code, *at));
    starts.filter_map(|(at, _)| function(code, at)).collect()
}

fn begins_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn function(code: &str, at: usize) -> Option<Function> {
    let name: String =
        code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let end = body_end(&code[at..])? + at;
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    (!name.is_empty()).then(|| Function { line: line(at), lines: line(end) - line(at) + 1, name })
}

/// Where the brace that closes the body is; `None` for a declaration without one.
fn body_end(code: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &[(&str, usize, usize)]) {
        let found = functions(code);
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, expected, "{code}");
    }

    #[test]
    fn a_function_reaches_from_its_name_to_its_last_brace() {
        check("fn a() {}\n", &[("a", 1, 1)]);
        check("\nfn a(\n) -> [u8; 4] {\n  if x { }\n}\nfn b() {\n}", &[("a", 2, 4), ("b", 6, 2)]);
        check("fn a() {\n fn b() {\n }\n}", &[("a", 1, 4), ("b", 2, 2)]);
    }

    #[test]
    fn declarations_types_and_other_words_are_not_functions() {
        check("trait T { fn a(&self); }", &[]);
        check("type F = fn (u8) -> u8;", &[]);
        check("often {}", &[]);
    }
}
