//! Rewriting of parsed templates: operators become calls of functions of this crate.
//!
//! The operators of the template engine differ from Python's in places and have no budgets.
//! `+ * % ** ~ < in` become calls; filters, calls and slices are charged for the bytes that they
//! read and write; methods are looked up as in Python. Statements that the environment of Hugging
//! Face does not have are errors.

use super::{calls, lazy, methods, source};
use minijinja::machinery::ast::{
    self, BinOpKind, Call, CallArg, CompareOpKind, Expr, ForLoop, Spanned, Stmt, UnaryOpKind,
};
use minijinja::machinery::{CodeGenerator, Instruction, Span};
use minijinja::{Error, ErrorKind, Value};
use std::iter::zip;

/// Names of the functions that rewritten templates call.
pub(super) mod names {
    pub const ADD: &str = "__add";
    pub const CONCAT: &str = "__concat";
    pub const MUL: &str = "__mul";
    pub const REM: &str = "__rem";
    pub const POW: &str = "__pow";
    pub const NEG: &str = "__neg";
    pub const SUBSCRIPTED: &str = "__subscripted";
    pub const LESS: &str = "__less";
    pub const LESS_OR_EQUAL: &str = "__less_or_equal";
    pub const CONTAINS: &str = "__contains";
    pub const ITERABLE: &str = "__iterable";
    pub const MADE: &str = "__made";
    pub const SLICE: &str = "__slice";
    pub const LAZY: &str = "__lazy";
    pub const TOUCH: &str = "__touch";
    pub const METHOD: &str = "__method";
    pub const ATTRIBUTE: &str = "__attribute";
    pub const CALL: &str = "__call";
    pub const MISSING: &str = "__missing";
    pub const DEFAULT: &str = "__default";
}

/// Functions of the engine whose calls it knows by their name.
const OF_ENGINE: [&str; 2] = ["loop", "super"];

/// Filters that iterate their value, for which none is an error.
const ITERATING: [&str; 9] =
    ["list", "join", "sort", "unique", "groupby", "sum", "max", "min", "batch"];

type Rewritten<T> = Result<T, Error>;

/// Returns the statement with its operators replaced.
pub(super) fn statement<'a>(stmt: &Stmt<'a>) -> Rewritten<Stmt<'a>> {
    Ok(match stmt {
        Stmt::Template(t) => {
            Stmt::Template(again(t, ast::Template { children: all(&t.children)? }))
        }
        Stmt::EmitExpr(e) => Stmt::EmitExpr(again(e, ast::EmitExpr { expr: expr(&e.expr) })),
        // As an expression, raw text passes the formatter, which charges for it.
        Stmt::EmitRaw(r) => {
            Stmt::EmitExpr(again(r, ast::EmitExpr { expr: markup(r.raw, r.span()) }))
        }
        Stmt::ForLoop(l) => Stmt::ForLoop(again(l, for_loop(l)?)),
        Stmt::IfCond(c) => {
            let (true_body, false_body) = (all(&c.true_body)?, all(&c.false_body)?);
            Stmt::IfCond(again(c, ast::IfCond { expr: expr(&c.expr), true_body, false_body }))
        }
        Stmt::WithBlock(w) => Stmt::WithBlock(again(w, with_block(w)?)),
        Stmt::Set(s) => {
            let (target, expr) = (target(&s.target), expr(&s.expr));
            Stmt::Set(again(s, ast::Set { target, expr }))
        }
        Stmt::SetBlock(s) => {
            let (target, filter) = (target(&s.target), s.filter.as_ref().map(piped));
            Stmt::SetBlock(again(s, ast::SetBlock { target, filter, body: all(&s.body)? }))
        }
        Stmt::FilterBlock(f) => {
            let (filter, body) = (piped(&f.filter), all(&f.body)?);
            Stmt::FilterBlock(again(f, ast::FilterBlock { filter, body }))
        }
        Stmt::AutoEscape(a) => {
            let (enabled, body) = (expr(&a.enabled), all(&a.body)?);
            Stmt::AutoEscape(again(a, ast::AutoEscape { enabled, body }))
        }
        Stmt::Macro(m) => Stmt::Macro(again(m, macro_decl(m)?)),
        Stmt::CallBlock(c) => {
            // The called macro receives the block; its result is charged for where it is emitted.
            let call = Spanned::new(call_parts(&c.call, c.call.span()), c.call.span());
            let macro_decl = again(&c.macro_decl, macro_decl(&c.macro_decl)?);
            Stmt::CallBlock(again(c, ast::CallBlock { call, macro_decl }))
        }
        Stmt::Continue(c) => Stmt::Continue(again(c, ast::Continue)),
        Stmt::Break(b) => Stmt::Break(again(b, ast::Break)),
        Stmt::Block(b) => {
            let (name, required, body) = (b.name, b.required, all(&b.body)?);
            Stmt::Block(again(b, ast::Block { name, required, body }))
        }
        Stmt::Do(_) => return Err(Error::new(ErrorKind::SyntaxError, "unknown tag 'do'")),
        Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
            return Err(Error::new(ErrorKind::TemplateNotFound, "there are no other templates"));
        }
    })
}

