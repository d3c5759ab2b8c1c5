//! Parses the options `--times` and `--parameters` of `cfo predict`.

use anyhow::{Result, bail};
use cfo::{CfoError, Model};

/// `nu=0.05,length=64`: parameters that the model knows, by name.
pub(super) fn parse_parameters(text: Option<&str>, model: &Model) -> Result<Vec<(String, f64)>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let bad = |problem: String| CfoError::InvalidKey { key: "--parameters".into(), problem };
    if model.setting.conditions == 0 {
        bail!(bad("the model takes none: it was trained without `data.condition = true`".into()));
    }
    let mut given: Vec<(String, f64)> = Vec::new();
    for assignment in text.split(',') {
        let parsed = assignment.split_once('=').and_then(|(name, value)| {
            let value = value.trim().parse::<f64>().ok().filter(|value| value.is_finite())?;
            Some((name.trim().to_owned(), value))
        });
        let Some((name, value)) = parsed else {
            bail!(bad(format!("`{assignment}` is not of the form name=number")));
        };
        if !model.parameter_names.contains(&name) {
            let known = match model.parameter_names.is_empty() {
                true => "the run does not name its parameters".to_owned(),
                false => format!("the model takes `{}`", model.parameter_names.join("`, `")),
            };
            bail!(bad(format!("`{name}` is unknown; {known}")));
        }
        if given.iter().any(|(known, _)| *known == name) {
            bail!(bad(format!("`{name}` is given twice")));
        }
        given.push((name, value));
    }
    Ok(given)
}

/// `a,b,c`, `start:stop:count` or `@FILE` with numbers. In any order; the result increases, as files need it, and has each time once.
pub(super) fn parse_times(text: &str) -> Result<Vec<f64>> {
    let bad = |problem: &str| CfoError::InvalidKey {
        key: "--times".into(),
        problem: format!("`{text}` {problem}"),
    };
    let number = |word: &str| word.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let mut times = match (text.strip_prefix('@'), &text.split(':').collect::<Vec<_>>()[..]) {
        (Some(path), _) => {
            let content = String::from_utf8(fs_err::read(path)?).map_err(|_| bad("is not a text file"))?;
            let lines = content.lines().map(|line| line.split('#').next().unwrap_or_default());
            let words = lines.flat_map(|line| line.split([',', ' ', '\t', ';']));
            let words = words.map(str::trim).filter(|word| !word.is_empty());
            let times: Option<Vec<f64>> = words.map(number).collect();
            times.filter(|times| !times.is_empty()).ok_or_else(|| bad("does not contain numbers only"))?
        }
        (None, [start, stop, count]) => {
            let (start, stop) = (number(start), number(stop));
            let count = count.trim().parse::<usize>().ok().filter(|count| (1..=10_000_000).contains(count));
            let (Some(start), Some(stop), Some(count)) = (start, stop, count) else {
                return Err(bad("is not of the form start:stop:count").into());
            };
            let step = (stop - start) / count.saturating_sub(1).max(1) as f64;
            (0..count)
                .map(|i| if i + 1 == count && count > 1 { stop } else { start + i as f64 * step })
                .collect()
        }
        _ => {
            let times: Option<Vec<f64>> = text.split(',').map(number).collect();
            times.ok_or_else(|| bad("is not a list of numbers"))?
        }
    };
    times.sort_by(f64::total_cmp);
    times.dedup();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::parse_times;

    #[test]
    fn lists_ranges_and_files_are_times() {
        assert_eq!(parse_times("0, 0.5,2").unwrap(), [0.0, 0.5, 2.0]);
        assert_eq!(parse_times("0:1:5").unwrap(), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(parse_times("3:9:1").unwrap(), [3.0]);
        assert_eq!(parse_times("1,0.5,-1").unwrap(), [-1.0, 0.5, 1.0]);
        assert_eq!(parse_times("1:0:3").unwrap(), [0.0, 0.5, 1.0]);
        assert_eq!(parse_times("0,2,-1,2,1").unwrap(), [-1.0, 0.0, 1.0, 2.0]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times.txt");
        std::fs::write(&file, "# seconds\n0 0.5\n 1e0, 2.5\n").unwrap();
        assert_eq!(parse_times(&format!("@{}", file.display())).unwrap(), [0.0, 0.5, 1.0, 2.5]);
        std::fs::write(&file, "zero\n").unwrap();
        let in_file = format!("@{}", file.display());
        for bad in ["", "0:1", "0:1:0", "a", "0,nan", "@no-such-file", &in_file] {
            assert!(parse_times(bad).is_err(), "{bad}");
        }
    }
}
