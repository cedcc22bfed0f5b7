//! What must not be done on a gpu.

use fanfold::{
    Result,
    gpu::{self, Buffer, Commands, Shader, Usage},
};

use crate::{Answer, inline};

const ENDLESS: &str = include_str!("endless.wgsl");

fn answer(text: String) -> Result<Answer> {
    Ok(Answer(vec![inline(text.into_bytes())]))
}

pub fn adapter() -> Result<Answer> {
    let adapter = gpu::adapter()?;
    let kind = if adapter.software { "software" } else { "hardware" };
    answer(format!("{kind}: {}", adapter.name))
}

pub fn compute() -> Result<Answer> {
    let data = Buffer::new("data", 64, Usage::STORAGE | Usage::COPY_SRC)?;
    let pipeline = Shader::new("endless", ENDLESS)?.pipeline("endless", &[])?;
    let group = pipeline.bind(0, &[(0, &data)])?;
    let commands = Commands::new()?;
    commands.dispatch(&pipeline, &[&group], [65535, 65535, 1])?;
    let submission = commands.submit()?;
    fanfold::info!("the gpu is busy");
    submission.wait()?;
    answer(String::from("it ended"))
}

pub fn allocate() -> Result<Answer> {
    let mut buffers = Vec::new();
    loop {
        buffers.push(Buffer::new("hoard", 16 << 20, Usage::STORAGE)?);
    }
}

pub fn nest() -> Result<Answer> {
    let body = "{".repeat(100_000);
    Shader::new("harm", &format!("@compute @workgroup_size(1) fn f() {body}"))?;
    answer(String::from("it was accepted"))
}

pub fn overrun() -> Result<Answer> {
    let data = Buffer::new("data", 64, Usage::COPY_SRC)?;
    answer(format!("{:?}", data.read(32, 64)?))
}

pub fn record() -> Result<Answer> {
    let data = Buffer::new("data", 64, Usage::COPY_DST)?;
    let mut encoders = Vec::new();
    loop {
        let commands = Commands::new()?;
        for _ in 0..4096 {
            commands.clear(&data, 0, 4)?;
        }
        encoders.push(commands);
    }
}