fn all<'a>(body: &[Stmt<'a>]) -> Rewritten<Vec<Stmt<'a>>> {
    let mut statements = Vec::with_capacity(body.len());
    for stmt in body {
        match printed(stmt) {
            Some(values) => statements.extend(values),
            None => statements.push(statement(stmt)?),
        }
    }
    Ok(statements)
}

/// The statements of a `print` tag.
fn printed<'a>(stmt: &Stmt<'a>) -> Option<Vec<Stmt<'a>>> {
    let Stmt::Do(tag) = stmt else { return None };
    let named = matches!(&tag.call.expr, Expr::Var(v) if v.id == source::PRINT);
    let emit = |arg: &CallArg<'a>| match arg {
        CallArg::Pos(e) => Some(Stmt::EmitExpr(again(tag, ast::EmitExpr { expr: expr(e) }))),
        _ => None,
    };
    named.then(|| tag.call.args.iter().map(emit).collect()).flatten()
}

/// A block of variables, of which no value sees another: all are assigned at once.
fn with_block<'a>(w: &Spanned<ast::WithBlock<'a>>) -> Rewritten<ast::WithBlock<'a>> {
    let list = |items: Vec<Expr<'a>>| Expr::List(Spanned::new(ast::List { items }, w.span()));
    let (names, values): (Vec<_>, Vec<_>) =
        w.assignments.iter().map(|(name, value)| (target(name), expr(value))).unzip();
    let assignments = match names.len() {
        0 | 1 => zip(names, values).collect(),
        _ => vec![(list(names), list(values))],
    };
    Ok(ast::WithBlock { assignments, body: all(&w.body)? })
}

fn for_loop<'a>(l: &ForLoop<'a>) -> Rewritten<ForLoop<'a>> {
    Ok(ForLoop {
        target: target(&l.target),
        iter: iterable(&l.iter),
        filter_expr: l.filter_expr.as_ref().map(expr),
        recursive: l.recursive,
        body: all(&l.body)?,
        else_body: all(&l.else_body)?,
    })
}

/// A macro whose first statements set the arguments that are missing, one after the other.
fn macro_decl<'a>(m: &Spanned<ast::Macro<'a>>) -> Rewritten<ast::Macro<'a>> {
    let (mut args, rest) = (targets(&m.args), all(&m.body)?);
    let required = m.args.len() - m.defaults.len();
    let set = |(at, arg): (usize, &Expr<'a>)| {
        let default = at.checked_sub(required).map(|at| &m.defaults[at]);
        set_if_missing(arg, default)
    };
    let mut body: Vec<Stmt<'a>> = m.args.iter().enumerate().map(set).collect();
    for name in [calls::VARARGS, calls::KWARGS] {
        let named = |arg: &Expr<'a>| matches!(arg, Expr::Var(v) if v.id == name);
        if reads(&rest, name) && !args.iter().any(named) {
            args.push(variable(name, m.span()));
        }
    }
    body.extend(rest);
    Ok(ast::Macro { name: m.name, args, defaults: Vec::new(), body })
}

