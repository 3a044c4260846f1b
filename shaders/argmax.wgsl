// Index of the first largest element along one axis; NaN counts as the largest, as in NumPy. Elements are compared
// through unsigned keys of the same order, because comparing floats loses NaN. LANES invocations share a row.

// #replace enables
// #end
alias X = f32;              // stored type of the input
alias V = f32;              // an element in a register
const COUNT: u32 = 1u;      // rows
const LENGTH: u32 = 8u;     // elements per row
const X_STEP: u32 = 1u;     // distance of neighbours in a row
const LANES: u32 = 1u;
const ROWS: u32 = 1u;
const WORKGROUP: u32 = 1u;  // LANES * ROWS

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;

// #replace lanes
fn row_combine(value: vec2<u32>, index: u32) -> vec2<u32> {
    return value;
}
// #end

fn key(v: V) -> u32 {
    // #if integer
    // #if signed
    return bitcast<u32>(v) ^ 0x80000000u;
    // #else
    return bitcast<u32>(v);
    // #endif
    // #else
    let bits = bitcast<u32>(v);
    let size = bits & 0x7fffffffu;
    // Negative floats order downwards; both zeros are one value.
    let ordered = select(bits | 0x80000000u, ~bits, size != 0u && bits > 0x80000000u);
    return select(ordered, 0xffffffffu, size > 0x7f800000u);
    // #endif
}

fn row_start(row: u32) -> u32 {
    // #replace row_start
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
    let start = row_start(row);
    // The largest key, and where it was first met.
    var best = vec2<u32>(0u, 0xffffffffu);
    for (var i = lane; i < LENGTH; i += LANES) {
        let found = key(V(x[start + i * X_STEP]));
        if (found > best.x || best.y == 0xffffffffu) {
            best = vec2<u32>(found, i);
        }
    }
    best = row_combine(best, index);
    if (lane == 0u) {
        y[row] = i32(best.y);
    }
}
