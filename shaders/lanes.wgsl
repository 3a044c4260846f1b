// How invocations that share a row combine what each of them found: included by the kernels that work along rows.
// Alone on a row an invocation has nothing to do; a subgroup exchanges registers; a workgroup uses its memory.

alias T = f32;              // what is combined
const SUBGROUP: u32 = 8u;   // invocations that run together
const PARTIALS: u32 = 8u;   // values that meet in workgroup memory

// #if shared
var<workgroup> partials: array<T, PARTIALS>;
// #endif
// #if subgroup
var<private> subgroup_index: u32;
// #endif

fn combine(a: T, b: T) -> T {
    // #replace combine
    return a + b;
    // #end
}

// Every invocation of a row gets the combination of all their values. `index` counts invocations in the workgroup.
fn row_combine(value: T, index: u32) -> T {
    var result = value;
    // #if subgroup
    for (var step = SUBGROUP / 2u; step > 0u; step /= 2u) {
        result = combine(result, subgroupShuffleXor(result, step));
    }
    // #endif
    // #if shared
    // #if subgroup
    partials[subgroup_index] = result;
    workgroupBarrier();
    result = partials[0];
    for (var i = 1u; i < PARTIALS; i++) {
        result = combine(result, partials[i]);
    }
    // #else
    partials[index] = result;
    workgroupBarrier();
    for (var step = PARTIALS / 2u; step > 0u; step /= 2u) {
        if (index < step) {
            partials[index] = combine(partials[index], partials[index + step]);
        }
        workgroupBarrier();
    }
    result = partials[0];
    // #endif
    // A later call must not overwrite what another invocation has yet to read.
    workgroupBarrier();
    // #endif
    return result;
}
