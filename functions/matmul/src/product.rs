//! The kernel: a pipeline that multiplies two matrices. `gpu-speed` measures the same file.

use fanfold::{
    Error, ErrorKind, Result,
    gpu::{self, Pipeline, Shader},
};
use serde::{Deserialize, Serialize};

/// The shader of every precision; what precedes it says which one.
const WGSL: &str = include_str!("matmul.wgsl");
/// What the rows and columns of a matrix are a multiple of.
pub const STEP: u32 = 16;
/// Rows and columns of the product that one workgroup of the shader has.
const GROUP_ROWS: u32 = 32;
const GROUP_COLUMNS: u32 = 128;

/// What a matrix's numbers are. Sums are of 32 bits always.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits each.
    #[default]
    F32,
    /// 16 bits each: half as much memory, and three digits.
    F16,
}

impl Precision {
    /// Bytes of a number.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// Compiles the kernel `multiply`: bindings 0 (uniform: `n`), 1 and 2 (the factors), 3 (the product).
    ///
    /// # Errors
    /// `conflict` where the adapter has no numbers of 16 bits; what the gpu says.
    pub fn pipeline(self) -> Result<Pipeline> {
        let preamble = match self {
            Self::F32 => "alias number = f32;",
            Self::F16 => "enable f16; alias number = f16;",
        };
        let adapter = gpu::adapter()?;
        if self == Self::F16 && !adapter.f16 {
            let message = format!("{} has no f16: ask for \"precision\": \"f32\"", adapter.name);
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Shader::new("matmul", &format!("{preamble}\n{WGSL}"))?.pipeline("multiply", &[])
    }
}

/// The workgroups that make a product of `n` rows and columns.
pub fn workgroups(n: u32) -> [u32; 3] {
    [n.div_ceil(GROUP_COLUMNS), n.div_ceil(GROUP_ROWS), 1]
}
