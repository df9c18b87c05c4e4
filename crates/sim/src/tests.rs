use super::*;

/// Runs of the test; each twice.
const SEEDS: u64 = 1000;
const THREADS: u64 = 2;
/// Lines of a failed run that are shown.
const LINES: usize = 60;

fn check(catalogue: &Catalogue, seed: u64) -> Result<Census, String> {
    let outcome = run(catalogue, seed, false).unwrap();
    if !outcome.breaches.is_empty() {
        let text = run(catalogue, seed, true).unwrap().text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        return Err(format!("seed {seed}: {:#?}\n{last}", outcome.breaches));
    }
    let again = run(catalogue, seed, false).unwrap();
    if again.hash != outcome.hash {
        return Err(format!("seed {seed} is not the same twice"));
    }
    Ok(outcome.census)
}

/// What must have come up, or else the runs prove little.
const TROUBLES: &[&str] = &[
    "contained prepare",
    "contained sample",
    "fault engine_crashed",
    "fault engine_stalled",
    "fault engine_unavailable",
    "fault non_finite_logits",
    "fault overloaded",
    "fault quarantined",
    "latch failed",
    "latch non_finite_logits",
    "latch panic",
    "pages adopted",
    "pages corrupt",
    "preemptions",
    "quarantine hits",
    "quarantined",
    "request cancelled",
    "request length",
    "request stop",
    "restart abort",
    "restart exit",
    "restart hang",
    "restart hello",
    "restart ipc",
    "restart killed",
    "restart load_memory",
    "restart load_stalled",
    "restart panic",
    "restart protocol",
    "restart signal",
    "restart spawn",
    "resumed",
];

#[test]
fn no_seed_loses_a_request() {
    let catalogue = Catalogue::new().unwrap();
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let catalogue = &catalogue;
                let seeds = (0..SEEDS).filter(move |seed| seed % THREADS == thread);
                let run = |seed| check(catalogue, seed);
                scope.spawn(move || seeds.map(run).collect::<Vec<_>>())
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.flatten().collect()
    });
    let failures: Vec<&String> = results
        .iter()
        .filter_map(|one| one.as_ref().err())
        .collect();
    if let [first, ..] = failures.as_slice() {
        panic!("{} seeds failed, one of them:\n{first}", failures.len());
    }
    let mut census = Census::default();
    results.iter().flatten().for_each(|one| census.absorb(one));
    for trouble in TROUBLES {
        assert!(census.count(trouble) > 0, "no {trouble} among\n{census}");
    }
}
