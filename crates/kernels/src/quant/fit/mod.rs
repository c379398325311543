//! Common parts of quantisers: blocks of weighted values, and searches for the scales with the
//! least error. The error of a fit is the sum over a group of `weight * (value - restored)^2`; a
//! fit proposes scales, rounds values to the nearest level under each, and keeps the best, always
//! measured with factors and scales as stored.

mod book;
mod line;
mod round;
mod scale;
mod signs;
mod step;
mod weighted;

pub(super) use book::{Book, Leveled};
pub(super) use line::{FittedLines, fit_lines, store_f16_line};
pub(super) use round::{inverse, nearest, store_f16};
pub(super) use scale::{Levels, fit_scales, store_f16_scale};
pub(super) use signs::{Signs, Unsigned};
pub(super) use step::{Rounded, Rounding, StepGrid, fit_steps};
pub(super) use weighted::{WeightedBlock, WeightedGroup, bounded, relative};