/// `{% if arg is missing %}{% set arg = default %}{% endif %}`.
fn set_if_missing<'a>(arg: &Expr<'a>, default: Option<&Expr<'a>>) -> Stmt<'a> {
    let span = arg.span();
    let undefined = || constant(Value::UNDEFINED, span);
    let value = function(names::DEFAULT, vec![default.map_or_else(undefined, expr)], span);
    let set = Stmt::Set(Spanned::new(ast::Set { target: target(arg), expr: value }, span));
    let missing = function(names::MISSING, vec![expr(arg)], span);
    let (true_body, false_body) = (vec![set], Vec::new());
    Stmt::IfCond(Spanned::new(ast::IfCond { expr: missing, true_body, false_body }, span))
}

/// Whether statements read a variable.
fn reads(body: &[Stmt], name: &str) -> bool {
    let mut generator = CodeGenerator::new("chat", "");
    body.iter().for_each(|stmt| generator.compile_stmt(stmt));
    let (instructions, _) = generator.finish();
    let mut all = (0..).map_while(|at| instructions.get(at));
    all.any(|one| matches!(one, Instruction::Lookup(found) if *found == name))
}

/// An assignment target: names and attributes stay as they are.
fn target<'a>(e: &Expr<'a>) -> Expr<'a> {
    match e {
        Expr::GetAttr(g) => {
            Expr::GetAttr(again(g, ast::GetAttr { expr: target(&g.expr), name: g.name }))
        }
        Expr::List(l) => Expr::List(again(l, ast::List { items: targets(&l.items) })),
        Expr::Tuple(t) => Expr::Tuple(again(t, ast::Tuple { items: targets(&t.items) })),
        other => expr(other),
    }
}

fn targets<'a>(all: &[Expr<'a>]) -> Vec<Expr<'a>> {
    all.iter().map(target).collect()
}

/// A filter chain that starts from a captured body: only its arguments are rewritten.
fn piped<'a>(e: &Expr<'a>) -> Expr<'a> {
    match e {
        Expr::Filter(f) => {
            let args = arguments(&f.args);
            let expr = f.expr.as_ref().map(piped);
            Expr::Filter(again(f, ast::Filter { name: f.name, expr, args }))
        }
        other => expr(other),
    }
}

fn expr<'a>(e: &Expr<'a>) -> Expr<'a> {
    match e {
        Expr::Var(v) => Expr::Var(again(v, ast::Var { id: v.id })),
        Expr::Const(c) => Expr::Const(again(c, ast::Const { value: c.value.clone() })),
        Expr::Slice(s) => made(slice(s)),
        Expr::UnaryOp(u) => {
            let expr = expr(&u.expr);
            match u.op {
                UnaryOpKind::Not => {
                    Expr::UnaryOp(again(u, ast::UnaryOp { op: UnaryOpKind::Not, expr }))
                }
                UnaryOpKind::Neg => function(names::NEG, vec![expr], u.span()),
            }
        }
        Expr::BinOp(b) => binary(b),
        Expr::Compare(c) => compare(c),
        Expr::IfExpr(i) => {
            let (test_expr, true_expr) = (expr(&i.test_expr), expr(&i.true_expr));
            let false_expr = i.false_expr.as_ref().map(expr);
            Expr::IfExpr(again(i, ast::IfExpr { test_expr, true_expr, false_expr }))
        }
        Expr::Filter(f) => filter(f),
        Expr::Test(t) => {
            let test = ast::Test { name: t.name, expr: expr(&t.expr), args: arguments(&t.args) };
            Expr::Test(again(t, test))
        }
        Expr::GetAttr(g) => attribute(g),
        Expr::GetItem(g) => {
            let object = function(names::SUBSCRIPTED, vec![touch_text(&g.expr)], g.span());
            let subscript_expr = expr(&g.subscript_expr);
            Expr::GetItem(again(g, ast::GetItem { expr: object, subscript_expr }))
        }
        Expr::Call(c) => made(Expr::Call(again(c, call_parts(c, c.span())))),
        Expr::List(l) => Expr::List(again(l, ast::List { items: exprs(&l.items) })),
        Expr::Tuple(t) => Expr::Tuple(again(t, ast::Tuple { items: exprs(&t.items) })),
        Expr::Map(m) => {
            Expr::Map(again(m, ast::Map { keys: exprs(&m.keys), values: exprs(&m.values) }))
        }
    }
}

