//! Kernels: the inner loops of shuffles, over plain slices. They know no tasks, no partitions and no Arrow.

pub mod aggregate;
