// Reports how many invocations really run together: adapters name a range, kernels see one number.

@group(0) @binding(0) var<storage, read_write> size: array<u32>;

@compute @workgroup_size(128)
fn main(@builtin(subgroup_size) lanes: u32, @builtin(local_invocation_index) index: u32) {
    if (index == 0u) {
        size[0] = lanes;
    }
}
