// Scalar functions shared by every kernel with elementwise arithmetic. Code generation copies the ones a
// kernel calls, and those that they call. Floats are computed as f32 whatever their storage type.

// WGSL has no literal for infinity or NaN, and constant expressions may not make one: a call hides the bits.
fn from_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

// `x != x` may be folded to false, so look at the bits.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}

// max and min of WGSL may return either operand when one is NaN; here NaN wins.
fn larger(a: f32, b: f32) -> f32 {
    return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));
}

fn smaller(a: f32, b: f32) -> f32 {
    return select(select(min(a, b), b, is_nan(b)), a, is_nan(a));
}

fn relu(x: f32) -> f32 {
    return select(max(x, 0.0), x, is_nan(x));
}

fn sign_of(x: f32) -> f32 {
    return select(sign(x), x, is_nan(x));
}

// The built-in may turn an overflowing argument into NaN.
fn exponential(x: f32) -> f32 {
    let inside = exp(clamp(x, -104.0, 88.72283));
    return select(select(inside, from_bits(0x7f800000u), x > 88.72283), x, is_nan(x));
}

// x = m * 2**exponent with m in [sqrt(1/2), sqrt(2)); returns (ln m, exponent). x must be positive and finite.
// ln m = 2 artanh(s) with s = (m - 1) / (m + 1), so that the result is accurate near x = 1 too.
fn split_logarithm(x: f32) -> vec2<f32> {
    let tiny = x < 1.1754944e-38;
    let scaled = bitcast<u32>(select(x, x * 8388608.0, tiny));
    let shift = bitcast<i32>(scaled - 0x3f3504f3u) >> 23u;
    let fraction = bitcast<f32>(scaled - (bitcast<u32>(shift) << 23u)) - 1.0;
    let s = fraction / (2.0 + fraction);
    let z = s * s;
    let series = z * (0.33333333 + z * (0.2 + z * (0.14285714 + z * (0.11111111 + z * 0.09090909))));
    return vec2<f32>(2.0 * (s + s * series), f32(shift) - select(0.0, 23.0, tiny));
}

fn logarithm(x: f32) -> f32 {
    let parts = split_logarithm(x);
    // ln 2 in two pieces, the first short enough for its product with the exponent to be exact.
    let inside = parts.y * 0.693115234375 + (parts.y * 0.000031946184945 + parts.x);
    let outside = select(select(from_bits(0x7fc00000u), from_bits(0xff800000u), x == 0.0), x, x > 0.0 || is_nan(x));
    return select(outside, inside, x > 0.0 && is_finite(x));
}

// a ** b as IEEE 754 has it: 1 where b is 0 or a is 1; a negative base needs an integer exponent.
fn power(a: f32, b: f32) -> f32 {
    if b == 2.0 {
        return a * a;
    }
    if b == 0.0 || a == 1.0 {
        return 1.0;
    }
    if is_nan(a) || is_nan(b) {
        return from_bits(0x7fc00000u);
    }
    let infinity = from_bits(0x7f800000u);
    let base = abs(a);
    let integer = floor(b) == b;
    // Every float of 2**24 or more is an even integer.
    let odd = integer && abs(b) < 16777216.0 && (i32(clamp(b, -16777216.0, 16777216.0)) & 1) == 1;
    let negative = (bitcast<u32>(a) >> 31u) == 1u;
    var size: f32;
    if base == 0.0 || !is_finite(base) {
        size = select(0.0, infinity, (base == 0.0) == (b < 0.0));
    } else if !is_finite(b) {
        size = select(select(0.0, infinity, (base > 1.0) == (b > 0.0)), 1.0, base == 1.0);
    } else {
        let parts = split_logarithm(base);
        let binary = parts.x * 1.44269504;
        let whole = round(clamp(b * (binary + parts.y), -300.0, 300.0));
        let rest = (b * parts.y - whole) + b * binary;
        // Two factors, because 2**whole alone may overflow where the result does not.
        let half = floor(whole * 0.5);
        size = exp2(clamp(rest, -1.0, 1.0)) * power_of_two(half) * power_of_two(whole - half);
        if whole >= 200.0 {
            size = infinity;
        }
        if negative && !integer {
            size = from_bits(0x7fc00000u);
        }
    }
    return select(size, -size, negative && odd);
}

// 2**n for an integer n; 0 below the normal range.
fn power_of_two(n: f32) -> f32 {
    return bitcast<f32>(u32(clamp(i32(n) + 127, 0, 254)) << 23u);
}

// Odd rational approximation on [-9, 9], fitted by iterated weighted least squares: relative error 4e-7.
fn hyperbolic_tangent(x: f32) -> f32 {
    let c = clamp(x, -9.0, 9.0);
    let t = c * c;
    let p = 1.0 + t * (0.1368082177 + t * (0.003869464098 + t * (2.8030402867e-5
        + t * (3.064027983e-8 - t * 1.2244544e-11))));
    let q = 1.0 + t * (0.4701415387 + t * (0.0272499971 + t * (0.0003940635130 + t * 1.288970695e-6)));
    let inside = clamp(c * p / q, -1.0, 1.0);
    return select(select(inside, sign(x), abs(x) >= 9.0), x, is_nan(x));
}

