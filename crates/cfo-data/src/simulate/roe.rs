//! Roe's Riemann solver for shallow water along a line of cells, with entropy fix and limiter (LeVeque 2002).

/// Ghost cells at each end of a line.
pub(super) const GHOSTS: usize = 2;

/// Jumps below this are treated as zero. They are far below the round-off of depths and speeds of order one. Ahead of
/// the waves they would decay to subnormal numbers, which are slow.
const STILL: f64 = 1e-20;

/// Conserved quantities along a line, ghosts included: depth, momentum along the line and momentum across it.
#[derive(Clone)]
pub(super) struct CellLine {
    pub(super) depth: Vec<f64>,
    pub(super) along: Vec<f64>,
    pub(super) across: Vec<f64>,
}

impl CellLine {
    pub(super) fn new(cells: usize) -> Self {
        Self { depth: vec![0.0; cells], along: vec![0.0; cells], across: vec![0.0; cells] }
    }

    /// Whether the cells `i - 1` and `i` differ.
    fn jumps(&self, i: usize) -> bool {
        [&self.depth, &self.along, &self.across].iter().any(|q| (q[i] - q[i - 1]).abs() > STILL)
    }
}

/// The Riemann problem at the interface between two cells: three waves with the speeds `slow`, `middle` and `fast`.
///
/// In the order (depth, along, across), the slow wave is `first`, the middle one `(0, 0, shear)`, the fast one `last`.
#[derive(Clone, Copy, Default)]
struct Interface {
    first: [f64; 3],
    shear: f64,
    last: [f64; 3],
    speeds: [f64; 3],
    /// Fluctuation into the cell below the interface.
    down: [f64; 3],
    /// Fluctuation into the cell above it.
    up: [f64; 3],
}

pub(super) struct Sweep {
    gravity: f64,
    interfaces: Vec<Interface>,
    corrections: Vec<[f64; 3]>,
}

impl Sweep {
    /// Creates the work space for lines of `cells` cells, ghosts included.
    pub(super) fn new(gravity: f64, cells: usize) -> Self {
        Self {
            gravity,
            interfaces: vec![Interface::default(); cells + 1],
            corrections: vec![[0.0; 3]; cells + 1],
        }
    }

    /// Advances the inner cells of a line by `ratio = step/width` and returns the Courant number.
    ///
    /// Interface i is between the cells i - 1 and i. Only the part between the first and the last jump is computed,
    /// because equal cells do not change. Before the waves arrive these are most of the line.
    pub(super) fn advance(&mut self, line: &mut CellLine, ratio: f64) -> f64 {
        let cells = line.depth.len();
        let ends = [0, cells - 1].map(|at| Cell::new(line, at, self.gravity).fastest());
        let mut fastest = ends[0].max(ends[1]);
        let jumps = |i: &usize| line.jumps(*i);
        let (Some(first), Some(last)) = ((1..cells).find(jumps), (1..cells).rfind(jumps)) else {
            return ratio * fastest;
        };
        self.interfaces[first - 1] = Interface::default();
        self.interfaces[last + 1] = Interface::default();
        let mut left = Cell::new(line, first - 1, self.gravity);
        for i in first..=last {
            let right = Cell::new(line, i, self.gravity);
            let interface = Interface::between(&left, &right, self.gravity);
            let [slow, _, fast] = interface.speeds;
            fastest = fastest.max(slow.abs()).max(fast.abs());
            self.interfaces[i] = interface;
            left = right;
        }
        self.corrections[first - 1] = [0.0; 3];
        self.corrections[last + 1] = [0.0; 3];
        for i in first.max(GHOSTS)..=last.min(cells - GHOSTS) {
            let [below, at, above] = [i - 1, i, i + 1].map(|i| &self.interfaces[i]);
            self.corrections[i] = correction(below, at, above, ratio);
        }
        for i in (first - 1).max(GHOSTS)..(last + 1).min(cells - GHOSTS) {
            let (up, down) = (&self.interfaces[i].up, &self.interfaces[i + 1].down);
            let (near, far) = (&self.corrections[i], &self.corrections[i + 1]);
            let change = |q: usize| ratio * (up[q] + down[q]) + ratio * (far[q] - near[q]);
            line.depth[i] -= change(0);
            line.along[i] -= change(1);
            line.across[i] -= change(2);
        }
        ratio * fastest
    }
}

/// A cell's state with the quantities that several interfaces need.
struct Cell {
    depth: f64,
    along: f64,
    across: f64,
    root: f64,
    celerity: f64,
}

impl Cell {
    fn new(line: &CellLine, at: usize, gravity: f64) -> Self {
        let depth = line.depth[at];
        let root = depth.sqrt();
        Self {
            depth,
            along: line.along[at],
            across: line.across[at],
            root,
            celerity: if gravity == 1.0 { root } else { (gravity * depth).sqrt() },
        }
    }

