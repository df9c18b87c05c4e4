use proptest::prelude::*;

use super::*;
use crate::ops::tests::noise;
use crate::reference::{KvCodes, quantize_kv};
use crate::{f32_to_bf16, f32_to_f16};

const LAYERS: [(usize, usize); 3] = [(2, 32), (1, 16), (3, 80)];

/// Bytes of a page after one row was written to `slot` of an empty one, one byte at a time.
fn written(
    layout: &KvLayout,
    layer: usize,
    slot: usize,
    (keys, values): (&[f32], &[f32]),
) -> Vec<u8> {
    let mut page = vec![0; layout.page_bytes()];
    let layer = layout.layers[layer];
    let size = layer.head_size;
    let heads = keys.chunks(size).zip(values.chunks(size));
    for (head, (keys, values)) in heads.enumerate() {
        let (keys, values) = stored(layout.kv_type(), keys, values);
        let bytes = layout.kv_type().element_bytes();
        for (d, element) in keys.0.chunks(bytes).enumerate() {
            let at = layer.keys(head) + (d * PAGE_TOKENS + slot) * bytes;
            page[at..at + bytes].copy_from_slice(element);
        }
        let at = layer.values(head) + slot * size * bytes;
        page[at..at + size * bytes].copy_from_slice(&values.0);
        for (start, scale) in [(layer.keys(head), keys.1), (layer.values(head), values.1)] {
            let at = start + PAGE_TOKENS * size * bytes + slot * scale.len();
            page[at..at + scale.len()].copy_from_slice(&scale);
        }
    }
    page
}

/// Elements and scale.
type Stored = (Vec<u8>, Vec<u8>);

/// One head and token as it is kept.
fn stored(kv_type: KvType, keys: &[f32], values: &[f32]) -> (Stored, Stored) {
    let floats = |round: fn(f32) -> u16, widen: fn(u16) -> f32| {
        let bytes = |elements: &[f32]| -> Vec<u8> {
            let rounded = elements
                .iter()
                .flat_map(|element| round(*element).to_le_bytes());
            rounded.collect()
        };
        let is_finite = keys.iter().all(|key| widen(round(*key)).is_finite());
        let values = match is_finite {
            true => bytes(values),
            false => bytes(&vec![f32::NAN; values.len()]),
        };
        ((bytes(keys), Vec::new()), (values, Vec::new()))
    };
    let bytes = |kept: &KvCodes| {
        let codes = kept.codes.iter().map(|code| code.cast_unsigned());
        (codes.collect(), kept.scale.to_le_bytes().to_vec())
    };
    match kv_type {
        KvType::F16 => floats(f32_to_f16, crate::f16_to_f32),
        KvType::Bf16 => floats(f32_to_bf16, crate::bf16_to_f32),
        KvType::Q8_0 => {
            let (keys, mut values) = (quantize_kv(keys), quantize_kv(values));
            if keys.scale.is_nan() {
                values = quantize_kv(&vec![f32::NAN; values.codes.len()]);
            }
            (bytes(&keys), bytes(&values))
        }
    }
}

/// Zeros of both signs, subnormals, numbers around the bounds of every type, and some that are
/// not finite.
fn hostile() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -4.0f32..4.0,
        1 => prop::num::f32::ANY,
        1 => prop::sample::select(vec![
            0.0, -0.0, f32::from_bits(1), 2f32.powi(-121), 2f32.powi(-120), 65_504.0, 65_520.0,
            -1e30, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN,
        ]),
    ]
}

fn state(cols: usize) -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![
        prop::collection::vec(-4.0f32..4.0, cols),
        prop::collection::vec(hostile(), cols),
        (-149..128i32, prop::collection::vec(-1.0f32..1.0, cols))
            .prop_map(|(power, row)| row.iter().map(|x| x * 2f32.powi(power)).collect()),
        Just(vec![0.0; cols]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_row_is_kept_as_the_reference_rounds_it(
        kv_type in prop::sample::select(KvType::ALL.as_slice()),
        slots in prop::sample::subsequence((0..64).collect::<Vec<usize>>(), 1..12),
        layer in 0..LAYERS.len(),
        seed in any::<u64>(),
        row in state(240),
    ) {
        let layout = KvLayout::new(kv_type, &LAYERS);
        let cols = LAYERS[layer].0 * LAYERS[layer].1;
        let mut values = noise(seed, slots.len() * cols);
        let mut keys = noise(seed ^ 1, slots.len() * cols);
        let broken = if seed % 2 == 0 { &mut keys } else { &mut values };
        broken[..cols].copy_from_slice(&row[..cols]);
        let rows = slots.iter().map(|slot| KvRow { page: 1, slot: *slot as u32 });
        let rows: Vec<KvRow> = rows.collect();
        let mut expected = vec![0; layout.page_bytes()];
        for (index, slot) in slots.iter().enumerate() {
            let row = index * cols..(index + 1) * cols;
            let alone = written(&layout, layer, *slot, (&keys[row.clone()], &values[row]));
            expected.iter_mut().zip(alone).for_each(|(byte, alone)| *byte |= alone);
        }
        for kernels in Kernels::available() {
            for threads in [1, 2] {
                let mut kv = vec![0; 3 * layout.page_bytes()];
                let pages = (kv.as_mut_slice(), &layout, layer);
                kernels.kv_write(&Pool::new(threads), pages, &rows, (&keys, &values));
                let mut pages = kv.chunks(layout.page_bytes());
                prop_assert!(pages.next().is_some_and(|page| page.iter().all(|byte| *byte == 0)));
                prop_assert!(pages.next() == Some(&expected), "{:?}", kernels.isa());
                prop_assert!(pages.next().is_some_and(|page| page.iter().all(|byte| *byte == 0)));
            }
        }
    }
}

/// What was copied is as if it had been written there, and nothing else is touched.
#[test]
fn tokens_are_copied_with_their_scales_and_no_others() {
    for kv_type in KvType::ALL {
        let layout = KvLayout::new(kv_type, &LAYERS);
        for tokens in [0, 1, 17, 63, 64] {
            let (kernels, pool) = (Kernels::detect(), Pool::new(1));
            let mut kv = vec![0xa5; 2 * layout.page_bytes()];
            let mut expected = kv.clone();
            for (layer, (heads, size)) in LAYERS.into_iter().enumerate() {
                let cols = heads * size;
                let (keys, values) = (noise(3, 64 * cols), noise(4, 64 * cols));
                let rows = |page, count| -> Vec<KvRow> {
                    (0..count).map(|slot| KvRow { page, slot }).collect()
                };
                let all = (keys.as_slice(), values.as_slice());
                kernels.kv_write(&pool, (&mut kv, &layout, layer), &rows(0, 64), all);
                let part = (&keys[..tokens * cols], &values[..tokens * cols]);
                let pages = (expected.as_mut_slice(), &layout, layer);
                kernels.kv_write(&pool, pages, &rows(1, tokens as u32), part);
            }
            layout.copy_tokens(&mut kv, 0, 1, tokens);
            let page = layout.page_bytes();
            assert!(kv[page..] == expected[page..], "{kv_type:?} {tokens}");
        }
    }
}

#[test]
fn a_page_has_the_bytes_of_its_type() {
    let bytes = |kv_type| KvLayout::new(kv_type, &[(3, 64); 30]).page_bytes();
    assert_eq!(bytes(KvType::F16), 64 * 30 * 2 * 3 * 64 * 2);
    assert_eq!(bytes(KvType::Bf16), bytes(KvType::F16));
    assert_eq!(bytes(KvType::Q8_0), 64 * 30 * 2 * 3 * (64 + 4));
}
