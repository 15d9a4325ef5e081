//! Whatever is saved, however it is sharded, comes back: any state, any sharding in, any box out, equal bytes.

mod any;
mod bits;
mod cases;
mod fixture;
mod following;
mod handing_on;
mod large;
mod ranks;
mod retaining;

use everstep_restore::{RestoreOptions, Target};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::any::{Case, Tensor};
use crate::fixture::Fixture;

proptest! {
    #![proptest_config(Config { cases: 256, ..Config::default() })]

    #[test]
    fn any_state_sharded_anyhow_comes_back_in_any_box(case in any::case()) {
        let fixture = Fixture::new(case.chunking.clone());
        let state = case.state();
        let reader = fixture.save(&state);
        restores_all_boxes(&fixture, &reader, &case)?;
        reads_single_boxes(&fixture, &reader, &case)?;
        objects_come_back(&fixture, &reader, &case)?;
        prop_assert_eq!(fixture.damage(), Vec::<String>::new());
    }

    #[test]
    fn the_same_values_in_another_sharding_store_nothing_new_where_edges_fall_on_the_grid(
        tensor in any::tensor(), seed in any::<u64>(),
    ) {
        let fixture = Fixture::new(everstep_format::repository::Chunking { block_elements: 16, block_bytes: 64, overrides: vec![] });
        let whole = tensor.named("t").whole();
        fixture.save(&whole.state());
        let cut = whole.cut_on_the_grid(16, 64, seed);
        let report = fixture.save_report(&cut.state());
        prop_assert_eq!(report.new_raw_bytes, 0, "{} pieces", cut.shards.len());
    }
}

/// Every box of every tensor in one call, whatever the bounds on memory and requests.
fn restores_all_boxes(
    fixture: &Fixture,
    reader: &everstep_restore::CheckpointReader,
    case: &Case,
) -> Result<(), TestCaseError> {
    let expected: Vec<(&Tensor, Vec<u8>)> = case
        .tensors
        .iter()
        .flat_map(|tensor| tensor.wanted.iter().map(move |bounds| (tensor, tensor.bytes_of(bounds))))
        .collect();
    let mut memory: Vec<Vec<u8>> = expected.iter().map(|(_, bytes)| vec![0xA5; bytes.len()]).collect();
    let boxes =
        case.tensors.iter().flat_map(|tensor| tensor.wanted.iter().map(move |bounds| (tensor, bounds)));
    let targets = boxes.zip(&mut memory).map(|((tensor, bounds), into)| Target {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        bounds: bounds.clone(),
        into,
    });
    let report =
        fixture.restore(reader, targets.collect(), &RestoreOptions::default(), &case.settings).unwrap();
    prop_assert_eq!(report.bytes, expected.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    for ((tensor, bytes), found) in expected.iter().zip(&memory) {
        prop_assert_eq!(found, bytes, "{} {} {:?}", &tensor.name, tensor.dtype, &tensor.shape);
    }
    Ok(())
}

fn reads_single_boxes(
    fixture: &Fixture,
    reader: &everstep_restore::CheckpointReader,
    case: &Case,
) -> Result<(), TestCaseError> {
    for tensor in &case.tensors {
        let entry = fixture.entry(reader, &tensor.name).unwrap();
        prop_assert_eq!(entry.element.name(), tensor.dtype.name());
        prop_assert_eq!(&entry.shape, &tensor.shape);
        prop_assert_eq!(entry.raw_bytes, tensor.bytes.len() as u64);
        prop_assert_eq!(fixture.read(reader, &tensor.name, None), tensor.bytes.clone());
        for bounds in &tensor.wanted {
            prop_assert_eq!(
                fixture.read(reader, &tensor.name, Some(bounds.clone())),
                tensor.bytes_of(bounds)
            );
        }
    }
    Ok(())
}

fn objects_come_back(
    fixture: &Fixture,
    reader: &everstep_restore::CheckpointReader,
    case: &Case,
) -> Result<(), TestCaseError> {
    for object in &case.objects {
        let found = fixture.object(reader, &object.name, object.owner.rank()).unwrap();
        prop_assert_eq!(
            fixture::bytes_of_stored(&found),
            fixture::bytes_of(&object.content),
            "{}",
            &object.name
        );
    }
    prop_assert_eq!(fixture.objects(reader).len(), case.objects.len());
    Ok(())
}
