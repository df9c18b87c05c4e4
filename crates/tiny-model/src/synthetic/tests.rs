use relight_gguf::Gguf;

use super::*;
use crate::TinyModel;

/// Every kind of matrix and mixture, but small.
fn small(mixture: Mixture, tied: bool) -> Synthetic {
    Synthetic {
        shape: Shape {
            name: "small",
            layers: 8,
            hidden: 256,
            feed_forward: 512,
            heads: 4,
            kv_heads: 2,
            head_size: 64,
            tied,
        },
        mixture,
    }
}

#[test]
fn files_are_whole_and_their_vocabulary_is_the_lenders() {
    let lender = TinyModel::llama().build();
    let lender = Gguf::parse(&lender).unwrap();
    for (tied, mixture) in [(true, Mixture::Q4KM), (false, Mixture::Q4_0)] {
        let mut file = Vec::new();
        small(mixture, tied)
            .write(lender.metadata(), &mut file)
            .unwrap();
        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.architecture(), Ok("llama"));
        let tokens = gguf.metadata().strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), VOCABULARY);
        let lent = lender.metadata().strings("tokenizer.ggml.tokens").unwrap();
        assert!(lent.clone().eq(tokens.take(lent.len())));
        assert_eq!(gguf.tensor("output.weight").is_none(), tied);
        let last = gguf.tensor("blk.7.ffn_down.weight").unwrap();
        assert_eq!(last.dimensions(), [512, 256]);
        let wanted = last.ggml_type().row_bytes(512).unwrap() * 256;
        assert_eq!(gguf.data(last).len() as u64, wanted);
    }
}

#[test]
fn mixtures_are_those_of_published_files() {
    let model = Synthetic::named("1b-q4_k_m").unwrap();
    let plans = model.plans();
    let count = |format| plans.iter().filter(|plan| plan.format == format).count();
    assert_eq!(count(GgmlType::Q6_K), 17);
    assert_eq!(count(GgmlType::Q4_K), 96);
    let bytes: u64 = plans.iter().map(Plan::bytes).sum();
    assert_eq!(bytes / 1_000_000, 799);
    let large = Synthetic::named("8b-q4_k_m").unwrap().plans();
    let bytes: u64 = large.iter().map(Plan::bytes).sum();
    assert_eq!(bytes / 1_000_000, 4912);
}

#[test]
fn every_name_stands_for_a_model() {
    assert_eq!(Synthetic::names().len(), 8);
    for name in Synthetic::names() {
        assert!(Synthetic::named(&name).is_some(), "{name}");
    }
    assert!(Synthetic::named("1b").is_none() && Synthetic::named("2b-q8_0").is_none());
}
