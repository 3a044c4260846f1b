// Attention, the direct form: an invocation computes a tile of queries (rows, or heads of one group) by itself.
// Keys and values are read once for the tile; queries and running totals stay in registers, which is why the
// loops marked `#unroll` are written out by code generation: their arrays are then indexed by constants only.
// With `split`, the keys of a tile are dealt to the invocations of a workgroup, which join their parts at the end.
// The default text below is full attention of one head.

// #if f16
enable f16;
// #endif

// #replace operands
const HEADS: u32 = 1u;
const GROUP: u32 = 1u;
const ROWS: u32 = 1u;
const D: u32 = 4u;
const DV: u32 = 4u;
const KEYS: u32 = 8u;
const Q_HEAD: u32 = 4u;
const Q_ROW: u32 = 4u;
const Q_STEP: u32 = 1u;
const K_HEAD: u32 = 4u;
const K_ROW: u32 = 4u;
const K_STEP: u32 = 1u;
const V_HEAD: u32 = 4u;
const V_ROW: u32 = 4u;
const V_STEP: u32 = 1u;
const OUT_HEAD: u32 = 4u;
const OUT_ROW: u32 = 4u;
const OUT_STEP: u32 = 1u;
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
struct KeyRange { first: u32, end: u32 }
struct Query { position: u32 }
struct Score { value: f32, included: bool }
fn q_start(batch: u32) -> u32 { return 0u; }
fn k_start(batch: u32) -> u32 { return 0u; }
fn v_start(batch: u32) -> u32 { return 0u; }
fn out_start(batch: u32) -> u32 { return 0u; }
fn position_of(batch: u32, row: u32) -> u32 { return row; }
fn key_range(position: u32) -> KeyRange { return KeyRange(0u, KEYS); }
fn query_of(batch: u32, head: u32, row: u32, position: u32) -> Query { return Query(position); }
fn score_of(product: f32, query: Query, key: u32) -> Score { return Score(product, true); }
fn decay(x: f32) -> f32 { return exp(-abs(x)); }
// #end

const TILE_ROWS: u32 = 1u;      // query rows of a tile
const TILE_HEADS: u32 = 1u;     // heads of a tile, all of one group
const TILE: u32 = 1u;           // queries of a tile
const ROW_TILES: u32 = 1u;      // tiles that cover the rows
const GROUP_TILES: u32 = 1u;    // tiles that cover the heads of a group
const HEAD_TILES: u32 = 1u;     // tiles that cover all heads
const TILES: u32 = 1u;          // all tiles
const INVOCATIONS: u32 = 8u;    // per workgroup
const D_CHUNKS: u32 = 1u;       // groups of four elements that cover D, the last one padded with zeros
const DV_CHUNKS: u32 = 1u;
alias OUT_ELEMENT = f32;

// #if split
const PARTS: u32 = INVOCATIONS * TILE;
var<workgroup> part_tops: array<f32, PARTS>;
var<workgroup> part_sums: array<f32, PARTS>;
var<workgroup> part_totals: array<vec4<f32>, PARTS * DV_CHUNKS>;
// #endif

// Elements 4 * chunk to 4 * chunk + 3, zeros past the end.
fn q_chunk(at: u32, chunk: u32) -> vec4<f32> {
    // #if q_vec4
    return vec4<f32>(q[at / 4u + chunk]);
    // #else
    var x = vec4<f32>();
    for (var i = 0u; i < 4u; i++) { // #unroll
        if (4u * chunk + i < D) {
            x[i] = f32(q[at + (4u * chunk + i) * Q_STEP]);
        }
    } // #unroll
    return x;
    // #endif
}

fn k_chunk(at: u32, chunk: u32) -> vec4<f32> {
    // #if k_vec4
    return vec4<f32>(k[at / 4u + chunk]);
    // #else
    var x = vec4<f32>();
    for (var i = 0u; i < 4u; i++) { // #unroll
        if (4u * chunk + i < D) {
            x[i] = f32(k[at + (4u * chunk + i) * K_STEP]);
        }
    } // #unroll
    return x;
    // #endif
}

