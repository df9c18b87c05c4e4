//! Everything before the tensor data: metadata and tensors that agree with each other.

use std::collections::HashMap;

use crate::error::{Counted, GgufError};
use crate::limits::{ALIGNMENT_DEFAULT, ALIGNMENT_MAX, TENSORS_MAX};
use crate::metadata::{Metadata, Optional};
use crate::reader::Reader;
use crate::tensor::{TENSOR_INFO_BYTES_MIN, TensorInfo, UnplacedTensor};

const MAGIC: [u8; 4] = *b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
/// The format's least alignment: offsets must suit 64-bit values.
const ALIGNMENT_MIN: u32 = 8;

/// The validated table of a file, without the data that it points to.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    version: u32,
    alignment: u32,
    metadata: Metadata<'a>,
    tensors: Vec<TensorInfo<'a>>,
    index: HashMap<&'a str, usize>,
}

impl<'a> Header<'a> {
    /// Reads the table from the first bytes of a file of `file_bytes` bytes. A prefix that
    /// is too short to hold the table is `Truncated`.
    ///
    /// # Errors
    /// See [`GgufError`]; all but `MissingKey` can occur.
    pub fn parse(prefix: &'a [u8], file_bytes: usize) -> Result<Self, GgufError> {
        let mut reader = Reader::new(prefix, 0);
        let version = read_version(&mut reader)?;
        let tensors_at = reader.offset();
        let tensor_count = reader.u64()?;
        let metadata_at = reader.offset();
        let metadata_count = reader.u64()?;
        if tensor_count > TENSORS_MAX {
            return Err(GgufError::TooMany {
                counted: Counted::Tensors,
                offset: tensors_at,
                found: tensor_count,
                limit: TENSORS_MAX,
            });
        }
        let metadata = Metadata::read(&mut reader, metadata_count, metadata_at)?;
        let alignment = alignment(&metadata)?;
        let unplaced = read_tensors(&mut reader, tensor_count)?;
        // Cannot overflow: an offset is below isize::MAX, the alignment far below that.
        let data_start = (reader.offset() as u64).next_multiple_of(alignment.into());
        let mut header = Self {
            version,
            alignment,
            metadata,
            tensors: Vec::with_capacity(unplaced.len()),
            index: HashMap::with_capacity(unplaced.len()),
        };
        for tensor in unplaced {
            header.push(tensor.place(data_start, alignment, file_bytes)?)?;
        }
        header.expect_disjoint_data()?;
        Ok(header)
    }

    fn push(&mut self, tensor: TensorInfo<'a>) -> Result<(), GgufError> {
        let replaced = self.index.insert(tensor.name, self.tensors.len());
        if replaced.is_some() {
            return Err(GgufError::DuplicateTensor {
                offset: tensor.offset,
                tensor: tensor.name.to_owned(),
            });
        }
        self.tensors.push(tensor);
        Ok(())
    }

    fn expect_disjoint_data(&self) -> Result<(), GgufError> {
        let mut by_start: Vec<&TensorInfo<'_>> = self.tensors.iter().collect();
        by_start.sort_by_key(|tensor| tensor.data.start);
        for pair in by_start.windows(2) {
            if let [first, second] = pair
                && second.data.start < first.data.end
            {
                return Err(GgufError::OverlappingTensors {
                    offset: second.data.start,
                    first: first.name.to_owned(),
                    second: second.name.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Version of the format, 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Every tensor's data begins at a multiple of this many bytes from the first one.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    #[must_use]
    pub fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    /// The tensors in the file's order.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo<'a>] {
        &self.tensors
    }

    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo<'a>> {
        self.tensors.get(*self.index.get(name)?)
    }

    /// `general.architecture`, which also begins the model's own keys.
    ///
    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn architecture(&self) -> Result<&'a str, GgufError> {
        self.metadata.str("general.architecture")
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<u32, GgufError> {
    let offset = reader.offset();
    let magic: [u8; 4] = reader.array()?;
    if magic == [b'F', b'U', b'G', b'G'] {
        return Err(GgufError::BigEndian { offset });
    }
    if magic != MAGIC {
        return Err(GgufError::BadMagic { found: magic });
    }
    let offset = reader.offset();
    match reader.u32()? {
        found @ (2 | 3) => Ok(found),
        // A small number whose bytes are the other way round.
        found if found.trailing_zeros() >= 16 && found != 0 => Err(GgufError::BigEndian { offset }),
        found => Err(GgufError::UnsupportedVersion { offset, found }),
    }
}

fn alignment(metadata: &Metadata<'_>) -> Result<u32, GgufError> {
    let Some(found) = metadata.u32(ALIGNMENT_KEY).optional()? else {
        return Ok(ALIGNMENT_DEFAULT);
    };
    if found.is_power_of_two() && (ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(&found) {
        return Ok(found);
    }
    Err(GgufError::BadAlignment {
        offset: metadata.offset(ALIGNMENT_KEY).unwrap_or(0),
        found,
        limit: ALIGNMENT_MAX,
    })
}

fn read_tensors<'a>(
    reader: &mut Reader<'a>,
    count: u64,
) -> Result<Vec<UnplacedTensor<'a>>, GgufError> {
    reader.expect_room(count, TENSOR_INFO_BYTES_MIN)?;
    (0..count).map(|_| UnplacedTensor::read(reader)).collect()
}
