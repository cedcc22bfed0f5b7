// As many multiply-adds as an adapter can do: eight chains in each invocation that do not wait for each other, in registers.

override rounds: u32;

@group(0) @binding(0) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn peak(@builtin(global_invocation_id) id: vec3<u32>) {
    let by = vec4(0.999, 0.998, 0.997, 0.996);
    let plus = vec4(f32(id.x) * 1e-6);
    var a = plus;
    var b = plus + 1.0;
    var c = plus + 2.0;
    var d = plus + 3.0;
    var e = plus + 4.0;
    var f = plus + 5.0;
    var g = plus + 6.0;
    var h = plus + 7.0;
    for (var n = 0u; n < rounds; n++) {
        a = fma(a, by, plus);
        b = fma(b, by, plus);
        c = fma(c, by, plus);
        d = fma(d, by, plus);
        e = fma(e, by, plus);
        f = fma(f, by, plus);
        g = fma(g, by, plus);
        h = fma(h, by, plus);
    }
    // Each sum has a place, so that nothing can be left out.
    if id.x < arrayLength(&sums) { sums[id.x] = dot(a + b + c + d + e + f + g + h, vec4(1.0)); }
}
