//! Wall time, with throughput as a share of what one thread can do at most.

use std::time::{Duration, Instant};

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};

use crate::Roofline;

/// What the elements of a [`Throughput`] are.
#[derive(Debug, Clone, Copy)]
pub enum Products {
    /// Multiplications of bytes, each with its addition.
    Int8,
    /// Operations on f32.
    F32,
}

/// A measurement whose bytes are bytes from memory, and whose elements are [`Products`].
#[derive(Debug)]
pub struct AgainstPeak(Format);

impl AgainstPeak {
    /// Against the limits of `machine`.
    #[must_use]
    pub fn new(machine: &Roofline, products: Products) -> Self {
        let (unit, peak) = match products {
            Products::Int8 => ("GMAC/s", machine.int8_gmac_s[0]),
            Products::F32 => ("GFLOP/s", machine.f32_gflop_s[0]),
        };
        Self(Format {
            elements: Limit { unit, peak },
            bytes: Limit {
                unit: "GB/s",
                peak: machine.read_gb_s[0],
            },
        })
    }
}

impl Measurement for AgainstPeak {
    type Intermediate = Instant;
    type Value = Duration;

    fn start(&self) -> Instant {
        WallTime.start()
    }
    fn end(&self, start: Instant) -> Duration {
        WallTime.end(start)
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        WallTime.add(a, b)
    }
    fn zero(&self) -> Duration {
        WallTime.zero()
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        &self.0
    }
}

/// 10^9 of something a second, and the most of it.
#[derive(Debug, Clone, Copy)]
struct Limit {
    unit: &'static str,
    /// 0 where it was not measured.
    peak: f64,
}

#[derive(Debug)]
struct Format {
    elements: Limit,
    bytes: Limit,
}

impl Format {
    fn limit(&self, throughput: &Throughput) -> (Limit, f64) {
        match *throughput {
            Throughput::Bits(bits) => (self.bytes, bits as f64 / 8.0),
            Throughput::Bytes(bytes) | Throughput::BytesDecimal(bytes) => {
                (self.bytes, bytes as f64)
            }
            Throughput::Elements(elements) | Throughput::ElementsAndBytes { elements, .. } => {
                (self.elements, elements as f64)
            }
        }
    }
}

impl ValueFormatter for Format {
    fn format_throughput(&self, throughput: &Throughput, nanoseconds: f64) -> String {
        let (limit, amount) = self.limit(throughput);
        let rate = amount / nanoseconds;
        let text = format!("{rate:.1} {}", limit.unit);
        if limit.peak > 0.0 {
            text + &format!(" = {:.0} %", 100.0 * rate / limit.peak)
        } else {
            text
        }
    }

    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical, values)
    }

    fn scale_throughputs(
        &self,
        _typical: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (limit, amount) = self.limit(throughput);
        values.iter_mut().for_each(|value| *value = amount / *value);
        limit.unit
    }

    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}
