// What the matrix product kernels share: where elements lie, loads widened to f32, the epilogue, and stores.
// Code generation puts this file in place of the `operands` section of each matmul template.
//
// For every batch entry: output[row, column] = sum over k of a[row, k] * b[k, column], then the epilogue.
// Strides and starts count elements of the binding.

// #if f16
enable f16;
// #endif

const M: u32 = 1u;
const N: u32 = 1u;
const K: u32 = 1u;
const BATCHES: u32 = 1u;
const GATE: u32 = 0u;           // from a gate column of b to its up column
const LAST_K: u32 = max(K, 1u) - 1u;

const A_ROW: u32 = 1u;
const A_STEP: u32 = 1u;
const B_COLUMN: u32 = 1u;
const B_STEP: u32 = 1u;
const BIAS_ROW: u32 = 0u;
const BIAS_COLUMN: u32 = 0u;
const RESIDUAL_ROW: u32 = 0u;
const RESIDUAL_COLUMN: u32 = 0u;
const OUT_ROW: u32 = 1u;
const OUT_COLUMN: u32 = 1u;
const VECTORS: u32 = 1u;        // of b in quantised blocks: vectors that hold a block's integers,
const FIELDS: u32 = 8u;         // quads in a vector,
const FACTORS: u32 = 0u;        // and the first word of the factors

// Stored elements: a number, or four of them where starts and strides allow. Four f16 are read as two u32, which
// takes half the loads on adapters that load lane by lane.
alias A = f32;
alias B = f32;
alias BIAS = f32;
alias RESIDUAL = f32;
alias OUT = f32;
alias OUT_ELEMENT = f32;
alias Number = f32;             // what sums are made in
const ALPHA = Number(1);

const BIND_A: u32 = 0u;
const BIND_B: u32 = 1u;
const BIND_BIAS: u32 = 2u;
const BIND_RESIDUAL: u32 = 3u;
const BIND_OUT: u32 = 4u;

@group(0) @binding(BIND_A) var<storage, read> a: array<A>;
@group(0) @binding(BIND_B) var<storage, read> b: array<B>;
// #if bias
@group(0) @binding(BIND_BIAS) var<storage, read> bias: array<BIAS>;
// #endif
// #if residual
@group(0) @binding(BIND_RESIDUAL) var<storage, read> residual: array<RESIDUAL>;
// #endif
@group(0) @binding(BIND_OUT) var<storage, read_write> out: array<OUT>;

// ---- where a batch entry starts ------------------------------------------------------------------

struct Place {
    a: u32,
    b: u32,
    bias: u32,
    residual: u32,
    out: u32,
}

fn place_of(batch: u32) -> Place {
    // #replace place
    return Place(batch, batch, 0u, 0u, batch);
    // #end
}

// ---- loads ---------------------------------------------------------------------------------------

// #if a_vec4
// Four neighbours of a, wherever they stand.
fn a_four(index: u32) -> vec4<f32> {
    // #if a_packed
    let raw = a[index];
    return vec4<f32>(unpack2x16float(raw.x), unpack2x16float(raw.y));
    // #else
    return vec4<f32>(a[index]);
    // #endif
}
// #endif

// #if b_blocks
// #replace quantised
// #end

// Factor and minimum of a block of b.
fn b_factors(block: u32) -> vec2<f32> {
    let word = b[(FACTORS + block) / 4u][(FACTORS + block) % 4u];
    // #replace factors
    return vec2<f32>(bitcast<f32>(word), 0.0);
    // #end
}

// A quad of a vector of b's words.
fn b_weights(words: vec4<u32>, field: u32, factors: vec2<f32>) -> vec4<f32> {
    // #replace weights
    return vec4<f32>((words >> vec4<u32>(field)) & vec4<u32>(15u)) * factors.x;
    // #end
}

// Four neighbours of b along k, wherever they stand.
fn b_four(index: u32) -> vec4<f32> {
    return b_weights(b[index / FIELDS], index % FIELDS, b_factors(index / 8u));
}
// #endif

// #if b_vec4
// Four neighbours of b, wherever they stand.
fn b_four(index: u32) -> vec4<f32> {
    // #if b_packed
    let raw = b[index];
    return vec4<f32>(unpack2x16float(raw.x), unpack2x16float(raw.y));
    // #else
    return vec4<f32>(b[index]);
    // #endif
}
// #endif

// #if a_quads
// a[row, k..k+3] of the row that starts at `at`; zero from K on.
fn a_quad(at: u32, k: u32) -> vec4<f32> {
    // #if a_wide
    return a_four((at + k) / 4u);
    // #else
    return vec4<f32>(a_one(at, k), a_one(at, k + 1u), a_one(at, k + 2u), a_one(at, k + 3u));
    // #endif
}
// #endif

