//! The transform under the planes codec: every element, read as a little-endian integer, is rotated left by
//! one bit (the sign moves to the bottom, the exponent fills the top byte) and its bytes are dealt out to one
//! plane each.

/// Elements per block of the fast loops. Fixed, so that the compiler drops every bounds check and vectorises.
const BLOCK: usize = 128;

/// Bytes dealt out before the next plane's turn: stays in the first-level cache while each plane reads it.
const PORTION_BYTES: usize = 16 * 1024;

trait Element<const W: usize> {
    /// The lowest byte of the rotated element.
    fn lowest(element: [u8; W]) -> u8;
    /// The byte of the rotated element that comes down by shifting the unrotated one by `shift`.
    fn shifted(element: [u8; W], shift: u32) -> u8;
    /// The element whose rotated bytes are these.
    fn from_planes(bytes: [u8; W]) -> [u8; W];
}

struct Rotated;

macro_rules! element {
    ($integer:ty, $width:literal) => {
        impl Element<$width> for Rotated {
            #[inline(always)]
            fn lowest(element: [u8; $width]) -> u8 {
                <$integer>::from_le_bytes(element).rotate_left(1).to_le_bytes()[0]
            }

            #[inline(always)]
            fn shifted(element: [u8; $width], shift: u32) -> u8 {
                // Wrapping, since a checked shift branches and the loop around it is no longer vectorised.
                <$integer>::from_le_bytes(element).wrapping_shr(shift).to_le_bytes()[0]
            }

            #[inline(always)]
            fn from_planes(bytes: [u8; $width]) -> [u8; $width] {
                // Widened and shifted rather than `from_le_bytes`: this form is vectorised, the other is not.
                let widen = |k: usize| <$integer>::from(bytes[k]) << (8 * k);
                (0..$width).fold(0, |sum, k| sum | widen(k)).rotate_right(1).to_le_bytes()
            }
        }
    };
}

element!(u16, 2);
element!(u32, 4);
element!(u64, 8);

/// Splits `raw` into `planes` (2, 4 or 8 of them, lowest byte first), each of `raw.len() / planes.len()`
/// bytes.
pub(super) fn split(raw: &[u8], planes: &mut [&mut [u8]]) {
    match planes.len() {
        2 => split_elements::<2>(raw, planes),
        4 => split_elements::<4>(raw, planes),
        8 => split_elements::<8>(raw, planes),
        width => unreachable!("elements of {width} bytes have no planes"),
    }
}

/// The reverse of [`split`]: fills `out` from `planes` (2, 4 or 8), each of `out.len() / planes.len()` bytes.
pub(super) fn join(planes: &[&[u8]], out: &mut [u8]) {
    match *planes {
        [a, b] => join_elements([a, b], out),
        [a, b, c, d] => join_elements([a, b, c, d], out),
        [a, b, c, d, e, f, g, h] => join_elements([a, b, c, d, e, f, g, h], out),
        _ => unreachable!("elements of {} bytes have no planes", planes.len()),
    }
}

fn split_elements<const W: usize>(raw: &[u8], planes: &mut [&mut [u8]])
where
    Rotated: Element<W>,
{
    let per_portion = PORTION_BYTES / W;
    for (index, portion) in raw.as_chunks::<W>().0.chunks(per_portion).enumerate() {
        let start = index * per_portion;
        let mut places = planes.iter_mut().map(|plane| &mut plane[start..start + portion.len()]);
        if let Some(lowest) = places.next() {
            deal_lowest(portion, lowest);
        }
        // Above the lowest byte a shift does what rotating would, at half the work.
        for (place, shift) in places.zip((7..).step_by(8)) {
            deal_shifted(portion, shift, place);
        }
    }
}

/// Writes the lowest byte of every rotated element. Its own function, as is the next one, so that the
/// compiler knows that source and target do not overlap.
fn deal_lowest<const W: usize>(elements: &[[u8; W]], plane: &mut [u8])
where
    Rotated: Element<W>,
{
    for (byte, element) in plane.iter_mut().zip(elements) {
        *byte = Rotated::lowest(*element);
    }
}

fn deal_shifted<const W: usize>(elements: &[[u8; W]], shift: u32, plane: &mut [u8])
where
    Rotated: Element<W>,
{
    for (byte, element) in plane.iter_mut().zip(elements) {
        *byte = Rotated::shifted(*element, shift);
    }
}

fn join_elements<const W: usize>(planes: [&[u8]; W], out: &mut [u8])
where
    Rotated: Element<W>,
{
    let (blocks, tail) = out.as_chunks_mut::<W>().0.as_chunks_mut::<BLOCK>();
    let sources = planes.map(|plane| plane.as_chunks::<BLOCK>().0);
    for (index, block) in blocks.iter_mut().enumerate() {
        gather_block(sources.map(|source| &source[index]), block);
    }
    let done = blocks.len() * BLOCK;
    for (index, element) in tail.iter_mut().enumerate() {
        *element = Rotated::from_planes(planes.map(|plane| plane[done + index]));
    }
}

fn gather_block<const W: usize>(sources: [&[u8; BLOCK]; W], block: &mut [[u8; W]; BLOCK])
where
    Rotated: Element<W>,
{
    for (index, element) in block.iter_mut().enumerate() {
        *element = Rotated::from_planes(sources.map(|source| source[index]));
    }
}
