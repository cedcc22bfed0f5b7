@group(0) @binding(0) var<storage, read_write> data: array<u32>;

// Never ends. What it does depends on data, so that nothing can be left out. Drivers that bound loops bound each invocation's:
// start very many.
@compute @workgroup_size(1)
fn endless() {
    loop {
        data[0] = data[0] * 1664525u + 1013904223u;
        if data[1] == 77u { break; }
    }
}
