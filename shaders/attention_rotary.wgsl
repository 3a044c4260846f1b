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

// A pair turned by its angle.
fn turned_pair(pair: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(pair.x * angle.x - pair.y * angle.y, pair.y * angle.x + pair.x * angle.y);
}

// The other element of an element's pair: its neighbour, or the one half the turned part away.
fn partner_of(element: u32) -> u32 {
    // #if interleaved
    let partner = element ^ 1u;
    // #else
    let partner = select(element - PAIRS, element + PAIRS, element < PAIRS);
    // #endif
    return select(element, partner, element < 2u * PAIRS);
}

// An element after the turn, from itself and its partner; the rest of a head is not turned.
fn turned_element(own: f32, partner: f32, element: u32, position: u32) -> f32 {
    let within = min(element, 2u * PAIRS - 1u);
    // #if interleaved
    let angle = angle_of(position, within / 2u);
    // #else
    let angle = angle_of(position, within % PAIRS);
    // #endif
    let first = element < partner_of(element);
    return select(own, own * angle.x + select(partner, -partner, first) * angle.y, element < 2u * PAIRS);
}
