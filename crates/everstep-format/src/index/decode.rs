//! Parquet to rows, from bytes whose hash is right but whose writer may still be hostile.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, DictionaryArray, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::DataType;
use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::part::PartRow;
use super::{Group, columns, pages};
use crate::bounds::{Bounds, Dims};
use crate::codec::Codec;
use crate::id::{AttemptId, ChunkId, PackId};
use crate::key::PackAddress;
use crate::name::Rank;
use crate::panics::caught;
use crate::row::{ElementType, Kind, Location, Piece, Row};
use crate::{FormatError, invariant};

/// How strings are read.
pub(super) fn string_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Runs the library's decoder. It is hardened but not proven: should it panic on bytes that somebody made up, that is a
/// finding about those bytes and not the end of the process.
pub(super) fn guarded<T>(
    what: &'static str,
    offset: u64,
    decode: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, FormatError> {
    match caught(decode) {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(FormatError::corrupt(what, offset, "sound parquet", error.to_string())),
        None => Err(FormatError::corrupt(what, offset, "sound parquet", "bytes that its decoder gave up on")),
    }
}

/// One row group and its (verified) bytes.
pub(super) struct Source<'a> {
    pub(super) metadata: &'a ArrowReaderMetadata,
    pub(super) number: usize,
    pub(super) group: &'a Group,
    pub(super) bytes: &'a Bytes,
}

impl Source<'_> {
    /// Its rows.
    pub(super) fn rows(&self) -> Result<Vec<Row>, FormatError> {
        self.check_pages()?;
        let rows = sound_rows(&self.batches(&columns::ALL, 0..self.row_count())?)?;
        invariant::rows_are_sorted(&rows).map_err(|e| bad("sorted rows", e.to_string()))?;
        Ok(rows)
    }

    /// Adds its rows, as those of a part, to `rows`: not checked yet, each with the hash of its own bytes.
    pub(super) fn add_part_rows(&self, rows: &mut Vec<PartRow>) -> Result<(), FormatError> {
        self.check_pages()?;
        let names: Vec<&str> = columns::ALL.into_iter().chain([columns::OWN]).collect();
        rows.reserve(self.row_count());
        for batch in &self.batches(&names, 0..self.row_count())? {
            let columns = Columns::new(batch)?;
            let own = batch.column_by_name(columns::OWN).and_then(AsArray::as_fixed_size_binary_opt);
            let own = own.ok_or_else(|| missing(columns::OWN))?;
            for i in 0..batch.num_rows() {
                rows.push(PartRow { row: columns.row(i)?, own: fixed(own, i).map(ChunkId) });
            }
        }
        Ok(())
    }

    /// Its rows of one name: only names are decoded first, then the other columns for what was found.
    pub(super) fn rows_named(&self, name: &str) -> Result<Vec<Row>, FormatError> {
        self.check_pages()?;
        let found = positions(&self.batches(&[columns::NAME], 0..self.row_count())?, name)?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = sound_rows(&self.batches(&columns::ALL, found)?)?;
        rows.retain(|row| &*row.name == name);
        Ok(rows)
    }

    fn check_pages(&self) -> Result<(), FormatError> {
        pages::check(self.metadata.metadata().row_group(self.number), self.group, self.bytes)
    }

    fn row_count(&self) -> usize {
        usize::try_from(self.group.rows).unwrap_or(usize::MAX)
    }

    fn batches(&self, names: &[&str], rows: Range<usize>) -> Result<Vec<RecordBatch>, FormatError> {
        let file = OneGroup { start: self.group.range.start, bytes: self.bytes.clone() };
        let mask = ProjectionMask::columns(self.metadata.parquet_schema(), names.iter().copied());
        let total = self.row_count();
        guarded("index row group", self.group.range.start, || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_row_groups(vec![self.number])
                .with_projection(mask)
                .with_batch_size(rows.len().max(1))
                .with_row_selection(RowSelection::from_consecutive_ranges(std::iter::once(rows), total))
                .build()?
                .map(|batch| Ok(batch?))
                .collect()
        })
    }
}

fn sound_rows(batches: &[RecordBatch]) -> Result<Vec<Row>, FormatError> {
    let rows = rows_of(batches)?;
    rows.iter().try_for_each(|row| invariant::row_is_sound(row).map_err(as_corrupt))?;
    Ok(rows)
}

/// A rule that stored rows break.
pub(super) fn as_corrupt(error: FormatError) -> FormatError {
    match error {
        FormatError::Invalid { what, found, expected } => FormatError::corrupt(what, 0, expected, found),
        other => other,
    }
}

