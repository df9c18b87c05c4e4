use super::*;

/// Runs of the test; each twice.
const SEEDS: u64 = 1000;
const THREADS: u64 = 2;
/// Lines of a failed run that are shown.
const LINES: usize = 60;

fn check(catalogue: &Catalogue, seed: u64) -> Result<(), String> {
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
    Ok(())
}

#[test]
fn no_seed_loses_a_request() {
    let catalogue = Catalogue::new().unwrap();
    let failures = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let catalogue = &catalogue;
                let seeds = (0..SEEDS).filter(move |seed| seed % THREADS == thread);
                scope.spawn(move || {
                    let failed = seeds.filter_map(|seed| check(catalogue, seed).err());
                    failed.collect::<Vec<String>>()
                })
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.flatten().collect::<Vec<String>>()
    });
    let count = failures.len();
    let first = failures.first().map_or("", String::as_str);
    assert!(
        failures.is_empty(),
        "{count} seeds failed, one of them:\n{first}"
    );
}
