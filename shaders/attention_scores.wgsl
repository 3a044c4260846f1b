// Which keys a query attends, and the score of one query and one key.
// Code generation puts this file, specialised to an op's options, into each attention template.

const KEYS: u32 = 1u;
const FIRST_POSITION: u32 = 0u; // position of query row 0
const WINDOW: u32 = 1u;         // keys a query sees, its own included
const SCALE: f32 = 1.0;
const SOFTCAP: f32 = 1.0;
const FILL: f32 = 0.0;          // score where a boolean mask is false
const FLT_MAX: f32 = 3.4028234663852886e38;

const BIAS_HEAD: u32 = 0u;
const BIAS_ROW: u32 = 0u;
const BIAS_KEY: u32 = 0u;
const MASK_HEAD: u32 = 0u;
const MASK_ROW: u32 = 0u;
const MASK_KEY: u32 = 0u;
const SLOPE_START: u32 = 0u;
const SLOPE_STEP: u32 = 0u;

const BIND_POSITION: u32 = 5u;
const BIND_BIAS: u32 = 6u;
const BIND_SLOPES: u32 = 7u;
const BIND_MASK: u32 = 8u;

alias OPTION = f32;             // stored type of bias and slopes

// #if cached
@group(0) @binding(BIND_POSITION) var<storage, read> newest: array<u32>;
// #endif
// #if bias
@group(0) @binding(BIND_BIAS) var<storage, read> bias: array<OPTION>;
// #endif
// #if alibi
@group(0) @binding(BIND_SLOPES) var<storage, read> slopes: array<OPTION>;
// #endif
// #if mask
// Booleans, or the raw words of floats: -inf is told by its bits, whatever the device makes of infinities.
@group(0) @binding(BIND_MASK) var<storage, read> mask: array<u32>;
// #endif

fn position_of(batch: u32, row: u32) -> u32 {
    // #if cached
    // Positions are checked before the dispatch; the bound here only keeps reads inside the cache.
    // #replace newest_index
    let newest_index = 0u;
    // #end
    return min(newest[newest_index], max(KEYS, 1u) - 1u);
    // #else
    return FIRST_POSITION + row;
    // #endif
}

struct KeyRange {
    first: u32,
    end: u32, // one past the last key
}

fn key_range(position: u32) -> KeyRange {
    var range = KeyRange(0u, KEYS);
    // #if causal
    range.end = min(KEYS, position + 1u);
    // #endif
    // #if window
    range.first = max(position + 1u, WINDOW) - WINDOW;
    // #endif
    return range;
}

// What the options need to know of one query.
struct Query {
    position: u32,
    bias_at: u32,
    mask_at: u32,
    slope: f32,
}

fn query_of(batch: u32, head: u32, row: u32, position: u32) -> Query {
    var query = Query(position, 0u, 0u, 0.0);
    // #if bias
    // #replace bias_start
    query.bias_at = 0u;
    // #end
    query.bias_at += head * BIAS_HEAD + row * BIAS_ROW;
    // #endif
    // #if mask
    // #replace mask_start
    query.mask_at = 0u;
    // #end
    query.mask_at += head * MASK_HEAD + row * MASK_ROW;
    // #endif
    // #if alibi
    query.slope = f32(slopes[SLOPE_START + head * SLOPE_STEP]);
    // #endif
    return query;
}

struct Score {
    value: f32,
    included: bool,
}

// #if softcap
// #replace helpers
fn hyperbolic_tangent(x: f32) -> f32 {
    return tanh(clamp(x, -9.0, 9.0));
}
// #end
// #endif

// The score from q . k, in the order scale, soft-cap, bias, ALiBi, mask.
fn score_of(product: f32, query: Query, key: u32) -> Score {
    var x = product * SCALE;
    var included = true;
    // #if softcap
    x = SOFTCAP * hyperbolic_tangent(x / SOFTCAP);
    // #endif
    // #if bias
    x += f32(bias[query.bias_at + key * BIAS_KEY]);
    // #endif
    // #if alibi
    x += query.slope * f32(i32(key) - i32(query.position));
    // #endif
    // #if mask
    let mask_index = query.mask_at + key * MASK_KEY;
    // #endif
    // #if mask_f32
    let mask_bits = mask[mask_index];
    included = mask_bits != 0xff800000u;
    x += bitcast<f32>(select(0u, mask_bits, included));
    // #endif
    // #if mask_f16
    let mask_bits = (mask[mask_index / 2u] >> (16u * (mask_index % 2u))) & 0xffffu;
    included = mask_bits != 0xfc00u;
    x += unpack2x16float(select(0u, mask_bits, included)).x;
    // #endif
    // #if mask_fill
    x = select(FILL, x, mask[mask_index] != 0u);
    // #endif
    // #if mask_exclude
    included = mask[mask_index] != 0u;
    // #endif
    return Score(clamp(x, -FLT_MAX, FLT_MAX), included);
}

// exp(-|x|), without asking the device for exp of huge arguments.
fn decay(x: f32) -> f32 {
    return exp(max(-abs(x), -104.0));
}
