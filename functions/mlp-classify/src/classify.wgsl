// One hidden layer, in two steps: a hidden unit of a picture is one invocation, then the scores of a picture are one.
override inputs: u32;
override units: u32;
override classes: u32;

// Hidden weights and biases, then those of the output: a matrix has a row for each number that goes in.
@group(0) @binding(0) var<storage, read> weights: array<f32>;
// Four features in a word, the first in its lowest byte.
@group(0) @binding(1) var<storage, read> pictures: array<u32>;
@group(0) @binding(2) var<storage, read_write> hidden: array<f32>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;

@compute @workgroup_size(64)
fn hide(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&hidden) { return; }
    let picture = id.x / units;
    let unit = id.x % units;
    var sum = weights[inputs * units + unit];
    for (var word = 0u; word < inputs / 4u; word++) {
        // Bytes over 255.
        let features = unpack4x8unorm(pictures[picture * (inputs / 4u) + word]);
        let row = word * 4u * units + unit;
        sum += features.x * weights[row] + features.y * weights[row + units]
            + features.z * weights[row + 2u * units] + features.w * weights[row + 3u * units];
    }
    hidden[id.x] = max(sum, 0.0);
}

@compute @workgroup_size(64)
fn score(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = id.x * classes;
    if first >= arrayLength(&scores) { return; }
    let output = (inputs + 1u) * units;
    var largest = -3.4e38;
    for (var n = 0u; n < classes; n++) {
        var sum = weights[output + units * classes + n];
        for (var unit = 0u; unit < units; unit++) {
            sum += hidden[id.x * units + unit] * weights[output + unit * classes + n];
        }
        scores[first + n] = sum;
        largest = max(largest, sum);
    }
    var total = 0.0;
    for (var n = 0u; n < classes; n++) {
        let power = exp(scores[first + n] - largest);
        scores[first + n] = power;
        total += power;
    }
    for (var n = 0u; n < classes; n++) {
        scores[first + n] = scores[first + n] / total;
    }
}
