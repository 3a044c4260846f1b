// Matrix product for GPUs: tiles of a and b are staged in workgroup memory, [k][row] and [k][column], and every
// thread sums a block of the output in registers. The threads may form several parts that divide the sums along k
// between them, which fills a device where the output has few tiles. Code generation unrolls the blocks.

// #replace operands
const M: u32 = 4u;
const N: u32 = 4u;
const K: u32 = 4u;
const GATE: u32 = 0u;
const A_ROW: u32 = 4u;
const A_STEP: u32 = 1u;
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

const TILE_ROWS: u32 = 32u;
const TILE_COLUMNS: u32 = 32u;
const STEP: u32 = 16u;          // length of the tiles along k
const PARTS: u32 = 1u;
const ACROSS: u32 = 8u;         // threads of a part along the columns
const THREADS: u32 = 64u;       // threads of a part
const ROW_TILES: u32 = 1u;
const COLUMN_TILES: u32 = 1u;
const TILES: u32 = 1u;          // over all batch entries
const A_QUADS: u32 = STEP * TILE_ROWS / 4u;
const B_QUADS: u32 = STEP * TILE_COLUMNS / 4u;
const PART_QUADS: u32 = 256u;   // quads of one part's tiles: a, b, and with a gate the up columns of b
const STAGE_QUADS: u32 = 256u;  // of all parts, or of the results that later take their place
const BLOCK_QUADS: u32 = 4u;    // results of a thread

var<workgroup> stage: array<vec4<f32>, STAGE_QUADS>;

// #if a_rows
// Four neighbouring rows of a at one k; zero from K on.
fn a_across(at: u32, k: u32) -> vec4<f32> {
    // #if ragged
    return select(vec4<f32>(), a_four((at + min(k, LAST_K) * A_STEP) / 4u), k < K);
    // #else
    return a_four((at + k * A_STEP) / 4u);
    // #endif
}
// #else
fn a_along(at: u32, k: u32) -> vec4<f32> {
    // #if a_ragged
    return select(vec4<f32>(), a_quad(at, min(k, K - 4u)), k < K);
    // #else
    return a_quad(at, k);
    // #endif
}
// #endif

// #if b_rows
// Four neighbouring columns of b at one k; zero from K on.
fn b_across(at: u32, k: u32) -> vec4<f32> {
    // #if ragged
    return select(vec4<f32>(), b_four((at + min(k, LAST_K) * B_STEP) / 4u), k < K);
    // #else
    return b_four((at + k * B_STEP) / 4u);
    // #endif
}
// #else
fn b_along(at: u32, k: u32) -> vec4<f32> {
    // #if b_ragged
    return select(vec4<f32>(), b_quad(at, min(k, K - 4u)), k < K);
    // #else
    return b_quad(at, k);
    // #endif
}
// #endif

// Puts the tile of a from `k` on at `base`; rows past the end repeat the last one.
fn stage_a(base: u32, start: u32, first_row: u32, k: u32, thread: u32) {
    for (var quad = thread; quad < A_QUADS; quad += THREADS) {
        // #if a_rows
        let row = quad % (TILE_ROWS / 4u) * 4u;
        let step = quad / (TILE_ROWS / 4u);
        stage[base + quad] = a_across(start + min(first_row + row, M - 4u), k + step);
        // #else
        let row = quad % TILE_ROWS;
        let step = quad / TILE_ROWS * 4u;
        let value = a_along(start + min(first_row + row, M - 1u) * A_ROW, k + step);
        let at = base + step * (TILE_ROWS / 4u) + row / 4u;
        stage[at][row % 4u] = value.x;
        stage[at + TILE_ROWS / 4u][row % 4u] = value.y;
        stage[at + TILE_ROWS / 2u][row % 4u] = value.z;
        stage[at + TILE_ROWS / 4u * 3u][row % 4u] = value.w;
        // #endif
    }
}

