// A few rows times weights in quantised blocks, for software adapters: each lane owns some columns and takes whole
// blocks of 32 along k. With subgroups each lane loads another four elements of a row, and they are broadcast; the
// workgroup is one subgroup. Code generation unrolls the rows, the columns and the block.

// #replace operands
const N: u32 = 1u;
const M: u32 = 1u;
const K: u32 = 32u;
const GATE: u32 = 0u;
const A_ROW: u32 = 32u;
const B_COLUMN: u32 = 32u;
const VECTORS: u32 = 1u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Place {
    a: u32,
    b: u32,
    out: u32,
}

fn place_of(batch: u32) -> Place {
    return Place(batch * M * K, batch * K * N, batch * M * N);
}

fn a_quad(at: u32, k: u32) -> vec4<f32> {
    return a[(at + k) / 4u];
}

fn b_factors(block: u32) -> vec2<f32> {
    return vec2<f32>(1.0);
}

fn b_weights(words: vec4<u32>, field: u32, factors: vec2<f32>) -> vec4<f32> {
    return vec4<f32>((words >> vec4<u32>(4u * field)) & vec4<u32>(15u)) * factors.x + factors.y;
}

fn store_one(place: Place, row: u32, column: u32, product: f32, up: f32) {
    out[place.out + row * N + column] = product;
}
// #end

const LANES: u32 = 8u;
const COLUMNS: u32 = 1u;        // columns of a lane
const COLUMN_BLOCKS: u32 = 1u;  // workgroups per batch entry
const BLOCKS: u32 = 1u;         // workgroups over all batch entries

fn total(sums: vec4<f32>) -> f32 {
    return (sums.x + sums.y) + (sums.z + sums.w);
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    // #if subgroups
    @builtin(subgroup_invocation_id) lane: u32,
    // #else
    @builtin(local_invocation_index) lane: u32,
    // #endif
) {
    let workgroup = group.x + groups.x * (group.y + groups.y * group.z);
    // #if folded
    if (workgroup >= BLOCKS) {
        return;
    }
    // #endif
    // Lanes side by side own columns side by side.
    let column = workgroup % COLUMN_BLOCKS * LANES * COLUMNS + lane;
    let place = place_of(workgroup / COLUMN_BLOCKS);
    // Columns past the end repeat the last one; they are not stored.
    // #replace starts
    let block_0 = (place.b + min(column, N - 1u) * B_COLUMN) / 32u;
    var sum_0_0 = vec4<f32>();
    // #end
    for (var block = 0u; block < K / 32u; block++) {
        let k = block * 32u;
        // #replace products
        let factors_0 = b_factors(block_0 + block);
        let words_0 = b[(block_0 + block) * VECTORS];
        sum_0_0 += a_quad(place.a, k) * b_weights(words_0, 0u, factors_0);
        // #end
    }
    // #replace stores
    if (column < N) {
        store_one(place, 0u, column, total(sum_0_0), 0.0);
    }
    // #end
}
