// Values are dealt out to all invocations in turn. A kernel defines `each(i)`.
const WORKGROUP = 64u;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var i = id.x; i < params.count; i += groups.x * WORKGROUP) {
        each(i);
    }
}