    /// The fastest speed of a wave within the cell.
    fn fastest(&self) -> f64 {
        (self.along / self.depth).abs() + self.celerity
    }
}

impl Interface {
    fn between(left: &Cell, right: &Cell, gravity: f64) -> Self {
        let a = (gravity * (0.5 * (left.depth + right.depth))).sqrt();
        let roots = left.root + right.root;
        let u = (left.along / left.root + right.along / right.root) / roots;
        let v = (left.across / left.root + right.across / right.root) / roots;
        let (d1, d2, d3) = (right.depth - left.depth, right.along - left.along, right.across - left.across);
        let speeds = [u - a, u, u + a];
        let strength = (speeds[2] * d1 - d2) / (2.0 * a);
        let first = [strength, strength * speeds[0], strength * v];
        let shear = d3 - v * d1;
        let strength = (d2 - speeds[0] * d1) / (2.0 * a);
        let last = [strength, strength * speeds[2], strength * v];
        let mut interface = Self { first, shear, last, speeds, ..Self::default() };
        interface.split(left, right, gravity);
        interface
    }

    /// Splits the jump into the fluctuations `down` and `up`.
    fn split(&mut self, left: &Cell, right: &Cell, gravity: f64) {
        let Self { first, shear, last, speeds: [s1, s2, s3], .. } = *self;
        let whole: [f64; 3] = [
            s1 * first[0] + s3 * last[0],
            s1 * first[1] + s3 * last[1],
            s1 * first[2] + s2 * shear + s3 * last[2],
        ];
        self.down = self.downward(left, right, gravity).unwrap_or_default();
        self.up = std::array::from_fn(|q| whole[q] - self.down[q]);
    }

    fn downward(&self, left: &Cell, right: &Cell, gravity: f64) -> Option<[f64; 3]> {
        let Self { first, shear, last, speeds: [s1, s2, s3], .. } = *self;
        let outer = left.along / left.depth - left.celerity;
        if outer > 0.0 && s1 > 0.0 {
            return None;
        }
        // The state behind the slow wave; its slow speed is positive if the flow there is supercritical.
        let (depth, along) = (left.depth + first[0], left.along + first[1]);
        let inner = || along / depth - (gravity * depth).sqrt();
        let transonic = outer < 0.0 && along > 0.0 && inner() > 0.0;
        let phi = if transonic { outer * (inner() - s1) / (inner() - outer) } else { s1.min(0.0) };
        let mut down = first.map(|wave| phi * wave);
        if s2 > 0.0 {
            return Some(down);
        }
        down[2] += s2 * shear;
        // The fast wave is treated as the mirrored slow wave.
        let outer = right.along / right.depth + right.celerity;
        let (depth, along) = (right.depth - last[0], right.along - last[1]);
        let inner = || along / depth + (gravity * depth).sqrt();
        let transonic = outer > 0.0 && along < 0.0 && inner() < 0.0;
        let phi = if transonic { inner() * (outer - s3) / (outer - inner()) } else { s3.min(0.0) };
        Some(std::array::from_fn(|q| down[q] + phi * last[q]))
    }
}

