//! Warnings about arrays of a file that are not read.

use super::table::ARRAYS as KNOWN;
use crate::distance::distance;
use crate::store::container::array::shape_text;

/// A named array or attribute, with its extents.
pub(super) type Unknown = (String, Vec<usize>);

/// Warnings about arrays that look like data: one of their sides equals one of the data's extents.
pub(super) fn warnings(unknown: &[Unknown], extents: &[usize]) -> Vec<String> {
    let looks_like_data = |(_, shape): &&Unknown| {
        shape.iter().product::<usize>() > 1 && shape.iter().any(|side| extents.contains(side))
    };
    unknown.iter().filter(looks_like_data).map(warning).collect()
}

fn warning((name, shape): &Unknown) -> String {
    let near = |known: &&str| {
        let distance = distance(&name.to_lowercase(), known);
        distance <= known.len() / 3
            || name.len() > 2 && (known.starts_with(name.as_str()) || name.starts_with(*known))
    };
    let nearest = KNOWN.iter().filter(|known| near(known)).min_by_key(|known| distance(name, known));
    let advice = match nearest {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("arrays that are used: `{}`", KNOWN.join("`, `")),
    };
    format!("`{name}` of {} is not used; {advice}", shape_text(shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_the_datas_extents_are_named_with_what_they_may_be() {
        let unknown = |name: &str, shape: &[usize]| (name.to_string(), shape.to_vec());
        let found = warnings(
            &[
                unknown("parameter", &[8, 2]),
                unknown("static", &[8, 64]),
                unknown("label", &[8, 64]),
                unknown("note", &[3]),
                unknown("scale", &[1]),
            ],
            &[8, 20, 64, 1],
        );
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "`parameter` of shape [8, 2] is not used; did you mean `parameters`?");
        assert_eq!(found[1], "`static` of shape [8, 64] is not used; did you mean `statics`?");
        assert!(
            found[2].starts_with("`label` of shape [8, 64] is not used; arrays that are used: `values`"),
            "{found:?}"
        );
    }
}
