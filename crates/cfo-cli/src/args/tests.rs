//! Tests of the arguments.

mod reference;

use clap::CommandFactory;

use super::*;

#[test]
fn the_grammar_is_consistent() {
    Arguments::command().debug_assert();
}
