//! Rewriting of parsed templates: operators become calls of functions of this crate.
//!
//! The operators of the template engine differ from Python's in places and have no budgets.
//! `+ * % ** ~ < in` become calls; filters, calls and slices are charged for the bytes that they
//! read and write; methods are looked up as in Python. Statements that the environment of Hugging
//! Face does not have are errors.

use super::lazy;
use minijinja::machinery::Span;
use minijinja::machinery::ast::{
    self, BinOpKind, Call, CallArg, CompareOpKind, Expr, ForLoop, Spanned, Stmt, UnaryOpKind,
};
use minijinja::{Error, ErrorKind, Value};

/// Names of the functions that rewritten templates call.
pub(super) mod names {
    pub const ADD: &str = "__add";
    pub const CONCAT: &str = "__concat";
    pub const MUL: &str = "__mul";
    pub const REM: &str = "__rem";
    pub const POW: &str = "__pow";
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
}

/// Attributes that name a method of every dictionary, even if it has such a key.
const DICT_METHODS: [&str; 4] = ["items", "keys", "values", "get"];

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
        Stmt::EmitRaw(r) => Stmt::EmitExpr(again(r, ast::EmitExpr { expr: text(r.raw, r.span()) })),
        Stmt::ForLoop(l) => Stmt::ForLoop(again(l, for_loop(l)?)),
        Stmt::IfCond(c) => {
            let (true_body, false_body) = (all(&c.true_body)?, all(&c.false_body)?);
            Stmt::IfCond(again(c, ast::IfCond { expr: expr(&c.expr), true_body, false_body }))
        }
        Stmt::WithBlock(w) => {
            let assignments = w.assignments.iter().map(|(t, v)| (target(t), expr(v))).collect();
            Stmt::WithBlock(again(w, ast::WithBlock { assignments, body: all(&w.body)? }))
        }
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
            let call = Spanned::new(call_parts(&c.call), c.call.span());
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
    body.iter().map(statement).collect()
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

fn macro_decl<'a>(m: &ast::Macro<'a>) -> Rewritten<ast::Macro<'a>> {
    Ok(ast::Macro {
        name: m.name,
        args: targets(&m.args),
        defaults: exprs(&m.defaults),
        body: all(&m.body)?,
    })
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
            let negates = matches!(u.op, UnaryOpKind::Not);
            let op = if negates { UnaryOpKind::Not } else { UnaryOpKind::Neg };
            Expr::UnaryOp(again(u, ast::UnaryOp { op, expr: expr(&u.expr) }))
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
            let (object, subscript_expr) = (touch_text(&g.expr), expr(&g.subscript_expr));
            Expr::GetItem(again(g, ast::GetItem { expr: object, subscript_expr }))
        }
        Expr::Call(c) => made(Expr::Call(again(c, call_parts(c)))),
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
    let none = || Expr::Const(Spanned::new(ast::Const { value: Value::from(()) }, span));
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
    if DICT_METHODS.contains(&g.name) {
        return function(names::ATTRIBUTE, vec![object, text(g.name, g.span())], g.span());
    }
    Expr::GetAttr(again(g, ast::GetAttr { expr: object, name: g.name }))
}

/// A call; `object.name(...)` calls the methods of this crate.
fn call_parts<'a>(c: &Call<'a>) -> Call<'a> {
    let mut args = arguments(&c.args);
    let Expr::GetAttr(method) = &c.expr else {
        return Call { expr: expr(&c.expr), args };
    };
    let name = text(method.name, method.span());
    args.splice(0..0, [CallArg::Pos(touch_text(&method.expr)), CallArg::Pos(name)]);
    Call { expr: variable(names::METHOD, method.span()), args }
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
    Expr::Const(Spanned::new(ast::Const { value: Value::from(text) }, span))
}

fn again<T, U>(old: &Spanned<T>, new: U) -> Spanned<U> {
    Spanned::new(new, old.span())
}
