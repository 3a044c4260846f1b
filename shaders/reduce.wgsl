// Reductions over any axes. An output belongs to a row of LANES invocations; a workgroup holds ROWS rows. Vectors of
// four lie either along the reduced elements, and are gathered at the end, or along neighbouring outputs.

// #replace enables
// #end
alias X = f32;              // stored: the input
alias Y = f32;              // and the output
alias V = f32;              // an element, or a vector of four, in registers
const COUNT: u32 = 1u;      // outputs, or vectors of outputs
const LENGTH: u32 = 8u;     // elements, or vectors of elements, of a row
const ELEMENTS: f32 = 8.0;  // elements of a row, for the mean
const BLOCK: u32 = 64u;     // a long sum is made of sums of so many, which keeps rounding errors apart
const LANES: u32 = 1u;
const ROWS: u32 = 1u;
const WORKGROUP: u32 = 1u;  // LANES * ROWS

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> y: array<Y>;

// #replace helpers
// #end

// #replace lanes
fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

fn row_combine(value: f32, index: u32) -> f32 {
    return value;
}
// #end

fn merge(a: V, b: V) -> V {
    // #replace merge
    return a + b;
    // #end
}

fn neutral() -> V {
    // #replace neutral
    return V(0.0);
    // #end
}

// Place of the first element of a row.
fn row_start(row: u32) -> u32 {
    // #replace row_start
    return row * LENGTH;
    // #end
}

// Distance of an element of a row from the first.
fn element_place(i: u32) -> u32 {
    // #replace element_place
    return i;
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
    var result = neutral();
    // #if blocked
    for (var block = lane; block < LENGTH; block += LANES * BLOCK) {
        var part = neutral();
        let end = min(block + LANES * BLOCK, LENGTH);
        for (var i = block; i < end; i += LANES) {
            part = merge(part, V(x[start + element_place(i)]));
        }
        result = merge(result, part);
    }
    // #else
    for (var i = lane; i < LENGTH; i += LANES) {
        result = merge(result, V(x[start + element_place(i)]));
    }
    // #endif
    // #if gathered
    let value = row_combine(combine(combine(result.x, result.y), combine(result.z, result.w)), index);
    // #else
    let value = row_combine(result, index);
    // #endif
    if (lane == 0u) {
        // #if mean
        y[row] = Y(value / ELEMENTS);
        // #else
        y[row] = Y(value);
        // #endif
    }
}