fn exprs<'a>(all: &[Expr<'a>]) -> Vec<Expr<'a>> {
    all.iter().map(expr).collect()
}

fn binary<'a>(b: &Spanned<ast::BinOp<'a>>) -> Expr<'a> {
    let (left, right, span) = (&b.left, &b.right, b.span());
    let name = match b.op {
        BinOpKind::Add => names::ADD,
        BinOpKind::Concat => names::CONCAT,
        BinOpKind::Mul => names::MUL,
        BinOpKind::Rem => names::REM,
        BinOpKind::Pow => names::POW,
        BinOpKind::Eq => return comparison(CompareOpKind::Eq, left, right, span),
        BinOpKind::Ne => return comparison(CompareOpKind::Ne, left, right, span),
        BinOpKind::Lt => return comparison(CompareOpKind::Lt, left, right, span),
        BinOpKind::Lte => return comparison(CompareOpKind::Lte, left, right, span),
        BinOpKind::Gt => return comparison(CompareOpKind::Gt, left, right, span),
        BinOpKind::Gte => return comparison(CompareOpKind::Gte, left, right, span),
        BinOpKind::In => return comparison(CompareOpKind::In, left, right, span),
        op => {
            let (left, right) = (expr(left), expr(right));
            return Expr::BinOp(again(b, ast::BinOp { op, left, right }));
        }
    };
    function(name, vec![expr(left), expr(right)], span)
}

/// A chain of comparisons: each pair must hold.
fn compare<'a>(c: &Spanned<ast::Compare<'a>>) -> Expr<'a> {
    let span = c.span();
    let lefts = std::iter::once(&c.expr).chain(c.ops.iter().map(|step| &step.expr));
    let pairs = lefts.zip(&c.ops).map(|(left, step)| comparison(step.op, left, &step.expr, span));
    let both = |left, right| ast::BinOp { op: BinOpKind::ScAnd, left, right };
    let all = pairs.reduce(|before, holds| Expr::BinOp(Spanned::new(both(before, holds), span)));
    all.unwrap_or_else(|| expr(&c.expr))
}

fn comparison<'a>(op: CompareOpKind, left: &Expr<'a>, right: &Expr<'a>, span: Span) -> Expr<'a> {
    let (left, right) = (touch(left), touch(right));
    let equality =
        |op, left, right| Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, span));
    let call = |name, left, right| function(name, vec![left, right], span);
    match op {
        CompareOpKind::Eq => equality(BinOpKind::Eq, left, right),
        CompareOpKind::Ne => equality(BinOpKind::Ne, left, right),
        CompareOpKind::Lt => call(names::LESS, left, right),
        CompareOpKind::Lte => call(names::LESS_OR_EQUAL, left, right),
        CompareOpKind::Gt => call(names::LESS, right, left),
        CompareOpKind::Gte => call(names::LESS_OR_EQUAL, right, left),
        CompareOpKind::In => call(names::CONTAINS, left, right),
        CompareOpKind::NotIn => {
            let expr = call(names::CONTAINS, left, right);
            Expr::UnaryOp(Spanned::new(ast::UnaryOp { op: UnaryOpKind::Not, expr }, span))
        }
    }
}

fn slice<'a>(s: &Spanned<ast::Slice<'a>>) -> Expr<'a> {
    let span = s.span();
    let none = || constant(Value::from(()), span);
    let bound = |bound: &Option<Expr<'a>>| bound.as_ref().map_or_else(none, expr);
    let args = vec![touch(&s.expr), bound(&s.start), bound(&s.stop), bound(&s.step)];
    function(names::SLICE, args, span)
}

