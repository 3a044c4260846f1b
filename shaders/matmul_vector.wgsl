// A few rows times a matrix: a team of lanes walks along k side by side, so that weights stored [n, k] are read in
// order, for a few columns at once. Code generation unrolls the rows and columns of a team.

// #replace operands
const N: u32 = 1u;
const M: u32 = 1u;
const K: u32 = 4u;
const GATE: u32 = 0u;
const A_ROW: u32 = 4u;
const B_COLUMN: u32 = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Place {
    a: u32,
    b: u32,
    out: u32,
}

fn place_of(batch: u32) -> Place {
    return Place(batch * M * K, batch * K * N, batch * M * N);
}

fn a_quad(at: u32, k: u32) -> vec4<f32> {
    return a[(at + k) / 4u];
}

fn b_quad(at: u32, k: u32) -> vec4<f32> {
    return b[(at + k) / 4u];
}

fn store_one(place: Place, row: u32, column: u32, product: f32, up: f32) {
    out[place.out + row * N + column] = product;
}
// #end

const TEAM: u32 = 8u;           // lanes of a team; with subgroups a team is a subgroup
const TEAMS: u32 = 1u;          // teams of a workgroup
const COLUMNS: u32 = 1u;        // columns of a team
const UNROLL: u32 = 1u;         // steps along k whose loads are under way together
const COLUMN_BLOCKS: u32 = 1u;  // workgroups per batch entry
const BLOCKS: u32 = 1u;         // workgroups over all batch entries

// #if !subgroups
var<workgroup> partial: array<f32, TEAM * TEAMS>;
// #endif

// The sum over the lanes of the team, known to all of them.
fn team_sum(value: f32, thread: u32) -> f32 {
    // #if subgroups
    return subgroupAdd(value);
    // #else
    partial[thread] = value;
    for (var width = TEAM / 2u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if (thread % TEAM < width) {
            partial[thread] += partial[thread + width];
        }
    }
    workgroupBarrier();
    let total = partial[thread - thread % TEAM];
    workgroupBarrier();
    return total;
    // #endif
}

@compute @workgroup_size(TEAM * TEAMS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    // #if subgroups
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) team: u32,
    // #endif
) {
    // #if !subgroups
    let lane = thread % TEAM;
    let team = thread / TEAM;
    // #endif
    let block = group.x + groups.x * (group.y + groups.y * group.z);
    // #if folded
    if (block >= BLOCKS) {
        return;
    }
    // #endif
    let first_column = (block % COLUMN_BLOCKS * TEAMS + team) * COLUMNS;
    let place = place_of(block / COLUMN_BLOCKS);
    // Columns past the end repeat the last one; they are not stored.
    // #replace starts
    let column_0 = place.b + min(first_column, N - 1u) * B_COLUMN;
    var sum_0_0 = 0.0;
    // #end
    var k = lane * 4u;
    // #if unrolled
    for (; k + (UNROLL - 1u) * TEAM * 4u < K; k += UNROLL * TEAM * 4u) {
        // #replace several
        sum_0_0 += dot(a_quad(place.a, k), b_quad(column_0, k));
        // #end
    }
    // #endif
    for (; k < K; k += TEAM * 4u) {
        // #replace products
        let x_0 = a_quad(place.a, k);
        let w_0 = b_quad(column_0, k);
        sum_0_0 += dot(x_0, w_0);
        // #end
    }
    let column = first_column + lane;
    let stores = lane < COLUMNS && column < N;
    // Each lane keeps the total of the column it stores.
    // #replace totals
    {
        var total = 0.0;
        let total_0 = team_sum(sum_0_0, thread);
        total = select(total, total_0, lane == 0u);
        if (stores) {
            store_one(place, 0u, column, total, 0.0);
        }
    }
    // #end
}
