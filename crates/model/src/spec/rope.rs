//! Rotary position embedding: which elements turn together, and how fast.

use std::f64::consts::PI;

use relight_kernels::RopeKind;

use super::{ArchError, Claims, VectorId};

/// How the angles of a trained rotation are stretched to a longer context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions are divided by `factor`.
    Linear {
        factor: f32,
    },
    /// Angles that turn slowly within the original context are divided by `factor`, fast
    /// ones are kept, with a ramp between; attention becomes sharper
    /// (Peng et al. 2023, "YaRN: Efficient Context Window Extension", section 3).
    Yarn(Yarn),
}

/// Parameters of [`RopeScaling::Yarn`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    pub factor: f32,
    /// Tokens of the context before it was extended.
    pub original_context: usize,
    /// Turns within the original context from which on an angle is kept.
    pub fast_turns: f32,
    /// Turns within the original context up to which an angle is divided.
    pub slow_turns: f32,
    /// Additional factor of queries and keys.
    pub attention_factor: f32,
}

/// One rotation. The pair `i` of a token at `position` turns by
/// `position * base^(-2i / dims) / divisor(i)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    pub kind: RopeKind,
    /// Leading elements of a head that turn; even.
    pub dims: usize,
    pub base: f32,
    pub scaling: RopeScaling,
    /// A divisor per pair that the file gives, of `dims / 2`.
    pub divisors: Option<VectorId>,
}

impl RopeSpec {
    /// Reads the keys `rope.*`. `head_dim` stands for a missing `rope.dimension_count`.
    ///
    /// # Errors
    /// `Gguf` and `UnsupportedValue`.
    pub fn read(
        claims: &mut Claims<'_>,
        kind: RopeKind,
        head_dim: usize,
        context_length: usize,
    ) -> Result<Self, ArchError> {
        let dims = claims.optional_count("rope.dimension_count")?;
        let dims = dims.unwrap_or(head_dim);
        if dims == 0 || dims > head_dim || !dims.is_multiple_of(2) {
            let expected = "an even number up to the length of a head";
            return Err(claims.unsupported("rope.dimension_count", dims, expected));
        }
        let base = claims.optional_number("rope.freq_base")?.unwrap_or(1e4);
        if base <= 1.0 {
            return Err(claims.unsupported("rope.freq_base", base, "a number above 1"));
        }
        let scaling = RopeScaling::read(claims, context_length)?;
        if matches!(scaling, RopeScaling::Yarn(_)) && dims != head_dim {
            let expected = "the length of a head, where the scaling type is yarn";
            return Err(claims.unsupported("rope.dimension_count", dims, expected));
        }
        Ok(Self {
            kind,
            dims,
            base,
            scaling,
            divisors: None,
        })
    }

    /// `divisor(i)` of every pair, except for the file's own: those are multiplied on top.
    /// `None` if all are one.
    #[must_use]
    pub fn scaling_divisors(&self) -> Option<Vec<f32>> {
        match self.scaling {
            RopeScaling::None => None,
            RopeScaling::Linear { factor } => Some(vec![factor; self.dims / 2]),
            RopeScaling::Yarn(yarn) => Some(yarn.divisors(self.dims, self.base)),
        }
    }

    /// Factor of the product of a query and a key that both were rotated.
    #[must_use]
    pub fn score_factor(&self) -> f32 {
        match self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
            RopeScaling::Yarn(yarn) => yarn.magnitude() * yarn.magnitude(),
        }
    }
}

impl RopeScaling {
    fn read(claims: &mut Claims<'_>, context_length: usize) -> Result<Self, ArchError> {
        let kind = claims.optional_text("rope.scaling.type")?;
        let factor = claims.optional_number("rope.scaling.factor")?;
        // The older name of the same number.
        let older = claims.optional_number("rope.scale_linear")?;
        // Zero is how some writers say that there is none.
        let factor = factor.or(older).filter(|factor| *factor != 0.0);
        let factor = factor.unwrap_or(1.0);
        if factor < 1.0 {
            return Err(claims.unsupported("rope.scaling.factor", factor, "a number from 1"));
        }
        let original_context = claims.optional_count("rope.scaling.original_context_length")?;
        match kind.unwrap_or("linear") {
            "none" => Ok(Self::None),
            "linear" if factor == 1.0 => Ok(Self::None),
            "linear" => Ok(Self::Linear { factor }),
            "yarn" => Yarn::read(claims, factor, original_context.unwrap_or(context_length))
                .map(Self::Yarn),
            other => Err(claims.unsupported("rope.scaling.type", other, "none, linear or yarn")),
        }
    }
}

impl Yarn {
    fn read(
        claims: &mut Claims<'_>,
        factor: f32,
        original_context: usize,
    ) -> Result<Self, ArchError> {
        let mut number = |key: &str, default: f32| -> Result<f32, ArchError> {
            Ok(claims.optional_number(key)?.unwrap_or(default))
        };
        // Defaults of the paper.
        let yarn = Self {
            factor,
            original_context,
            fast_turns: number("rope.scaling.yarn_beta_fast", 32.0)?,
            slow_turns: number("rope.scaling.yarn_beta_slow", 1.0)?,
            attention_factor: number("rope.scaling.attn_factor", 1.0)?,
        };
        let extrapolation = number("rope.scaling.yarn_ext_factor", 1.0)?;
        if extrapolation != 1.0 {
            let key = "rope.scaling.yarn_ext_factor";
            return Err(claims.unsupported(key, extrapolation, "1"));
        }
        if original_context == 0 {
            let key = "rope.scaling.original_context_length";
            return Err(claims.unsupported(key, original_context, "a positive number"));
        }
        if yarn.slow_turns <= 0.0 {
            let key = "rope.scaling.yarn_beta_slow";
            return Err(claims.unsupported(key, yarn.slow_turns, "a positive number"));
        }
        if yarn.fast_turns < yarn.slow_turns {
            let key = "rope.scaling.yarn_beta_fast";
            let expected = "at least yarn_beta_slow";
            return Err(claims.unsupported(key, yarn.fast_turns, expected));
        }
        Ok(yarn)
    }

    /// The pair that makes `turns` within the original context.
    fn pair_of_turns(&self, turns: f32, dims: usize, base: f32) -> f64 {
        let tokens_per_radian = self.original_context as f64 / (f64::from(turns) * 2.0 * PI);
        dims as f64 * tokens_per_radian.ln() / (2.0 * f64::from(base).ln())
    }

    fn divisors(&self, dims: usize, base: f32) -> Vec<f32> {
        let last = dims as f64 - 1.0;
        let low = self.pair_of_turns(self.fast_turns, dims, base).floor();
        let high = self.pair_of_turns(self.slow_turns, dims, base).ceil();
        let (low, high) = (low.max(0.0), high.min(last));
        let factor = f64::from(self.factor);
        let divisor = |pair: usize| {
            let ramp = (pair as f64 - low) / (high - low).max(0.001);
            let divided = ramp.clamp(0.0, 1.0);
            (1.0 / (divided / factor + (1.0 - divided))) as f32
        };
        (0..dims / 2).map(divisor).collect()
    }

    /// Factor of each rotated query and key (the paper's equation 22).
    fn magnitude(&self) -> f32 {
        let sharper = 0.1 * f64::from(self.factor).ln() + 1.0;
        (sharper * f64::from(self.attention_factor)) as f32
    }
}
