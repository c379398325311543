//! Parts of the WGSL source that kernels share, and the size of dispatches that go with them.

/// Deals values out to invocations; a kernel defines `each(i)`.
pub(crate) const EACH: &str = include_str!("shaders/each.wgsl");
/// The logistic function and the softplus, on [`EXP_TO_ONE`].
pub(crate) const SIGMOID: &str = include_str!("shaders/sigmoid.wgsl");
/// `exp` of values that are not above 0.
pub(crate) const EXP_TO_ONE: &str = include_str!("shaders/exp_to_one.wgsl");

/// Sums and maxima over the lanes of a workgroup.
pub(crate) const LANES: &str = include_str!("shaders/lanes.wgsl");

/// Invocations of a workgroup of [`EACH`].
const WORKGROUP: usize = 64;
/// Most workgroups in one dimension.
pub(crate) const MAX_GROUPS: usize = 65_535;

/// Workgroups of a kernel with [`EACH`] that deals `count` values out.
pub(crate) fn dealt(count: usize) -> [usize; 3] {
    workgroups(count.div_ceil(WORKGROUP))
}

/// Workgroups of a kernel that deals `count` pieces of work out to them.
pub(crate) fn workgroups(count: usize) -> [usize; 3] {
    [count.clamp(1, MAX_GROUPS), 1, 1]
}
