// Softmax and its logarithm along one axis. LANES invocations share a row, and a workgroup holds ROWS rows.
// Each invocation finds the maximum of its elements and the sum of their exponentials relative to it; such pairs
// combine across the row.

// #replace enables
// #end
alias X = f32;              // stored types: the input
alias Y = f32;              // and the output
alias V = f32;              // an element, or a vector of four, in registers
alias U = u32;              // as many bit patterns
const COUNT: u32 = 1u;      // rows
const LENGTH: u32 = 8u;     // elements or vectors per row
const LANES: u32 = 1u;
const ROWS: u32 = 1u;
const WORKGROUP: u32 = 1u;  // LANES * ROWS
const X_STEP: u32 = 1u;     // distance of neighbours in a row
const Y_STEP: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> y: array<Y>;

// #replace lanes
fn row_combine(value: vec2<f32>, index: u32) -> vec2<f32> {
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

fn largest(v: V) -> f32 {
    // #if vector
    return max(max(v.x, v.y), max(v.z, v.w));
    // #else
    return v;
    // #endif
}

// exp of something that is zero or less. What would be subnormal is zero, and so is NaN: of equal infinities.
fn weight(v: V) -> V {
    return select(V(), exp(v), v > V(-87.3));
}

// #replace helpers
fn from_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn logarithm(x: f32) -> f32 {
    return log(x);
}
// #end

fn x_start(row: u32) -> u32 {
    // #replace x_start
    return row * LENGTH;
    // #end
}

fn y_start(row: u32) -> u32 {
    // #replace y_start
    return row * LENGTH;
    // #end
}

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
    let ys = y_start(row);

    // max() may drop a NaN, so look at the bits: without its sign, a NaN is above infinity.
    var most = V(from_bits(0xff800000u));
    var bits = U();
    for (var i = lane; i < LENGTH; i += LANES) {
        let v = V(x[xs + i * X_STEP]);
        most = max(most, v);
        bits = max(bits, bitcast<U>(v) & U(0x7fffffffu));
    }
    let own = largest(most);
    var weights = V();
    for (var i = lane; i < LENGTH; i += LANES) {
        weights += weight(V(x[xs + i * X_STEP]) - own);
    }
    let spoilt = any(bits > U(0x7f800000u));
    let pair = row_combine(vec2<f32>(own, select(total(weights), from_bits(0x7fc00000u), spoilt)), index);
    let top = pair.x;
    // #if logarithm
    let shift = logarithm(pair.y);
    for (var i = lane; i < LENGTH; i += LANES) {
        y[ys + i * Y_STEP] = Y(V(x[xs + i * X_STEP]) - top - shift);
    }
    // #else
    for (var i = lane; i < LENGTH; i += LANES) {
        y[ys + i * Y_STEP] = Y(weight(V(x[xs + i * X_STEP]) - top) / pair.y);
    }
    // #endif
}
