//! Taking keys and tensors out of a file, with an account of what was taken, so that
//! nothing that could change the computation is left over in the end.

use std::collections::HashSet;

use relight_gguf::{Gguf, Metadata, Optional, TensorInfo, Value};
use relight_kernels::Format;

use super::{ArchError, Found, Linear, Matrix, MatrixId, Norm, Vector, VectorId};

/// Keys of an architecture's namespace that describe the file or its making.
const INERT_KEYS: [&str; 4] = [
    // The embedding's rows are the truth.
    "vocab_size",
    // Which tool laid out the source.
    "tensor_data_layout",
    // Whether training continued after the rotation was scaled.
    "rope.scaling.finetuned",
    // Some writers repeat the name.
    "name",
];

/// Whether a linear component has a bias tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    None,
    Optional,
    Required,
}

/// A file whose keys and tensors are being claimed by the components of a model.
#[derive(Debug)]
pub struct Claims<'a> {
    gguf: &'a Gguf<'a>,
    architecture: &'a str,
    keys: HashSet<String>,
    tensors: HashSet<String>,
    matrices: Vec<Matrix>,
    vectors: Vec<Vector>,
}

impl<'a> Claims<'a> {
    /// # Errors
    /// `Gguf` if the file names no architecture.
    pub fn new(gguf: &'a Gguf<'a>) -> Result<Self, ArchError> {
        Ok(Self {
            gguf,
            architecture: gguf.architecture()?,
            keys: HashSet::new(),
            tensors: HashSet::new(),
            matrices: Vec::new(),
            vectors: Vec::new(),
        })
    }

    #[must_use]
    pub fn architecture(&self) -> &'a str {
        self.architecture
    }

    /// The full name of `key`, which is given without the architecture's prefix.
    #[must_use]
    pub fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// An error about the value of `key`.
    #[must_use]
    pub fn unsupported(
        &self,
        key: &str,
        found: impl Into<Found>,
        expected: &'static str,
    ) -> ArchError {
        ArchError::UnsupportedValue {
            key: self.key(key),
            found: found.into(),
            expected,
        }
    }

    fn claim_key(&mut self, key: &str) -> (&'a Metadata<'a>, String) {
        let key = self.key(key);
        self.keys.insert(key.clone());
        (self.gguf.metadata(), key)
    }

    /// A count or size.
    ///
    /// # Errors
    /// `Gguf` if the key is missing or no `u32`.
    pub fn count(&mut self, key: &str) -> Result<usize, ArchError> {
        let (metadata, key) = self.claim_key(key);
        Ok(metadata.u32(&key)? as usize)
    }

    /// A count or size that the file may leave out.
    ///
    /// # Errors
    /// `Gguf` if the key is no `u32`.
    pub fn optional_count(&mut self, key: &str) -> Result<Option<usize>, ArchError> {
        Ok(self.optional_u32(key)?.map(|count| count as usize))
    }

    /// A count or size that is kept as it is in the file.
    ///
    /// # Errors
    /// `Gguf` if the key is no `u32`.
    pub fn optional_u32(&mut self, key: &str) -> Result<Option<u32>, ArchError> {
        let (metadata, key) = self.claim_key(key);
        Ok(metadata.u32(&key).optional()?)
    }

    /// # Errors
    /// `Gguf` if the key is missing or no `f32`; `UnsupportedValue` if it is not finite.
    pub fn number(&mut self, key: &str) -> Result<f32, ArchError> {
        let (metadata, full_key) = self.claim_key(key);
        self.finite(key, metadata.f32(&full_key)?)
    }

    /// # Errors
    /// `Gguf` if the key is no `f32`; `UnsupportedValue` if it is not finite.
    pub fn optional_number(&mut self, key: &str) -> Result<Option<f32>, ArchError> {
        let (metadata, full_key) = self.claim_key(key);
        let number = metadata.f32(&full_key).optional()?;
        number.map(|number| self.finite(key, number)).transpose()
    }

    fn finite(&self, key: &str, number: f32) -> Result<f32, ArchError> {
        if number.is_finite() {
            return Ok(number);
        }
        Err(self.unsupported(key, number, "a finite number"))
    }

    /// # Errors
    /// `Gguf` if the key is no string.
    pub fn optional_text(&mut self, key: &str) -> Result<Option<&'a str>, ArchError> {
        let (metadata, key) = self.claim_key(key);
        Ok(metadata.str(&key).optional()?)
    }

    /// Any value, for keys whose type varies between writers.
    pub fn optional_value(&mut self, key: &str) -> Option<Value<'a>> {
        let (metadata, key) = self.claim_key(key);
        metadata.get(&key)
    }

    /// Rows of a matrix that was claimed.
    #[must_use]
    pub fn rows(&self, id: MatrixId) -> usize {
        self.matrices[id.0].rows
    }

    /// A tensor of rank 2 that the file must have.
    ///
    /// # Errors
    /// `MissingTensor`, `WrongShape`, `UnsupportedTensorType`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<MatrixId, ArchError> {
        let found = self.optional_matrix(name, rows, cols)?;
        found.ok_or_else(|| ArchError::MissingTensor {
            tensor: name.to_owned(),
            expected: vec![cols as u64, rows as u64],
        })
    }

    /// # Errors
    /// `WrongShape`, `UnsupportedTensorType`.
    pub fn optional_matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Option<MatrixId>, ArchError> {
        let Some(tensor) = self.claim_tensor(name, &[cols as u64, rows as u64])? else {
            return Ok(None);
        };
        self.matrices.push(Matrix {
            name: name.to_owned(),
            format: format_of(tensor)?,
            rows,
            cols,
        });
        Ok(Some(MatrixId(self.matrices.len() - 1)))
    }

    /// The token embedding, whose rows are the vocabulary.
    ///
    /// # Errors
    /// As [`Self::matrix`]; `VocabularyTooLarge` if the tokenizer has more tokens than that.
    pub fn embedding(&mut self, name: &str, cols: usize) -> Result<MatrixId, ArchError> {
        let tensor = self.gguf.tensor(name);
        // A missing tensor has no rows to expect; zero says "any" in the message.
        let rows = tensor.map_or(0, TensorInfo::rows);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let id = self.matrix(name, rows, cols)?;
        let tokens = self.gguf.metadata().array("tokenizer.ggml.tokens");
        let found = tokens.optional()?.map_or(0, |tokens| tokens.len());
        if found > rows {
            return Err(ArchError::VocabularyTooLarge {
                tensor: name.to_owned(),
                rows,
                found,
            });
        }
        Ok(id)
    }

    /// # Errors
    /// `MissingTensor`, `WrongShape`, `UnsupportedTensorType`.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<VectorId, ArchError> {
        let found = self.optional_vector(name, len)?;
        found.ok_or_else(|| ArchError::MissingTensor {
            tensor: name.to_owned(),
            expected: vec![len as u64],
        })
    }

    /// # Errors
    /// `WrongShape`, `UnsupportedTensorType`.
    pub fn optional_vector(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<VectorId>, ArchError> {
        let Some(tensor) = self.claim_tensor(name, &[len as u64])? else {
            return Ok(None);
        };
        self.vectors.push(Vector {
            name: name.to_owned(),
            format: format_of(tensor)?,
            len,
        });
        Ok(Some(VectorId(self.vectors.len() - 1)))
    }

    /// The tensor `<name>.weight` as a norm's weight.
    ///
    /// # Errors
    /// As [`Self::vector`].
    pub fn norm(&mut self, name: &str, len: usize, epsilon: f32) -> Result<Norm, ArchError> {
        let weight = self.vector(&format!("{name}.weight"), len)?;
        Ok(Norm { weight, epsilon })
    }

    /// The tensors of layer `index`.
    pub fn layer(&mut self, index: usize) -> Layer<'_, 'a> {
        Layer {
            prefix: format!("blk.{index}."),
            claims: self,
        }
    }

    /// The claimed tensors, once everything in the file is accounted for.
    ///
    /// # Errors
    /// `UnknownKey`, `UnknownTensor`.
    pub fn finish(self) -> Result<(Vec<Matrix>, Vec<Vector>), ArchError> {
        for (key, _) in self.gguf.metadata().iter() {
            let own = key
                .strip_prefix(self.architecture)
                .and_then(|rest| rest.strip_prefix('.'));
            let inert = own.is_none_or(|rest| INERT_KEYS.contains(&rest));
            if !inert && !self.keys.contains(key) {
                return Err(ArchError::UnknownKey {
                    key: key.to_owned(),
                });
            }
        }
        for tensor in self.gguf.tensors() {
            if !self.tensors.contains(tensor.name()) {
                return Err(ArchError::UnknownTensor {
                    tensor: tensor.name().to_owned(),
                    found: tensor.dimensions().to_vec(),
                });
            }
        }
        Ok((self.matrices, self.vectors))
    }

    fn claim_tensor(
        &mut self,
        name: &str,
        expected: &[u64],
    ) -> Result<Option<&'a TensorInfo<'a>>, ArchError> {
        let Some(tensor) = self.gguf.tensor(name) else {
            return Ok(None);
        };
        // Writers may add trailing dimensions of one.
        let mut found = tensor.dimensions();
        while let [head @ .., 1] = found
            && found.len() > expected.len()
        {
            found = head;
        }
        if found != expected {
            return Err(ArchError::WrongShape {
                tensor: name.to_owned(),
                expected: expected.to_vec(),
                found: tensor.dimensions().to_vec(),
            });
        }
        let new = self.tensors.insert(name.to_owned());
        assert!(new, "two components claim {name}");
        Ok(Some(tensor))
    }
}