fn filter<'a>(f: &Spanned<ast::Filter<'a>>) -> Expr<'a> {
    let input = |e: &Expr<'a>| if ITERATING.contains(&f.name) { iterable(e) } else { touch(e) };
    let (name, expr) = (f.name, f.expr.as_ref().map(input));
    let result = made(Expr::Filter(again(f, ast::Filter { name, expr, args: arguments(&f.args) })));
    if lazy::FILTERS.contains(&f.name) {
        return function(names::LAZY, vec![result], f.span());
    }
    result
}

/// `object.name`; dictionaries have methods before keys.
fn attribute<'a>(g: &Spanned<ast::GetAttr<'a>>) -> Expr<'a> {
    let object = expr(&g.expr);
    if methods::is_attribute(g.name) {
        return function(names::ATTRIBUTE, vec![object, text(g.name, g.span())], g.span());
    }
    Expr::GetAttr(again(g, ast::GetAttr { expr: object, name: g.name }))
}

/// A call; `object.name(...)` calls the methods of this crate.
fn call_parts<'a>(c: &Call<'a>, span: Span) -> Call<'a> {
    let mut args = arguments(&c.args);
    let (function, first, second) = match &c.expr {
        Expr::Var(v) if OF_ENGINE.contains(&v.id) => return Call { expr: expr(&c.expr), args },
        Expr::GetAttr(method) => {
            let name = text(method.name, span);
            (names::METHOD, touch_text(&method.expr), name)
        }
        Expr::GetItem(item) if method_name(item).is_some() => {
            let name = constant(method_name(item).unwrap_or_default(), span);
            (names::METHOD, touch_text(&item.expr), name)
        }
        Expr::Var(v) => (names::CALL, text(v.id, span), expr(&c.expr)),
        other => (names::CALL, text(other.description(), span), expr(other)),
    };
    args.splice(0..0, [CallArg::Pos(first), CallArg::Pos(second)]);
    Call { expr: variable(function, span), args }
}

/// The name of the method in `object['name'](...)`.
fn method_name(item: &ast::GetItem) -> Option<Value> {
    let Expr::Const(name) = &item.subscript_expr else { return None };
    name.value.as_str().is_some().then(|| name.value.clone())
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let one = |arg: &CallArg<'a>| match arg {
        CallArg::Pos(e) => CallArg::Pos(expr(e)),
        CallArg::Kwarg(name, e) => CallArg::Kwarg(name, expr(e)),
        CallArg::PosSplat(e) => CallArg::PosSplat(expr(e)),
        CallArg::KwargSplat(e) => CallArg::KwargSplat(expr(e)),
    };
    args.iter().map(one).collect()
}

/// Charges for the value of an expression.
fn made(e: Expr<'_>) -> Expr<'_> {
    let span = e.span();
    function(names::MADE, vec![e], span)
}

/// Charges for reading the value of an expression; constants are short.
fn touch<'a>(e: &Expr<'a>) -> Expr<'a> {
    let span = e.span();
    match e {
        Expr::Const(_) => expr(e),
        _ => function(names::TOUCH, vec![expr(e)], span),
    }
}

/// The value that a loop iterates.
fn iterable<'a>(e: &Expr<'a>) -> Expr<'a> {
    function(names::ITERABLE, vec![touch(e)], e.span())
}

/// As [`touch`], but not for the variable `loop`.
fn touch_text<'a>(e: &Expr<'a>) -> Expr<'a> {
    match e {
        Expr::Var(v) if v.id == "loop" => expr(e),
        _ => touch(e),
    }
}

fn function<'a>(name: &'static str, args: Vec<Expr<'a>>, span: Span) -> Expr<'a> {
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(Call { expr: variable(name, span), args }, span))
}

fn variable<'a>(id: &'static str, span: Span) -> Expr<'a> {
    Expr::Var(Spanned::new(ast::Var { id }, span))
}

fn text<'a>(text: &str, span: Span) -> Expr<'a> {
    constant(Value::from(text), span)
}

/// Text of the template itself, which is never escaped.
fn markup<'a>(text: &str, span: Span) -> Expr<'a> {
    constant(Value::from_safe_string(text.to_owned()), span)
}

fn constant<'a>(value: Value, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(ast::Const { value }, span))
}

fn again<T, U>(old: &Spanned<T>, new: U) -> Spanned<U> {
    Spanned::new(new, old.span())
}
