//! Under a grammar, the answer of any model has the requested form.

mod answers;
mod arguments;
mod calls;
mod gbnf;
mod hostile;
mod numbers;
mod player;
mod schemas;
