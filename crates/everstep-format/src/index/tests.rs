use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt8Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use proptest::prelude::*;

use super::*;
use crate::bounds::Bounds;
use crate::codec::Codec;
use crate::dtype::Dtype;
use crate::id::{AttemptId, ChunkId, PackId};
use crate::key::PackAddress;
use crate::name::Rank;
use crate::row::{ElementType, Kind, Location, Piece};

fn piece(seed: u64, raw_len: u64) -> Piece {
    let hash = |salt: &str| *blake3::hash(format!("{salt}{seed}").as_bytes()).as_bytes();
    let pack = PackAddress {
        attempt: AttemptId([u8::try_from(seed % 3).unwrap(); 16]),
        rank: Rank(u32::try_from(seed % 5).unwrap()),
        pack: PackId([u8::try_from(seed % 100 / 10).unwrap(); 32]),
    };
    let stored_len = raw_len.max(1);
    let pack_offset = 64 * (1 + seed % 100);
    let location = Location { pack, pack_len: 20_000_000, pack_offset, stored_len, codec: Codec::Planes };
    Piece { chunk: ChunkId(hash("chunk")), chunk_offset: 0, raw_len, location }
}

fn tensor(name: &str, shape: &[u64], seed: u64) -> Row {
    let elements = crate::bounds::elements(shape).unwrap();
    Row {
        name: name.into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::F32),
        shape: shape.into(),
        bounds: Bounds::whole(shape),
        alias_of: None,
        rank: None,
        piece: (elements > 0).then(|| piece(seed, 4 * elements)),
    }
}

/// An index of rows that need not be those of a whole checkpoint.
fn written(rows: &[Row]) -> EncodedIndex {
    encode::file(rows, &encode::Table { schema: columns::schema(), batch: encode::batch }).unwrap()
}

fn many(count: u64) -> Vec<Row> {
    (0..count).map(|i| tensor(&format!("layers.{i:07}.weight"), &[3, i % 4], i)).collect()
}

/// One of everything: objects, ranks, aliases, scalars, no elements, an unknown dtype, strange names.
fn varied() -> Vec<Row> {
    let mut rows = vec![
        tensor("", &[], 1),
        tensor("W", &[2, 3], 2),
        tensor("a\0b\n", &[1], 3),
        tensor("empty", &[3, 0, 5], 4),
        tensor("w", &[5], 5),
        Row { alias_of: Some("w".into()), ..tensor("x.tied", &[5], 5) },
        Row { element: ElementType::Unknown("float6".into()), ..tensor("y", &[7], 6) },
        tensor("\u{e9}", &[4], 7),
    ];
    for rank in [0, 9, 10] {
        rows.push(Row {
            kind: Kind::Object,
            element: ElementType::Value,
            rank: Some(Rank(rank)),
            piece: Some(piece(20 + u64::from(rank), 11)),
            ..tensor("rng", &[11], 0)
        });
    }
    rows.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    rows
}

#[test]
fn rows_of_every_kind_come_back_as_they_were_written() {
    let rows = varied();
    let EncodedIndex { bytes, reference } = written(&rows);
    assert_eq!(read_all(&bytes, &reference).unwrap(), rows);
    assert_eq!(reference.rows, rows.len() as u64);
    assert_eq!(written(&rows).bytes, bytes, "equal rows give equal bytes");
}

/// C31: a checkpoint without tensors has an index without rows.
#[test]
fn c31_an_index_without_rows_is_an_index() {
    let EncodedIndex { bytes, reference } = written(&[]);
    assert_eq!(read_all(&bytes, &reference).unwrap(), []);
    let footer =
        Footer::parse(&bytes.slice(usize::try_from(reference.footer_offset).unwrap()..), &reference).unwrap();
    assert_eq!((footer.groups().len(), footer.groups_of("w")), (0, 0..0));
}

/// One name by two reads: the footer and its row group.
fn lookup(EncodedIndex { bytes, reference }: &EncodedIndex, name: &str) -> Vec<Row> {
    let tail = bytes.slice(usize::try_from(reference.footer_offset).unwrap()..);
    let footer = Footer::parse(&tail, reference).unwrap();
    let mut found = Vec::new();
    for number in footer.groups_of(name) {
        let range = footer.groups()[number].range.clone();
        let group = bytes.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
        let mut rows = footer.read_group(number, &group).unwrap();
        rows.retain(|row| &*row.name == name);
        assert_eq!(footer.read_named(number, &group, name).unwrap(), rows);
        found.append(&mut rows);
    }
    found
}

