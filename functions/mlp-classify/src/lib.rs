//! Names the shape in a picture: pictures of known classes are drawn ([`shapes`]), reduced to what a small network looks at
//! ([`features`]), and classified by it on a gpu ([`device`]) or on the processor ([`model`], which is the reference).
//!
//! The network has one hidden layer. Its weights are fixed: `examples/train.rs` made them, from drawn pictures, and makes them
//! again. A library, not a function: `genimages` and `classify` are the functions.

pub mod shapes;
pub mod features;
pub mod model;
pub mod device;

pub use shapes::CLASSES;

/// Rows and columns of what the network looks at.
pub const SIDE: usize = 16;
/// Numbers that go into the network.
pub const INPUTS: usize = SIDE * SIDE;
/// Its hidden units.
pub const HIDDEN: usize = 32;

/// A picture as the network sees it: row by row, how much each part of it stands out from the picture's border.
pub type Features = [u8; INPUTS];

/// Chances of the classes, which add up to 1.
pub type Scores = [f32; CLASSES.len()];

/// The most likely class and its chance.
pub fn best(scores: &Scores) -> (usize, f32) {
    let better = |best: (usize, f32), next: (usize, f32)| if next.1 > best.1 { next } else { best };
    scores.iter().copied().enumerate().fold((0, f32::MIN), better)
}
