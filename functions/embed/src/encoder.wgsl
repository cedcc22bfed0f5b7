// A transformer encoder in steps, each an entry point. States are rows of `hidden` words, a word being four numbers, for each token of
// a batch: `sequences` texts of `length` tokens each, the shorter ones padded. Padding is computed with the rest, and no text sees it.

// In words.
override hidden: u32;
override heads: u32;
override epsilon: f32;
// Words that go into `linear` and come out of it, and whether what comes out goes through `gelu`.
override inputs: u32;
override outputs: u32;
override bent: bool;

const across = 8u;
const down = 4u;

struct Batch { sequences: u32, length: u32 }

@group(0) @binding(0) var<uniform> batch: Batch;

// Invocations are numbered through all workgroups of two dimensions: one has not enough of them.
fn number(id: vec3<u32>, groups: vec3<u32>) -> u32 {
    return id.y * groups.x * 64u + id.x;
}

fn tokens() -> u32 {
    return batch.sequences * batch.length;
}

// Numbers of 16 bits, two in a word, into numbers of 32.
@group(0) @binding(1) var<storage, read> halves: array<u32>;
@group(0) @binding(2) var<storage, read_write> wide: array<f32>;

@compute @workgroup_size(64)
fn widen(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = number(id, groups) * 2u;
    if at >= arrayLength(&wide) { return; }
    let two = unpack2x16float(halves[at / 2u]);
    wide[at] = two.x;
    if at + 1u < arrayLength(&wide) { wide[at + 1u] = two.y; }
}

// The sum of what a token is, where it is and of which kind: of the first. A word of a token is one invocation.
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read> words: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> positions: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> types: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> embedded: array<vec4<f32>>;

@compute @workgroup_size(64)
fn embed(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = number(id, groups);
    let token = at / hidden;
    let word = at % hidden;
    if token >= tokens() { return; }
    embedded[at] = words[ids[token] * hidden + word] + positions[token % batch.length * hidden + word] + types[word];
}

// Adds to the states, then brings each to mean 0 and variance 1, times the weight and plus the bias. A token is one invocation.
@group(0) @binding(1) var<storage, read> added: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> states: array<vec4<f32>>;

@compute @workgroup_size(64)
fn normalise(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let token = number(id, groups);
    if token >= tokens() { return; }
    let first = token * hidden;
    let one = vec4<f32>(1.0);
    let count = f32(hidden * 4u);
    var total = vec4<f32>();
    for (var at = first; at < first + hidden; at++) {
        let sum = states[at] + added[at];
        states[at] = sum;
        total += sum;
    }
    let mean = dot(total, one) / count;
    var squares = vec4<f32>();
    for (var at = first; at < first + hidden; at++) {
        let off = states[at] - mean;
        squares += off * off;
    }
    let factor = inverseSqrt(dot(squares, one) / count + epsilon);
    for (var word = 0u; word < hidden; word++) {
        let at = first + word;
        states[at] = (states[at] - mean) * factor * norm_weight[word] + norm_bias[word];
    }
}

// Each row that goes in times each row of weights, and the bias. An invocation has 8 tokens and 4 words that come out in registers:
// two 4 × 4 parts down, four across. The parts across lie as far from each other as a workgroup has invocations along x.
@group(0) @binding(1) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> products: array<vec4<f32>>;

// A column for each of four tokens.
fn of_rows(token: u32, k: u32) -> mat4x4<f32> {
    let at = token * inputs + k;
    return mat4x4<f32>(rows[at], rows[at + inputs], rows[at + 2u * inputs], rows[at + 3u * inputs]);
}

// A row for each of four numbers that come out.
fn of_weight(word: u32, k: u32) -> mat4x4<f32> {
    let at = 4u * word * inputs + k;
    return transpose(mat4x4<f32>(weight[at], weight[at + inputs], weight[at + 2u * inputs], weight[at + 3u * inputs]));
}

// Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most.
fn error_function(x: vec4<f32>) -> vec4<f32> {
    let t = 1.0 / (1.0 + 0.3275911 * abs(x));
    let powers = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(x) * (1.0 - powers * exp(-x * x));
}

fn put(token: u32, word: u32, part: mat4x4<f32>) {
    if word >= outputs { return; }
    for (var n = 0u; n < min(4u, tokens() - min(token, tokens())); n++) {
        let sum = part[n] + bias[word];
        let curved = 0.5 * sum * (1.0 + error_function(sum * 0.70710678));
        products[(token + n) * outputs + word] = select(sum, curved, bent);
    }
}

