//! Convolutions and padding.

mod gather;
mod geometry;
mod pad;
mod transform;
mod weight;
mod winograd;
mod winograd_panels;
mod winograd_weight;

pub(super) use geometry::ConvGeometry;
pub(super) use pad::{fold, pad};

use gather::PixelGather;
use winograd::Winograd;
use winograd_weight::FilterGradient;

use super::Io;
use super::scalar::Real;
use cfo_engine::ops::ConvPass;

/// The products of the adjoint in the input: one for each remainder of the pixels modulo the stride.
fn inputs(g: &ConvGeometry) -> impl Iterator<Item = PixelGather> {
    let (g, [down, across]) = (*g, g.stride);
    (0..down * across).map(move |i| PixelGather::input(g, [i / across, i % across]))
}

/// Real elements of scratch memory.
pub(super) fn scratch(pass: ConvPass, g: &ConvGeometry) -> usize {
    match pass {
        ConvPass::Forward => match Winograd::new(g, false) {
            Some(winograd) => winograd.scratch(),
            None => PixelGather::forward(*g).scratch(),
        },
        ConvPass::Input => match Winograd::new(g, true) {
            Some(winograd) => winograd.scratch(),
            None => inputs(g).map(|gather| gather.scratch()).max().unwrap_or(0),
        },
        ConvPass::Weight => match FilterGradient::new(g) {
            Some(gradient) => gradient.scratch(),
            None => weight::scratch(g),
        },
    }
}

pub(super) fn run<T: Real>(pass: ConvPass, g: &ConvGeometry, io: &Io<'_>) {
    match pass {
        ConvPass::Forward => match Winograd::new(g, false) {
            Some(winograd) => winograd.run::<T>(io),
            None => PixelGather::forward(*g).run::<T>(io),
        },
        ConvPass::Input => match Winograd::new(g, true) {
            Some(winograd) => winograd.run::<T>(io),
            None => inputs(g).for_each(|gather| gather.run::<T>(io)),
        },
        ConvPass::Weight => match FilterGradient::new(g) {
            Some(gradient) => gradient.run::<T>(io),
            None => weight::run::<T>(g, io),
        },
    }
}
