//! The command `cfo`.

fn main() {}
