// Layer norm, RMS norm, and RMS norm of a sum that is also an output. LANES invocations share a row, and a
// workgroup holds ROWS rows. Statistics are float32 in two passes: a variance from the mean of squares alone cancels.

// #replace enables
// #end
alias X = f32;              // stored types: the input,
alias R = f32;              // the residual,
alias W = f32;              // the weight,
alias B = f32;              // the bias,
alias Y = f32;              // and the outputs
alias V = f32;              // an element, or a vector of four, in registers
const COUNT: u32 = 1u;      // rows
const LENGTH: u32 = 8u;     // elements or vectors per row
const ELEMENTS: f32 = 8.0;  // elements per row
const EPSILON: f32 = 1e-5;
const LANES: u32 = 1u;
const ROWS: u32 = 1u;
const WORKGROUP: u32 = 1u;  // LANES * ROWS
const X_STEP: u32 = 1u;     // distance of neighbours in a row
const R_STEP: u32 = 1u;
const W_STEP: u32 = 1u;
const W_START: u32 = 0u;
const B_STEP: u32 = 1u;
const B_START: u32 = 0u;

// #if residual
@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> r: array<R>;
@group(0) @binding(2) var<storage, read> w: array<W>;
@group(0) @binding(3) var<storage, read_write> sum: array<Y>;
@group(0) @binding(4) var<storage, read_write> y: array<Y>;
// #else
// #if centred
@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> w: array<W>;
@group(0) @binding(2) var<storage, read> b: array<B>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
// #else
@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> w: array<W>;
@group(0) @binding(2) var<storage, read_write> y: array<Y>;
// #endif
// #endif

// #replace lanes
fn row_combine(value: f32, index: u32) -> f32 {
    return value;
}
// #end

fn total(v: V) -> f32 {
    // #if vector
    return v.x + v.y + v.z + v.w;
    // #else
    return v;
    // #endif
}

fn x_start(row: u32) -> u32 {
    // #replace x_start
    return row * LENGTH;
    // #end
}

// #if residual
fn r_start(row: u32) -> u32 {
    // #replace r_start
    return row * LENGTH;
    // #end
}
// #endif

@compute @workgroup_size(WORKGROUP)
fn main(
    // #if subgroup
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) member: u32,
    // #endif
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let first = (group.x + groups.x * (group.y + groups.y * group.z)) * ROWS;
    // #if subgroup
    subgroup_index = subgroup;
    // #endif
    // #if shared
    let row = first;
    let lane = index;
    // #else
    // #if subgroup
    let row = first + subgroup;
    let lane = member;
    // #else
    let row = first + index;
    let lane = 0u;
    // #endif
    // #endif
    if (row >= COUNT) {
        return;
    }
    let xs = x_start(row);
    // #if residual
    let rs = r_start(row);
    // #endif
    let ys = row * LENGTH;

    // #if centred
    var sums = V();
    for (var i = lane; i < LENGTH; i += LANES) {
        sums += V(x[xs + i * X_STEP]);
    }
    let mean = row_combine(total(sums), index) / ELEMENTS;
    // #endif
    var squares = V();
    for (var i = lane; i < LENGTH; i += LANES) {
        // #if centred
        let v = V(x[xs + i * X_STEP]) - mean;
        // #else
        // #if residual
        let v = V(x[xs + i * X_STEP]) + V(r[rs + i * R_STEP]);
        sum[ys + i] = Y(v);
        // #else
        let v = V(x[xs + i * X_STEP]);
        // #endif
        // #endif
        squares += v * v;
    }
    let scale = 1.0 / sqrt(row_combine(total(squares), index) / ELEMENTS + EPSILON);
    for (var i = lane; i < LENGTH; i += LANES) {
        let weight = V(w[W_START + i * W_STEP]);
        // #if centred
        y[ys + i] = Y((V(x[xs + i * X_STEP]) - mean) * scale * weight + V(b[B_START + i * B_STEP]));
        // #else
        // #if residual
        y[ys + i] = Y((V(x[xs + i * X_STEP]) + V(r[rs + i * R_STEP])) * scale * weight);
        // #else
        y[ys + i] = Y(V(x[xs + i * X_STEP]) * scale * weight);
        // #endif
        // #endif
    }
}
