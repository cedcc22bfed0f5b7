// The product of two n × n matrices of f32 in row order, tile by tile: a workgroup of 16 × 16 invocations brings one tile of each
// factor into workgroup memory, and each invocation sums for one element. n is a multiple of 16.

const tile: u32 = 16;

struct Size { n: u32 }

@group(0) @binding(0) var<uniform> size: Size;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

var<workgroup> left: array<array<f32, tile>, tile>;
var<workgroup> right: array<array<f32, tile>, tile>;

@compute @workgroup_size(tile, tile)
fn multiply(@builtin(global_invocation_id) at: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    var sum = 0.0;
    for (var t = 0u; t < size.n; t += tile) {
        left[local.y][local.x] = a[at.y * size.n + t + local.x];
        right[local.y][local.x] = b[(t + local.y) * size.n + at.x];
        workgroupBarrier();
        for (var k = 0u; k < tile; k++) {
            sum += left[local.y][k] * right[k][local.x];
        }
        workgroupBarrier();
    }
    c[at.y * size.n + at.x] = sum;
}
