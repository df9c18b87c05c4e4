//! Cores on pages of cores that died or latched.

use super::latches::step_with;
use super::*;

fn long_prompt(random: &mut Seeded) -> Request {
    Request {
        prompt: Prompt::Tokens(random_ids(random, 200)),
        choices: 1,
        stop: StopRules {
            max_tokens: Some(30),
            ignore_eos: true,
            ..StopRules::default()
        },
        ..random_request(random, &[TokenId(3)])
    }
}

fn disturbed<'a>(mut rig: Rig<'a>, ledger: &mut Ledger, random: &mut Seeded) -> Rig<'a> {
    match random.below(12) {
        0 => rig.kill_at_a_write(ledger, random),
        1 if rig.core.has_work() => {
            let ailments = [Ailment::Refuses, Ailment::Panics, Ailment::PoisonsAll];
            if step_with(&mut rig, ailments[random.below(3)]).is_err() {
                return rig.renewed(ledger);
            }
        }
        2 => rig.preempt_one(random),
        _ => {}
    }
    rig
}

/// Kills at any write to pages and their table, and latches; every stream is the undisturbed
/// one, though its cores found pages of the cores before.
#[test]
fn streams_go_on_with_the_pages_of_dead_and_latched_cores() {
    let language = language();
    let mut adopted = 0;
    for seed in 400..440 {
        let mut random = Seeded::new(seed);
        planned::clear();
        let mut rig = Rig::lasting(&language, random_size(&mut random));
        let mut ledger = Ledger::default();
        let stem = random_ids(&mut random, 150);
        for id in 1..=8 {
            let request = random_request(&mut random, &stem);
            rig.submit(&mut ledger, RequestId(id), request);
            for _step in 0..random.below(25) {
                rig = disturbed(rig, &mut ledger, &mut random);
                rig.step(&mut ledger);
            }
            adopted += rig.core.stats().pages_adopted_total;
        }
        rig.run_to_end(&mut ledger);
        for (id, entry) in ledger.entries() {
            let solo = run_alone(&language, &entry.request);
            entry.assert_same(&solo, &format!("seed {seed}, {id}"));
        }
    }
    assert!(adopted > 400, "{adopted} pages");
}

/// A page is there for the next core if its step was confirmed, and not otherwise.
#[test]
fn nothing_that_a_failed_step_wrote_is_adopted() {
    let language = language();
    let mut random = Seeded::new(30);
    for (confirmed, ailment, adopted) in [
        // The step that writes all of the prompt fails.
        (0, Ailment::Panics, 0),
        (0, Ailment::Refuses, 0),
        // A later one fails: the prompt's full pages are there.
        (1, Ailment::Panics, 3),
        (5, Ailment::Refuses, 3),
        // What gave rubbish may rest on rubbish.
        (1, Ailment::PoisonsAll, 0),
    ] {
        let mut ledger = Ledger::default();
        let mut rig = Rig::lasting(&language, LARGE);
        rig.submit(&mut ledger, RequestId(1), long_prompt(&mut random));
        for _step in 0..confirmed {
            rig.step(&mut ledger);
        }
        step_with(&mut rig, ailment).unwrap_err();
        let rig = rig.renewed(&mut ledger);
        let found = rig.core.stats().pages_adopted_total;
        assert_eq!(found, adopted, "{ailment:?} after {confirmed} steps");
    }
}

/// A page that was damaged while no engine was up is found out before it is used.
#[test]
fn damaged_pages_do_not_change_streams() {
    let language = language();
    let mut corrupt = 0;
    for seed in 500..530 {
        let mut random = Seeded::new(seed);
        planned::clear();
        let mut rig = Rig::lasting(&language, random_size(&mut random));
        let mut ledger = Ledger::default();
        let request = long_prompt(&mut random);
        for id in 1..=3 {
            rig.submit(&mut ledger, RequestId(id), request.clone());
            for _step in 0..random.below(40) {
                rig.step(&mut ledger);
            }
            rig.core.backend_mut().damage(&mut random);
            rig.replace(&mut ledger);
        }
        rig.run_to_end(&mut ledger);
        corrupt += rig.core.stats().pages_corrupt_total;
        let solo = run_alone(&language, &request);
        for (id, entry) in ledger.entries() {
            entry.assert_same(&solo, &format!("seed {seed}, {id}"));
        }
    }
    assert!(corrupt > 2, "{corrupt} pages");
}
