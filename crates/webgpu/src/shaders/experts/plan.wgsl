// The plan of a layer's experts: choices of held experts become slots, in order of experts and then
// of rows, and slots become tiles.
@group(0) @binding(0) var<storage, read_write> choices: array<u32>;
@group(0) @binding(1) var<storage, read_write> plan: array<u32>;
