// Pointwise: one invocation per element of the output, in row-major order.
// The body is generated from the region graph: index arithmetic, loads, and one expression per op.

// #replace enables
// #end
const COUNT: u32 = 1u;      // elements of the output
const WIDTH: u32 = 64u;     // invocations per workgroup

// #replace bindings
@group(0) @binding(0) var<storage, read_write> out0: array<f32>;
// #end
// #replace helpers
// #end

@compute @workgroup_size(WIDTH)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    // The grid is folded over y and z where it is wider than the device allows.
    let element = id.x + groups.x * WIDTH * (id.y + groups.y * id.z);
    if (element >= COUNT) {
        return;
    }
    // #replace body
    out0[element] = 0.0;
    // #end
}
