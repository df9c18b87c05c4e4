use super::Format;

#[test]
fn every_format_is_found_by_its_ggml_number() {
    for format in Format::ALL {
        assert_eq!(Format::from_ggml(format.to_ggml()), Some(format));
    }
    let known = (0..64).filter_map(Format::from_ggml).count();
    assert_eq!(
        known,
        Format::ALL.len(),
        "a number stands for one format only"
    );
}

#[test]
fn a_block_is_its_codes_and_its_scales() {
    // Bits of the codes, bytes of scales and minima of a block, from ggml-common.h.
    let layouts = [
        (Format::Q8_0, 8, 2),
        (Format::Q4_0, 4, 2),
        (Format::Q4_1, 4, 4),
        (Format::Q5_0, 5, 2),
        (Format::Q5_1, 5, 4),
        (Format::Q4K, 4, 4 + 12),
        (Format::Q5K, 5, 4 + 12),
        (Format::Q6K, 6, 2 + 16),
    ];
    for (format, code_bits, scale_bytes) in layouts {
        let expected = format.block_elements() * code_bits / 8 + scale_bytes;
        assert_eq!(format.block_bytes(), expected, "{format:?}");
    }
}

#[test]
fn a_row_too_long_for_memory_has_a_size_no_buffer_has() {
    assert_eq!(Format::Q4K.row_bytes(512), 288);
    assert_eq!(Format::F32.row_bytes(usize::MAX), usize::MAX);
}
