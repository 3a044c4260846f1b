// Writes rows into a state where it lies, at a position read from the device; rows past its end are dropped.

// #replace enables
// #end
alias X = f32;                      // stored: an element, or a vector of four
const COUNT: u32 = 1u;              // elements or vectors of the rows
const LIMIT: u32 = 8u;              // length of the state along the axis
const STRIDE: u32 = 1u;             // distance of neighbours along the axis in the state
const WORKGROUP: u32 = 64u;

@group(0) @binding(0) var<storage, read> rows: array<X>;
@group(0) @binding(1) var<storage, read> position: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<X>;

fn row_place(element: u32) -> u32 {
    // #replace row_place
    return element;
    // #end
}

// Place in the state of an element of the rows, if they were written at position 0.
fn state_place(element: u32) -> u32 {
    // #replace state_place
    return element;
    // #end
}

fn position_place(element: u32) -> u32 {
    // #replace position_place
    return 0u;
    // #end
}

// Coordinate along the axis of an element of the rows.
fn along(element: u32) -> u32 {
    // #replace along
    return element;
    // #end
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let element = id.x + groups.x * WORKGROUP * (id.y + groups.y * id.z);
    if (element >= COUNT) {
        return;
    }
    let start = position[position_place(element)];
    if (start >= LIMIT || along(element) >= LIMIT - start) {
        return;
    }
    state[state_place(element) + start * STRIDE] = rows[row_place(element)];
}
