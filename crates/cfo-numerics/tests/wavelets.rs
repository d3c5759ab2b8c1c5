//! Agreement with PyWavelets; `fixtures/make_wavelets.py` writes the numbers.

use std::collections::BTreeMap;

use cfo_numerics::{Wavelet, WaveletFamily};

#[test]
fn coefficients_are_those_of_pywavelets() {
    let numbers = |words: std::str::Split<'_, char>| -> Vec<f32> {
        words.map(|word| word.parse().expect("a number")).collect()
    };
    let fixture: BTreeMap<&str, Vec<f32>> = include_str!("fixtures/wavelets.txt")
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            (words.next().expect("a line starts with a name"), numbers(words))
        })
        .collect();
    let mut cases = 0;
    for (name, values) in fixture.iter().filter(|(name, _)| name.ends_with("/values")) {
        let case = name.strip_suffix("/values").expect("filtered above");
        let words: Vec<&str> = case.split('/').collect();
        let sides = [1, 2].map(|i| words[i].parse::<usize>().expect("a side"));
        let family = if words[0] == "haar" { WaveletFamily::Haar } else { WaveletFamily::Daubechies4 };
        let wavelet = Wavelet { family, levels: 1, periodic: [true; 2] };
        let mut found = values.clone();
        wavelet.forward([sides[0], sides[1], 1], &mut found);
        for (found, expected) in found.iter().zip(&fixture[format!("{case}/coefficients").as_str()]) {
            // Both passes round to single precision.
            assert!((found - expected).abs() < 5e-7, "{case}: {found} for {expected}");
        }
        cases += 1;
    }
    assert_eq!(cases, 8);
}
