use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::pattern::Pattern;

use super::*;
use crate::Selection;

fn row(name: &str, element: ElementType, shape: &[u64]) -> Row {
    let kind = match element {
        ElementType::Dtype(_) | ElementType::Unknown(_) => Kind::Tensor,
        _ => Kind::Object,
    };
    let bounds = Bounds::whole(shape);
    Row {
        name: name.into(),
        kind,
        element,
        shape: shape.into(),
        bounds,
        alias_of: None,
        rank: None,
        piece: None,
    }
}

fn rows() -> Vec<Row> {
    vec![
        row("layer.bias", ElementType::Dtype(Dtype::F32), &[2]),
        row("layer.weight", ElementType::Dtype(Dtype::F32), &[4, 2]),
        row("step", ElementType::Value, &[3]),
        row("strange", ElementType::Unknown("float3".into()), &[2]),
    ]
}

fn target<'a>(name: &str, shape: &[u64], into: &'a mut [u8]) -> Target<'a> {
    Target { name: name.into(), dtype: Dtype::F32, shape: shape.to_vec(), bounds: Bounds::whole(shape), into }
}

fn only_layers() -> RestoreOptions {
    let scope = Selection { select: vec![Pattern::new("layer.*").unwrap()], ..Selection::all() };
    RestoreOptions { scope, ..RestoreOptions::default() }
}

#[test]
fn names_that_agree_match() {
    let (mut weight, mut bias) = ([0; 32], [0; 8]);
    let targets = [target("layer.weight", &[4, 2], &mut weight), target("layer.bias", &[2], &mut bias)];
    let rows = rows();
    let found = compare(&rows, &targets, &only_layers()).unwrap();
    assert_eq!(found.rows[0].unwrap()[0].name.as_ref(), "layer.weight");
    assert_eq!((found.missing, found.unexpected), (vec![], vec![]));
}

#[test]
fn strictness_refuses_what_leniency_reports() {
    let (mut weight, mut other) = ([0; 32], [0; 8]);
    let targets = [target("layer.weight", &[4, 2], &mut weight), target("other", &[2], &mut other)];
    let rows = rows();
    let strict = compare(&rows, &targets, &only_layers()).unwrap_err();
    let RestoreError::SchemaMismatch { missing, unexpected, .. } = strict else { panic!("{strict}") };
    assert_eq!((missing, unexpected), (vec!["other".to_owned()], vec!["layer.bias".to_owned()]));

    let lenient = RestoreOptions { strict: false, ..RestoreOptions::default() };
    let found = compare(&rows, &targets, &lenient).unwrap();
    assert_eq!(
        (found.missing, found.unexpected),
        (vec!["other".into()], vec!["layer.bias".into(), "strange".into()])
    );
}

#[test]
fn c17_dtype_and_shape_must_agree_even_leniently() {
    let mut bytes = [0; 32];
    let mut wanted = target("layer.weight", &[2, 4], &mut bytes);
    let lenient = RestoreOptions { strict: false, ..RestoreOptions::default() };
    let found = compare(&rows(), std::slice::from_ref(&wanted), &lenient).unwrap_err();
    assert!(found.to_string().contains("stored with shape [4, 2], wanted with [2, 4]"), "{found}");

    (wanted.dtype, wanted.shape, wanted.bounds) = (Dtype::I32, vec![4, 2], Bounds::whole(&[4, 2]));
    let found = compare(&rows(), &[wanted], &lenient).unwrap_err();
    assert!(found.to_string().contains("stored as f32, wanted as i32"), "{found}");
}

#[test]
fn nothing_in_common_is_an_error_with_a_hint_even_leniently() {
    let lenient = RestoreOptions { strict: false, ..RestoreOptions::default() };
    for (asked, hint) in [
        ("module.layer.weight", "\"module.\" is removed"),
        ("_orig_mod.layer.weight", "\"_orig_mod.\" is removed"),
        ("net.layer.weight", "asked for begin with \"net.\""),
        ("weight", "stored names begin with \"layer.\""),
    ] {
        let mut bytes = [0; 32];
        let found = compare(&rows(), &[target(asked, &[4, 2], &mut bytes)], &lenient).unwrap_err();
        assert!(found.to_string().contains(hint), "{asked}: {found}");
    }
}

#[test]
fn c21_an_unknown_dtype_is_refused_by_name() {
    let mut bytes = [0; 8];
    let found = compare(&rows(), &[target("strange", &[2], &mut bytes)], &only_layers()).unwrap_err();
    assert!(matches!(&found, RestoreError::UnknownDtype { dtype, .. } if dtype == "float3"), "{found}");
}

#[test]
fn memory_that_does_not_fit_the_box_is_refused() {
    let mut bytes = [0; 31];
    let found = compare(&rows(), &[target("layer.weight", &[4, 2], &mut bytes)], &only_layers()).unwrap_err();
    assert!(found.to_string().contains("needs 32 bytes of memory, 31 are given"), "{found}");
}

#[test]
fn an_object_is_no_tensor() {
    let mut bytes = [0; 12];
    let found = compare(&rows(), &[target("step", &[3], &mut bytes)], &only_layers()).unwrap_err();
    assert!(found.to_string().contains("stored as an object"), "{found}");
}