fn v_chunk(at: u32, chunk: u32) -> vec4<f32> {
    // #if v_vec4
    return vec4<f32>(v[at / 4u + chunk]);
    // #else
    var x = vec4<f32>();
    for (var i = 0u; i < 4u; i++) { // #unroll
        if (4u * chunk + i < DV) {
            x[i] = f32(v[at + (4u * chunk + i) * V_STEP]);
        }
    } // #unroll
    return x;
    // #endif
}

fn store_chunk(at: u32, chunk: u32, value: vec4<f32>) {
    // #if out_vec4
    out[at / 4u + chunk] = vec4<OUT_ELEMENT>(value);
    // #else
    for (var i = 0u; i < 4u; i++) { // #unroll
        if (4u * chunk + i < DV) {
            out[at + (4u * chunk + i) * OUT_STEP] = OUT_ELEMENT(value[i]);
        }
    } // #unroll
    // #endif
}

// #if rope
fn turn_row(x: ptr<function, array<vec4<f32>, D_CHUNKS>>, position: u32) {
    for (var pair = 0u; pair < PAIRS; pair++) { // #unroll
        // #if interleaved
        const A = 2u * pair;
        const B = 2u * pair + 1u;
        // #else
        const A = pair;
        const B = pair + PAIRS;
        // #endif
        let both = turned(vec2<f32>((*x)[A / 4u][A % 4u], (*x)[B / 4u][B % 4u]), angle_of(position, pair));
        (*x)[A / 4u][A % 4u] = both.x;
        (*x)[B / 4u][B % 4u] = both.y;
    } // #unroll
}
// #endif

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // The grid is folded over y and z where it is wider than the device allows.
    let workgroup = group.x + groups.x * (group.y + groups.y * group.z);
    // #if split
    let tile = workgroup;
    // #else
    let tile = workgroup * INVOCATIONS + lane;
    // #endif
    if (tile >= TILES) {
        return;
    }
    // Heads vary fastest, so that neighbours have equally many keys; the last rows, with the most keys, come first.
    let head_tile = tile % HEAD_TILES;
    let first_row = (ROW_TILES - 1u - tile / HEAD_TILES % ROW_TILES) * TILE_ROWS;
    let batch = tile / (HEAD_TILES * ROW_TILES);
    let kv_head = head_tile / GROUP_TILES;
    let first_member = head_tile % GROUP_TILES * TILE_HEADS;
    let keys_at = k_start(batch) + kv_head * K_HEAD;
    let values_at = v_start(batch) + kv_head * V_HEAD;

    var query_rows: array<vec4<f32>, TILE * D_CHUNKS>;
    var queries: array<Query, TILE>;
    var ranges: array<KeyRange, TILE>;
    var all = KeyRange(KEYS, 0u);
    for (var i = 0u; i < TILE; i++) { // #unroll
        // A tile that reaches past the last row or head repeats it, and does not store it twice.
        let row = min(first_row + i % TILE_ROWS, ROWS - 1u);
        let head = kv_head * GROUP + min(first_member + i / TILE_ROWS, GROUP - 1u);
        let position = position_of(batch, row);
        queries[i] = query_of(batch, head, row, position);
        ranges[i] = key_range(position);
        all = KeyRange(min(all.first, ranges[i].first), max(all.end, ranges[i].end));
        let query_at = q_start(batch) + head * Q_HEAD + row * Q_ROW;
        // #if rope
        var elements: array<vec4<f32>, D_CHUNKS>;
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            elements[c] = q_chunk(query_at, c);
        } // #unroll
        turn_row(&elements, position);
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            query_rows[i * D_CHUNKS + c] = elements[c];
        } // #unroll
        // #else
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            query_rows[i * D_CHUNKS + c] = q_chunk(query_at, c);
        } // #unroll
        // #endif
    } // #unroll

    // Running maximum, sum and weighted values of each query; a sum is 0 as long as no key was seen.
    var tops: array<f32, TILE>;
    var sums: array<f32, TILE>;
    var totals: array<vec4<f32>, TILE * DV_CHUNKS>;
    // #if split
    for (var key = all.first + lane; key < all.end; key += INVOCATIONS) {
    // #else
    for (var key = all.first; key < all.end; key++) {
    // #endif
        let key_at = keys_at + key * K_ROW;
        let value_at = values_at + key * V_ROW;
        var products = array<f32, TILE>();
        // #if rope
        var elements: array<vec4<f32>, D_CHUNKS>;
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            elements[c] = k_chunk(key_at, c);
        } // #unroll
        turn_row(&elements, key);
        // #endif
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            // #if rope
            let x = elements[c];
            // #else
            let x = k_chunk(key_at, c);
            // #endif
            for (var e = 0u; e < 4u; e++) { // #unroll
                for (var i = 0u; i < TILE; i++) { // #unroll
                    products[i] = fma(query_rows[i * D_CHUNKS + c][e], x[e], products[i]);
                } // #unroll
            } // #unroll
        } // #unroll

        var keeps: array<f32, TILE>;
        var weights: array<f32, TILE>;
        for (var i = 0u; i < TILE; i++) { // #unroll
            let score = score_of(products[i], queries[i], key);
            let seen = score.included && key >= ranges[i].first && key < ranges[i].end;
            let rise = score.value - tops[i];
            // Of the two factors exp(old - new maximum) and exp(score - new maximum) one is always 1.
            let factor = decay(rise);
            let first = sums[i] == 0.0;
            let leads = seen && (first || rise > 0.0);
            keeps[i] = select(1.0, select(factor, 0.0, first), leads);
            weights[i] = select(select(0.0, factor, seen), 1.0, leads);
            tops[i] = select(tops[i], score.value, leads);
            sums[i] = fma(sums[i], keeps[i], weights[i]);
        } // #unroll

        for (var c = 0u; c < DV_CHUNKS; c++) { // #unroll
            let x = v_chunk(value_at, c);
            for (var i = 0u; i < TILE; i++) { // #unroll
                totals[i * DV_CHUNKS + c] = fma(vec4<f32>(weights[i]), x, totals[i * DV_CHUNKS + c] * keeps[i]);
            } // #unroll
        } // #unroll
    }

    // #if split
    for (var i = 0u; i < TILE; i++) { // #unroll
        part_tops[lane * TILE + i] = tops[i];
        part_sums[lane * TILE + i] = sums[i];
        for (var c = 0u; c < DV_CHUNKS; c++) { // #unroll
            part_totals[(lane * TILE + i) * DV_CHUNKS + c] = totals[i * DV_CHUNKS + c];
        } // #unroll
    } // #unroll
    workgroupBarrier();
    for (var item = lane; item < TILE * DV_CHUNKS; item += INVOCATIONS) {
        let i = item / DV_CHUNKS;
        let c = item % DV_CHUNKS;
        var top = 0.0;
        var sum = 0.0;
        var total = vec4<f32>();
        for (var part = i; part < PARTS; part += TILE) {
            // A part that saw no key has nothing to say.
            if (part_sums[part] != 0.0) {
                let rise = part_tops[part] - top;
                let leads = sum == 0.0 || rise > 0.0;
                let factor = select(decay(rise), 0.0, sum == 0.0);
                let keep = select(1.0, factor, leads);
                let weight = select(factor, 1.0, leads);
                top = select(top, part_tops[part], leads);
                sum = sum * keep + part_sums[part] * weight;
                total = total * keep + part_totals[part * DV_CHUNKS + c] * weight;
            }
        }
        store_result(batch, first_row + i % TILE_ROWS, kv_head, first_member + i / TILE_ROWS, c, top, sum, total);
    }
    // #else
    for (var i = 0u; i < TILE; i++) { // #unroll
        for (var c = 0u; c < DV_CHUNKS; c++) { // #unroll
            store_result(batch, first_row + i % TILE_ROWS, kv_head, first_member + i / TILE_ROWS, c,
                tops[i], sums[i], totals[i * DV_CHUNKS + c]);
        } // #unroll
    } // #unroll
    // #endif
}

// Four elements of one query's result; `member` counts the heads of a group.
fn store_result(batch: u32, row: u32, kv_head: u32, member: u32, chunk: u32, top: f32, sum: f32, total: vec4<f32>) {
    if (row >= ROWS || member >= GROUP) {
        return;
    }
    let head = kv_head * GROUP + member;
    let result = select(total / sum, vec4<f32>(), sum == 0.0);
    store_chunk(out_start(batch) + head * OUT_HEAD + row * OUT_ROW, chunk, result);
    // #if lse
    if (chunk == 0u) {
        store_lse(batch, head, row, top, sum);
    }
    // #endif
}
