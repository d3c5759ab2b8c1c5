//! The section `[refine]`: states computed by the network itself between snapshots that are far apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::WordOrNumber;
use super::ranges::positive;
use super::{Recipe, choice};
use crate::error::{CfoError, Result};
use crate::objective::ObjectiveConfig;

/// Refined paths. Where snapshots are far apart, a spline has wrong velocities. With `rounds` above 0, training fills wide intervals
/// between snapshots several times with states that the network itself computes from the snapshots at both ends. The spline then passes
/// through snapshots and filled states. Snapshots stay as they are, and no gradient goes through a solver. The cost of all
/// rounds is a share of that of the training steps: each fills as many segments as that allows, and training uses these until the next one.
/// Samples in an interval weigh less the more states it has. As long as the spline is more accurate than the network, nothing is filled.
/// `path.trust` holds until gaps are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RefineConfig {
    /// Number of rounds, at equal distances over the first four fifths of `train.steps`; 0 for none. There are fewer if each could fill only
    /// few segments. If each round fills all of them, rounds end when the miss no longer falls.
    pub rounds: u32,
    /// How solutions from both ends of an interval are joined. `blend`: the mean of the forward and the backward solution, each with more
    /// weight near its start; for waves and oscillations. `forward`: the forward solution with a linear correction that meets the next
    /// snapshot; for dissipative fields, whose backward solutions explode. `backward`: the backward solution, corrected to meet the previous
    /// snapshot. `auto`: for each interval `blend`, unless one solution misses the snapshot at its end by less than half of the other's miss.
    pub mode: RefineMode,
    /// Longest interval that is left after filling, in the data's unit of time. `auto`: the mean interval before `data.keep_rate`; without
    /// it a quarter of the mean interval.
    #[serde(deserialize_with = "choice::word_or_number")]
    pub spacing: RefineSpacing,
}

/// How solutions from both ends of an interval are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefineMode {
    /// Blended, unless one solution is clearly better.
    #[default]
    Auto,
    /// The mean of the forward and the backward solution.
    Blend,
    /// The forward solution with a correction.
    Forward,
    /// The backward solution with a correction.
    Backward,
}

/// The longest interval that is left after filling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefineSpacing {
    /// The mean interval before thinning, or a quarter of the mean interval.
    #[default]
    Auto,
    /// In the data's unit of time.
    #[serde(untagged)]
    Time(f64),
}

impl WordOrNumber for RefineSpacing {
    const WORDS: &'static [&'static str] = &["auto"];
    const EXPECTED: &'static str = "`auto` or a positive time";
}

impl RefineConfig {
    /// Returns whether these are the defaults, which recipes need not contain.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the values of the keys for a recipe.
    pub(super) fn check(&self, recipe: &Recipe) -> Result<()> {
        if let RefineSpacing::Time(spacing) = self.spacing {
            positive("refine.spacing", spacing)?;
        }
        if self.rounds == 0 {
            return Ok(());
        }
        match recipe.objective {
            ObjectiveConfig::FlowMatching => Ok(()),
            other => {
                let problem = format!("`{}` learns no velocity along a path", other.name());
                Err(CfoError::invalid("refine.rounds", problem))
            }
        }
    }

    /// Returns the steps before which intervals are filled, in order: within the first four fifths, so that training ends on the last ones.
    pub(crate) fn steps(&self, total: u32) -> Vec<u32> {
        let start =
            |round: u32| (u64::from(round) * u64::from(total) * 4 / (5 * u64::from(self.rounds))) as u32;
        let mut starts: Vec<u32> =
            (1..=self.rounds.min(total)).map(start).filter(|&start| start > 0).collect();
        starts.dedup();
        starts
    }
}
