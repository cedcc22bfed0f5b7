// The product of two n × n matrices of `number` in row order, where n is a multiple of 16; sums are of 32 bits. What `number` is
// comes before this text.
//
// An invocation has a block of 8 rows and 16 columns in registers: two 4 × 4 parts down, four across. What it brings it uses eight
// or sixteen times, so that neither workgroup memory nor barriers are needed, which are slow on a processor. The parts across lie
// as far from each other as a workgroup has invocations along x, so that neighbours read what is side by side.

const across = 8u;
const down = 4u;

struct Size { n: u32 }

@group(0) @binding(0) var<uniform> size: Size;
@group(0) @binding(1) var<storage, read> a: array<vec4<number>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<number>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<number>>;

// Rows of four numbers of `a`, and of `b`, as the columns of a matrix: the transposed part.
fn of_a(row: u32, k: u32) -> mat4x4<f32> {
    let words = size.n / 4u;
    let at = row * words + k;
    return mat4x4<f32>(
        vec4<f32>(a[at]), vec4<f32>(a[at + words]), vec4<f32>(a[at + 2u * words]), vec4<f32>(a[at + 3u * words]),
    );
}

fn of_b(k: u32, column: u32) -> mat4x4<f32> {
    let words = size.n / 4u;
    let at = 4u * k * words + column;
    return mat4x4<f32>(
        vec4<f32>(b[at]), vec4<f32>(b[at + words]), vec4<f32>(b[at + 2u * words]), vec4<f32>(b[at + 3u * words]),
    );
}

fn put(row: u32, column: u32, part: mat4x4<f32>) {
    let words = size.n / 4u;
    if row >= size.n || column >= words { return; }
    let at = row * words + column;
    c[at] = vec4<number>(part[0]);
    c[at + words] = vec4<number>(part[1]);
    c[at + 2u * words] = vec4<number>(part[2]);
    c[at + 3u * words] = vec4<number>(part[3]);
}

@compute @workgroup_size(across, down)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let row = (group.y * down + local.y) * 8u;
    // Columns in words of four numbers.
    let column = group.x * across * 4u + local.x;
    if row >= size.n || column >= size.n / 4u { return; }
    var upper = array(mat4x4<f32>(), mat4x4<f32>(), mat4x4<f32>(), mat4x4<f32>());
    var lower = upper;
    for (var k = 0u; k < size.n / 4u; k++) {
        let above = of_a(row, k);
        let below = of_a(row + 4u, k);
        // Columns beyond the last are computed from what is elsewhere in `b`, and not kept.
        let first = of_b(k, column);
        upper[0] += first * above;
        lower[0] += first * below;
        let second = of_b(k, column + across);
        upper[1] += second * above;
        lower[1] += second * below;
        let third = of_b(k, column + 2u * across);
        upper[2] += third * above;
        lower[2] += third * below;
        let fourth = of_b(k, column + 3u * across);
        upper[3] += fourth * above;
        lower[3] += fourth * below;
    }
    put(row, column, upper[0]);
    put(row, column + across, upper[1]);
    put(row, column + 2u * across, upper[2]);
    put(row, column + 3u * across, upper[3]);
    put(row + 4u, column, lower[0]);
    put(row + 4u, column + across, lower[1]);
    put(row + 4u, column + 2u * across, lower[2]);
    put(row + 4u, column + 3u * across, lower[3]);
}