@compute @workgroup_size(across, down)
fn linear(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let token = (group.y * down + local.y) * 8u;
    let word = group.x * across * 4u + local.x;
    if token >= tokens() || word >= outputs { return; }
    var upper = array(mat4x4<f32>(), mat4x4<f32>(), mat4x4<f32>(), mat4x4<f32>());
    var lower = upper;
    for (var k = 0u; k < inputs; k++) {
        let above = of_rows(token, k);
        let below = of_rows(token + 4u, k);
        // What lies beyond the last is computed from something else, and not kept.
        let first = of_weight(word, k);
        upper[0] += first * above;
        lower[0] += first * below;
        let second = of_weight(word + across, k);
        upper[1] += second * above;
        lower[1] += second * below;
        let third = of_weight(word + 2u * across, k);
        upper[2] += third * above;
        lower[2] += third * below;
        let fourth = of_weight(word + 3u * across, k);
        upper[3] += fourth * above;
        lower[3] += fourth * below;
    }
    put(token, word, upper[0]);
    put(token, word + across, upper[1]);
    put(token, word + 2u * across, upper[2]);
    put(token, word + 3u * across, upper[3]);
    put(token + 4u, word, lower[0]);
    put(token + 4u, word + across, lower[1]);
    put(token + 4u, word + 2u * across, lower[2]);
    put(token + 4u, word + 3u * across, lower[3]);
}

// Attention. Scores have a row of `length` for each head of each token: how well the text's tokens fit what this one looks for.
@group(0) @binding(1) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> key: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;

@compute @workgroup_size(64)
fn score(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = number(id, groups);
    let row = at / batch.length;
    let token = row / heads;
    if token >= tokens() { return; }
    let size = hidden / heads;
    let head = row % heads * size;
    let other = token / batch.length * batch.length + at % batch.length;
    var sum = 0.0;
    for (var word = head; word < head + size; word++) {
        sum += dot(query[token * hidden + word], key[other * hidden + word]);
    }
    scores[at] = sum * inverseSqrt(f32(size * 4u));
}

@group(0) @binding(1) var<storage, read> lengths: array<u32>;
@group(0) @binding(2) var<storage, read_write> chances: array<f32>;

// A row is one invocation. Padding has no chance.
@compute @workgroup_size(64)
fn softmax(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = number(id, groups);
    let token = row / heads;
    if token >= tokens() { return; }
    let first = row * batch.length;
    let end = first + lengths[token / batch.length];
    var largest = chances[first];
    for (var at = first + 1u; at < end; at++) {
        largest = max(largest, chances[at]);
    }
    var total = 0.0;
    for (var at = first; at < end; at++) {
        let power = exp(chances[at] - largest);
        chances[at] = power;
        total += power;
    }
    for (var at = first; at < first + batch.length; at++) {
        chances[at] = select(0.0, chances[at] / total, at < end);
    }
}

// What the text's tokens give this one. A word of a token is one invocation.
@group(0) @binding(1) var<storage, read> given: array<f32>;
@group(0) @binding(2) var<storage, read> value: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> attended: array<vec4<f32>>;

@compute @workgroup_size(64)
fn attend(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = number(id, groups);
    let token = at / hidden;
    let word = at % hidden;
    if token >= tokens() { return; }
    let row = (token * heads + word / (hidden / heads)) * batch.length;
    let first = token / batch.length * batch.length;
    var sum = vec4<f32>();
    for (var other = 0u; other < batch.length; other++) {
        sum += given[row + other] * value[(first + other) * hidden + word];
    }
    attended[at] = sum;
}

// The sum of a text's tokens. A word of a text is one invocation.
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read> last: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> vectors: array<vec4<f32>>;

@compute @workgroup_size(64)
fn pool(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = number(id, groups);
    let sequence = at / hidden;
    let word = at % hidden;
    if sequence >= batch.sequences { return; }
    var sum = vec4<f32>();
    for (var token = 0u; token < counts[sequence]; token++) {
        sum += last[(sequence * batch.length + token) * hidden + word];
    }
    vectors[at] = sum;
}

// Brought to length 1. A text is one invocation.
@group(0) @binding(1) var<storage, read_write> pooled: array<vec4<f32>>;

@compute @workgroup_size(64)
fn unit(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let sequence = number(id, groups);
    if sequence >= batch.sequences { return; }
    let first = sequence * hidden;
    var squares = 0.0;
    for (var at = first; at < first + hidden; at++) {
        squares += dot(pooled[at], pooled[at]);
    }
    let factor = inverseSqrt(max(squares, 1e-37));
    for (var at = first; at < first + hidden; at++) {
        pooled[at] = pooled[at] * factor;
    }
}
