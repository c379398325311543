//! Published families of models: templates and markers, calls, reasoning and replay, from a
//! conversation to a scripted engine and back.

mod autumn;
mod broken;
mod budgets;
mod family;
mod forced;
mod marks;
mod replay;
mod round_trip;
mod scripts;
mod stage;
mod transcripts;