#[test]
fn a_name_is_found_by_footer_and_row_group_alone() {
    let rows = many(40_000);
    let index = written(&rows);
    assert_eq!(read_all(&index.bytes, &index.reference).unwrap(), rows);
    for i in [0, 1, 16_383, 16_384, 39_999] {
        assert_eq!(lookup(&index, &rows[i].name), rows[i..=i]);
    }
    for absent in ["", "layers.0000003", "layers.0016383.weight.x", "zzz"] {
        assert_eq!(lookup(&index, absent), [], "{absent:?}");
    }
}

#[test]
fn a_name_whose_pieces_span_row_groups_is_found_whole() {
    let mut rows = vec![tensor("a", &[1], 0)];
    for i in 0..40_000u64 {
        let bounds = Bounds { offset: vec![i].into(), extent: vec![1].into() };
        rows.push(Row { bounds, piece: Some(piece(i, 4)), ..tensor("big", &[40_000], i) });
    }
    rows.push(tensor("c", &[1], 0));
    let index = written(&rows);
    assert_eq!(lookup(&index, "big"), rows[1..=40_000]);
    assert_eq!(lookup(&index, "c").len(), 1);
}

#[test]
fn long_names_close_row_groups_early() {
    let rows: Vec<Row> =
        (0..2000).map(|i| tensor(&format!("{}{i:04}", "n".repeat(16_000)), &[1], i)).collect();
    let index = written(&rows);
    assert_eq!(lookup(&index, &rows[1999].name), rows[1999..]);
    let tail = index.bytes.slice(usize::try_from(index.reference.footer_offset).unwrap()..);
    assert!(Footer::parse(&tail, &index.reference).unwrap().groups().len() >= 4);
}

#[test]
fn names_sort_by_bytes_and_ranks_and_offsets_by_number() {
    let rank = |n| Row {
        kind: Kind::Object,
        element: ElementType::Opaque,
        rank: Some(Rank(n)),
        piece: Some(piece(u64::from(n), 1)),
        ..tensor("r", &[1], 0)
    };
    let rows = [rank(2), rank(10), rank(100)];
    assert_eq!(read_all(&written(&rows).bytes, &written(&rows).reference).unwrap(), rows);
    assert!(invariant::rows_are_sorted(&[rank(10), rank(2)]).is_err(), "C27: numbers are not text");
}

#[test]
fn every_prefix_and_any_flipped_byte_is_noticed() {
    let EncodedIndex { bytes, reference } = written(&varied());
    for len in 0..bytes.len() {
        assert!(
            matches!(read_all(&bytes.slice(..len), &reference), Err(FormatError::Corrupt { .. })),
            "{len}"
        );
    }
    for at in 0..bytes.len() {
        let mut other = bytes.to_vec();
        other[at] ^= 0x10;
        let found = read_all(&other.into(), &reference);
        assert!(matches!(found, Err(FormatError::Corrupt { .. })), "{at}");
    }
}

/// The reference of made-up `bytes`, with every hash that the manifest holds right.
fn sealed(bytes: &Bytes, like: &IndexRef) -> IndexRef {
    let start = usize::try_from(like.footer_offset).unwrap().min(bytes.len());
    IndexRef {
        blake3: ContentHash::of(bytes),
        len: bytes.len() as u64,
        footer_blake3: ContentHash::of(&bytes[start..]),
        ..like.clone()
    }
}

/// C25: somebody who can write the decision makes every hash right; nothing may panic or claim other rows silently.
#[test]
fn c25_flipped_bytes_under_right_hashes_give_errors_or_rows_but_no_panic() {
    let EncodedIndex { bytes, reference } = written(&varied());
    let footer = usize::try_from(reference.footer_offset).unwrap();
    for at in footer..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut other = bytes.to_vec();
            other[at] ^= mask;
            let other = Bytes::from(other);
            let _ = read_all(&other, &sealed(&other, &reference));
        }
    }
}

#[test]
fn c25_made_up_references_are_refused() {
    let EncodedIndex { bytes, reference } = written(&varied());
    for other in [
        IndexRef { footer_offset: u64::MAX, ..reference.clone() },
        IndexRef { footer_offset: reference.footer_offset - 1, ..reference.clone() },
        IndexRef { footer_offset: 0, ..reference.clone() },
        IndexRef { len: u64::MAX, ..reference.clone() },
        IndexRef { len: 0, ..reference.clone() },
        IndexRef { rows: 3, ..reference.clone() },
    ] {
        assert!(read_all(&bytes, &other).is_err(), "{other:?}");
        assert!(
            read_all(&bytes, &sealed(&bytes, &other)).is_err() || other.len != reference.len,
            "{other:?}"
        );
        assert!(Footer::parse(&bytes, &other).is_err(), "{other:?}");
    }
}

