//! Parses the options `--times` and `--parameters` of `cfo predict`.

use std::io::Read;

use anyhow::{Result, bail};
use cfo::{CfoError, Model};

/// Parses parameters of the model, as in `nu=0.05,length=64`.
pub(super) fn parse_parameters(text: Option<&str>, model: &Model) -> Result<Vec<(String, f64)>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let bad = |problem: String| CfoError::invalid("--parameters", problem);
    if model.inputs.parameters.is_empty() {
        bail!(bad("the model takes no parameters: it was trained without `data.condition = true`".into()));
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
        if !model.inputs.parameters.contains(&name) {
            let known = match model.inputs.parameters.is_empty() {
                true => "the run does not name its parameters".to_owned(),
                false => format!("the model takes `{}`", model.inputs.parameters.join("`, `")),
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

const MOST_TIMES: usize = 10_000_000;

const MOST_BYTES: u64 = 32 * MOST_TIMES as u64;

/// Parses times: `a,b,c`, `start:stop:count` or `@FILE` with numbers, in any order. The result is sorted, without duplicates.
pub(super) fn parse_times(text: &str) -> Result<Vec<f64>> {
    let bad = |problem: &str| bad_times(text, problem);
    let mut times = match (text.strip_prefix('@'), &text.split(':').collect::<Vec<_>>()[..]) {
        (Some(path), _) => {
            let content = read_times(text, path)?;
            let lines = content.lines().map(|line| line.split('#').next().unwrap_or_default());
            let words = lines.flat_map(|line| line.split([',', ' ', '\t', ';']));
            let words = words.map(str::trim).filter(|word| !word.is_empty());
            let times: Option<Vec<f64>> = words.map(number).collect();
            times.filter(|times| !times.is_empty()).ok_or_else(|| bad("does not contain numbers only"))?
        }
        (None, [start, stop, count]) => {
            let (Some(start), Some(stop)) = (number(start), number(stop)) else {
                return Err(bad("is not of the form start:stop:count").into());
            };
            spaced(text, start, stop, count)?
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

fn number(word: &str) -> Option<f64> {
    word.trim().parse::<f64>().ok().filter(|value| value.is_finite())
}

fn bad_times(text: &str, problem: &str) -> CfoError {
    CfoError::invalid("--times", format!("`{text}` {problem}"))
}

/// Returns `count` equally spaced times, both ends included.
fn spaced(text: &str, start: f64, stop: f64, count: &str) -> Result<Vec<f64>> {
    let whole = number(count).filter(|count| count.fract() == 0.0);
    let Some(count) = whole.filter(|count| (1.0..=MOST_TIMES as f64).contains(count)) else {
        let problem = format!(
            "asks for `{}` times; the last of start:stop:count is a whole number from 1 to {MOST_TIMES}",
            count.trim()
        );
        return Err(bad_times(text, &problem).into());
    };
    let count = count as usize;
    let step = (stop - start) / count.saturating_sub(1).max(1) as f64;
    let at = |i: usize| if i + 1 == count && count > 1 { stop } else { start + i as f64 * step };
    Ok((0..count).map(at).collect())
}

fn read_times(text: &str, path: &str) -> Result<String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => bad_times(text, "names a file that does not exist"),
        _ => bad_times(text, &format!("names a file that cannot be read: {error}")),
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(bad_times(text, "does not name a regular file").into());
    }
    if metadata.len() > MOST_BYTES {
        return Err(bad_times(
            text,
            &format!("names a file of {} bytes, too long for times", metadata.len()),
        )
        .into());
    }
    let mut read = Vec::new();
    std::fs::File::open(path).map_err(failed)?.take(MOST_BYTES).read_to_end(&mut read).map_err(failed)?;
    Ok(String::from_utf8(read).map_err(|_| bad_times(text, "is not a text file"))?)
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
        assert_eq!(parse_times("0:1e1:1e1").unwrap().len(), 10);
        for (bad, said) in [
            ("0:6:0", "asks for `0` times"),
            ("0:6:1e15", "asks for `1e15` times"),
            ("0:6:2.5", "asks for `2.5` times"),
            ("0:b:2", "is not of the form start:stop:count"),
            ("@no-such-file", "names a file that does not exist"),
            ("@/dev/zero", "does not name a regular file"),
        ] {
            let error = parse_times(bad).unwrap_err().to_string();
            assert!(error.contains(said), "{bad}: {error}");
        }
        for bad in ["", "0:1", "0:1:0", "a", "0,nan", "@no-such-file", &in_file] {
            assert!(parse_times(bad).is_err(), "{bad}");
        }
    }
}
