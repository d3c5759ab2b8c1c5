//! Search for the known word that is most similar to an unknown one.

/// Returns the known word with the fewest edits, if at most half of the letters differ.
pub(crate) fn near<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(found, known).filter(|word| 2 * edits(found, word) <= found.len())
}

/// Returns the known word with the fewest edits.
pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().min_by_key(|word| edits(found, word))
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
