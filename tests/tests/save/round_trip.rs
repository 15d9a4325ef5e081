//! What goes in comes out.

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::grid::keeps_bytes_whole;
use everstep_format::name::Rank;
use everstep_format::row::{ElementType, Kind};
use everstep_format::value::Value;
use everstep_save::{ByteSource, Content, Engine, ObjectEntry, Owner, Replicas, Shard, Source, State};
use proptest::prelude::*;

use crate::bench::{Bench, bounds, noise, tensors, whole};
use crate::read_back::{contents, rows, tensor};

/// Bytes that are read like a file.
struct Slow(Vec<u8>);

impl ByteSource for Slow {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.0[start..start + into.len()]);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c21_every_dtype_survives_bit_by_bit() {
    let bench = Bench::with_blocks(64).await;
    let mut session = bench.session().await;
    let shapes: [&[u64]; 5] = [&[], &[5], &[3, 7], &[40, 6], &[3, 200]];
    let mut cases = Vec::new();
    for (n, &dtype) in Dtype::ALL.iter().enumerate() {
        for shape in shapes {
            let len = usize::try_from(dtype.byte_len(shape.iter().product()).unwrap()).unwrap();
            cases.push((format!("{dtype} {shape:?}"), dtype, shape, noise(n as u64 + 1, len)));
        }
    }
    let state =
        tensors(cases.iter().map(|(name, dtype, shape, bytes)| whole(name, *dtype, shape, bytes)).collect());
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!(report.tensors, cases.len() as u64);
    let found = contents(&bench, &report.checkpoint).await;
    for (name, dtype, shape, bytes) in &cases {
        assert_eq!(found[&(name.clone(), None)], *bytes, "{name}");
        let rows = rows(&bench, &report.checkpoint).await;
        let row = rows.iter().find(|row| *row.name == **name).unwrap();
        assert_eq!((&row.element, &row.shape[..]), (&ElementType::Dtype(*dtype), *shape));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c20_special_float_bits_survive_and_zeros_of_either_sign_are_different_chunks() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let special: Vec<u8> = [0x8000_0000_u32, 0x7F80_0001, 0x7FC0_0001, 0xFF80_0000, 1]
        .iter()
        .flat_map(|bits| bits.to_le_bytes())
        .collect();
    let minus: Vec<u8> = (0..1000).flat_map(|_| (-0.0_f32).to_le_bytes()).collect();
    let plus = vec![0; 4000];
    let state = tensors(vec![
        whole("special", Dtype::F32, &[5], &special),
        whole("minus", Dtype::F32, &[1000], &minus),
        whole("plus", Dtype::F32, &[1000], &plus),
    ]);
    let report = bench.save(&mut session, &state).await.unwrap();
    let found = contents(&bench, &report.checkpoint).await;
    let of = |name: &str| &found[&(name.to_owned(), None)];
    assert_eq!((of("special"), of("minus"), of("plus")), (&special, &minus, &plus));
    let rows = rows(&bench, &report.checkpoint).await;
    let chunk =
        |name: &str| rows.iter().find(|row| &*row.name == name).unwrap().piece.as_ref().unwrap().chunk;
    assert_ne!(chunk("minus"), chunk("plus"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c31_scalars_and_tensors_without_elements_keep_shape_and_type() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let mut empty_shard = whole("sharded", Dtype::I64, &[2], &[]);
    empty_shard.bounds = bounds(&[2], &[0]);
    let state = tensors(vec![
        whole("scalar bf16", Dtype::Bf16, &[], &[1, 2]),
        whole("scalar bool", Dtype::Bool, &[], &[1]),
        whole("scalar complex", Dtype::Complex64, &[], &[1, 2, 3, 4, 5, 6, 7, 8]),
        whole("[0]", Dtype::F32, &[0], &[]),
        whole("[0, 3]", Dtype::F32, &[0, 3], &[]),
        whole("[3, 0, 5]", Dtype::F4E2m1, &[3, 0, 5], &[]),
        whole("sharded", Dtype::I64, &[2], &[7; 16]),
        empty_shard,
    ]);
    let report = bench.save(&mut session, &state).await.unwrap();
    let rows = rows(&bench, &report.checkpoint).await;
    let shapes: Vec<(&str, &[u64], bool)> =
        rows.iter().map(|row| (&*row.name, &row.shape[..], row.piece.is_some())).collect();
    let expected: Vec<(&str, &[u64], bool)> = vec![
        ("[0, 3]", &[0, 3], false),
        ("[0]", &[0], false),
        ("[3, 0, 5]", &[3, 0, 5], false),
        ("scalar bf16", &[], true),
        ("scalar bool", &[], true),
        ("scalar complex", &[], true),
        ("sharded", &[2], true),
    ];
    assert_eq!(shapes, expected);
    assert!(rows.iter().all(|row| row.alias_of.is_none()));
    assert_eq!(tensor(&bench, &report.checkpoint, "scalar bf16").await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c31_a_state_of_nothing_commits() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let report = bench.save(&mut session, &State::default()).await.unwrap();
    assert_eq!((report.tensors, report.raw_bytes, report.packs), (0, 0, 0));
    assert_eq!(rows(&bench, &report.checkpoint).await, []);
    let only_empty = tensors(vec![whole("e", Dtype::U8, &[0], &[])]);
    let report = bench.save(&mut session, &only_empty).await.unwrap();
    assert_eq!((report.tensors, report.packs), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn c30_every_name_but_the_empty_one_keeps_its_own_value() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let long = "n".repeat(4096);
    let deep = ["layer"; 200].join(".");
    let mut names =
        vec!["a.b", "a/b", "a__b", "a\\b", "../x", "W", "w", "\u{e9}", "e\u{301}", "CON", "x:y", "a b"];
    names.extend(["%41", "n\nl", "a\0b", "\0", " ", &long, &deep]);
    let values: Vec<[u8; 8]> = (0..names.len() as u64).map(u64::to_le_bytes).collect();
    let shards = names.iter().zip(&values).map(|(name, value)| whole(name, Dtype::U64, &[], value));
    let state = tensors(shards.collect());
    let report = bench.save(&mut session, &state).await.unwrap();
    let found = contents(&bench, &report.checkpoint).await;
    assert_eq!(found.len(), names.len());
    for (name, value) in names.iter().zip(&values) {
        assert_eq!(found[&((*name).to_owned(), None)], value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c30_no_key_depends_on_a_name() {
    let bench = Bench::new().await;
    bench.spy.written.lock().unwrap().clear();
    let mut session = bench.session().await;
    let bytes = noise(1, 4096);
    let state = State {
        shards: vec![whole("secretname", Dtype::U8, &[4096], &bytes)],
        objects: vec![ObjectEntry {
            name: "othername".to_owned(),
            owner: Owner::Job,
            content: Content::Opaque(noise(2, 4096).into()),
        }],
    };
    bench.save(&mut session, &state).await.unwrap();
    let written = bench.spy.written.lock().unwrap();
    assert!(written.iter().all(|(key, _)| key.kind().is_some()), "{written:?}");
    assert!(written.iter().all(|(key, _)| !key.as_str().contains("name")));
}

#[tokio::test(flavor = "multi_thread")]
async fn c22_tied_tensors_are_stored_once_and_only_ties_are_recorded() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let bytes = noise(3, 256_000);
    let mut head = whole("head.w", Dtype::F32, &[1000, 64], &bytes);
    head.alias_of = Some("emb.w".to_owned());
    let state = tensors(vec![
        head,
        whole("other.w", Dtype::F32, &[1000, 64], &bytes),
        whole("emb.w", Dtype::F32, &[1000, 64], &bytes),
    ]);
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!((report.chunks_uploaded, report.new_raw_bytes, report.raw_bytes), (1, 256_000, 768_000));
    let rows = rows(&bench, &report.checkpoint).await;
    let aliases: Vec<Option<&str>> = rows.iter().map(|row| row.alias_of.as_deref()).collect();
    assert_eq!(aliases, [None, Some("emb.w"), None]);
    assert_eq!(tensor(&bench, &report.checkpoint, "head.w").await, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_one_job_and_of_each_rank_survive() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let opaque = |name: &str, rank: Option<Rank>, bytes: &[u8]| ObjectEntry {
        name: name.to_owned(),
        owner: rank.into(),
        content: Content::Opaque(bytes.to_vec().into()),
    };
    let value = Value::List(vec![Value::Int(1), Value::Float(1.0), Value::Bool(true)]);
    let value_bytes = value.to_bytes().unwrap();
    let large = noise(4, 9 << 20);
    let state = State {
        shards: Vec::new(),
        objects: vec![
            opaque("rng", Some(Rank(10)), b"ten"),
            opaque("rng", Some(Rank(2)), b"two!"),
            opaque("nothing", None, b""),
            opaque("large", None, &large),
            ObjectEntry { name: "settings".to_owned(), owner: Owner::Job, content: Content::Value(value) },
        ],
    };
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!((report.objects, report.tensors), (5, 0));
    let found = contents(&bench, &report.checkpoint).await;
    assert_eq!(found[&("rng".to_owned(), Some(Rank(10)))], b"ten");
    assert_eq!(found[&("rng".to_owned(), Some(Rank(2)))], b"two!");
    assert_eq!(found[&("settings".to_owned(), None)], value_bytes);
    assert_eq!(found[&("large".to_owned(), None)], large);
    let rows = rows(&bench, &report.checkpoint).await;
    let of = |name: &str| rows.iter().filter(|row| &*row.name == name).collect::<Vec<_>>();
    assert_eq!((of("settings")[0].kind, &of("settings")[0].element), (Kind::Object, &ElementType::Value));
    assert!(of("large").len() > 1, "a large object is cut");
    assert!(of("nothing")[0].piece.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_replicas_are_stored_once_whatever_their_source() {
    let bench = Bench::with_blocks(100).await;
    let mut session = bench.session().await;
    let bytes = noise(5, 4000);
    let file = Slow(bytes.clone());
    let mut replica = whole("w", Dtype::F32, &[50, 20], &bytes);
    replica.source = Source::Reader(&file);
    let state = tensors(vec![
        replica,
        whole("w", Dtype::F32, &[50, 20], &bytes),
        whole("w", Dtype::F32, &[50, 20], &bytes),
    ]);
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!((report.raw_bytes, report.new_raw_bytes), (4000, 4000));
    assert_eq!(tensor(&bench, &report.checkpoint, "w").await, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_state_makes_the_same_packs_on_any_number_of_threads() {
    let names: Vec<String> = (0..60).map(|n| format!("t{n:03}")).collect();
    let data: Vec<Vec<u8>> = (0..60_usize)
        .map(|n| match n {
            // Blocks of more than 1 MiB form habits of their own.
            7 | 8 => (0..5_000_000).flat_map(|i| ((i / 64 * n) as f32).sin().to_le_bytes()).collect(),
            _ => (0..5000 * (n % 7 + 1)).flat_map(|i| ((i * n) as f32).sin().to_le_bytes()).collect(),
        })
        .collect();
    let mut layouts = Vec::new();
    for threads in [1, 2, 7] {
        let mut bench = Bench::with_blocks(270_000).await;
        bench.engine = Engine::new(threads).unwrap();
        bench.settings.pack_target = 100_000;
        bench.settings.bytes_in_flight = 0;
        let mut session = bench.session().await;
        let shards = names
            .iter()
            .zip(&data)
            .map(|(name, bytes)| whole(name, Dtype::F32, &[bytes.len() as u64 / 4], bytes));
        let report = bench.save(&mut session, &tensors(shards.collect())).await.unwrap();
        let of_row = |row: &everstep_format::row::Row| {
            let piece = row.piece.clone().unwrap();
            (piece.chunk, piece.location.pack_offset, piece.location.stored_len, piece.location.pack_len)
        };
        layouts.push(rows(&bench, &report.checkpoint).await.iter().map(of_row).collect::<Vec<_>>());
    }
    assert_eq!(layouts[0], layouts[1]);
    assert_eq!(layouts[0], layouts[2]);
}

/// A tensor cut into boxes along every dimension.
#[derive(Debug, Clone)]
struct Sharded {
    dtype: Dtype,
    shape: Vec<u64>,
    cuts: Vec<Vec<u64>>,
    from_file: bool,
}

fn sharded() -> impl Strategy<Value = Sharded> {
    let dtype = prop::sample::select(Dtype::ALL);
    let shape = prop::collection::vec(0_u64..14, 0..4);
    (dtype, shape, prop::collection::vec(prop::collection::vec(0_u64..14, 0..3), 4), any::<bool>())
        .prop_map(|(dtype, shape, cuts, from_file)| Sharded { dtype, shape, cuts, from_file })
}

/// The boxes, where no box splits a byte; otherwise the whole.
fn boxes(of: &Sharded) -> Vec<Bounds> {
    let mut boxes = vec![bounds(&[], &[])];
    for (d, &len) in of.shape.iter().enumerate() {
        let mut edges: Vec<u64> =
            of.cuts[d].iter().copied().filter(|cut| *cut < len).chain([0, len]).collect();
        edges.sort_unstable();
        edges.dedup();
        let extend = |b: &Bounds, from: u64, to: u64| {
            bounds(&[&b.offset[..], &[from]].concat(), &[&b.extent[..], &[to - from]].concat())
        };
        let pairs = |b: &Bounds| edges.windows(2).map(|e| extend(b, e[0], e[1])).collect::<Vec<_>>();
        boxes = match edges.len() {
            1 => boxes.iter().map(|b| extend(b, 0, 0)).collect(),
            _ => boxes.iter().flat_map(pairs).collect(),
        };
    }
    let element = ElementType::Dtype(of.dtype);
    if boxes.iter().any(|b| keeps_bytes_whole(&of.shape, &element, b).is_err()) {
        return vec![Bounds::whole(&of.shape)];
    }
    boxes
}

/// The bytes of one box of a whole tensor.
fn cut(of: &Sharded, whole: &[u8], b: &Bounds) -> Vec<u8> {
    if *b == Bounds::whole(&of.shape) {
        return whole.to_vec();
    }
    let bits = of.dtype.bits();
    let nibble = |at: u64| (whole[usize::try_from(at / 2).unwrap()] >> (4 * (at % 2))) & 15;
    let mut units = Vec::new();
    for number in 0..b.elements().unwrap() {
        let (mut left, mut at, mut stride) = (number, 0, 1);
        for d in (0..of.shape.len()).rev() {
            at += (b.offset[d] + left % b.extent[d]) * stride;
            left /= b.extent[d];
            stride *= of.shape[d];
        }
        units.extend((0..bits / 4).map(|unit| nibble(at * (bits / 4) + unit)));
    }
    units.chunks(2).map(|pair| pair[0] | (pair.get(1).copied().unwrap_or(0) << 4)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_tensors_in_any_sharding_come_back(cases in prop::collection::vec(sharded(), 1..6), block in 1_u64..300) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::with_blocks(block).await;
            let mut session = bench.session().await;
            let mut wholes = Vec::new();
            let mut parts = Vec::new();
            for (n, case) in cases.iter().enumerate() {
                let len = case.dtype.byte_len(case.shape.iter().product()).unwrap();
                let mut bytes = noise(n as u64 + block, usize::try_from(len).unwrap());
                if case.dtype.bits() == 4 && case.shape.iter().product::<u64>() % 2 == 1 {
                    *bytes.last_mut().unwrap() &= 15;
                }
                parts.extend(boxes(case).into_iter().map(|b| (n, cut(case, &bytes, &b), b)));
                wholes.push(bytes);
            }
            let files: Vec<Slow> = parts.iter().map(|(_, bytes, _)| Slow(bytes.clone())).collect();
            let mut shards: Vec<Shard<'_>> = Vec::new();
            for ((n, bytes, b), file) in parts.iter().zip(&files) {
                let case = &cases[*n];
                let source = if case.from_file { Source::Reader(file) } else { Source::Memory(bytes) };
                let (name, shape) = (format!("t{n}"), case.shape.clone());
                shards.push(Shard { name, dtype: case.dtype, shape, bounds: b.clone(), alias_of: None, replicas: Replicas::None, source });
            }
            shards.reverse();
            let report = bench.save(&mut session, &tensors(shards)).await.unwrap();
            let found = contents(&bench, &report.checkpoint).await;
            for (n, bytes) in wholes.iter().enumerate() {
                assert_eq!(&found[&(format!("t{n}"), None)], bytes);
            }
        });
    }
}
