//! The plan of an arena and how it is filled.

use relight_gguf::Gguf;
use relight_kernels::Pool;
use relight_tiny_model::TinyModel;

use super::{ALIGNMENT, WeightsPlan, WrongArena};
use crate::spec::Spec;

#[test]
fn tensors_are_aligned_and_do_not_overlap() {
    let bytes = TinyModel::gemma3().build();
    let spec = Spec::from_gguf(&Gguf::parse(&bytes).unwrap()).unwrap();
    let plan = WeightsPlan::new(&spec);
    let mut places: Vec<_> = plan.matrices.iter().chain(&plan.vectors).collect();
    places.sort_by_key(|place| place.start);
    assert!(places.iter().all(|place| place.start % ALIGNMENT == 0));
    assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert_eq!(places.last().unwrap().end, plan.bytes());
}

#[test]
fn building_reports_every_tensor_and_needs_the_right_arena() {
    let bytes = TinyModel::qwen2().build();
    let gguf = Gguf::parse(&bytes).unwrap();
    let spec = Spec::from_gguf(&gguf).unwrap();
    let plan = WeightsPlan::new(&spec);
    let pool = Pool::new(2);
    let mut reports = Vec::new();
    let mut arena = vec![0; plan.bytes()];
    plan.build((&spec, &gguf), &mut arena, &pool, &mut |report| {
        reports.push(report)
    })
    .unwrap();
    let mut released: Vec<_> = reports.iter().map(|report| report.source.clone()).collect();
    let mut tensors: Vec<_> = gguf
        .tensors()
        .iter()
        .map(|tensor| tensor.data_range())
        .collect();
    released.sort_by_key(|range| range.start);
    tensors.sort_by_key(|range| range.start);
    assert_eq!(released, tensors);
    let last = reports.last().unwrap();
    assert_eq!(last.done_bytes, last.total_bytes);
    let result = plan.build((&spec, &gguf), &mut arena[1..], &pool, &mut |_| ());
    let (expected, found) = (plan.bytes(), plan.bytes() - 1);
    assert_eq!(result, Err(WrongArena { expected, found }));
}
