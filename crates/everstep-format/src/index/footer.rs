//! The footer: the only part of an index that is read to find a row group, and the root of trust of all of them.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use serde::de::DeserializeOwned;

use super::{Directory, Entry, Group, MAGIC, Version, columns, decode, metadata};
use crate::decision::IndexRef;
use crate::id::ContentHash;
use crate::{FormatError, limits, repository, strict};

/// Verifies and reads `tail`.
pub(super) fn parse(
    tail: &Bytes,
    reference: &IndexRef,
) -> Result<(Vec<Group>, ArrowReaderMetadata), FormatError> {
    let len = reference.len.checked_sub(reference.footer_offset).unwrap_or(u64::MAX);
    FormatError::within("index footer", len, limits::INDEX_FOOTER_BYTES)?;
    expect_len("index footer", tail, len)?;
    expect_hash("index footer", tail, reference.footer_blake3)?;
    let (groups, metadata) = parse_verified(tail, reference.footer_offset)?;
    let rows: u64 = groups.iter().map(|group| group.rows).sum();
    if rows != reference.rows {
        return Err(bad(format!("{} rows in all", reference.rows), format!("{rows}")));
    }
    Ok((groups, metadata))
}

/// Reads `tail`, whose hash is right and which starts at `offset` of its file.
pub(super) fn parse_verified(
    tail: &[u8],
    offset: u64,
) -> Result<(Vec<Group>, ArrowReaderMetadata), FormatError> {
    let metadata = parquet_metadata(tail)?;
    let groups = groups(&metadata, offset)?;
    let metadata = decode::guarded("index footer", 0, || arrow_metadata(metadata))?;
    check_columns(metadata.schema())?;
    Ok((groups, metadata))
}

fn parquet_metadata(tail: &[u8]) -> Result<ParquetMetaData, FormatError> {
    let (head, end) = tail.split_last_chunk::<8>().ok_or_else(|| bad("a closing magic", "fewer bytes"))?;
    let len = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
    if &end[4..] != MAGIC || u64::from(len) != head.len() as u64 {
        let found = format!("{len} bytes of metadata in {}, magic {:?}", head.len(), &end[4..]);
        return Err(bad("metadata that fills the footer, closed by PAR1", found));
    }
    metadata::check(head)?;
    decode::guarded("index footer", 0, || ParquetMetaDataReader::decode_metadata(head))
}

/// The directory, checked against the parquet metadata: row groups up to `footer_offset`.
fn groups(metadata: &ParquetMetaData, footer_offset: u64) -> Result<Vec<Group>, FormatError> {
    let entries = directory(metadata)?;
    FormatError::within("row groups", entries.len() as u64, limits::INDEX_GROUPS as u64)?;
    if entries.len() != metadata.num_row_groups() {
        return Err(bad(format!("{} row groups", metadata.num_row_groups()), format!("{}", entries.len())));
    }
    let mut groups: Vec<Group> = Vec::with_capacity(entries.len());
    let mut at = MAGIC.len() as u64;
    for (entry, row_group) in entries.into_iter().zip(metadata.row_groups()) {
        let group = group(entry, at, row_group)?;
        if groups.last().is_some_and(|before| before.last_name > group.first_name) {
            return Err(bad("row groups in the order of names", format!("{:?} too late", group.first_name)));
        }
        at = group.range.end;
        groups.push(group);
    }
    if at != footer_offset {
        return Err(bad(format!("row groups up to byte {footer_offset}"), format!("up to byte {at}")));
    }
    Ok(groups)
}

fn directory(metadata: &ParquetMetaData) -> Result<Vec<Entry>, FormatError> {
    let pairs = metadata.file_metadata().key_value_metadata().map_or(&[][..], |pairs| pairs);
    let json = pairs
        .iter()
        .find(|pair| pair.key == Directory::KEY)
        .and_then(|pair| pair.value.as_deref())
        .ok_or_else(|| bad(format!("a directory under {}", Directory::KEY), "none"))?;
    let Version { version } = parse_json(json)?;
    repository::check_version(version)?;
    parse_json(json).map(|directory: Directory| directory.groups)
}

fn parse_json<T: DeserializeOwned>(json: &str) -> Result<T, FormatError> {
    strict::from_slice(json.as_bytes()).map_err(|e| bad("a directory of row groups", e.to_string()))
}

