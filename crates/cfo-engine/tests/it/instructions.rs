//! Runs the tests of values with other instruction sets than this processor's best.

use std::process::Command;

use cfo_device::DeviceReport;

/// The tests that compare values: derivatives with differences, `f32` with `f64`, results with PyTorch's.
const LAWS: [&str; 4] = ["gradients::", "references::", "conv::", "products::"];

fn check_under(name: &str) {
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.env("CFO_SIMD", name).args(LAWS).arg("instructions::follow_the_variable");
    let done = tests.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "with {name}:\n{text}");
    assert!(text.contains("test instructions::follow_the_variable ... ok"), "with {name}:\n{text}");
}

#[test]
fn avx2_obeys_the_same_laws() {
    check_under("avx2");
}

#[test]
fn plain_code_obeys_the_same_laws() {
    check_under("plain");
}

#[test]
fn follow_the_variable() {
    let allowed: &[&str] = match std::env::var("CFO_SIMD").as_deref() {
        Ok("plain") => &["plain"],
        Ok("avx2") => &["AVX2", "plain"],
        _ => &["AVX-512", "AVX2", "plain"],
    };
    let found = DeviceReport::gather().simd;
    assert!(allowed.contains(&found), "{found} instead of one of {allowed:?}");
}
