// Attention, the direct form: an invocation computes a tile of queries by itself, without barriers.
// Keys and values are read once for the tile; queries and running totals stay in registers, which is why the
// loops marked `#unroll` are written out by code generation: their arrays are then indexed by constants only.
//
// A workgroup works on one key/value head and on consecutive queries of its group, counted row by row. With `shared`
// it is one subgroup whose invocations each load a part of a key and hand it round. With `split` it has one tile,
// whose keys are dealt to the invocations; they join their parts at the end.
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
const K_HEAD: u32 = 4u;
const K_ROW: u32 = 4u;
const V_HEAD: u32 = 4u;
const V_ROW: u32 = 4u;
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
fn q_element(at: u32, element: u32) -> f32 { return q[at + element]; }
fn k_element(at: u32, element: u32, position: u32) -> f32 { return k[at + element]; }
fn v_element(at: u32, element: u32) -> f32 { return v[at + element]; }
// #end

const TILE: u32 = 1u;           // queries of an invocation
const INVOCATIONS: u32 = 8u;    // per workgroup
const BLOCKS: u32 = 1u;         // workgroups that cover the queries of one key/value head
const WORKGROUPS: u32 = 1u;
const D_CHUNKS: u32 = 1u;       // groups of four elements that cover D, the last one padded with zeros
const DV_CHUNKS: u32 = 1u;
const D_LOADS: u32 = 1u;        // chunks that an invocation loads when a subgroup shares them
const DV_LOADS: u32 = 1u;
const QUERIES: u32 = ROWS * GROUP;
alias OUT_ELEMENT = f32;

// #if split
const PARTS: u32 = INVOCATIONS * TILE;
var<workgroup> part_tops: array<f32, PARTS>;
var<workgroup> part_sums: array<f32, PARTS>;
var<workgroup> part_totals: array<vec4<f32>, PARTS * DV_CHUNKS>;
// #endif

// Elements 4 * chunk to 4 * chunk + 3, zeros past the end. Packed ones are four float16 in two words: CPU adapters
// load every scalar by itself, so fewer are faster.
fn q_chunk(at: u32, chunk: u32) -> vec4<f32> {
    // #if q_vec4
    return vec4<f32>(q[at / 4u + chunk]);
    // #else
    let e = 4u * chunk;
    return vec4<f32>(q_element(at, e), q_element(at, e + 1u), q_element(at, e + 2u), q_element(at, e + 3u));
    // #endif
}

fn k_chunk(at: u32, chunk: u32, position: u32) -> vec4<f32> {
    // #if k_vec4
    return vec4<f32>(k[at / 4u + chunk]);
    // #else
    // #if k_packed
    let words = k[at / 4u + chunk];
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    // #else
    let e = 4u * chunk;
    return vec4<f32>(k_element(at, e, position), k_element(at, e + 1u, position),
        k_element(at, e + 2u, position), k_element(at, e + 3u, position));
    // #endif
    // #endif
}

fn v_chunk(at: u32, chunk: u32) -> vec4<f32> {
    // #if v_vec4
    return vec4<f32>(v[at / 4u + chunk]);
    // #else
    // #if v_packed
    let words = v[at / 4u + chunk];
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    // #else
    let e = 4u * chunk;
    return vec4<f32>(v_element(at, e), v_element(at, e + 1u), v_element(at, e + 2u), v_element(at, e + 3u));
    // #endif
    // #endif
}

