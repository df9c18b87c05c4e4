//! What this machine can do at most: `cargo run --release -p relight-microbench --bin roofline`
//! prints one JSON object.

#![expect(clippy::print_stdout, reason = "a tool that prints")]

use relight_microbench::Roofline;

fn main() {
    let Roofline {
        read_gb_s,
        int8_gmac_s,
        f32_gflop_s,
    } = Roofline::measure();
    println!(
        "{{\"read_gb_s\":{read_gb_s:.2?},\"int8_gmac_s\":{int8_gmac_s:.1?},\
         \"f32_gflop_s\":{f32_gflop_s:.1?}}}"
    );
}