/// One entry, checked: it follows the group before, keeps to the limits, and its columns lie inside it.
fn group(entry: Entry, start: u64, row_group: &RowGroupMetaData) -> Result<Group, FormatError> {
    FormatError::within("bytes of a row group", entry.len, limits::INDEX_GROUP_BYTES)?;
    FormatError::within("rows of a row group", entry.rows, limits::INDEX_GROUP_ROWS as u64)?;
    let range = start..start.saturating_add(entry.len);
    let columns_inside = row_group.columns().iter().all(|column| {
        column_range(column).is_some_and(|column| column.start >= range.start && column.end <= range.end)
    });
    let rows_agree = u64::try_from(row_group.num_rows()).ok() == Some(entry.rows) && entry.rows > 0;
    if entry.start != start || entry.first > entry.last || !columns_inside || !rows_agree {
        let found = format!("{} rows from byte {} in {} bytes", entry.rows, entry.start, entry.len);
        return Err(bad(format!("a row group from byte {start} that holds its columns"), found));
    }
    Ok(Group {
        first_name: entry.first,
        last_name: entry.last,
        rows: entry.rows,
        range,
        blake3: entry.blake3,
    })
}

/// Where a column of a row group lies in the file; `None` for negative or overflowing numbers. (The library's own
/// method panics on those.)
pub(super) fn column_range(column: &parquet::file::metadata::ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    let len = u64::try_from(column.compressed_size()).ok()?;
    Some(start..start.checked_add(len)?)
}

/// The arrow view of the table, with strings kept as dictionaries.
fn arrow_metadata(metadata: ParquetMetaData) -> Result<ArrowReaderMetadata, parquet::errors::ParquetError> {
    let metadata = Arc::new(metadata);
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::try_new(metadata.clone(), options.clone())?;
    let with_dictionaries: Fields =
        plain.schema().fields().iter().map(|field| as_dictionary(field)).collect();
    ArrowReaderMetadata::try_new(metadata, options.with_schema(Arc::new(Schema::new(with_dictionaries))))
}

/// Every column of the specification is there under its type, except one that only parts have. A column of another type could take any amount of memory:
/// a long value that a dictionary holds once is spelled out in every row.
fn check_columns(found: &Schema) -> Result<(), FormatError> {
    for column in columns::part_schema().fields() {
        let expected = as_dictionary(column);
        if column.name() == columns::OWN && found.field_with_name(columns::OWN).is_err() {
            continue;
        }
        let kind = found.field_with_name(column.name()).ok().map(|field| field.data_type());
        if !kind.is_some_and(|kind| is_same_type(kind, expected.data_type())) {
            let expected = format!("a column {} of type {}", column.name(), column.data_type());
            let found = kind.map_or_else(|| "none of that name".to_owned(), |kind| format!("type {kind}"));
            return Err(bad(expected, found));
        }
    }
    Ok(())
}

/// Lists may name their items as they like.
fn is_same_type(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::List(one), DataType::List(other)) => one.data_type() == other.data_type(),
        _ => one == other,
    }
}

fn as_dictionary(field: &Field) -> Field {
    if columns::STRINGS.contains(&field.name().as_str()) && *field.data_type() == DataType::Utf8 {
        return field.clone().with_data_type(decode::string_type());
    }
    field.clone()
}

/// `bytes[range]`, or Corrupt.
pub(super) fn slice(bytes: &Bytes, range: Range<u64>) -> Result<Bytes, FormatError> {
    let sound = range.start <= range.end && range.end <= bytes.len() as u64;
    match (sound, usize::try_from(range.start), usize::try_from(range.end)) {
        (true, Ok(start), Ok(end)) => Ok(bytes.slice(start..end)),
        _ => Err(FormatError::corrupt(
            "index",
            range.start,
            format!("bytes {range:?}"),
            format!("{} bytes", bytes.len()),
        )),
    }
}

pub(super) fn expect_len(what: &'static str, bytes: &[u8], len: u64) -> Result<(), FormatError> {
    if bytes.len() as u64 == len {
        return Ok(());
    }
    Err(FormatError::corrupt(what, 0, format!("{len} bytes"), format!("{} bytes", bytes.len())))
}

pub(super) fn expect_hash(what: &'static str, bytes: &[u8], hash: ContentHash) -> Result<(), FormatError> {
    let actual = ContentHash::of(bytes);
    if actual == hash {
        return Ok(());
    }
    Err(FormatError::corrupt(what, 0, format!("BLAKE3 {hash}"), format!("BLAKE3 {actual}")))
}

fn bad(expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("index footer", 0, expected, found)
}
