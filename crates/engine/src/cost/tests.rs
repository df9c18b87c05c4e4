use super::*;
use crate::seeded::Seeded;

/// A machine: milliseconds of a step.
fn takes(work: StepWork) -> f64 {
    5.0 + 0.5 * approximate(work.rows) + 0.001 * approximate(work.keys)
}

fn ms(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1000.0)
}

fn random_work(random: &mut Seeded) -> StepWork {
    let rows = 1 + (random.next() % (1 << random.below(12)));
    StepWork {
        rows,
        keys: rows * (1 + random.next() % 8000),
    }
}

#[test]
fn an_unmeasured_machine_gets_much_time_by_the_size_of_its_model() {
    let step = |rows| StepWork {
        rows,
        keys: rows * 500,
    };
    assert_eq!(CostModel::new(0).predict(step(1)), UNMEASURED_MS_MIN);
    let large = CostModel::new(70_000_000_000);
    assert!(large.predict(step(1)) > 300_000);
    assert!(large.predict(step(128)) > 5_000_000);
}

/// The first steps of a conversation must not make later ones look endless.
#[test]
fn a_longer_context_stretches_a_prediction_no_more_than_it_can_cost() {
    let mut costs = CostModel::new(1);
    costs.learn(StepWork { rows: 1, keys: 1 }, ms(40.0));
    let later = StepWork { rows: 1, keys: 999 };
    assert!(costs.predict(later) < 250);
}

#[test]
fn no_step_of_a_steady_machine_takes_longer_than_predicted() {
    for seed in 0..50 {
        let mut random = Seeded::new(seed);
        let mut costs = CostModel::new(1_000_000_000);
        for _step in 0..200 {
            let work = random_work(&mut random);
            let predicted = costs.predict(work);
            let actual = takes(work);
            assert!(
                ms(actual) <= Duration::from_millis(predicted),
                "seed {seed}: {work:?}"
            );
            costs.learn(work, ms(actual));
        }
    }
}

#[test]
fn a_size_that_was_seen_is_predicted_closely() {
    let mut costs = CostModel::new(1);
    let decode = StepWork {
        rows: 4,
        keys: 4000,
    };
    let prefill = StepWork {
        rows: 512,
        keys: 512 * 300,
    };
    for _step in 0..10 {
        costs.learn(decode, ms(takes(decode)));
        costs.learn(prefill, ms(takes(prefill)));
    }
    for work in [decode, prefill] {
        let predicted = Duration::from_millis(costs.predict(work));
        let closely = ms(takes(work).max(HICCUP_MS) * 1.2 + 2.0);
        assert!(predicted <= closely, "{work:?}: {predicted:?}");
    }
}

#[test]
fn a_machine_that_gets_busy_is_given_more_time_for_every_size_and_less_again_later() {
    let mut costs = CostModel::new(1);
    let decode = StepWork { rows: 1, keys: 100 };
    let chunk = StepWork {
        rows: 256,
        keys: 256 * 300,
    };
    let prefill = StepWork {
        rows: 512,
        keys: 512 * 300,
    };
    for work in [decode, chunk, prefill] {
        costs.learn(work, ms(takes(work)));
    }
    let calm = costs.predict(prefill);
    costs.learn(decode, ms(takes(decode) + 90.0));
    assert!(costs.predict(prefill) <= calm, "a hiccup is no pressure");
    costs.learn(chunk, ms(takes(chunk) * 15.0));
    let busy = costs.predict(prefill);
    assert!(busy >= 14 * calm, "{calm} ms, then {busy} ms");
    for _step in 0..500 {
        costs.learn(decode, ms(takes(decode)));
    }
    assert!(costs.predict(prefill) <= calm + 5);
}

#[test]
fn longer_requests_get_more_time_to_be_prepared() {
    assert!(prepare_ms(0) >= 100);
    assert!(prepare_ms(8 << 20) > 10 * prepare_ms(8 << 10));
}