fn rows_of(batches: &[RecordBatch]) -> Result<Vec<Row>, FormatError> {
    let mut rows = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
    for batch in batches {
        let columns = Columns::new(batch)?;
        for i in 0..batch.num_rows() {
            rows.push(columns.row(i)?);
        }
    }
    Ok(rows)
}

/// From the first to the last row of `name` in batches of names.
fn positions(batches: &[RecordBatch], name: &str) -> Result<Range<usize>, FormatError> {
    let mut before = 0;
    let mut found: Option<Range<usize>> = None;
    for batch in batches {
        let names =
            batch.column_by_name(columns::NAME).and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let names = names.ok_or_else(|| missing(columns::NAME))?;
        let values: &StringArray = names.values().as_string_opt().ok_or_else(|| missing(columns::NAME))?;
        let wanted: Vec<bool> = values.iter().map(|value| value == Some(name)).collect();
        for i in 0..names.len() {
            if names.key(i).and_then(|key| wanted.get(key)) == Some(&true) {
                let at = before + i;
                found = Some(found.map_or(at, |range| range.start)..at + 1);
            }
        }
        before += names.len();
    }
    Ok(found.unwrap_or(0..0))
}

/// A file of which only one row group is at hand.
#[derive(Debug)]
struct OneGroup {
    start: u64,
    bytes: Bytes,
}

impl Length for OneGroup {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl OneGroup {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let inside = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match inside.filter(|&at| at <= self.bytes.len()) {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(ParquetError::EOF(format!("byte {start} is outside of the row group"))),
        }
    }
}

impl ChunkReader for OneGroup {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let rest = self.from(start)?;
        if length > rest.len() {
            return Err(ParquetError::EOF(format!(
                "{length} bytes from {start} are outside of the row group"
            )));
        }
        Ok(rest.slice(..length))
    }
}

/// A column of strings; equal strings share memory.
struct Strings<'a> {
    array: &'a DictionaryArray<Int32Type>,
    values: Vec<Arc<str>>,
}

impl<'a> Strings<'a> {
    fn new(array: &'a DictionaryArray<Int32Type>) -> Option<Self> {
        let strings: &StringArray = array.values().as_string_opt()?;
        let values = (0..strings.len()).map(|i| Arc::from(strings.value(i))).collect();
        Some(Self { array, values })
    }

    fn get(&self, i: usize) -> Option<Arc<str>> {
        self.values.get(self.array.key(i)?).cloned()
    }
}

/// The columns of one batch under their types.
struct Columns<'a> {
    name: Strings<'a>,
    kind: Strings<'a>,
    dtype: Strings<'a>,
    shape: &'a ListArray,
    offset: &'a ListArray,
    extent: &'a ListArray,
    alias_of: Strings<'a>,
    rank: &'a UInt32Array,
    chunk: &'a FixedSizeBinaryArray,
    chunk_offset: &'a UInt64Array,
    raw_len: &'a UInt64Array,
    writer_attempt: &'a FixedSizeBinaryArray,
    writer_rank: &'a UInt32Array,
    pack: &'a FixedSizeBinaryArray,
    pack_len: &'a UInt64Array,
    pack_offset: &'a UInt64Array,
    stored_len: &'a UInt64Array,
    codec: &'a UInt8Array,
}

