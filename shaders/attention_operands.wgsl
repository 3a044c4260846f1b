// Queries, keys, values and results of the attention kernels, in any layout.
// Code generation puts this file in place of the `operands` section of each attention template.
//
// q [batch, HEADS, ROWS, D], k and v [batch, HEADS / GROUP, KEYS, D or DV], out [batch, HEADS, ROWS, DV].
// Starts and strides count stored scalars; leading batch axes are folded into one index.

const HEADS: u32 = 1u;
const GROUP: u32 = 1u;      // query heads that read one key/value head
const ROWS: u32 = 1u;
const D: u32 = 4u;
const DV: u32 = 4u;

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
const LSE_HEAD: u32 = 2u;
const LSE_ROW: u32 = 2u;
const LSE_STEP: u32 = 1u;

// What the bindings hold: f32 or f16, or where starts and strides allow four of them, as a vec4 or packed words.
alias Q = f32;
alias K = f32;
alias V = f32;
alias OUT = f32;

const BIND_Q: u32 = 0u;
const BIND_K: u32 = 1u;
const BIND_V: u32 = 2u;
const BIND_OUT: u32 = 3u;
const BIND_LSE: u32 = 4u;

@group(0) @binding(BIND_Q) var<storage, read> q: array<Q>;
@group(0) @binding(BIND_K) var<storage, read> k: array<K>;
@group(0) @binding(BIND_V) var<storage, read> v: array<V>;
@group(0) @binding(BIND_OUT) var<storage, read_write> out: array<OUT>;
// #if lse
// Per row and head: the largest score, and the logarithm of the sum of exponentials relative to it.
@group(0) @binding(BIND_LSE) var<storage, read_write> lse: array<f32>;
// #endif

// Where a batch entry starts.
fn q_start(batch: u32) -> u32 {
    // #replace q_start
    return 0u;
    // #end
}

fn k_start(batch: u32) -> u32 {
    // #replace k_start
    return 0u;
    // #end
}

fn v_start(batch: u32) -> u32 {
    // #replace v_start
    return 0u;
    // #end
}

fn out_start(batch: u32) -> u32 {
    // #replace out_start
    return 0u;
    // #end
}

// One element of a head, 0 past its end. Without branches: drivers for CPUs build those slowly.
// #if q_scalars
fn q_element(at: u32, element: u32) -> f32 {
    return select(0.0, f32(q[at + min(element, D - 1u) * Q_STEP]), element < D);
}
// #endif

// Of a key, the element after the rotary embedding at the key's position.
// #if k_scalars
fn k_stored(at: u32, element: u32) -> f32 {
    return select(0.0, f32(k[at + min(element, D - 1u) * K_STEP]), element < D);
}

fn k_element(at: u32, element: u32, position: u32) -> f32 {
    let x = k_stored(at, element);
    // #if rope
    return turned_element(x, k_stored(at, partner_of(element)), element, position);
    // #else
    return x;
    // #endif
}
// #endif

// #if v_scalars
fn v_element(at: u32, element: u32) -> f32 {
    return select(0.0, f32(v[at + min(element, DV - 1u) * V_STEP]), element < DV);
}
// #endif

// #if lse
fn lse_start(batch: u32) -> u32 {
    // #replace lse_start
    return 0u;
    // #end
}

// A row without keys, whose sum is 0, has the pair (-1e30, -1e30).
fn store_lse(batch: u32, head: u32, row: u32, top: f32, sum: f32) {
    let at = lse_start(batch) + head * LSE_HEAD + row * LSE_ROW;
    lse[at] = select(top, -1e30, sum == 0.0);
    lse[at + LSE_STEP] = select(log(sum), -1e30, sum == 0.0);
}
// #endif