fn stage_b(base: u32, start: u32, first_column: u32, k: u32, thread: u32) {
    for (var quad = thread; quad < B_QUADS; quad += THREADS) {
        // #if b_rows
        let column = quad % (TILE_COLUMNS / 4u) * 4u;
        let step = quad / (TILE_COLUMNS / 4u);
        stage[base + quad] = b_across(start + min(first_column + column, N - 4u), k + step);
        // #else
        let column = quad % TILE_COLUMNS;
        let step = quad / TILE_COLUMNS * 4u;
        let value = b_along(start + min(first_column + column, N - 1u) * B_COLUMN, k + step);
        let at = base + step * (TILE_COLUMNS / 4u) + column / 4u;
        stage[at][column % 4u] = value.x;
        stage[at + TILE_COLUMNS / 4u][column % 4u] = value.y;
        stage[at + TILE_COLUMNS / 2u][column % 4u] = value.z;
        stage[at + TILE_COLUMNS / 4u * 3u][column % 4u] = value.w;
        // #endif
    }
}

@compute @workgroup_size(THREADS * PARTS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = group.x + groups.x * (group.y + groups.y * group.z);
    // #if folded
    if (tile >= TILES) {
        return;
    }
    // #endif
    let first_row = tile % ROW_TILES * TILE_ROWS;
    let first_column = tile / ROW_TILES % COLUMN_TILES * TILE_COLUMNS;
    let place = place_of(tile / (ROW_TILES * COLUMN_TILES));
    let part = local / THREADS;
    let thread = local % THREADS;
    let x = thread % ACROSS;
    let y = thread / ACROSS;
    let a_tile = part * PART_QUADS;
    let b_tile = a_tile + A_QUADS;
    // #replace sums
    var sum_0_0 = vec4<f32>();
    var sum_1_0 = vec4<f32>();
    var sum_2_0 = vec4<f32>();
    var sum_3_0 = vec4<f32>();
    // #end
    for (var first = 0u; first < K; first += STEP * PARTS) {
        let k = first + part * STEP;
        stage_a(a_tile, place.a, first_row, k, thread);
        stage_b(b_tile, place.b, first_column, k, thread);
        // #if gated
        stage_b(b_tile + B_QUADS, place.b + GATE, first_column, k, thread);
        // #endif
        workgroupBarrier();
        // #replace products
        for (var step = 0u; step < STEP; step++) {
            let rows = stage[a_tile + step * (TILE_ROWS / 4u) + y];
            let columns = stage[b_tile + step * (TILE_COLUMNS / 4u) + x];
            sum_0_0 += rows.x * columns;
            sum_1_0 += rows.y * columns;
            sum_2_0 += rows.z * columns;
            sum_3_0 += rows.w * columns;
        }
        // #end
        workgroupBarrier();
    }
    // #if parts
    // The first part adds up what the others have found.
    if (part > 0u) {
        let mine = (part - 1u) * BLOCK_QUADS * THREADS + thread;
        // #replace give
        stage[mine] = sum_0_0;
        stage[mine + THREADS] = sum_1_0;
        stage[mine + 2u * THREADS] = sum_2_0;
        stage[mine + 3u * THREADS] = sum_3_0;
        // #end
    }
    workgroupBarrier();
    if (part > 0u) {
        return;
    }
    for (var other = 0u; other < PARTS - 1u; other++) {
        let theirs = other * BLOCK_QUADS * THREADS + thread;
        // #replace take
        sum_0_0 += stage[theirs];
        sum_1_0 += stage[theirs + THREADS];
        sum_2_0 += stage[theirs + 2u * THREADS];
        sum_3_0 += stage[theirs + 3u * THREADS];
        // #end
    }
    // #endif
    // #replace stores
    let row = first_row + y * 4u;
    let column = first_column + x * 4u;
    if (row < M && column < N) {
        store_quad(place, row, column, sum_0_0, vec4<f32>());
        store_quad(place, row + 1u, column, sum_1_0, vec4<f32>());
        store_quad(place, row + 2u, column, sum_2_0, vec4<f32>());
        store_quad(place, row + 3u, column, sum_3_0, vec4<f32>());
    }
    // #end
}
