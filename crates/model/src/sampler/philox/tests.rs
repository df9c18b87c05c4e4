use super::{philox, uniform};

/// Known answers of the authors' Random123 library.
#[test]
fn the_published_vectors_come_out() {
    assert_eq!(
        philox([0; 4], [0; 2]),
        [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
    );
    assert_eq!(
        philox([u32::MAX; 4], [u32::MAX; 2]),
        [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
    );
    assert_eq!(
        philox(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0]
        ),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

#[test]
fn uniforms_fill_the_unit_interval_and_depend_on_every_part_of_the_key() {
    let count = 10_000;
    let draws: Vec<f64> = (0..count).map(|position| uniform(7, 0, position)).collect();
    assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
    let mean = draws.iter().sum::<f64>() / count as f64;
    // Four standard deviations of the mean of 10000 uniforms.
    assert!((mean - 0.5).abs() < 0.0116, "{mean}");
    let base = uniform(7, 0, 5);
    for other in [uniform(8, 0, 5), uniform(7, 1, 5), uniform(7, 0, 6)] {
        assert_ne!(base, other);
    }
    assert_ne!(uniform(1 << 32, 0, 5), uniform(0, 0, 5));
    assert_ne!(uniform(7, 0, 1 << 32), uniform(7, 0, 0));
}