// Four elements of one query's result.
fn store_chunk(batch: u32, head: u32, row: u32, chunk: u32, top: f32, sum: f32, total: vec4<f32>) {
    let at = out_start(batch) + head * OUT_HEAD + row * OUT_ROW;
    let result = total / select(sum, 1.0, sum == 0.0);
    // #if out_vec4
    out[at / 4u + chunk] = vec4<OUT_ELEMENT>(result);
    // #else
    for (var e = 0u; e < 4u; e++) { // #unroll
        if (4u * chunk + e < DV) {
            out[at + (4u * chunk + e) * OUT_STEP] = OUT_ELEMENT(result[e]);
        }
    } // #unroll
    // #endif
    // #if lse
    if (chunk == 0u) {
        store_lse(batch, head, row, top, sum);
    }
    // #endif
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    // #if shared
    @builtin(subgroup_invocation_id) lane: u32,
    // #else
    @builtin(local_invocation_index) lane: u32,
    // #endif
) {
    // The grid is folded over y and z where it is wider than the device allows.
    let workgroup = group.x + groups.x * (group.y + groups.y * group.z);
    if (workgroup >= WORKGROUPS) {
        return;
    }
    let kv_heads = HEADS / GROUP;
    let kv_head = workgroup % kv_heads;
    // The last rows, which have the most keys under a causal mask, come first.
    let block = BLOCKS - 1u - workgroup / kv_heads % BLOCKS;
    let batch = workgroup / (kv_heads * BLOCKS);
    let keys_at = k_start(batch) + kv_head * K_HEAD;
    let values_at = v_start(batch) + kv_head * V_HEAD;
    // #if split
    let block_begin = block * TILE;
    let begin = block_begin;
    let block_last = min(block_begin + TILE, QUERIES) - 1u;
    // #else
    let block_begin = block * TILE * INVOCATIONS;
    let begin = block_begin + lane * TILE;
    let block_last = min(block_begin + TILE * INVOCATIONS, QUERIES) - 1u;
    // #endif
    // Invocations of a workgroup stay together, so that they can share loads.
    let first_key = key_range(position_of(batch, block_begin / GROUP)).first;
    let end_key = key_range(position_of(batch, block_last / GROUP)).end;

    var query_rows: array<vec4<f32>, TILE * D_CHUNKS>;
    var queries: array<Query, TILE>;
    var ranges: array<KeyRange, TILE>;
    for (var i = 0u; i < TILE; i++) { // #unroll
        // Past the last query it is repeated, and not stored twice.
        let index = min(begin + i, QUERIES - 1u);
        let row = index / GROUP;
        let head = kv_head * GROUP + index % GROUP;
        let position = position_of(batch, row);
        queries[i] = query_of(batch, head, row, position);
        ranges[i] = key_range(position);
        let query_at = q_start(batch) + head * Q_HEAD + row * Q_ROW;
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            query_rows[i * D_CHUNKS + c] = q_chunk(query_at, c);
        } // #unroll
        // #if rope
        for (var pair = 0u; pair < PAIRS; pair++) { // #unroll
            // #if interleaved
            const A = 2u * pair;
            const B = 2u * pair + 1u;
            // #else
            const A = pair;
            const B = pair + PAIRS;
            // #endif
            const CHUNK_A = i * D_CHUNKS + A / 4u;
            const CHUNK_B = i * D_CHUNKS + B / 4u;
            let x = vec2<f32>(query_rows[CHUNK_A][A % 4u], query_rows[CHUNK_B][B % 4u]);
            let y = turned_pair(x, angle_of(position, pair));
            query_rows[CHUNK_A][A % 4u] = y.x;
            query_rows[CHUNK_B][B % 4u] = y.y;
        } // #unroll
        // #endif
    } // #unroll

    // Running maximum, sum and weighted values of each query; a sum is 0 as long as no key was seen.
    var tops: array<f32, TILE>;
    var sums: array<f32, TILE>;
    var totals: array<vec4<f32>, TILE * DV_CHUNKS>;
    // #if split
    for (var key = first_key + lane; key < end_key; key += INVOCATIONS) {
    // #else
    for (var key = first_key; key < end_key; key++) {
    // #endif
        let key_at = keys_at + key * K_ROW;
        let value_at = values_at + key * V_ROW;
        // #if shared
        var my_keys: array<vec4<f32>, D_LOADS>;
        for (var c = 0u; c < D_LOADS; c++) { // #unroll
            my_keys[c] = k_chunk(key_at, min(c * INVOCATIONS + lane, D_CHUNKS - 1u), key);
        } // #unroll
        var my_values: array<vec4<f32>, DV_LOADS>;
        for (var c = 0u; c < DV_LOADS; c++) { // #unroll
            my_values[c] = v_chunk(value_at, min(c * INVOCATIONS + lane, DV_CHUNKS - 1u));
        } // #unroll
        // #endif

        // The zeros are written out because not every driver clears a variable again in each iteration.
        var products = array<f32, TILE>();
        for (var c = 0u; c < D_CHUNKS; c++) { // #unroll
            // #if shared
            let x = subgroupBroadcast(my_keys[c / INVOCATIONS], c % INVOCATIONS);
            // #else
            let x = k_chunk(key_at, c, key);
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
            // #if shared
            let x = subgroupBroadcast(my_values[c / INVOCATIONS], c % INVOCATIONS);
            // #else
            let x = v_chunk(value_at, c);
            // #endif
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
                let factor = select(decay(rise), 0.0, sum == 0.0);
                let leads = sum == 0.0 || rise > 0.0;
                let keep = select(1.0, factor, leads);
                let weight = select(factor, 1.0, leads);
                top = select(top, part_tops[part], leads);
                sum = sum * keep + part_sums[part] * weight;
                total = total * keep + part_totals[part * DV_CHUNKS + c] * weight;
            }
        }
        let index = begin + i;
        if (index < QUERIES) {
            store_chunk(batch, kv_head * GROUP + index % GROUP, index / GROUP, c, top, sum, total);
        }
    }
    // #else
    for (var i = 0u; i < TILE; i++) { // #unroll
        let index = begin + i;
        if (index < QUERIES) {
            for (var c = 0u; c < DV_CHUNKS; c++) { // #unroll
                let head = kv_head * GROUP + index % GROUP;
                store_chunk(batch, head, index / GROUP, c, tops[i], sums[i], totals[i * DV_CHUNKS + c]);
            } // #unroll
        }
    } // #unroll
    // #endif
}
