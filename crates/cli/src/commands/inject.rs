//! `relight inject`: orders a fault in a running server that was built for it.

use serde_json::json;
use ureq::http::Method;

use crate::args::InjectArgs;
use crate::output::Output;
use crate::running::RunningServer;

/// # Errors
/// What the server says against it.
pub(crate) fn inject(args: &InjectArgs, output: Output) -> anyhow::Result<()> {
    let times = if args.always {
        None
    } else {
        Some(args.times.unwrap_or(1))
    };
    let order = json!({
        "place": args.place,
        "blow": args.blow,
        "marker": args.marker,
        "skip": args.skip,
        "per_million": args.per_million,
        "seed": args.seed,
        "times": times,
        "every_engine": args.every_engine,
    });
    let server = RunningServer::new(&args.server);
    let answer = server.call(Method::POST, "/v1/faults/inject", Some(&order))?;
    if output.json {
        output.value(&answer)?;
    } else {
        output.line("ordered")?;
    }
    Ok(())
}
