//! `relight bench`: rates of the engine alone, without server or pipe.

use std::process::ExitCode;

use relight_protocol::Speculation;

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
    let mut config = args.engine.config(&model.path)?;
    if args.engine.speculation.is_none() {
        // Rates are those of any text, whether it repeats itself or not.
        config.speculation = Speculation::Off;
    }
    benchmark::run(&config, plan, output)?;
    Ok(ExitCode::SUCCESS)
}