impl<'a> Columns<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self, FormatError> {
        let find = |name: &'static str| {
            batch.column_by_name(name).ok_or_else(|| bad(format!("a column {name}"), "none of that name"))
        };
        let other =
            |name: &'static str| move || bad(format!("the specified type of column {name}"), "another");
        let strings = |name| find(name)?.as_dictionary_opt().and_then(Strings::new).ok_or_else(other(name));
        let lists = |name| find(name)?.as_list_opt::<i32>().ok_or_else(other(name));
        let u64s = |name| find(name)?.as_primitive_opt::<UInt64Type>().ok_or_else(other(name));
        let u32s = |name| find(name)?.as_primitive_opt::<UInt32Type>().ok_or_else(other(name));
        let bytes = |name| find(name)?.as_fixed_size_binary_opt().ok_or_else(other(name));
        Ok(Self {
            name: strings(columns::NAME)?,
            kind: strings(columns::KIND)?,
            dtype: strings(columns::DTYPE)?,
            shape: lists(columns::SHAPE)?,
            offset: lists(columns::OFFSET)?,
            extent: lists(columns::EXTENT)?,
            alias_of: strings(columns::ALIAS_OF)?,
            rank: u32s(columns::RANK)?,
            chunk: bytes(columns::CHUNK)?,
            chunk_offset: u64s(columns::CHUNK_OFFSET)?,
            raw_len: u64s(columns::RAW_LEN)?,
            writer_attempt: bytes(columns::WRITER_ATTEMPT)?,
            writer_rank: u32s(columns::WRITER_RANK)?,
            pack: bytes(columns::PACK)?,
            pack_len: u64s(columns::PACK_LEN)?,
            pack_offset: u64s(columns::PACK_OFFSET)?,
            stored_len: u64s(columns::STORED_LEN)?,
            codec: find(columns::CODEC)?.as_primitive_opt::<UInt8Type>().ok_or_else(other(columns::CODEC))?,
        })
    }

    fn row(&self, i: usize) -> Result<Row, FormatError> {
        Ok(Row {
            name: self.name.get(i).ok_or_else(|| missing(columns::NAME))?,
            kind: self.kind(i)?,
            element: ElementType::from_name(&self.dtype.get(i).ok_or_else(|| missing(columns::DTYPE))?),
            shape: numbers(self.shape, i).ok_or_else(|| missing(columns::SHAPE))?,
            bounds: Bounds {
                offset: numbers(self.offset, i).ok_or_else(|| missing(columns::OFFSET))?,
                extent: numbers(self.extent, i).ok_or_else(|| missing(columns::EXTENT))?,
            },
            alias_of: self.alias_of.get(i),
            rank: value(self.rank, i).map(Rank),
            piece: self.piece(i)?,
        })
    }

    fn kind(&self, i: usize) -> Result<Kind, FormatError> {
        match self.kind.get(i).as_deref() {
            Some(columns::TENSOR) => Ok(Kind::Tensor),
            Some(columns::OBJECT) => Ok(Kind::Object),
            other => Err(bad("kind tensor or object", format!("{other:?}"))),
        }
    }

    /// The chunk columns are all there or all null.
    fn piece(&self, i: usize) -> Result<Option<Piece>, FormatError> {
        let all: [&dyn Array; 10] = [
            self.chunk,
            self.chunk_offset,
            self.raw_len,
            self.writer_attempt,
            self.writer_rank,
            self.pack,
            self.pack_len,
            self.pack_offset,
            self.stored_len,
            self.codec,
        ];
        if all.iter().all(|array| array.is_null(i)) {
            return Ok(None);
        }
        let codec = value(self.codec, i).map(Codec::from_id).transpose()?;
        self.piece_of(i, codec).map(Some).ok_or_else(|| bad("all columns of a chunk or none", "some of them"))
    }

    fn piece_of(&self, i: usize, codec: Option<Codec>) -> Option<Piece> {
        let pack = PackAddress {
            attempt: AttemptId(fixed(self.writer_attempt, i)?),
            rank: Rank(value(self.writer_rank, i)?),
            pack: PackId(fixed(self.pack, i)?),
        };
        Some(Piece {
            chunk: ChunkId(fixed(self.chunk, i)?),
            chunk_offset: value(self.chunk_offset, i)?,
            raw_len: value(self.raw_len, i)?,
            location: Location {
                pack,
                pack_len: value(self.pack_len, i)?,
                pack_offset: value(self.pack_offset, i)?,
                stored_len: value(self.stored_len, i)?,
                codec: codec?,
            },
        })
    }
}

fn value<T: arrow_array::ArrowPrimitiveType>(
    array: &arrow_array::PrimitiveArray<T>,
    i: usize,
) -> Option<T::Native> {
    array.is_valid(i).then(|| array.value(i))
}

fn fixed<const N: usize>(array: &FixedSizeBinaryArray, i: usize) -> Option<[u8; N]> {
    if array.is_null(i) { None } else { array.value(i).try_into().ok() }
}

fn numbers(array: &ListArray, i: usize) -> Option<Dims> {
    if array.is_null(i) {
        return None;
    }
    let range = array.value_offsets().get(i..i + 2)?;
    let values = array.values().as_primitive_opt::<UInt64Type>().filter(|values| values.null_count() == 0)?;
    values
        .values()
        .get(usize::try_from(range[0]).ok()?..usize::try_from(range[1]).ok()?)
        .map(Dims::from_slice)
}

fn missing(column: &str) -> FormatError {
    bad(format!("a value of column {column} in every row"), "none, or another type")
}

fn bad(expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("index row group", 0, expected, found)
}