/// An index that another writer might make: `batch` as the only row group, under right hashes.
fn made_up(batch: &RecordBatch, first: &str, last: &str) -> EncodedIndex {
    let properties = WriterProperties::builder()
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .build();
    let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true).with_properties(properties);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.flush().unwrap();
    writer.sync().unwrap();
    let group = writer.inner()[4..].to_vec();
    let entry = Entry {
        first: first.into(),
        last: last.into(),
        rows: batch.num_rows() as u64,
        start: 4,
        len: group.len() as u64,
        blake3: ContentHash::of(&group),
    };
    let json =
        serde_json::to_string(&Directory { version: crate::repository::FORMAT_VERSION, groups: vec![entry] })
            .unwrap();
    writer.append_key_value_metadata(KeyValue::new(Directory::KEY.to_owned(), json));
    let bytes = Bytes::from(writer.into_inner().unwrap());
    let metadata_len = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap());
    let footer_offset = bytes.len() as u64 - u64::from(metadata_len) - 8;
    let like = written(&[]).reference;
    let reference = sealed(&bytes, &IndexRef { footer_offset, rows: batch.num_rows() as u64, ..like });
    EncodedIndex { bytes, reference }
}

fn read(index: &EncodedIndex) -> Result<Vec<Row>, FormatError> {
    read_all(&index.bytes, &index.reference)
}

/// `batch` with one column replaced or added.
fn with(batch: &RecordBatch, name: &str, array: ArrayRef) -> RecordBatch {
    let field = Arc::new(Field::new(name, array.data_type().clone(), true));
    let mut fields = batch.schema().fields().to_vec();
    let mut columns = batch.columns().to_vec();
    match batch.schema().index_of(name) {
        Ok(i) => (fields[i], columns[i]) = (field, array),
        Err(_) => {
            fields.push(field);
            columns.push(array);
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

#[test]
fn other_encodings_and_columns_of_later_versions_do_not_matter() {
    let rows = many(50);
    let batch = encode::batch(&rows).unwrap();
    let (first, last) = (&*rows[0].name, &*rows[49].name);
    assert_eq!(
        read(&made_up(&batch, first, last)).unwrap(),
        rows,
        "statistics, no compression, dictionaries everywhere"
    );
    let added: ArrayRef = Arc::new(StringArray::from_iter_values((0..50).map(|i| format!("later {i}"))));
    assert_eq!(read(&made_up(&with(&batch, "added_later", added), first, last)).unwrap(), rows);
}

#[test]
fn c25_rows_that_do_not_hold_together_are_refused() {
    let rows = many(50);
    let batch = encode::batch(&rows).unwrap();
    let numbers = |n: u64| -> ArrayRef { Arc::new(UInt64Array::from_iter((0..50).map(|_| Some(n)))) };
    let strings = |s: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values((0..50).map(|_| s))) };
    let no_names: ArrayRef = Arc::new(StringArray::from_iter((0..50).map(|_| None::<&str>)));
    let changed: [(&str, ArrayRef); 14] = [
        (columns::NAME, no_names),
        (columns::NAME, strings("same")),
        (columns::NAME, numbers(7)),
        (columns::KIND, strings("tensors")),
        (columns::DTYPE, strings("value")),
        (columns::DTYPE, strings(&"d".repeat(65))),
        (columns::SHAPE, numbers(3)),
        (columns::CHUNK_OFFSET, numbers(u64::MAX)),
        (columns::RAW_LEN, numbers(1)),
        (columns::PACK_LEN, numbers(64)),
        (columns::PACK_OFFSET, numbers(u64::MAX - 63)),
        (columns::PACK_OFFSET, numbers(65)),
        (columns::STORED_LEN, numbers(1 << 40)),
        (columns::CHUNK, strings("not 32 bytes")),
    ];
    for (name, array) in changed {
        let shown = format!("{name} {:?}", array.slice(0, 1));
        let found = read(&made_up(&with(&batch, name, array), &rows[0].name, &rows[49].name));
        assert!(
            matches!(found, Err(FormatError::Corrupt { .. } | FormatError::TooLarge { .. })),
            "{shown}: {found:?}"
        );
    }
    let codecs: ArrayRef = Arc::new(UInt8Array::from_iter((0..50).map(|_| Some(3u8))));
    let found = read(&made_up(&with(&batch, columns::CODEC, codecs), &rows[0].name, &rows[49].name));
    assert!(matches!(found, Err(FormatError::Unsupported { what: "codec", .. })), "{found:?}");
    let absent = batch.project(&(1..batch.num_columns()).collect::<Vec<_>>()).unwrap();
    assert!(
        read(&made_up(&absent, &rows[0].name, &rows[49].name))
            .unwrap_err()
            .to_string()
            .contains("column name")
    );
    let found = read(&made_up(&batch, &rows[0].name, "layers.1")).unwrap_err();
    assert!(found.to_string().contains("layers.1"), "{found}");
}

#[test]
fn c25_a_row_group_that_swells_when_decompressed_is_refused_before_it_does() {
    let rows = many(50);
    let batch = encode::batch(&rows).unwrap();
    let lists = arrow_array::ListArray::new(
        columns::numbers(),
        arrow_buffer::OffsetBuffer::from_lengths((0..50).map(|_| 200_000)),
        Arc::new(UInt64Array::from_iter_values((0..10_000_000).map(|_| 0))),
        None,
    );
    let bomb = made_up(&with(&batch, columns::SHAPE, Arc::new(lists)), &rows[0].name, &rows[49].name);
    let found = read(&bomb).unwrap_err();
    assert!(matches!(found, FormatError::TooLarge { what: "values of an index column", .. }), "{found:?}");
    let long = "x".repeat(1 << 20);
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..50).map(|i| format!("{long}{i:02}"))));
    let found = read(&made_up(&with(&batch, columns::NAME, names), "x", "y")).unwrap_err();
    assert!(matches!(found, FormatError::TooLarge { what: "raw bytes of a row group", .. }), "{found:?}");
}

