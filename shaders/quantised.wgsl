// Weights in quantised blocks: integers out of words, factors out of theirs. meganeura/ir/packing.py has the layout.

// The four 4-bit integers of nibble `field` of each word.
fn four_bits(words: vec4<u32>, field: u32) -> vec4<f32> {
    // Through i32: conversions from unsigned integers take several instructions on many CPUs.
    return vec4<f32>(bitcast<vec4<i32>>((words >> vec4<u32>(4u * field)) & vec4<u32>(15u)));
}

// The four signed 8-bit integers of byte `field` of each word.
fn eight_bits(words: vec4<u32>, field: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(words << vec4<u32>(24u - 8u * field)) >> vec4<u32>(24u));
}

// A block's factor, and its minimum.
fn factor_of(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(word), 0.0);
}

fn factor_and_minimum_of(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}
