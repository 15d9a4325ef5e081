//! Rows to parquet.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Schema;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowWriterOptions, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;

use super::{Directory, EncodedIndex, Entry, columns};
use crate::bounds::Dims;
use crate::decision::IndexRef;
use crate::id::ContentHash;
use crate::row::{Kind, Piece, Row};
use crate::{FormatError, limits, repository};

/// The columns that one kind of table has, and how a row group of them is made.
pub(super) struct Table<R> {
    pub(super) schema: Arc<Schema>,
    pub(super) batch: fn(&[R]) -> Result<RecordBatch, ParquetError>,
}

/// A whole file.
pub(super) fn file<R: AsRef<Row> + Sync>(rows: &[R], table: &Table<R>) -> Result<EncodedIndex, FormatError> {
    let bytes = Bytes::from(
        parquet(rows, table).map_err(|e| FormatError::invalid("index", e.to_string(), "writable rows"))?,
    );
    let footer_offset = footer_offset(&bytes);
    let footer = &bytes[usize::try_from(footer_offset).unwrap_or(usize::MAX).min(bytes.len())..];
    FormatError::within("index", bytes.len() as u64, limits::INDEX_BYTES)?;
    FormatError::within("index footer", footer.len() as u64, limits::INDEX_FOOTER_BYTES)?;
    let reference = IndexRef {
        blake3: ContentHash::of(&bytes),
        len: bytes.len() as u64,
        rows: rows.len() as u64,
        footer_offset,
        footer_blake3: ContentHash::of(footer),
    };
    Ok(EncodedIndex { bytes, reference })
}

/// Row groups are encoded in parallel and appended in order.
fn parquet<R: AsRef<Row> + Sync>(rows: &[R], table: &Table<R>) -> Result<Vec<u8>, ParquetError> {
    let options = ArrowWriterOptions::new().with_properties(properties()?).with_skip_arrow_metadata(true);
    let writer = ArrowWriter::try_new_with_options(Vec::new(), table.schema.clone(), options)?;
    let (mut file, columns) = writer.into_serialized_writer()?;
    let groups: Vec<&[R]> = groups_of(rows).collect();
    let encode = |(number, group): (usize, &&[R])| {
        encode_group(columns.create_column_writers(number)?, &(table.batch)(group)?)
    };
    let encoded: Vec<_> = groups.par_iter().enumerate().map(encode).collect::<Result<_, _>>()?;
    let mut entries = Vec::with_capacity(groups.len());
    for (group, columns) in groups.into_iter().zip(encoded) {
        let start = file.bytes_written();
        append(&mut file, columns)?;
        entries.push(entry(group, start, &file.inner()[start..file.bytes_written()]));
    }
    let directory = Directory { version: repository::FORMAT_VERSION, groups: entries };
    let json = serde_json::to_string(&directory).map_err(|e| ParquetError::External(Box::new(e)))?;
    file.append_key_value_metadata(KeyValue::new(Directory::KEY.to_owned(), json));
    file.into_inner()
}

fn encode_group(
    columns: Vec<ArrowColumnWriter>,
    batch: &RecordBatch,
) -> Result<Vec<ArrowColumnChunk>, ParquetError> {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    columns
        .into_iter()
        .zip(fields)
        .map(|(mut column, (field, values))| {
            compute_leaves(field, values)?.iter().try_for_each(|leaf| column.write(leaf))?;
            column.close()
        })
        .collect()
}

/// Appends one row group, as far as the buffer below.
fn append(
    file: &mut SerializedFileWriter<Vec<u8>>,
    columns: Vec<ArrowColumnChunk>,
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    columns.into_iter().try_for_each(|column| column.append_to_row_group(&mut group))?;
    group.close()?;
    file.flush()?;
    Ok(())
}

