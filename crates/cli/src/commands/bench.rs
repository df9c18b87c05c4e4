//! `relight bench`: rates of the engine alone, without server or pipe.

use std::process::ExitCode;

use crate::args::BenchArgs;
use crate::benchmark::{self, Plan};
use crate::output::Output;

/// Measures and prints.
///
/// # Errors
/// If the model cannot be had or a step fails.
pub(crate) fn bench(args: &BenchArgs, output: Output) -> anyhow::Result<ExitCode> {
    for reason in args.engine.without_effect() {
        output.note(&format!("no effect: {reason}"));
    }
    let model = super::obtain(args.model.source().as_deref(), args.model.folder(), output)?;
    let plan = Plan {
        prompt_tokens: args.n_prompt,
        answer_tokens: args.n_gen,
        supervised: args.supervised,
        repetitions: args.repetitions,
    };
    benchmark::run(&args.engine.config(&model.path)?, plan, output)?;
    Ok(ExitCode::SUCCESS)
}
