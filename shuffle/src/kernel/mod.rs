//! Inner loops: what a sort or an aggregation does to bytes that are in memory. They call nothing of the platform.
