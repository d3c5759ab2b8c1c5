//! Runge-Kutta methods as data.

use std::str::FromStr;

use thiserror::Error;

/// An explicit Runge-Kutta method. One step from `u` at `t` over `h`:
///
/// ```text
/// k_i  = f(t + c_i h, u + h sum_(j<i) a_ij k_j)
/// u'   = u + h sum_i b_i k_i                      state at t + h
/// err  = h sum_i e_i k_i                          estimate of its error
/// u(t + theta h) = u + h sum_i d_i(theta) k_i     dense output, 0 <= theta <= 1
/// ```
///
/// A new method needs only a new constant of this type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tableau {
    /// Name on the command line.
    pub name: &'static str,
    /// The error of the state after a fixed time falls as `h^order`.
    pub order: usize,
    /// `c_i`, one for each stage.
    pub c: &'static [f64],
    /// `a_ij`, row `i` with `i` entries.
    pub a: &'static [&'static [f64]],
    /// `b_i`, one for each stage.
    pub b: &'static [f64],
    /// `e_i = b_i - bhat_i`, one for each stage; empty for methods without an error estimate.
    pub error: &'static [f64],
    /// Local order `q` of the estimate, which falls as `h^q`; the controller's exponent is `1 / q`.
    pub error_order: usize,
    /// Dense output, `d_i(theta) = sum_p dense[i][p] theta^(p+1)`, a row for each stage. It needs no evaluation.
    pub dense: &'static [&'static [f64]],
    /// The error of dense output inside a single step falls as `h^(dense_order + 1)`.
    pub dense_order: usize,
    /// Whether the last stage is the slope at the end of the step, that is the first stage of the next.
    pub first_same_as_last: bool,
}

impl Tableau {
    /// All methods.
    pub const ALL: [Self; 5] = [EULER, HEUN, RK4, DOPRI5, TSIT5];

    /// The method with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name == name)
    }

    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.b.len()
    }

    /// Evaluations of the field per additional step.
    pub fn evaluations_per_step(&self) -> usize {
        self.stages() - usize::from(self.first_same_as_last)
    }

    /// Whether the method has an error estimate and can choose its steps.
    pub fn estimates_error(&self) -> bool {
        !self.error.is_empty()
    }

    /// `d_i(theta)`: the weight of the slope of stage `i` in dense output.
    pub fn dense_weight(&self, stage: usize, theta: f64) -> f64 {
        theta * self.dense[stage].iter().rev().fold(0.0, |sum, p| sum * theta + p)
    }
}

/// Error: no method has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown solver `{name}`; known are `euler`, `heun`, `rk4`, `dopri5` and `tsit5`")]
pub struct UnknownMethod {
    /// The name given.
    pub name: String,
}

impl FromStr for Tableau {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        Self::by_name(name).ok_or_else(|| UnknownMethod { name: name.to_owned() })
    }
}

// Interpolants of Euler, Heun and RK4: the polynomials of lowest degree that meet the order conditions of `dense_order`
// at every theta with the stages at hand (Hairer, Norsett and Wanner, section II.6). Their error in a step falls as the
// method's error over all steps.

/// Euler's method, order 1.
pub const EULER: Tableau = Tableau {
    name: "euler",
    order: 1,
    c: &[0.0],
    a: &[&[]],
    b: &[1.0],
    error: &[],
    error_order: 2,
    dense: &[&[1.0]],
    dense_order: 1,
    first_same_as_last: false,
};

/// Heun's method (explicit trapezoidal rule), order 2, with Euler's method as companion.
pub const HEUN: Tableau = Tableau {
    name: "heun",
    order: 2,
    c: &[0.0, 1.0],
    a: &[&[], &[1.0]],
    b: &[0.5, 0.5],
    error: &[-0.5, 0.5],
    error_order: 2,
    dense: &[&[1.0, -0.5], &[0.0, 0.5]],
    dense_order: 2,
    first_same_as_last: false,
};

/// The classical Runge-Kutta method, order 4; the paper's default.
pub const RK4: Tableau = Tableau {
    name: "rk4",
    order: 4,
    c: &[0.0, 0.5, 0.5, 1.0],
    a: &[&[], &[0.5], &[0.0, 0.5], &[0.0, 0.0, 1.0]],
    b: &[1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0],
    error: &[],
    error_order: 5,
    dense: &[
        &[1.0, -1.5, 2.0 / 3.0],
        &[0.0, 1.0, -2.0 / 3.0],
        &[0.0, 1.0, -2.0 / 3.0],
        &[0.0, -0.5, 2.0 / 3.0],
    ],
    dense_order: 3,
    first_same_as_last: false,
};

/// Dormand and Prince's 5(4) pair; SciPy's `RK45`, MATLAB's `ode45`. Dense output by Shampine, as in SciPy.
pub const DOPRI5: Tableau = Tableau {
    name: "dopri5",
    order: 5,
    c: &[0.0, 1.0 / 5.0, 3.0 / 10.0, 4.0 / 5.0, 8.0 / 9.0, 1.0, 1.0],
    a: &[
        &[],
        &[1.0 / 5.0],
        &[3.0 / 40.0, 9.0 / 40.0],
        &[44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0],
        &[19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0],
        &[9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0],
        &[35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0],
    ],
    b: &[35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0, 0.0],
    error: &[
        -71.0 / 57600.0,
        0.0,
        71.0 / 16695.0,
        -71.0 / 1920.0,
        17253.0 / 339200.0,
        -22.0 / 525.0,
        1.0 / 40.0,
    ],
    error_order: 5,
    dense: &[
        &[1.0, -8048581381.0 / 2820520608.0, 8663915743.0 / 2820520608.0, -12715105075.0 / 11282082432.0],
        &[],
        &[0.0, 131558114200.0 / 32700410799.0, -68118460800.0 / 10900136933.0, 87487479700.0 / 32700410799.0],
        &[0.0, -1754552775.0 / 470086768.0, 14199869525.0 / 1410260304.0, -10690763975.0 / 1880347072.0],
        &[
            0.0,
            127303824393.0 / 49829197408.0,
            -318862633887.0 / 49829197408.0,
            701980252875.0 / 199316789632.0,
        ],
        &[0.0, -282668133.0 / 205662961.0, 2019193451.0 / 616988883.0, -1453857185.0 / 822651844.0],
        &[0.0, 40617522.0 / 29380423.0, -110615467.0 / 29380423.0, 69997945.0 / 29380423.0],
    ],
    dense_order: 4,
    first_same_as_last: true,
};