// #if b_quads
// b[k..k+3, column] of the column that starts at `at`; zero from K on.
fn b_quad(at: u32, k: u32) -> vec4<f32> {
    // #if b_wide
    return b_four((at + k) / 4u);
    // #else
    return vec4<f32>(b_one(at, k), b_one(at, k + 1u), b_one(at, k + 2u), b_one(at, k + 3u));
    // #endif
}
// #endif

// #if !a_vec4
fn a_one(at: u32, k: u32) -> Number {
    // #if ragged
    // Rows may end where the binding does: read the last element instead, and drop it.
    return select(Number(0), Number(a[at + min(k, LAST_K) * A_STEP]), k < K);
    // #else
    return Number(a[at + k * A_STEP]);
    // #endif
}
// #endif

// #if !b_vec4
fn b_one(at: u32, k: u32) -> Number {
    // #if b_blocks
    let index = at + k * B_STEP;
    return b_four(index / 4u)[index % 4u];
    // #else
    // #if ragged
    return select(Number(0), Number(b[at + min(k, LAST_K) * B_STEP]), k < K);
    // #else
    return Number(b[at + k * B_STEP]);
    // #endif
    // #endif
}
// #endif

// ---- epilogue ------------------------------------------------------------------------------------

// #if activation
// #replace helpers
fn relu(x: f32) -> f32 {
    return max(x, 0.0);
}
// #end

fn activate(x: f32) -> f32 {
    // #replace activation
    return relu(x);
    // #end
}

fn activate_quad(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(activate(x.x), activate(x.y), activate(x.z), activate(x.w));
}
// #endif

// #if singles
fn store_one(place: Place, row: u32, column: u32, product: Number, up: Number) {
    var x = product;
    // #if alpha
    x *= ALPHA;
    // #endif
    // #if bias
    x += Number(bias[place.bias + row * BIAS_ROW + column * BIAS_COLUMN]);
    // #endif
    // #if activation
    x = activate(x);
    // #endif
    // #if gated
    x *= up;
    // #endif
    // #if residual
    x += Number(residual[place.residual + row * RESIDUAL_ROW + column * RESIDUAL_COLUMN]);
    // #endif
    out[place.out + row * OUT_ROW + column * OUT_COLUMN] = OUT_ELEMENT(x);
}
// #endif

// #if quad_stores
// #if bias
fn bias_quad(place: Place, row: u32, column: u32) -> vec4<f32> {
    let at = place.bias + row * BIAS_ROW + column * BIAS_COLUMN;
    // #if bias_wide
    return vec4<f32>(bias[at / 4u]);
    // #else
    let left = N - 1u - column;
    return vec4<f32>(
        f32(bias[at]),
        f32(bias[at + min(1u, left) * BIAS_COLUMN]),
        f32(bias[at + min(2u, left) * BIAS_COLUMN]),
        f32(bias[at + min(3u, left) * BIAS_COLUMN]),
    );
    // #endif
}
// #endif

// #if residual
fn residual_quad(place: Place, row: u32, column: u32) -> vec4<f32> {
    let at = place.residual + row * RESIDUAL_ROW + column * RESIDUAL_COLUMN;
    // #if residual_wide
    return vec4<f32>(residual[at / 4u]);
    // #else
    let left = N - 1u - column;
    return vec4<f32>(
        f32(residual[at]),
        f32(residual[at + min(1u, left) * RESIDUAL_COLUMN]),
        f32(residual[at + min(2u, left) * RESIDUAL_COLUMN]),
        f32(residual[at + min(3u, left) * RESIDUAL_COLUMN]),
    );
    // #endif
}
// #endif

// Columns `column` to `column + 3` of a row, those below N; `row` and `column` are below M and N.
fn store_quad(place: Place, row: u32, column: u32, product: vec4<f32>, up: vec4<f32>) {
    var x = product;
    // #if alpha
    x *= ALPHA;
    // #endif
    // #if bias_last
    x += bias_quad(place, row, column);
    // #endif
    // #if activation
    x = activate_quad(x);
    // #endif
    // #if gated
    x *= up;
    // #endif
    // #if residual
    x += residual_quad(place, row, column);
    // #endif
    let at = place.out + row * OUT_ROW + column * OUT_COLUMN;
    // #if out_wide
    out[at / 4u] = vec4<OUT_ELEMENT>(x);
    // #else
    out[at] = OUT_ELEMENT(x.x);
    if (column + 1u < N) {
        out[at + OUT_COLUMN] = OUT_ELEMENT(x.y);
    }
    if (column + 2u < N) {
        out[at + 2u * OUT_COLUMN] = OUT_ELEMENT(x.z);
    }
    if (column + 3u < N) {
        out[at + 3u * OUT_COLUMN] = OUT_ELEMENT(x.w);
    }
    // #endif
}
// #endif