/// The tensors of one layer, named without the layer's prefix.
#[derive(Debug)]
pub struct Layer<'c, 'a> {
    claims: &'c mut Claims<'a>,
    prefix: String,
}

impl Layer<'_, '_> {
    /// The tensor `<name>.weight` as a norm's weight.
    ///
    /// # Errors
    /// As [`Claims::vector`].
    pub fn norm(&mut self, name: &str, len: usize, epsilon: f32) -> Result<Norm, ArchError> {
        let name = format!("{}{name}", self.prefix);
        self.claims.norm(&name, len, epsilon)
    }

    /// The tensors `<name>.weight` of (rows, cols) and `<name>.bias` of rows.
    ///
    /// # Errors
    /// As [`Claims::matrix`].
    pub fn linear(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        bias: Bias,
    ) -> Result<Linear, ArchError> {
        let weight_name = format!("{}{name}.weight", self.prefix);
        let bias_name = format!("{}{name}.bias", self.prefix);
        Ok(Linear {
            matrix: self.claims.matrix(&weight_name, rows, cols)?,
            bias: match bias {
                Bias::None => None,
                Bias::Optional => self.claims.optional_vector(&bias_name, rows)?,
                Bias::Required => Some(self.claims.vector(&bias_name, rows)?),
            },
        })
    }
}

fn format_of(tensor: &TensorInfo<'_>) -> Result<Format, ArchError> {
    Format::from_ggml(tensor.ggml_type().number()).ok_or_else(|| ArchError::UnsupportedTensorType {
        tensor: tensor.name().to_owned(),
        found: tensor.ggml_type(),
    })
}
