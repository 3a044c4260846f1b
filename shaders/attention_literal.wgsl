// Attention, the literal form: one workgroup per (query row, head), one invocation per element of the head.
// Keys are taken eight at a time, so that eight dot products share each tree reduction in workgroup memory;
// a tail loop takes the remaining keys one at a time. The default text below is full attention of one head.

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
alias OUT = f32;
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<OUT>;
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

const WORKGROUPS: u32 = 1u;     // rows * heads * batch
const INVOCATIONS: u32 = 4u;    // the larger of D and DV, rounded up to whole subgroups
const TREE: u32 = 2u;           // half of D, rounded up to a power of two

// Products of one element with keys 0 to 3 and 4 to 7 of a block, then their partial sums.
var<workgroup> products: array<array<vec4<f32>, 2>, INVOCATIONS>;

// Sums the products over the first D invocations into entry 0. Ends with a barrier.
fn reduce_products(element: u32) {
    workgroupBarrier();
    for (var half = TREE; half > 0u; half /= 2u) {
        if (element < half && element + half < D) {
            products[element][0] += products[element + half][0];
            products[element][1] += products[element + half][1];
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) element: u32,
) {
    // The grid is folded over y and z where it is wider than the device allows.
    let workgroup = group.x + groups.x * (group.y + groups.y * group.z);
    if (workgroup >= WORKGROUPS) {
        return;
    }
    let head = workgroup % HEADS;
    let row = workgroup / HEADS % ROWS;
    let batch = workgroup / (HEADS * ROWS);
    let position = position_of(batch, row);
    let range = key_range(position);
    let query = query_of(batch, head, row, position);
    let keys_at = k_start(batch) + (head / GROUP) * K_HEAD;
    let values_at = v_start(batch) + (head / GROUP) * V_HEAD;
    let query_at = q_start(batch) + head * Q_HEAD + row * Q_ROW;
    var mine = q_element(query_at, element);
    // #if rope
    mine = turned_element(mine, q_element(query_at, partner_of(element)), element, position);
    // #endif

    // Every invocation keeps the same running maximum and sum; the sum is 0 as long as no key was seen.
    var top = 0.0;
    var sum = 0.0;
    var total = 0.0;
    var key = range.first;
    for (; key + 8u <= range.end; key += 8u) {
        for (var i = 0u; i < 8u; i++) {
            products[element][i / 4u][i % 4u] = mine * k_element(keys_at + (key + i) * K_ROW, element, key + i);
        }
        reduce_products(element);
        var scores: array<Score, 8>;
        var new_top = top;
        var any = sum != 0.0;
        for (var i = 0u; i < 8u; i++) {
            scores[i] = score_of(products[0][i / 4u][i % 4u], query, key + i);
            if (scores[i].included) {
                new_top = select(scores[i].value, max(new_top, scores[i].value), any);
                any = true;
            }
        }
        let keep = select(decay(top - new_top), 0.0, sum == 0.0);
        top = new_top;
        sum *= keep;
        total *= keep;
        for (var i = 0u; i < 8u; i++) {
            if (scores[i].included) {
                let weight = decay(scores[i].value - top);
                sum += weight;
                total += weight * v_element(values_at + (key + i) * V_ROW, element);
            }
        }
        // The next block's products may not overwrite sums that are still being read.
        workgroupBarrier();
    }
    for (; key < range.end; key++) {
        products[element][0].x = mine * k_element(keys_at + key * K_ROW, element, key);
        reduce_products(element);
        let score = score_of(products[0][0].x, query, key);
        if (score.included) {
            let first = sum == 0.0;
            let new_top = select(max(top, score.value), score.value, first);
            let keep = select(decay(top - new_top), 0.0, first);
            let weight = decay(score.value - new_top);
            top = new_top;
            sum = sum * keep + weight;
            total = total * keep + weight * v_element(values_at + key * V_ROW, element);
        }
        workgroupBarrier();
    }

    if (element < DV) {
        let result = total / select(sum, 1.0, sum == 0.0);
        out[out_start(batch) + head * OUT_HEAD + row * OUT_ROW + element * OUT_STEP] = OUT(result);
    }
    // #if lse
    if (element == 0u) {
        store_lse(batch, head, row, top, sum);
    }
    // #endif
}
