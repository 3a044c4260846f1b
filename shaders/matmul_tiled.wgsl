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
const ROW_QUADS: u32 = TILE_ROWS / 4u;
const COLUMN_QUADS: u32 = TILE_COLUMNS / 4u;
const STEP_QUADS: u32 = STEP / 4u;

// [part][k][row / 4]. One index per axis, because checks of bounds then leave the inner loop.
var<workgroup> a_tile: array<array<array<vec4<f32>, ROW_QUADS>, STEP>, PARTS>;
var<workgroup> b_tile: array<array<array<vec4<f32>, COLUMN_QUADS>, STEP>, PARTS>;
// #if gated
var<workgroup> up_tile: array<array<array<vec4<f32>, COLUMN_QUADS>, STEP>, PARTS>;
// #endif

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

// One quad of a tile that a thread brings in at every step: where it starts, how far along k, and which rows or
// columns of the tile it holds: quad `place`, all of it or its element `lane`.
struct Slot {
    start: u32,
    step: u32,
    place: u32,
    lane: u32,
}

fn a_slot(quad: u32, start: u32, first_row: u32) -> Slot {
    // Rows past the end repeat the last one; they are not stored.
    // #if a_rows
    let place = quad % ROW_QUADS;
    return Slot(start + min(first_row + place * 4u, M - 4u), quad / ROW_QUADS, place, 0u);
    // #else
    let row = quad / STEP_QUADS;
    return Slot(start + min(first_row + row, M - 1u) * A_ROW, quad % STEP_QUADS * 4u, row / 4u, row % 4u);
    // #endif
}

fn b_slot(quad: u32, start: u32, first_column: u32) -> Slot {
    // #if b_rows
    let place = quad % COLUMN_QUADS;
    return Slot(start + min(first_column + place * 4u, N - 4u), quad / COLUMN_QUADS, place, 0u);
    // #else
    let column = quad / STEP_QUADS;
    let at = start + min(first_column + column, N - 1u) * B_COLUMN;
    return Slot(at, quad % STEP_QUADS * 4u, column / 4u, column % 4u);
    // #endif
}

fn a_fetch(slot: Slot, k: u32) -> vec4<f32> {
    // #if a_rows
    return a_across(slot.start, k + slot.step);
    // #else
    return a_along(slot.start, k + slot.step);
    // #endif
}

fn b_fetch(slot: Slot, start: u32, k: u32) -> vec4<f32> {
    // #if b_rows
    return b_across(slot.start + start, k + slot.step);
    // #else
    return b_along(slot.start + start, k + slot.step);
    // #endif
}

fn a_put(slot: Slot, part: u32, value: vec4<f32>) {
    // #if a_rows
    a_tile[part][slot.step][slot.place] = value;
    // #else
    a_tile[part][slot.step][slot.place][slot.lane] = value.x;
    a_tile[part][slot.step + 1u][slot.place][slot.lane] = value.y;
    a_tile[part][slot.step + 2u][slot.place][slot.lane] = value.z;
    a_tile[part][slot.step + 3u][slot.place][slot.lane] = value.w;
    // #endif
}

fn b_put(slot: Slot, part: u32, value: vec4<f32>) {
    // #if b_rows
    b_tile[part][slot.step][slot.place] = value;
    // #else
    b_tile[part][slot.step][slot.place][slot.lane] = value.x;
    b_tile[part][slot.step + 1u][slot.place][slot.lane] = value.y;
    b_tile[part][slot.step + 2u][slot.place][slot.lane] = value.z;
    b_tile[part][slot.step + 3u][slot.place][slot.lane] = value.w;
    // #endif
}

// #if gated
fn up_put(slot: Slot, part: u32, value: vec4<f32>) {
    // #if b_rows
    up_tile[part][slot.step][slot.place] = value;
    // #else
    up_tile[part][slot.step][slot.place][slot.lane] = value.x;
    up_tile[part][slot.step + 1u][slot.place][slot.lane] = value.y;
    up_tile[part][slot.step + 2u][slot.place][slot.lane] = value.z;
    up_tile[part][slot.step + 3u][slot.place][slot.lane] = value.w;
    // #endif
}
// #endif

// #if parts
// The tiles of a, once they are done with, carry results from one part to another.
fn give(index: u32, value: vec4<f32>) {
    a_tile[index / (ROW_QUADS * STEP)][index / ROW_QUADS % STEP][index % ROW_QUADS] = value;
}

fn given(index: u32) -> vec4<f32> {
    return a_tile[index / (ROW_QUADS * STEP)][index / ROW_QUADS % STEP][index % ROW_QUADS];
}
// #endif

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
    // #replace slots
    let a_slot_0 = a_slot(thread, place.a, first_row);
    let b_slot_0 = b_slot(thread, place.b, first_column);
    let a_slot_1 = a_slot(thread + THREADS, place.a, first_row);
    let b_slot_1 = b_slot(thread + THREADS, place.b, first_column);
    var sum_0_0 = vec4<f32>();
    var sum_1_0 = vec4<f32>();
    var sum_2_0 = vec4<f32>();
    var sum_3_0 = vec4<f32>();
    // #end
    // The next tiles are on their way while the ones in workgroup memory are multiplied.
    var k = part * STEP;
    // #replace first_fetch
    var a_0 = a_fetch(a_slot_0, k);
    var b_0 = b_fetch(b_slot_0, 0u, k);
    var a_1 = a_fetch(a_slot_1, k);
    var b_1 = b_fetch(b_slot_1, 0u, k);
    // #end
    for (var first = 0u; first < K; first += STEP * PARTS) {
        // #replace put
        a_put(a_slot_0, part, a_0);
        b_put(b_slot_0, part, b_0);
        a_put(a_slot_1, part, a_1);
        b_put(b_slot_1, part, b_1);
        // #end
        workgroupBarrier();
        if (first + STEP * PARTS < K) {
            k += STEP * PARTS;
            // #replace fetch
            a_0 = a_fetch(a_slot_0, k);
            b_0 = b_fetch(b_slot_0, 0u, k);
            a_1 = a_fetch(a_slot_1, k);
            b_1 = b_fetch(b_slot_1, 0u, k);
            // #end
        }
        // #replace products
        for (var step = 0u; step < STEP; step++) {
            let rows = a_tile[part][step][y];
            let columns = b_tile[part][step][x];
            sum_0_0 += rows.x * columns;
            sum_1_0 += rows.y * columns;
            sum_2_0 += rows.z * columns;
            sum_3_0 += rows.w * columns;
        }
        // #end
        workgroupBarrier();
    }
    // #if parts
    // The first part adds up what the others have found, one after another.
    for (var other = 1u; other < PARTS; other++) {
        if (part == other) {
            // #replace give
            give(thread, sum_0_0);
            give(thread + THREADS, sum_1_0);
            give(thread + 2u * THREADS, sum_2_0);
            give(thread + 3u * THREADS, sum_3_0);
            // #end
        }
        workgroupBarrier();
        if (part == 0u) {
            // #replace take
            sum_0_0 += given(thread);
            sum_1_0 += given(thread + THREADS);
            sum_2_0 += given(thread + 2u * THREADS);
            sum_3_0 += given(thread + 3u * THREADS);
            // #end
        }
        workgroupBarrier();
    }
    if (part > 0u) {
        return;
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
