//! Hints that name options of the command line. The hints of the library are more general.

use cfo::CfoError;

/// Returns advice for an error: a hint that names options if there is one, else the hint of the library.
pub fn hint(error: &CfoError) -> Option<String> {
    let own = match error {
        CfoError::RunExists { .. } => "continue with `--resume`, or choose another `--out`",
        CfoError::RunBusy { .. } => "wait until it ends, or choose another `--out`",
        CfoError::NoRun { .. } => "check the path, or train a run with `cfo train RECIPE --out RUN`",
        CfoError::NoData => "give `--data FILE`, or set `data.path` or `data.simulate`",
        CfoError::NetworkTooLarge { .. } => {
            let general = error.hint()?;
            return Some(format!("{general}; `--dry-run` prints their number"));
        }
        CfoError::BadCheckpoint { .. } => {
            "`cfo train --resume` continues from the newest intact checkpoint; `--checkpoint step-N` evaluates another"
        }
        CfoError::Interrupted { .. } => "`cfo train --resume` with the same `--out` continues from this step",
        CfoError::BadRecipe { .. } => {
            "`docs/reference/recipe.md` lists every key, `recipes/` has examples, and `cfo init FILE` writes one"
        }
        CfoError::RolloutDiverged { .. } => {
            "train longer, predict to nearer times, or choose another `--solver` or smaller tolerances"
        }
        CfoError::InvalidKey { key, .. } => return Some(key_hint(key)),
        CfoError::UnknownChoice { key, .. } if error.nearest().is_none() => return Some(key_hint(key)),
        other => return other.hint(),
    };
    Some(own.into())
}

/// Returns advice for a key or an option with an invalid value.
fn key_hint(key: &str) -> String {
    match key {
        "--times" => {
            "write a list (`--times 0,0.1,0.25`), start:stop:count (`--times 0:1:101`) or a file of numbers (`--times @FILE`)".into()
        }
        "evaluate.nfe" => {
            "raise `--nfe`, leave it out so that the solver chooses its steps, or choose a solver with fewer stages".into()
        }
        "nfe" => "raise `--nfe`, or choose a solver with fewer stages".into(),
        "rtol" => "write `--rtol 1e-4 --atol 1e-6`, for example".into(),
        "solver" | "evaluate.solver" => {
            "`tsit5`, `dopri5` and `heun` can choose their steps by tolerances; `rk4` and `euler` take equal steps".into()
        }
        key if key.starts_with("--") => "`--help` describes the values of the option".into(),
        key => format!("set it in the recipe, or with `--set {key}=VALUE`; `docs/reference/recipe.md` lists all keys"),
    }
}
