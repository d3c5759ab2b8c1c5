//! Resampling and its transpose: every new row is a combination of two old ones.

use super::Io;
use super::scalar::Real;
use super::thread_team::chunks;
use cfo_engine::Shape;
use cfo_engine::ops::ResampleMode;

pub(super) fn run<T: Real>(mode: ResampleMode, from: &Shape, to: &Shape, io: &Io<'_>) {
    let (old, new, c) = (size(from), size(to), from.last());
    let x = io.input::<T>(0);
    chunks(io.output::<T>(0), new.1 * c, |row, y| {
        let x = &x[row / new.0 * old.0 * old.1 * c..][..old.0 * old.1 * c];
        for (j, y) in y.chunks_mut(c).enumerate() {
            let corners = corners::<T>(mode, (row % new.0, j), new, old);
            y.fill(T::ZERO);
            for (at, weight) in corners {
                if weight != T::ZERO {
                    for (y, &x) in y.iter_mut().zip(&x[at * c..][..c]) {
                        *y += weight * x;
                    }
                }
            }
        }
    });
}

/// The transpose: `to` is the shape of the resampled field, `from` that of the cotangent.
pub(super) fn run_backward<T: Real>(mode: ResampleMode, from: &Shape, to: &Shape, io: &Io<'_>) {
    let (old, new, c) = (size(to), size(from), from.last());
    let dy = io.input::<T>(0);
    chunks(io.output::<T>(0), old.0 * old.1 * c, |b, dx| {
        dx.fill(T::ZERO);
        for (point, dy) in dy[b * new.0 * new.1 * c..][..new.0 * new.1 * c].chunks(c).enumerate() {
            for (at, weight) in corners::<T>(mode, (point / new.1, point % new.1), new, old) {
                if weight != T::ZERO {
                    for (dx, &dy) in dx[at * c..][..c].iter_mut().zip(dy) {
                        *dx += weight * dy;
                    }
                }
            }
        }
    });
}

fn size(shape: &Shape) -> (usize, usize) {
    (shape.axes()[1], shape.axes()[2])
}

/// The old points that a new one combines, with their weights.
fn corners<T: Real>(
    mode: ResampleMode,
    (i, j): (usize, usize),
    new: (usize, usize),
    old: (usize, usize),
) -> [(usize, T); 4] {
    let (top, bottom, down) = mode.neighbors(i, new.0, old.0);
    let (left, right, along) = mode.neighbors(j, new.1, old.1);
    [
        (top * old.1 + left, T::of((1.0 - down) * (1.0 - along))),
        (top * old.1 + right, T::of((1.0 - down) * along)),
        (bottom * old.1 + left, T::of(down * (1.0 - along))),
        (bottom * old.1 + right, T::of(down * along)),
    ]
}