/// The last eight bytes are the length of the metadata and the closing magic.
pub(super) fn footer_offset(file: &[u8]) -> u64 {
    let tail =
        file.last_chunk::<8>().map_or(0, |tail| u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    (file.len() as u64).saturating_sub(u64::from(tail) + 8)
}

fn entry<R: AsRef<Row>>(rows: &[R], start: usize, bytes: &[u8]) -> Entry {
    let name = |row: Option<&R>| row.map(|row| row.as_ref().name.to_string()).unwrap_or_default();
    Entry {
        first: name(rows.first()),
        last: name(rows.last()),
        rows: rows.len() as u64,
        start: start as u64,
        len: bytes.len() as u64,
        blake3: ContentHash::of(bytes),
    }
}

/// Row groups of at most [`limits::INDEX_GROUP_ROWS`] rows, fewer where names or shapes are very long.
fn groups_of<R: AsRef<Row>>(mut rows: &[R]) -> impl Iterator<Item = &[R]> {
    std::iter::from_fn(move || {
        let mut weight = 0;
        let fits = |row: &&R| {
            weight += row_weight((*row).as_ref());
            weight <= limits::INDEX_GROUP_TARGET_BYTES
        };
        let count = rows.iter().take(limits::INDEX_GROUP_ROWS).take_while(fits).count().max(1);
        let (group, rest) = rows.split_at_checked(count)?;
        rows = rest;
        Some(group)
    })
}

/// About the bytes that a row takes before compression.
fn row_weight(row: &Row) -> usize {
    let alias = row.alias_of.as_ref().map_or(0, |alias| alias.len());
    row.name.len() + alias + row.element.name().len() + row.shape.len() * 3 * 9 + 200
}

/// Compression where it pays: not on hashes, which are random. No statistics but for names (which engines use to skip
/// row groups). Nothing in here depends on time, host or library version.
fn properties() -> Result<WriterProperties, ParquetError> {
    let column = |name: &str| ColumnPath::from(name);
    let hashes = [columns::CHUNK, columns::PACK, columns::WRITER_ATTEMPT, columns::OWN];
    let varied = [columns::CHUNK, columns::PACK_OFFSET, columns::STORED_LEN, columns::OWN];
    let mut builder = WriterProperties::builder()
        .set_created_by("everstep".to_owned())
        .set_max_row_group_row_count(None)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_statistics_enabled(column(columns::NAME), EnabledStatistics::Chunk)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?));
    for name in hashes {
        builder = builder.set_column_compression(column(name), Compression::UNCOMPRESSED);
    }
    for name in varied {
        builder = builder.set_column_dictionary_enabled(column(name), false);
    }
    for name in [columns::PACK_OFFSET, columns::STORED_LEN] {
        builder = builder.set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

/// Above what a row group has in one column, so that a dictionary never overflows half-way.
const PAGE_BYTES: usize = 2 * limits::INDEX_GROUP_TARGET_BYTES;

/// The columns of an index.
pub(super) fn batch(rows: &[Row]) -> Result<RecordBatch, ParquetError> {
    Ok(RecordBatch::try_new(columns::schema(), row_columns(rows)?)?)
}

/// The columns that an index and a part have in common.
pub(super) fn row_columns<R: AsRef<Row>>(rows: &[R]) -> Result<Vec<ArrayRef>, ParquetError> {
    Ok([state_columns(rows), chunk_columns(rows)?].concat())
}

fn state_columns<R: AsRef<Row>>(rows: &[R]) -> Vec<ArrayRef> {
    let kind = |row: &Row| match row.kind {
        Kind::Tensor => columns::TENSOR,
        Kind::Object => columns::OBJECT,
    };
    let all = || rows.iter().map(AsRef::as_ref);
    vec![
        Arc::new(StringArray::from_iter_values(all().map(|row| &*row.name))),
        Arc::new(StringArray::from_iter_values(all().map(kind))),
        Arc::new(StringArray::from_iter_values(all().map(|row| row.element.name()))),
        list(rows, |row| &row.shape),
        list(rows, |row| &row.bounds.offset),
        list(rows, |row| &row.bounds.extent),
        Arc::new(all().map(|row| row.alias_of.as_deref()).collect::<StringArray>()),
        Arc::new(all().map(|row| row.rank.map(|rank| rank.0)).collect::<UInt32Array>()),
    ]
}

fn chunk_columns<R: AsRef<Row>>(rows: &[R]) -> Result<Vec<ArrayRef>, ParquetError> {
    let pieces = || rows.iter().map(|row| row.as_ref().piece.as_ref());
    let number = |of: fn(&Piece) -> u64| -> ArrayRef {
        Arc::new(pieces().map(|p| p.map(of)).collect::<UInt64Array>())
    };
    let writers = pieces().map(|p| p.map(|p| p.location.pack.rank.0)).collect::<UInt32Array>();
    let codecs = pieces().map(|p| p.map(|p| p.location.codec.id())).collect::<UInt8Array>();
    Ok(vec![
        bytes(pieces().map(|p| p.map(|p| p.chunk.0)), 32)?,
        number(|p| p.chunk_offset),
        number(|p| p.raw_len),
        bytes(pieces().map(|p| p.map(|p| p.location.pack.attempt.0)), 16)?,
        Arc::new(writers),
        bytes(pieces().map(|p| p.map(|p| p.location.pack.pack.0)), 32)?,
        number(|p| p.location.pack_len),
        number(|p| p.location.pack_offset),
        number(|p| p.location.stored_len),
        Arc::new(codecs),
    ])
}

fn list<R: AsRef<Row>>(rows: &[R], of: fn(&Row) -> &Dims) -> ArrayRef {
    let lists = || rows.iter().map(|row| of(row.as_ref()));
    let offsets = OffsetBuffer::from_lengths(lists().map(|list| list.len()));
    let values = UInt64Array::from_iter_values(lists().flatten().copied());
    Arc::new(ListArray::new(columns::numbers(), offsets, Arc::new(values), None))
}

pub(super) fn bytes<const N: usize>(
    values: impl Iterator<Item = Option<[u8; N]>>,
    size: i32,
) -> Result<ArrayRef, ParquetError> {
    Ok(Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, size)?))
}
