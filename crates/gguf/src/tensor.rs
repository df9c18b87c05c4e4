//! Descriptions of tensors: name, shape, type and where the data is.

use std::ops::Range;

use crate::error::{Counted, GgufError, Measured};
use crate::ggml_type::GgmlType;
use crate::limits::{DIMENSION_MAX, RANK_MAX, TENSOR_NAME_BYTES_MAX};
use crate::reader::Reader;

/// Name length, one byte of name, rank, one dimension, type, offset.
pub(crate) const TENSOR_INFO_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    pub(crate) name: &'a str,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) ggml_type: GgmlType,
    pub(crate) data: Range<usize>,
    /// Where the description begins in the file.
    pub(crate) offset: usize,
}

impl<'a> TensorInfo<'a> {
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Dimensions in ggml's order: the first is the length of a row, whose elements lie
    /// side by side. One to four, none of them zero.
    #[must_use]
    pub fn dimensions(&self) -> &[u64] {
        &self.dimensions
    }

    /// Elements of a row.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.dimensions.first().copied().unwrap_or(1)
    }

    /// Rows of all higher dimensions together.
    #[must_use]
    pub fn rows(&self) -> u64 {
        // The product was checked when the file was parsed.
        let rows = self.dimensions.iter().skip(1);
        rows.fold(1, |rows, dimension| rows.saturating_mul(*dimension))
    }

    #[must_use]
    pub fn ggml_type(&self) -> GgmlType {
        self.ggml_type
    }

    /// Where the data is, in bytes from the start of the file. Inside the file, aligned, and
    /// disjoint from every other tensor's.
    #[must_use]
    pub fn data_range(&self) -> Range<usize> {
        self.data.clone()
    }
}

/// A tensor description as it is in the file; only the place of its data is unchecked.
#[derive(Debug)]
pub(crate) struct UnplacedTensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) ggml_type: GgmlType,
    /// Where the description begins in the file.
    pub(crate) offset: usize,
    /// Where the offset of the data is stated in the file.
    data_offset_at: usize,
    data_offset: u64,
    data_bytes: u64,
}

impl<'a> UnplacedTensor<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, GgufError> {
        let offset = reader.offset();
        let name = reader.string(Measured::TensorName, TENSOR_NAME_BYTES_MAX)?;
        if name.is_empty() {
            return Err(GgufError::Empty {
                measured: Measured::TensorName,
                offset,
            });
        }
        let dimensions_at = reader.offset();
        let dimensions = read_dimensions(reader, name)?;
        let type_at = reader.offset();
        let found = reader.u32()?;
        let ggml_type =
            GgmlType::from_number(found).ok_or_else(|| GgufError::UnknownTensorType {
                offset: type_at,
                tensor: name.to_owned(),
                found,
            })?;
        let data_bytes = data_bytes(name, &dimensions, ggml_type, dimensions_at)?;
        Ok(Self {
            name,
            dimensions,
            ggml_type,
            offset,
            data_offset_at: reader.offset(),
            data_offset: reader.u64()?,
            data_bytes,
        })
    }

    /// Checks the data's place against the alignment and the end of the file.
    pub(crate) fn place(
        self,
        data_start: u64,
        alignment: u32,
        file_bytes: usize,
    ) -> Result<TensorInfo<'a>, GgufError> {
        if self.data_offset.checked_rem(alignment.into()) != Some(0) {
            return Err(GgufError::MisalignedTensor {
                offset: self.data_offset_at,
                tensor: self.name.to_owned(),
                found: self.data_offset,
                alignment,
            });
        }
        let start = data_start.saturating_add(self.data_offset);
        let end = start.saturating_add(self.data_bytes);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        match range.filter(|(_, end)| *end <= file_bytes) {
            Some((start, end)) => Ok(TensorInfo {
                name: self.name,
                dimensions: self.dimensions,
                ggml_type: self.ggml_type,
                data: start..end,
                offset: self.offset,
            }),
            None => Err(GgufError::TensorOutOfFile {
                offset: self.data_offset_at,
                tensor: self.name.to_owned(),
                start,
                bytes: self.data_bytes,
                limit: file_bytes,
            }),
        }
    }
}

fn read_dimensions(reader: &mut Reader<'_>, name: &str) -> Result<Vec<u64>, GgufError> {
    let offset = reader.offset();
    let rank = reader.u32()?;
    if rank == 0 {
        return Err(GgufError::NoDimensions {
            offset,
            tensor: name.to_owned(),
        });
    }
    if rank > RANK_MAX {
        return Err(GgufError::TooMany {
            counted: Counted::Dimensions,
            offset,
            found: rank.into(),
            limit: RANK_MAX.into(),
        });
    }
    (0..rank)
        .map(|dimension| {
            let offset = reader.offset();
            let found = reader.u64()?;
            let tensor = || name.to_owned();
            match found {
                0 => Err(GgufError::ZeroDimension {
                    offset,
                    tensor: tensor(),
                    dimension,
                }),
                1..=DIMENSION_MAX => Ok(found),
                _ => Err(GgufError::OversizedDimension {
                    offset,
                    tensor: tensor(),
                    dimension,
                    found,
                    limit: DIMENSION_MAX,
                }),
            }
        })
        .collect()
}

fn data_bytes(
    name: &str,
    dimensions: &[u64],
    ggml_type: GgmlType,
    offset: usize,
) -> Result<u64, GgufError> {
    let columns = dimensions.first().copied().unwrap_or(1);
    // A row of at most DIMENSION_MAX elements cannot overflow, so `None` means one thing.
    let row_bytes = ggml_type
        .row_bytes(columns)
        .ok_or_else(|| GgufError::PartialBlock {
            offset,
            tensor: name.to_owned(),
            type_name: ggml_type.name(),
            found: columns,
            block: ggml_type.block_elements(),
        })?;
    // Elements are checked as well: blocks can be smaller than one byte per element.
    let elements = dimensions
        .iter()
        .try_fold(1_u64, |product, factor| product.checked_mul(*factor));
    let bytes = dimensions
        .iter()
        .skip(1)
        .try_fold(row_bytes, |product, factor| product.checked_mul(*factor));
    elements
        .and(bytes)
        .ok_or_else(|| GgufError::DimensionsOverflow {
            offset,
            tensor: name.to_owned(),
            dimensions: dimensions.to_vec(),
        })
}