/// The second-order flux at an interface: each wave is limited by its upwind neighbour.
fn correction(below: &Interface, at: &Interface, above: &Interface, ratio: f64) -> [f64; 3] {
    let dot = |a: &[f64; 3], b: &[f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let [s1, s2, s3] = at.speeds;
    let weight = |speed: f64| 0.5 * speed.abs() * (1.0 - ratio * speed.abs());
    let upwind = |speed: f64| if speed > 0.0 { below } else { above };
    let first = weight(s1) * limiter(dot(&upwind(s1).first, &at.first), dot(&at.first, &at.first));
    let middle = weight(s2) * limiter(upwind(s2).shear * at.shear, at.shear * at.shear);
    let last = weight(s3) * limiter(dot(&upwind(s3).last, &at.last), dot(&at.last, &at.last));
    [
        first * at.first[0] + last * at.last[0],
        first * at.first[1] + last * at.last[1],
        first * at.first[2] + middle * at.shear + last * at.last[2],
    ]
}

/// The monotonised central limiter of the ratio of two projections; 0 for a wave of zero strength.
fn limiter(neighbour: f64, own: f64) -> f64 {
    if own == 0.0 {
        return 0.0;
    }
    let r = neighbour / own;
    (0.5 * (1.0 + r)).min(2.0).min(2.0 * r).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(states: &[[f64; 3]]) -> CellLine {
        let column = |q: usize| states.iter().map(|state| state[q]).collect();
        CellLine { depth: column(0), along: column(1), across: column(2) }
    }

    fn flux([h, m, p]: [f64; 3]) -> [f64; 3] {
        [m, m * m / h + 0.5 * h * h, m * p / h]
    }

    fn interface(left: [f64; 3], right: [f64; 3]) -> Interface {
        let line = line(&[left, right]);
        Interface::between(&Cell::new(&line, 0, 1.0), &Cell::new(&line, 1, 1.0), 1.0)
    }

    /// Roe's property: waves sum to the jump, fluctuations to the jump of the flux, in every regime of the flow.
    #[test]
    fn waves_and_fluctuations_sum_to_jumps() {
        let depths = [0.3, 1.0, 2.0];
        let momenta = [-3.0, -0.4, 0.0, 0.7, 2.5];
        let states: Vec<[f64; 3]> =
            depths.iter().flat_map(|&h| momenta.iter().map(move |&m| [h, m, 0.3 * h - 0.1 * m])).collect();
        for (&left, &right) in states.iter().flat_map(|left| states.iter().map(move |right| (left, right))) {
            let at = interface(left, right);
            for q in 0..3 {
                let waves = at.first[q] + at.last[q] + if q == 2 { at.shear } else { 0.0 };
                assert!((waves - (right[q] - left[q])).abs() < 1e-13);
                let jump = flux(right)[q] - flux(left)[q];
                assert!((at.down[q] + at.up[q] - jump).abs() < 1e-11, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn supersonic_flow_goes_one_way() {
        let at = interface([1.0, 3.0, 0.2], [1.2, 3.4, 0.1]);
        assert_eq!(at.down, [0.0; 3]);
        let mirrored = interface([1.2, -3.4, 0.1], [1.0, -3.0, 0.2]);
        assert!(mirrored.up.iter().all(|value| value.abs() < 1e-14), "{:?}", mirrored.up);
    }

    /// Tests a transonic rarefaction, in which the plain solver would leave an expansion shock. The fluctuations with
    /// the entropy fix differ from the plain ones, and mirroring the flow mirrors them.
    #[test]
    fn transonic_rarefactions_spread() {
        let (left, right) = ([1.0, 0.5, 0.0], [0.2, 0.4, 0.0]);
        let at = interface(left, right);
        let plain: f64 = at.speeds[0].min(0.0) * at.first[0];
        assert!((at.down[0] - plain).abs() > 1e-3, "{:?} {plain}", at.down);
        let mirror = |[h, m, p]: [f64; 3]| [h, -m, p];
        let mirrored = interface(mirror(right), mirror(left));
        assert!((mirrored.up[0] - at.down[0]).abs() < 1e-14, "{:?} {:?}", mirrored.up, at.down);
        assert!((mirrored.up[1] + at.down[1]).abs() < 1e-14, "{:?} {:?}", mirrored.up, at.down);
    }

    #[test]
    fn limiter_is_monotonised_central() {
        for (r, expected) in [(-1.0, 0.0), (0.0, 0.0), (0.25, 0.5), (1.0, 1.0), (2.0, 1.5), (9.0, 2.0)] {
            assert_eq!(limiter(3.0 * r, 3.0), expected);
        }
        assert_eq!(limiter(1.0, 0.0), 0.0);
    }

    /// A smooth wave is transported with second order: halving the cells divides the error by about four.
    #[test]
    fn order_is_two_on_smooth_flow() {
        let end = |cells: usize| -> Vec<f64> {
            let width = 2.0 / cells as f64;
            let mut line = CellLine::new(cells + 2 * GHOSTS);
            for i in 0..cells + 2 * GHOSTS {
                let x = (i as f64 - GHOSTS as f64 + 0.5) * width - 1.0;
                line.depth[i] = 1.0 + 0.05 * (-20.0 * x * x).exp();
            }
            let mut sweep = Sweep::new(1.0, cells + 2 * GHOSTS);
            let steps = cells / 8;
            for _ in 0..steps {
                let courant = sweep.advance(&mut line, 0.2 / steps as f64 / width);
                assert!(courant < 1.0);
            }
            line.depth[GHOSTS..cells + GHOSTS].to_vec()
        };
        let error = |coarse: &[f64], fine: &[f64]| -> f64 {
            let averages = fine.chunks(2).map(|pair| 0.5 * (pair[0] + pair[1]));
            averages.zip(coarse).map(|(a, b)| (a - b).abs()).sum::<f64>() / coarse.len() as f64
        };
        let [a, b, c] = [end(128), end(256), end(512)];
        let order = (error(&a, &b) / error(&b, &c)).log2();
        // The limiter clips the crest, which reduces the order slightly.
        assert!(order > 1.7, "{order}");
    }
}
