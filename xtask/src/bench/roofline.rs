//! What the machine can do at most, and what share of it a rate is.

use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::model::Model;
use crate::terminal::{output, run};
use crate::workspace::Workspace;

/// Best rates of one thread and of two; 0 where there is no measurement.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Roofline {
    /// Memory read, 10^9 bytes a second.
    pub(super) read_gb_s: [f64; 2],
    /// Products of bytes, 10^9 a second.
    pub(super) int8_gmac_s: [f64; 2],
    /// Operations on f32, 10^9 a second.
    pub(super) f32_gflop_s: [f64; 2],
}

impl Roofline {
    /// Measures in some seconds.
    pub(super) fn measure(workspace: &Workspace) -> Result<Self> {
        let mut build = workspace.cargo();
        build.args(["build", "--quiet", "--release"]);
        run(build.args(["-p", "relight-microbench", "--bin", "roofline"]))?;
        let program = workspace.target_directory()?.join("release/roofline");
        let text = output(&mut Command::new(program))?;
        serde_json::from_str(&text).context("the roofline is no JSON")
    }

    fn bytes_s(&self) -> f64 {
        1e9 * self.read_gb_s[1]
    }

    fn products_s(&self) -> f64 {
        1e9 * self.int8_gmac_s[1]
    }

    /// Tokens/s of one stream if reading weights and keys and values were all its work.
    pub(super) fn decode_limit(&self, model: &Model, context: usize) -> f64 {
        self.bytes_s() / (model.weight_bytes + model.kv_bytes(context))
    }

    /// Tokens/s of a prompt if the products with weights were all its work.
    pub(super) fn prefill_limit(&self, model: &Model) -> f64 {
        self.products_s() / model.layer_products
    }

    /// Output tokens/s of `clients` that start at once, if each prompt token and each output
    /// token cost its products, or each step of output the reading of weights.
    pub(super) fn streams_limit(
        &self,
        model: &Model,
        clients: f64,
        (input, output): (f64, f64),
    ) -> f64 {
        let each = (input + output) * model.layer_products + output * model.head_products;
        let computing = clients * each / self.products_s();
        let reading = output * model.weight_bytes / self.bytes_s();
        clients * output / computing.max(reading)
    }

    /// One sentence.
    pub(super) fn describe(&self) -> String {
        let [read_1, read_2] = self.read_gb_s;
        let [bytes_1, bytes_2] = self.int8_gmac_s;
        let [floats_1, floats_2] = self.f32_gflop_s;
        format!(
            "This machine reads {read_1:.1} GB/s of memory with one thread and {read_2:.1} with two, \
             and multiplies {bytes_1:.0} and {bytes_2:.0} GMAC/s of bytes, {floats_1:.0} and \
             {floats_2:.0} GFLOP/s of f32"
        )
    }
}
