// Matrix product in registers, without workgroup memory or barriers: software adapters have vector registers to
// spare, and pay for every element that a lane loads. Each lane owns four columns and all rows of the block.
// With subgroups each lane loads a piece of another row, and the pieces are broadcast; the workgroup is one subgroup.
// Code generation unrolls the rows.

// #replace operands
const N: u32 = 4u;
const M: u32 = 1u;
const K: u32 = 4u;
const GATE: u32 = 0u;
const A_ROW: u32 = 4u;
const B_COLUMN: u32 = 4u;
const B_STEP: u32 = 1u;
const LAST_K: u32 = K - 1u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

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

fn b_quad(at: u32, k: u32) -> vec4<f32> {
    return b[(at + k) / 4u];
}

fn store_quad(place: Place, row: u32, column: u32, product: vec4<f32>, up: vec4<f32>) {
    out[(place.out + row * N + column) / 4u] = product;
}
// #end

const LANES: u32 = 8u;
const ROWS: u32 = 1u;           // rows of a block
const STORED: u32 = 1u;         // rows stored at once; divides ROWS
const ROW_BLOCKS: u32 = 1u;
const COLUMN_BLOCKS: u32 = 1u;
const BLOCKS: u32 = 1u;         // over all batch entries

// b[k..k+3, four columns]: one column of the matrix per column of b.
fn b_block(at: vec4<u32>, k: u32) -> mat4x4<f32> {
    // #if b_rows
    return transpose(mat4x4<f32>(b_row(at.x, k), b_row(at.x, k + 1u), b_row(at.x, k + 2u), b_row(at.x, k + 3u)));
    // #else
    return mat4x4<f32>(b_quad(at.x, k), b_quad(at.y, k), b_quad(at.z, k), b_quad(at.w, k));
    // #endif
}

// #if b_rows
// Four neighbouring columns of b at one k; zero from K on.
fn b_row(at: u32, k: u32) -> vec4<f32> {
    // #if ragged
    return select(vec4<f32>(), b_four((at + min(k, LAST_K) * B_STEP) / 4u), k < K);
    // #else
    return b_four((at + k * B_STEP) / 4u);
    // #endif
}
// #endif

// #if whole_blocks
// One vector of words of each of four columns, and the factors of their blocks.
struct Words {
    x: vec4<u32>,
    y: vec4<u32>,
    z: vec4<u32>,
    w: vec4<u32>,
    factors: array<vec2<f32>, 4>,
}

fn words_of(at: vec4<u32>) -> Words {
    let block = at / VECTORS;
    let factors = array(b_factors(block.x), b_factors(block.y), b_factors(block.z), b_factors(block.w));
    return Words(b[at.x], b[at.y], b[at.z], b[at.w], factors);
}

// A quad of each: one column of the matrix per column of b.
fn weights_of(words: Words, field: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        b_weights(words.x, field, words.factors[0]),
        b_weights(words.y, field, words.factors[1]),
        b_weights(words.z, field, words.factors[2]),
        b_weights(words.w, field, words.factors[3]),
    );
}
// #endif

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
    let block = group.x + groups.x * (group.y + groups.y * group.z);
    // #if folded
    if (block >= BLOCKS) {
        return;
    }
    // #endif
    // Row blocks of the same columns run one after another, while the columns are in the cache.
    let first_row = block % ROW_BLOCKS * ROWS;
    let column = (block / ROW_BLOCKS % COLUMN_BLOCKS * LANES + lane) * 4u;
    let place = place_of(block / (ROW_BLOCKS * COLUMN_BLOCKS));
    // Rows and columns past the end repeat the last ones; they are not stored.
    // #if b_rows
    let columns = vec4<u32>(place.b + min(column, N - 4u));
    // #else
    let columns = place.b + min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(N - 1u)) * B_COLUMN;
    // #endif
    // #if bias_first
    let start = bias_quad(place, 0u, min(column, N - 1u));
    // #else
    let start = vec4<f32>();
    // #endif
    // #replace starts
    let row_0 = place.a + min(first_row + lane, M - 1u) * A_ROW;
    var sum_0 = start;
    // #end
    // #if whole_blocks
    let starts = columns / 4u / FIELDS;
    // #if gated
    let up_starts = (columns + GATE) / 4u / FIELDS;
    // #endif
    for (var vector = 0u; vector < K / 4u / FIELDS; vector++) {
        let words = words_of(starts + vector);
        // #if gated
        let up_words = words_of(up_starts + vector);
        // #endif
        for (var field = 0u; field < FIELDS; field++) {
            let k = (vector * FIELDS + field) * 4u;
            let weights = weights_of(words, field);
            // #if gated
            let up_weights = weights_of(up_words, field);
            // #endif
            // #replace block_products
            sum_0 += a_quad(row_0, k) * weights;
            // #end
        }
    }
    // #else
    for (var k = 0u; k < K; k += 4u) {
        let weights = b_block(columns, k);
        // #if gated
        let up_weights = b_block(columns + GATE, k);
        // #endif
        // #replace products
        let x_0 = a_quad(row_0, k);
        sum_0 += x_0 * weights;
        // #end
    }
    // #endif
    if (column >= N) {
        return;
    }
    // A few rows at a time: unrolling the epilogue for all of them would take long to compile.
    for (var i = 0u; i < ROWS; i += STORED) {
        let row = first_row + i;
        // #replace stores
        if (row < M) {
            store_quad(place, row, column, sum_0, vec4<f32>());
        }
        // #end
    }
}
