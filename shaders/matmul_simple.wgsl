// Matrix product, one invocation per element of the output, any strides and dtypes.

// #replace operands
const N: u32 = 1u;
const M: u32 = 1u;
const K: u32 = 1u;
const BATCHES: u32 = 1u;
const GATE: u32 = 0u;
const A_ROW: u32 = 1u;
const B_COLUMN: u32 = 1u;
alias Number = f32;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Place {
    a: u32,
    b: u32,
    out: u32,
}

fn place_of(batch: u32) -> Place {
    return Place(batch * M * K, batch * K * N, batch * M * N);
}

fn a_one(at: u32, k: u32) -> f32 {
    return a[at + k];
}

fn b_one(at: u32, k: u32) -> f32 {
    return b[at + k];
}

fn store_one(place: Place, row: u32, column: u32, product: f32, up: f32) {
    out[place.out + row * N + column] = product;
}
// #end

const WIDTH: u32 = 64u;         // invocations per workgroup

@compute @workgroup_size(WIDTH)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    // The grid is folded over y and z where it is wider than the device allows.
    let element = id.x + groups.x * WIDTH * (id.y + groups.y * id.z);
    if (element >= BATCHES * M * N) {
        return;
    }
    let column = element % N;
    let row = element / N % M;
    let place = place_of(element / (M * N));
    let a_start = place.a + row * A_ROW;
    let b_start = place.b + column * B_COLUMN;
    var sum = Number(0);
    var up = Number(0);
    for (var k = 0u; k < K; k++) {
        let x = a_one(a_start, k);
        sum += x * b_one(b_start, k);
        // #if gated
        up += x * b_one(b_start + GATE, k);
        // #endif
    }
    store_one(place, row, column, sum, up);
}
