// Rotary embedding on load: the first 2 * PAIRS elements of a head are turned by the angles of their position.
// Code generation puts this file into the attention templates of ops with the `rope` option.

const PAIRS: u32 = 2u;
const COS_START: u32 = 0u;
const COS_ROW: u32 = 0u;
const COS_STEP: u32 = 1u;
const SIN_START: u32 = 0u;
const SIN_ROW: u32 = 0u;
const SIN_STEP: u32 = 1u;

alias TABLE = f32;

const BIND_COS: u32 = 9u;
const BIND_SIN: u32 = 10u;

@group(0) @binding(BIND_COS) var<storage, read> cosines: array<TABLE>;
@group(0) @binding(BIND_SIN) var<storage, read> sines: array<TABLE>;

// Cosine and sine of a pair at a position.
fn angle_of(position: u32, pair: u32) -> vec2<f32> {
    return vec2<f32>(
        f32(cosines[COS_START + position * COS_ROW + pair * COS_STEP]),
        f32(sines[SIN_START + position * SIN_ROW + pair * SIN_STEP]),
    );
}

// The two elements of a pair: neighbours, or half the turned part apart.
fn elements_of(pair: u32) -> vec2<u32> {
    // #if interleaved
    return vec2<u32>(2u * pair, 2u * pair + 1u);
    // #else
    return vec2<u32>(pair, pair + PAIRS);
    // #endif
}

// The pair that an element below 2 * PAIRS belongs to.
fn pair_of(element: u32) -> u32 {
    // #if interleaved
    return element / 2u;
    // #else
    return element % PAIRS;
    // #endif
}

// A pair turned by its angle.
fn turned(pair: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(pair.x * angle.x - pair.y * angle.y, pair.y * angle.x + pair.x * angle.y);
}