// Odd rational approximation on [-4, 4], fitted likewise: relative error 5e-7.
fn error_function(x: f32) -> f32 {
    let c = clamp(x, -4.0, 4.0);
    let t = c * c;
    let p = 1.128379095 + t * (0.2070725741 + t * (0.05151756742 + t * (0.003988070194
        + t * (0.0001472081964 + t * (-1.9416523e-6 + t * 1.9106069e-8)))));
    let q = 1.0 + t * (0.5168445560 + t * (0.1179486392 + t * (0.01495326197 + t * 0.001020443885)));
    let inside = clamp(c * p / q, -1.0, 1.0);
    return select(select(inside, sign(x), abs(x) >= 4.0), x, is_nan(x));
}

fn logistic(x: f32) -> f32 {
    return 1.0 / (1.0 + exponential(-x));
}

fn silu(x: f32) -> f32 {
    return x * logistic(x);
}

fn gelu(x: f32) -> f32 {
    return 0.5 * x * (1.0 + error_function(x * 0.70710678));
}

fn gelu_tanh(x: f32) -> f32 {
    return 0.5 * x * (1.0 + hyperbolic_tangent(0.79788456 * (x + 0.044715 * x * x * x)));
}

// (sine, cosine) of |x| < 100000 radians: the quarter turns are taken off in three exact pieces, because
// built-in functions may lose all digits of large arguments, such as positions in a rotary embedding.
fn sine_cosine(x: f32) -> vec2<f32> {
    let turns = round(x * 0.636619772);
    let r = ((x - turns * 1.5703125) - turns * 0.000483751296997) - turns * 7.549789954e-8;
    let z = r * r;
    let s = r + r * z * (-0.16666667 + z * (0.0083333333 + z * (-0.0001984127 + z * 2.7557319e-6)));
    let c = 1.0 + z * (-0.5 + z * (0.041666667 + z * (-0.0013888889 + z * 2.4801587e-5)));
    let quarter = u32(i32(clamp(turns, -100000.0, 100000.0))) & 3u;
    let swapped = select(vec2<f32>(s, c), vec2<f32>(c, s), (quarter & 1u) == 1u);
    return vec2<f32>(
        select(swapped.x, -swapped.x, quarter >= 2u),
        select(swapped.y, -swapped.y, quarter == 1u || quarter == 2u),
    );
}

fn sine(x: f32) -> f32 {
    return select(sin(x), sine_cosine(x).x, abs(x) < 100000.0);
}

fn cosine(x: f32) -> f32 {
    return select(cos(x), sine_cosine(x).y, abs(x) < 100000.0);
}

// Remainder with the sign of a. The quotient is rounded, so its multiple may miss by one b.
fn remainder_f32(a: f32, b: f32) -> f32 {
    if is_finite(a) && !is_finite(b) && !is_nan(b) {
        return a;
    }
    let size = abs(b);
    var rest = fma(-trunc(abs(a) / size), size, abs(a));
    rest = select(rest, rest + size, rest < 0.0);
    rest = select(rest, rest - size, rest >= size);
    return select(rest, -rest, a < 0.0);
}

// Devices may divide by multiplying with the reciprocal, which is flushed to zero for the largest divisors.
fn divide_f32(a: f32, b: f32) -> f32 {
    let scale = select(1.0, 5.9604645e-8, abs(b) > 1e37);
    return (a * scale) / (b * scale);
}

// Integer division truncates; by zero it gives a, and the least integer by -1 wraps to itself.
fn divide_i32(a: i32, b: i32) -> i32 {
    let trap = b == 0 || (b == -1 && a == bitcast<i32>(0x80000000u));
    return a / select(b, 1, trap);
}

fn divide_u32(a: u32, b: u32) -> u32 {
    return a / select(b, 1u, b == 0u);
}

// By multiplication, because Vulkan leaves the remainder of negative operands undefined.
fn remainder_i32(a: i32, b: i32) -> i32 {
    return select(a - b * divide_i32(a, b), 0, b == 0);
}

fn remainder_u32(a: u32, b: u32) -> u32 {
    return select(a - b * divide_u32(a, b), 0u, b == 0u);
}

// The nearest float16, ties to even. In integers: drivers drop a conversion there and back, packed or not.
fn rounded_to_f16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u) {
        // 65520 and beyond become infinite; NaN stays.
        return select(bitcast<f32>((bits & 0x80000000u) | 0x7f800000u), x, magnitude > 0x7f800000u);
    }
    if (magnitude < 0x38800000u) {
        // Below 2**-14: multiples of 2**-24.
        return round(x * 16777216.0) * 5.9604645e-8;
    }
    return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}

// Truncating, saturating conversion; NaN becomes 0.
fn to_i32(x: f32) -> i32 {
    let inside = i32(clamp(x, -2147483648.0, 2147483520.0));
    return select(select(inside, 2147483647, x >= 2147483648.0), 0, is_nan(x));
}

fn to_u32(x: f32) -> u32 {
    let inside = u32(clamp(x, 0.0, 4294967040.0));
    return select(select(inside, 0xffffffffu, x >= 4294967296.0), 0u, is_nan(x));
}
