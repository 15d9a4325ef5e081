//! Slices of tensors, as the command line reads them.

#[path = "../../tools/ckpt-inspect/src/tensor/slice.rs"]
mod slice;

use everstep_format::bounds::Bounds;

/// A shape such as `4,6`, and a slice of it. What is accepted lies inside the tensor.
pub(crate) fn slices(shape: &str, text: &str) {
    let Ok(shape) = shape.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>() else { return };
    let Ok(slice) = slice::Slice::parse(text, &shape) else { return };
    let Bounds { offset, extent } = &slice.bounds;
    assert_eq!((offset.len(), extent.len()), (shape.len(), shape.len()));
    for (d, len) in shape.iter().enumerate() {
        assert!(offset[d].checked_add(extent[d]).is_some_and(|end| end <= *len), "beyond the tensor");
    }
    assert!(slice.shape.len() <= shape.len() && slice.shape.iter().all(|len| extent.contains(len)));
    slice::Slice::whole(&shape);
}