/// Tsitouras' 5(4) pair with his interpolant; the paper's solver for neural ODEs.
pub const TSIT5: Tableau = Tableau {
    name: "tsit5",
    order: 5,
    c: &[0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0],
    a: &[
        &[],
        &[0.161],
        &[-0.008480655492356989, 0.335480655492357],
        &[2.8971530571054935, -6.359448489975075, 4.3622954328695815],
        &[5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
        &[5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
        &[
            0.09646076681806523,
            0.01,
            0.4798896504144996,
            1.379008574103742,
            -3.290069515436081,
            2.324710524099774,
        ],
    ],
    b: &[
        0.09646076681806523,
        0.01,
        0.4798896504144996,
        1.379008574103742,
        -3.290069515436081,
        2.324710524099774,
        0.0,
    ],
    error: &[
        0.0017800110522257714,
        0.0008164344596567469,
        -0.007880878010261995,
        0.1447110071732629,
        -0.5823571654525552,
        0.45808210592918697,
        -0.015151515151515152,
    ],
    error_order: 5,
    dense: &[
        &[1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
        &[0.0, 0.13169999999999998, -0.2234, 0.1017],
        &[0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253],
        &[0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902],
        &[0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
        &[0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661],
        &[0.0, 1.5, -4.0, 2.5],
    ],
    dense_order: 4,
    first_same_as_last: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants have up to 17 digits and 50-fold cancellation.
    const ROUNDING: f64 = 2e-14;

    #[test]
    fn shapes_fit() {
        for method in Tableau::ALL {
            let stages = method.stages();
            assert_eq!((method.c.len(), method.a.len()), (stages, stages), "{}", method.name);
            assert!(method.a.iter().enumerate().all(|(i, row)| row.len() == i), "{}", method.name);
            assert!(method.error.is_empty() || method.error.len() == stages, "{}", method.name);
            assert_eq!(method.dense.len(), stages, "{}", method.name);
            assert_eq!(method.name.parse(), Ok(method));
        }
        assert!("rk5".parse::<Tableau>().unwrap_err().to_string().contains("unknown solver `rk5`"));
    }

    #[test]
    fn coefficients_are_consistent() {
        for method in Tableau::ALL {
            let name = method.name;
            for (row, c) in method.a.iter().zip(method.c) {
                assert!((row.iter().sum::<f64>() - c).abs() < ROUNDING, "{name}");
            }
            for power in 0..method.order {
                let quadrature: f64 =
                    method.b.iter().zip(method.c).map(|(b, c)| b * c.powi(power as i32)).sum();
                assert!((quadrature - 1.0 / (power + 1) as f64).abs() < ROUNDING, "{name}");
            }
            for power in 0..method.error_order - 1 {
                let error: f64 =
                    method.error.iter().zip(method.c).map(|(e, c)| e * c.powi(power as i32)).sum();
                assert!(error.abs() < ROUNDING, "{name}");
            }
            if method.first_same_as_last {
                let last = method.stages() - 1;
                assert_eq!(
                    (method.a[last], method.c[last], method.b[last]),
                    (&method.b[..last], 1.0, 0.0),
                    "{name}"
                );
            }
        }
    }

    /// Dense output starts at the old state with its slope, ends at the new state (with its slope, if that is a stage)
    /// and integrates powers.
    #[test]
    fn dense_output_joins_the_steps() {
        for method in Tableau::ALL {
            let last = method.stages() - 1;
            for slope in 0..=last {
                let weight = |theta: f64| method.dense_weight(slope, theta);
                assert_eq!(weight(0.0), 0.0);
                assert!((weight(1.0) - method.b[slope]).abs() < ROUNDING, "{} {slope}", method.name);
                if method.first_same_as_last {
                    let terms = method.dense[slope].iter().enumerate();
                    let end_slope: f64 = terms.map(|(p, d)| (p + 1) as f64 * d).sum();
                    let expected = if slope == last { 1.0 } else { 0.0 };
                    assert!((end_slope - expected).abs() < 2e-13, "{} {slope}", method.name);
                }
                let start_slope = method.dense[slope].first().copied().unwrap_or(0.0);
                assert_eq!(start_slope, if slope == 0 { 1.0 } else { 0.0 });
            }
            for step in 1..10 {
                let theta = f64::from(step) / 10.0;
                for power in 0..method.dense_order as i32 {
                    let sum: f64 =
                        (0..=last).map(|i| method.dense_weight(i, theta) * method.c[i].powi(power)).sum();
                    let exact = theta.powi(power + 1) / f64::from(power + 1);
                    assert!((sum - exact).abs() < ROUNDING, "{} {theta} {power}", method.name);
                }
            }
        }
    }
}
