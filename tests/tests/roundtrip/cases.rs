//! The cases of practitioners about data: bits, types, names, shapes.

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::name::Rank;
use everstep_format::repository::Chunking;
use everstep_format::value::Value;
use everstep_restore::{RestoreError, RestoreOptions, Settings, Target};
use everstep_save::{Content, ObjectEntry, Owner, State};

use crate::any::Tensor;
use crate::fixture::Fixture;

fn fixture() -> Fixture {
    Fixture::new(Chunking::default())
}

fn state(tensors: &[Tensor]) -> State<'_> {
    State { shards: tensors.iter().flat_map(|tensor| tensor.state().shards).collect(), objects: vec![] }
}

fn bounds(offset: &[u64], extent: &[u64]) -> Bounds {
    Bounds { offset: offset.into(), extent: extent.into() }
}

/// Saves, checks, and compares every tensor read whole and by a strict restore of everything.
fn comes_back(tensors: &[Tensor]) {
    let fixture = fixture();
    let reader = fixture.save(&state(tensors));
    assert_eq!(fixture.damage(), Vec::<String>::new());
    let mut memory: Vec<Vec<u8>> = tensors.iter().map(|tensor| vec![0xA5; tensor.bytes.len()]).collect();
    let target = |(tensor, into): (&Tensor, _)| Target {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        bounds: Bounds::whole(&tensor.shape),
        into,
    };
    let targets = tensors.iter().zip(memory.iter_mut().map(Vec::as_mut_slice)).map(target).collect();
    fixture.restore(&reader, targets, &RestoreOptions::default(), &Settings::default()).unwrap();
    for (tensor, found) in tensors.iter().zip(&memory) {
        assert_eq!(found, &tensor.bytes, "{:?}", tensor.name);
        assert_eq!(fixture.read(&reader, &tensor.name, None), tensor.bytes, "{:?}", tensor.name);
        let entry = fixture.entry(&reader, &tensor.name).unwrap();
        assert_eq!(
            (entry.element.name(), &entry.shape),
            (tensor.dtype.name(), &tensor.shape),
            "{:?}",
            tensor.name
        );
    }
    assert_eq!(fixture.entries(&reader).len(), tensors.len());
}

fn hex(text: &str, width: usize) -> Vec<u8> {
    let word = |word: &str| u64::from_str_radix(word, 16).unwrap().to_le_bytes()[..width].to_vec();
    text.split(' ').flat_map(word).collect()
}

#[test]
fn c20_special_float_bits_survive() {
    let special = |name: &str, dtype: Dtype, text: &str| {
        let width = usize::try_from(dtype.bits() / 8).unwrap();
        let bytes = hex(text, width);
        // Once as they are, once often enough to be worth compressing.
        let many = bytes.repeat(4000);
        let tensor =
            |name: String, bytes: Vec<u8>| Tensor::new(&name, dtype, &[(bytes.len() / width) as u64], bytes);
        [tensor(name.to_owned(), bytes), tensor(format!("{name}.many"), many)]
    };
    let tensors = [
        special("f32", Dtype::F32, "80000000 7F800001 7FC00001 FF800000 00000001"),
        special("f16", Dtype::F16, "8000 7C01 0001"),
        special("bf16", Dtype::Bf16, "8000 7F81 FF80 0001"),
        special("e4m3fn", Dtype::F8E4m3fn, "80 7F 01"),
        special("e5m2", Dtype::F8E5m2, "7C 7D 80"),
        special("f64", Dtype::F64, "FFF0000000000001"),
    ];
    comes_back(tensors.as_flattened());
}

#[test]
fn c20_minus_zero_and_plus_zero_are_different_chunks() {
    let minus = Tensor::new("minus", Dtype::F32, &[4096], hex("80000000", 4).repeat(4096));
    let plus = Tensor::new("plus", Dtype::F32, &[4096], vec![0; 4 * 4096]);
    let fixture = fixture();
    let report = fixture.save_report(&state(&[minus.clone(), plus.clone()]));
    assert_eq!(report.chunks_uploaded, 2);
    comes_back(&[minus, plus]);
}

