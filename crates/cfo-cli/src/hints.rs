//! Hints that name options of this command line. The library knows no options, so its own hints are more general.

use cfo::CfoError;

/// What to do next: a hint that names options where there is one, else the library's own.
pub fn hint(error: &CfoError) -> Option<String> {
    let own = match error {
        CfoError::RunExists { .. } => "continue with `--resume`, or choose another `--out`",
        CfoError::RunBusy { .. } => "wait until it ends, or choose another `--out`",
        CfoError::NoRun { .. } => "`cfo train RECIPE --out RUN` makes one",
        CfoError::NoData => "give `--data FILE`, or set `data.path` or `data.simulate`",
        CfoError::NetworkTooLarge { .. } => {
            let general = error.hint()?;
            return Some(format!("{general}; `--dry-run` prints their number"));
        }
        CfoError::BadCheckpoint { .. } => {
            "`cfo train --resume` continues from the newest intact checkpoint; `--checkpoint step-N` evaluates another"
        }
        CfoError::Interrupted { .. } => "`--resume` continues from here",
        CfoError::BadRecipe { .. } => {
            "`docs/reference/recipe.md` lists every key, `recipes/` has examples, and `cfo init FILE` writes one"
        }
        CfoError::RolloutDiverged { .. } => "train longer, ask for nearer times, or take other steps",
        CfoError::InvalidKey { key, .. } => return Some(key_hint(key)),
        CfoError::UnknownChoice { key, .. } if error.nearest().is_none() => return Some(key_hint(key)),
        other => return other.hint(),
    };
    Some(own.into())
}

/// What a key or an option should look like.
fn key_hint(key: &str) -> String {
    match key {
        "--times" => {
            "as in `--times 0,0.1,0.25`, start:stop:count as in `--times 0:1:101`, or `--times @FILE` with a file of numbers".into()
        }
        "evaluate.nfe" => {
            "raise `--nfe`, leave it out for steps that the solver chooses, or choose a method with fewer stages".into()
        }
        "nfe" => "raise `--nfe`, or choose a method with fewer stages".into(),
        "rtol" => "as in `--rtol 1e-4 --atol 1e-6`".into(),
        "solver" | "evaluate.solver" => {
            "`tsit5`, `dopri5` and `heun` choose their steps by tolerances; `rk4` and `euler` take equal ones".into()
        }
        key if key.starts_with("--") => "`--help` says what the option takes".into(),
        key => format!("set it in the recipe, or by `--set {key}=VALUE`"),
    }
}
