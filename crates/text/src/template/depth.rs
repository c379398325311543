//! Bounds on the depth of templates.
//!
//! The engine walks expressions recursively, and a chain of operators nests as deeply as it is
//! long. The chain in one tag is bounded here, and templates run on a stack that fits the bound.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

/// Operators, brackets and filters that one tag may have.
const MAX_OPERATORS: usize = 1000;
/// Address space for the stack of a rendering; only what is used costs memory.
const STACK: usize = 128 << 20;

/// Checks that no expression of a tag nests too deeply.
pub(super) fn check(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let mut operators = 0;
    for token in tokenize(source, false, syntax.clone()) {
        match token?.0 {
            Token::VariableStart | Token::BlockStart => operators = 0,
            token if nests(&token) => operators += 1,
            _ => {}
        }
        if operators > MAX_OPERATORS {
            let what = format!("a tag has more than {MAX_OPERATORS} operators");
            return Err(Error::new(ErrorKind::SyntaxError, what));
        }
    }
    Ok(())
}

fn nests(token: &Token) -> bool {
    match token {
        Token::Ident(word) => matches!(*word, "not" | "and" | "or" | "if" | "else" | "is" | "in"),
        Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => {
            false
        }
        Token::TemplateData(_) | Token::Comma | Token::Colon => false,
        _ => true,
    }
}

/// Runs `work` on a stack that is large enough for the deepest template.
pub(super) fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
        let running = thread.spawn_scoped(scope, work).map_err(|e| {
            Error::new(ErrorKind::InvalidOperation, format!("no thread for the template: {e}"))
        })?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
