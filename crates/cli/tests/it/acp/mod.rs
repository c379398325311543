//! `gannet agent --acp` as an editor sees it: the Agent Client Protocol on standard input and
//! output, with a model that a server plays.

mod cancelling;
mod editor;
mod endings;
mod hostile;
mod model;
mod modes;
mod permissions;
mod prompts;
mod sessions;
