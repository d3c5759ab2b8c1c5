//! `cfo serve`: a web page for a run, with predictions to any time.

use anyhow::Result;
use cfo_view::serve::{self, ServeOptions};

use crate::diagnostics::say;
use crate::{args, interrupt, report};

pub fn run(arguments: &args::Serve) -> Result<()> {
    let args::Serve { run, data, port, host, token, device } = arguments.clone();
    let options = ServeOptions { run, data, port, host, token, device };
    serve::run(&options, interrupt::flag()?, |address| {
        report::print(&format!("listening on http://{address}\n"))?;
        if let Some(token) = &options.token {
            say(&format!("open http://{address}/?token={token}"));
        }
        Ok(())
    })
}
