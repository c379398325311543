//! The tensors of a checkpoint that are joined, and checks of them.

use super::method::Method;
use crate::error::Result;
use crate::tensor::TensorView;
use std::collections::{HashMap, HashSet};

/// The tensors of the files, and which of them are used.
pub(super) struct Parts<'a> {
    pub(super) method: Method,
    pub(super) by_name: HashMap<&'a str, &'a TensorView>,
    pub(super) used: HashSet<&'a str>,
    /// Whether all companions that were taken since this was set are in files that are there.
    pub(super) all_here: bool,
}

impl<'a> Parts<'a> {
    pub(super) fn has(&self, stem: &str, end: &str) -> bool {
        self.by_name.contains_key(format!("{stem}{end}").as_str())
    }

    /// Takes a companion, if it exists.
    pub(super) fn take(&mut self, stem: &str, end: &str) -> Option<&'a TensorView> {
        let (name, view) = self.by_name.get_key_value(format!("{stem}{end}").as_str())?;
        self.used.insert(name);
        self.all_here &= view.bytes().are_here();
        Some(view)
    }

    /// Takes a companion of `view` that must exist.
    pub(super) fn need(
        &mut self,
        view: &TensorView,
        stem: &str,
        end: &str,
    ) -> Result<&'a TensorView> {
        let missing = || view.error(format!("expected a tensor {stem}{end}, found none"));
        self.take(stem, end).ok_or_else(missing)
    }

    /// An error unless the settings name one of `methods`.
    pub(super) fn check_method(&self, view: &TensorView, methods: &[&str]) -> Result<()> {
        match self.method.name.as_deref() {
            Some(name) if methods.contains(&name) => Ok(()),
            _ => Err(self.method.unknown(view)),
        }
    }
}

/// The two dimensions of a matrix that is not empty.
pub(super) fn matrix(view: &TensorView) -> Result<(usize, usize)> {
    match view.shape[..] {
        [rows, cols] if rows > 0 && cols > 0 => Ok((rows, cols)),
        _ => Err(view.error(format!("expected a matrix, found shape {:?}", view.shape))),
    }
}

pub(super) fn check_type(view: &TensorView, types: &[&str]) -> Result<()> {
    if types.contains(&view.ty.name) {
        return Ok(());
    }
    Err(view.error(format!("expected values of type {}, found {}", types.join(" or "), view.ty)))
}

pub(super) fn check_shape(view: &TensorView, shapes: &[&[usize]]) -> Result<()> {
    if shapes.contains(&view.shape.as_slice()) {
        return Ok(());
    }
    let expected: Vec<_> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
    let problem = format!("expected shape {}, found {:?}", expected.join(" or "), view.shape);
    Err(view.error(problem))
}