#[test]
fn a_row_group_of_another_index_is_refused() {
    let index = written(&many(20_000));
    let tail = index.bytes.slice(usize::try_from(index.reference.footer_offset).unwrap()..);
    let footer = Footer::parse(&tail, &index.reference).unwrap();
    let second = footer.groups()[1].range.clone();
    let bytes =
        index.bytes.slice(usize::try_from(second.start).unwrap()..usize::try_from(second.end).unwrap());
    assert!(footer.read_group(1, &bytes).is_ok());
    assert!(matches!(footer.read_group(0, &bytes), Err(FormatError::Corrupt { .. })));
    assert!(matches!(footer.read_group(2, &bytes), Err(FormatError::Invalid { .. })));
    let newer = IndexRef { footer_blake3: ContentHash([0; 32]), ..index.reference.clone() };
    assert!(matches!(Footer::parse(&tail, &newer), Err(FormatError::Corrupt { .. })));
}

#[test]
fn any_parquet_reader_sees_the_columns_of_the_specification() {
    let EncodedIndex { bytes, .. } = written(&varied());
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let found: Vec<(String, DataType, bool)> = reader
        .schema()
        .fields()
        .iter()
        .map(|f| (f.name().clone(), f.data_type().clone(), f.is_nullable()))
        .collect();
    let expected: Vec<_> = columns::schema()
        .fields()
        .iter()
        .map(|f| (f.name().clone(), f.data_type().clone(), f.is_nullable()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 11);
}

fn row() -> impl Strategy<Value = Row> {
    let shape = prop::collection::vec(0u64..5, 0..4);
    ("[a-c./\u{e9}]{0,4}", shape, any::<u16>(), prop::option::of(0u32..20)).prop_map(
        |(name, shape, seed, rank)| Row { rank: rank.map(Rank), ..tensor(&name, &shape, u64::from(seed)) },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sorted_rows_come_back(mut rows in prop::collection::vec(row(), 0..40)) {
        rows.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        rows.dedup_by(|a, b| a.sort_key() == b.sort_key());
        let index = written(&rows);
        prop_assert_eq!(&read(&index).unwrap(), &rows);
        if let Some(row) = rows.first() {
            prop_assert!(lookup(&index, &row.name).contains(row));
        }
    }

    #[test]
    fn c25_scrambled_row_groups_under_right_hashes_do_not_panic(at in any::<usize>(), byte in any::<u8>()) {
        let index = written(&varied());
        let footer_offset = usize::try_from(index.reference.footer_offset).unwrap();
        let mut bytes = index.bytes[4..footer_offset].to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let tail = index.bytes.slice(footer_offset..);
        let mut footer = Footer::parse(&tail, &index.reference).unwrap();
        footer.groups[0].blake3 = ContentHash::of(&bytes);
        let bytes = bytes.into();
        let _ = footer.read_named(0, &bytes, "rng");
        let _ = footer.read_group(0, &bytes);
    }
}