#[test]
fn c21_every_dtype_comes_back_whole_and_in_slices() {
    let tensor = |dtype: &Dtype| {
        let len = usize::try_from(dtype.byte_len(6 * 8).unwrap()).unwrap();
        Tensor::new(dtype.name(), *dtype, &[6, 8], (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect())
    };
    let tensors: Vec<Tensor> = Dtype::ALL.iter().map(tensor).collect();
    comes_back(&tensors);

    let fixture = fixture();
    let reader = fixture.save(&state(&tensors));
    for tensor in &tensors {
        for part in [bounds(&[2, 0], &[3, 8]), bounds(&[1, 2], &[4, 4]), bounds(&[5, 6], &[1, 2])] {
            let found = fixture.read(&reader, &tensor.name, Some(part.clone()));
            assert_eq!(found, tensor.bytes_of(&part), "{} {part}", tensor.name);
        }
    }
}

#[test]
fn c21_packed_elements_keep_their_logical_shape_and_odd_ends() {
    let fp4 = Tensor::new("fp4", Dtype::F4E2m1, &[2, 8], (0..8).collect());
    let int4 = Tensor::new("int4", Dtype::I4, &[5], vec![0x21, 0x43, 0x05]);
    comes_back(&[fp4.clone(), int4.clone()]);

    let fixture = fixture();
    let reader = fixture.save(&state(&[fp4, int4]));
    assert_eq!(fixture.read(&reader, "fp4", Some(bounds(&[1, 2], &[1, 4]))), [5, 6]);
    assert_eq!(fixture.read(&reader, "int4", Some(bounds(&[2], &[3]))), [0x43, 0x05]);
    for cut in [bounds(&[0, 1], &[1, 2]), bounds(&[0, 0], &[2, 3])] {
        let refused = fixture.try_read(&reader, "fp4", Some(cut.clone())).unwrap_err();
        assert!(matches!(refused, RestoreError::Invalid { .. }), "{cut}: {refused}");
    }
    let refused = fixture.try_read(&reader, "int4", Some(bounds(&[0], &[3]))).unwrap_err();
    assert!(matches!(refused, RestoreError::Invalid { .. }), "{refused}");
}

#[test]
fn c21_an_odd_packed_matrix_is_whole_or_nothing() {
    let odd = Tensor::new("odd", Dtype::U4, &[3, 5], vec![0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0x0E]);
    comes_back(std::slice::from_ref(&odd));
    let fixture = fixture();
    let reader = fixture.save(&odd.state());
    assert!(fixture.try_read(&reader, "odd", Some(bounds(&[1, 0], &[1, 5]))).is_err());
    assert_eq!(fixture.read(&reader, "odd", Some(bounds(&[2, 0], &[1, 5]))), [0xBA, 0xDC, 0x0E]);
}

#[test]
fn c30_any_name_returns_its_own_value() {
    let names = everstep_tests::names::awkward();
    let tensor =
        |(n, name): (usize, &String)| Tensor::new(name, Dtype::I64, &[], (n as u64).to_le_bytes().to_vec());
    let tensors: Vec<Tensor> = names.iter().enumerate().map(tensor).collect();
    comes_back(&tensors);
}

#[test]
fn c30_a_name_that_nobody_could_ask_for_is_refused_by_name() {
    let refused = fixture().try_save(&Tensor::new("", Dtype::U8, &[1], vec![1]).state()).unwrap_err();
    assert!(refused.to_string().contains("\"\""), "{refused}");
}

#[test]
fn c31_scalars_and_tensors_without_elements_keep_type_and_shape() {
    let tensors = [
        Tensor::new("bf16", Dtype::Bf16, &[], vec![1, 2]),
        Tensor::new("bool", Dtype::Bool, &[], vec![1]),
        Tensor::new("i64", Dtype::I64, &[], vec![9; 8]),
        Tensor::new("complex64", Dtype::Complex64, &[], vec![7; 8]),
        Tensor::new("none", Dtype::F32, &[0], vec![]),
        Tensor::new("none.2", Dtype::F32, &[0, 3], vec![]),
        Tensor::new("none.3", Dtype::F64, &[3, 0, 5], vec![]),
        Tensor::new("none.4", Dtype::F4E2m1, &[0, 4], vec![]),
    ];
    comes_back(&tensors);
    let fixture = fixture();
    let reader = fixture.save(&state(&tensors));
    assert!(
        fixture.entries(&reader).iter().all(|entry| entry.alias_of.is_none()),
        "empties share no storage"
    );
    let nothing = fixture.read(&reader, "none.3", Some(bounds(&[1, 0, 2], &[1, 0, 2])));
    assert_eq!(nothing, Vec::<u8>::new());
    assert_eq!(fixture.read(&reader, "i64", Some(Bounds::whole(&[]))), [9; 8]);
}

#[test]
fn c31_only_empty_tensors_store_no_pack() {
    let fixture = fixture();
    let report = fixture.save_report(&Tensor::new("none", Dtype::F32, &[0], vec![]).state());
    assert_eq!((report.packs, report.tensors), (0, 1));
    assert_eq!(fixture.damage(), Vec::<String>::new());
}

#[test]
fn c31_an_empty_shard_of_a_larger_tensor_is_fine() {
    let mut tensor = Tensor::new("t", Dtype::U16, &[4, 2], (0..16).collect());
    tensor.shards = vec![
        (bounds(&[0, 0], &[4, 2]), tensor.bytes.clone()),
        (bounds(&[4, 0], &[0, 2]), vec![]),
        (bounds(&[2, 0], &[0, 2]), vec![]),
    ];
    comes_back(&[tensor]);
}

#[test]
fn c31_a_checkpoint_without_tensors_commits_and_lists_none() {
    comes_back(&[]);
}

fn ranked(name: &str, ranks: u32) -> Vec<ObjectEntry> {
    let entry = |rank: u32| ObjectEntry {
        name: name.to_owned(),
        owner: Owner::Rank(Rank(rank)),
        content: Content::Value(Value::Int(i64::from(rank) * 11)),
    };
    (0..ranks).map(entry).collect()
}

#[test]
fn objects_are_global_or_belong_to_ranks() {
    let global = ObjectEntry {
        name: "args".into(),
        owner: Owner::Job,
        content: Content::Opaque(vec![1, 2, 3].into()),
    };
    let mut objects = ranked("rng", 3);
    objects.push(global);
    let fixture = fixture();
    let reader = fixture.save(&State { shards: vec![], objects });
    assert_eq!(fixture.damage(), Vec::<String>::new());

    let integer = |rank| match fixture.object(&reader, "rng", Some(Rank(rank))).unwrap() {
        everstep_restore::Content::Value(Value::Int(n)) => n,
        other => panic!("{other:?}"),
    };
    assert_eq!([integer(0), integer(1), integer(2)], [0, 11, 22]);
    for asked in [None, Some(Rank(7))] {
        let found = fixture.object(&reader, "args", asked).unwrap();
        assert_eq!(crate::fixture::bytes_of_stored(&found), [1, 2, 3]);
    }
    let refused = fixture.object(&reader, "rng", Some(Rank(3))).unwrap_err();
    assert!(matches!(&refused, RestoreError::World { stored, .. } if stored.len() == 3), "{refused}");
    let refused = fixture.object(&reader, "rng", None).unwrap_err();
    assert!(matches!(&refused, RestoreError::World { asked: None, .. }), "{refused}");
    let refused = fixture.object(&reader, "nothing", None).unwrap_err();
    assert!(matches!(&refused, RestoreError::NotFound { .. }), "{refused}");
    assert_eq!(fixture.entries(&reader)[1].ranks, [Rank(0), Rank(1), Rank(2)]);
}

#[test]
fn a_schema_error_leaves_the_targets_untouched() {
    let tensors = [
        Tensor::new("a", Dtype::F32, &[64], vec![1; 256]),
        Tensor::new("b", Dtype::F32, &[64], vec![2; 256]),
    ];
    let fixture = fixture();
    let reader = fixture.save(&state(&tensors));
    let mut memory = [[0xA5u8; 256], [0xA5; 256]];
    let [a, b] = &mut memory;
    let target = |name: &str, dtype, into| Target {
        name: name.to_owned(),
        dtype,
        shape: vec![64],
        bounds: Bounds::whole(&[64]),
        into,
    };
    let targets = vec![target("a", Dtype::F32, &mut a[..]), target("b", Dtype::I32, &mut b[..])];
    let refused =
        fixture.restore(&reader, targets, &RestoreOptions::default(), &Settings::default()).unwrap_err();
    assert!(matches!(refused, RestoreError::SchemaMismatch { .. }), "{refused}");
    assert_eq!(memory, [[0xA5; 256]; 2]);
}

#[test]
fn a_small_box_reads_only_the_chunks_it_touches() {
    let chunking = Chunking { block_elements: 1024, block_bytes: 4096, overrides: vec![] };
    let fixture = Fixture::new(chunking);
    let bytes: Vec<u8> =
        (0..256u64 * 1024).flat_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
    let tensor = Tensor::new("t", Dtype::U64, &[256 * 1024], bytes);
    let reader = fixture.save(&tensor.state());
    let wanted = bounds(&[70_000], &[600]);
    let mut into = vec![0; 4800];
    let target = Target {
        name: "t".into(),
        dtype: Dtype::U64,
        shape: tensor.shape.clone(),
        bounds: wanted.clone(),
        into: &mut into,
    };
    let report =
        fixture.restore(&reader, vec![target], &RestoreOptions::default(), &Settings::default()).unwrap();
    assert_eq!(into, tensor.bytes_of(&wanted));
    assert_eq!((report.chunks, report.requests), (2, 1), "600 elements touch two blocks of 512");
}
