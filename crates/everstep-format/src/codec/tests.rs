//! Every codec, width and length there and back; special bits; and bytes that were made to hurt.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::frame::{FrameStyle, FrameWriter};
use super::plan::Treatment;
use super::*;
use crate::dtype::Dtype;
use crate::id::ChunkId;

const HUFFMAN: Treatment = Treatment::Frame(FrameStyle::Huffman);
const MATCHES: Treatment = Treatment::Frame(FrameStyle::Matches);

/// Deterministic bytes without structure.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

/// Floats like weights: random mantissas, few exponents.
fn weights(count: usize) -> Vec<u8> {
    let float = |bytes: &[u8]| {
        (f32::from(bytes[0]) + f32::from(bytes[1]) / 256.0 - 128.0) * (0.01 + f32::from(bytes[2]) * 1e-7)
    };
    noise(count * 3).chunks_exact(3).flat_map(|bytes| float(bytes).to_le_bytes()).collect()
}

fn frame_of(bytes: &[u8], style: FrameStyle) -> Vec<u8> {
    let mut room = vec![0; bytes.len() + 1024];
    let len = FrameWriter::default().write(style, bytes, &mut room).unwrap();
    room[..len].to_vec()
}

fn encode(raw: &[u8], dtype: Option<Dtype>) -> Encoded {
    Encoder::default().encode(raw, dtype, &mut Habit::default())
}

fn decode(codec: Codec, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, FormatError> {
    let mut out = vec![0xA5; raw_len];
    Decoder::default().decode(codec, stored, &mut out).map(|()| out)
}

fn planes_of(raw: &[u8], treatments: &[Treatment]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    let len = encoder.encode_planes(raw, treatments);
    encoder.stored(len).to_vec()
}

fn assert_returns(raw: &[u8], dtype: Option<Dtype>) -> Encoded {
    let encoded = encode(raw, dtype);
    assert!(encoded.bytes.len() <= raw.len(), "{dtype:?}: {} bytes for {}", encoded.bytes.len(), raw.len());
    assert!(
        decode(encoded.codec, &encoded.bytes, raw.len()).unwrap() == raw,
        "{dtype:?} of {} bytes",
        raw.len()
    );
    encoded
}

fn assert_corrupt(codec: Codec, stored: &[u8], raw_len: usize) {
    let result = decode(codec, stored, raw_len);
    assert!(
        matches!(result, Err(FormatError::Corrupt { .. })),
        "{codec:?} {stored:02x?} to {raw_len}: {result:?}"
    );
}

#[test]
fn a_hand_made_chunk_in_planes_has_the_bytes_of_the_specification() {
    // 1.0f32 and -2.0f32 are 3f800000 and c0000000; rotated left by one 7f000000 and 80000001.
    let raw = [0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0];
    let stored = planes_of(&raw, &[Treatment::Raw; 4]);
    assert_eq!(stored, [4, 0, 0, 0, 0, 0x00, 0x01, 0, 0, 0, 0, 0x7F, 0x80]);
    assert_eq!(decode(Codec::Planes, &stored, 8).unwrap(), raw);
    // Constant planes are found behind the first plane that is not planned raw.
    let stored = planes_of(&raw, &[Treatment::Raw, HUFFMAN, Treatment::Raw, HUFFMAN]);
    assert_eq!(stored, [4, 0, 2, 2, 0, 0x00, 0x01, 0, 0, 0x7F, 0x80]);
    assert_eq!(decode(Codec::Planes, &stored, 8).unwrap(), raw);
}

#[test]
fn special_values_rotate_by_one_bit() {
    for (width, stored, raw) in [
        (2usize, vec![2, 0, 0, 0x01, 0x00], vec![0x00, 0x80]),
        (4, vec![4, 0, 0, 0, 0, 0x01, 0, 0, 0], vec![0, 0, 0, 0x80]),
        (8, vec![8, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0, 0, 0, 0, 0, 0, 0xE0], vec![0, 0, 0, 0, 0, 0, 0, 0xF0]),
    ] {
        let mut expected = raw.clone();
        if width == 8 {
            expected =
                u64::from_le_bytes(stored[9..].try_into().unwrap()).rotate_right(1).to_le_bytes().to_vec();
        }
        assert_eq!(decode(Codec::Planes, &stored, width).unwrap(), expected, "width {width}");
    }
}

#[test]
fn every_length_around_the_block_sizes_returns() {
    let noise = noise(8 * 4200);
    for dtype in [None, Some(Dtype::Bf16), Some(Dtype::F32), Some(Dtype::F64), Some(Dtype::U8)] {
        for len in (0..70).chain([127, 128, 129, 1023, 1024, 1025, 8191, 16_384, 16_385, 16_392, 33_600]) {
            assert_returns(&noise[..len], dtype);
            assert_returns(&vec![7; len], dtype);
        }
    }
}

#[test]
fn weights_become_planes_and_shrink() {
    let raw = weights(200_000);
    let encoded = assert_returns(&raw, Some(Dtype::F32));
    assert_eq!(encoded.codec, Codec::Planes);
    assert!(encoded.bytes.len() < raw.len() * 90 / 100, "{} of {}", encoded.bytes.len(), raw.len());
    let halves: Vec<u8> = raw.chunks_exact(4).flat_map(|float| [float[2], float[3]]).collect();
    let encoded = assert_returns(&halves, Some(Dtype::Bf16));
    assert!(encoded.bytes.len() < halves.len() * 80 / 100, "{} of {}", encoded.bytes.len(), halves.len());
}

#[test]
fn noise_stays_raw_and_text_becomes_one_frame() {
    for dtype in [None, Some(Dtype::F32), Some(Dtype::Bf16), Some(Dtype::F64), Some(Dtype::I64)] {
        assert_eq!(assert_returns(&noise(300_000), dtype).codec, Codec::Raw, "{dtype:?}");
    }
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(5000);
    assert_eq!(assert_returns(text.as_bytes(), None).codec, Codec::Zstd);
    let steps: Vec<u8> = (0..100_000u64).flat_map(u64::to_le_bytes).collect();
    let encoded = assert_returns(&steps, Some(Dtype::I64));
    assert!(encoded.codec == Codec::Zstd && encoded.bytes.len() < steps.len() / 2, "{}", encoded.bytes.len());
}

#[test]
fn what_saves_less_than_two_percent_is_stored_raw() {
    // Zeros where the first sample lies, so that the plan is a frame in both cases.
    let mut raw = noise(1_000_000);
    raw[..10_000].fill(0);
    assert_eq!(assert_returns(&raw, None).codec, Codec::Raw);
    raw[..100_000].fill(0);
    assert_eq!(assert_returns(&raw, None).codec, Codec::Zstd);
}

#[test]
fn a_habit_of_raw_is_dropped_when_the_tensor_becomes_constant() {
    let (mut encoder, mut habit) = (Encoder::default(), Habit::default());
    assert_eq!(encoder.encode(&noise(1 << 20), Some(Dtype::F32), &mut habit).codec, Codec::Raw);
    let zeros = encoder.encode(&vec![0; 1 << 20], Some(Dtype::F32), &mut habit);
    assert_eq!((zeros.codec, zeros.bytes.len()), (Codec::Planes, 1 + 4 + 4));
}

#[test]
fn a_habit_is_renewed_every_sixteenth_chunk() {
    let (mut encoder, mut habit) = (Encoder::default(), Habit::default());
    let raw = weights(50_000);
    assert_eq!(encoder.encode(&noise(200_000), Some(Dtype::F32), &mut habit).codec, Codec::Raw);
    let codecs: Vec<Codec> =
        (1..=16).map(|_| encoder.encode(&raw, Some(Dtype::F32), &mut habit).codec).collect();
    assert!(codecs[..15].iter().all(|codec| *codec == Codec::Raw), "{codecs:?}");
    assert_eq!(codecs[15], Codec::Planes);
}

#[test]
fn a_habit_that_does_not_pay_is_given_up_at_once() {
    let (mut encoder, mut habit) = (Encoder::default(), Habit::default());
    encoder.encode(&weights(50_000), Some(Dtype::F32), &mut habit);
    assert_eq!(encoder.encode(&noise(200_000), Some(Dtype::F32), &mut habit).codec, Codec::Raw);
    assert!(habit.plan(&noise(200_000), 4, &mut super::plan::Sampler::default()).is_raw());
}

#[test]
fn c20_special_float_bits_survive() {
    let f32s = [0x8000_0000u32, 0x7F80_0001, 0x7FC0_0001, 0xFF80_0000, 0x0000_0001];
    let cases: [(Dtype, Vec<u8>); 6] = [
        (Dtype::F32, f32s.iter().flat_map(|bits| bits.to_le_bytes()).collect()),
        (Dtype::F16, [0x8000u16, 0x7C01, 0x0001].iter().flat_map(|bits| bits.to_le_bytes()).collect()),
        (
            Dtype::Bf16,
            [0x8000u16, 0x7F81, 0xFF80, 0x0001].iter().flat_map(|bits| bits.to_le_bytes()).collect(),
        ),
        (Dtype::F8E4m3fn, vec![0x80, 0x7F, 0x01]),
        (Dtype::F8E5m2, vec![0x7C, 0x7D, 0x80]),
        (Dtype::F64, 0xFFF0_0000_0000_0001u64.to_le_bytes().to_vec()),
    ];
    for (dtype, bits) in cases {
        assert_returns(&bits, Some(dtype));
        // Many of them: long enough that the writer does not stay raw.
        let many = bits.repeat(3000);
        let encoded = assert_returns(&many, Some(dtype));
        assert_ne!(encoded.codec, Codec::Raw, "{dtype}");
        for treatments in [[Treatment::Raw; 8], [HUFFMAN; 8], [MATCHES; 8]] {
            let Some(width) = dtype.plane_width() else { continue };
            let stored = planes_of(&many, &treatments[..width]);
            assert_eq!(decode(Codec::Planes, &stored, many.len()).unwrap(), many, "{dtype}");
        }
    }
}

#[test]
fn c20_minus_zero_and_plus_zero_are_different_chunks() {
    let minus: Vec<u8> = [0, 0, 0, 0x80].repeat(1000);
    let plus = vec![0; 4000];
    assert_ne!(ChunkId::of(&minus), ChunkId::of(&plus));
    assert_ne!(assert_returns(&minus, Some(Dtype::F32)), assert_returns(&plus, Some(Dtype::F32)));
}

#[test]
fn c21_every_dtype_keeps_its_bits() {
    for dtype in Dtype::ALL {
        for elements in [1, 5, 4096, 70_000u64] {
            let len = usize::try_from(dtype.byte_len(elements).unwrap()).unwrap();
            assert_returns(&noise(len), Some(*dtype));
            let narrow: Vec<u8> = noise(len).iter().map(|byte| byte & 0x1F).collect();
            assert_returns(&narrow, Some(*dtype));
        }
    }
}

fn treatment() -> impl Strategy<Value = Treatment> {
    prop_oneof![Just(Treatment::Raw), Just(HUFFMAN), Just(MATCHES)]
}

/// Bytes with all kinds of planes: random, narrow, constant, mixed.
fn plane_bytes(width: usize) -> impl Strategy<Value = Vec<u8>> {
    let masks = prop::collection::vec(prop_oneof![Just(0u8), Just(0x0F), Just(0xFF), any::<u8>()], width);
    let elements = prop_oneof![1usize..40, 100usize..300, 1000usize..3000];
    (masks, elements, any::<u8>()).prop_map(move |(masks, elements, salt)| {
        let raw = noise(elements * width).into_iter().zip(masks.iter().cycle());
        raw.map(|(byte, mask)| (byte ^ salt) & mask).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn planes_return_under_any_plan(
        (raw, plan) in prop_oneof![Just(2usize), Just(4), Just(8)]
            .prop_flat_map(|width| (plane_bytes(width), prop::collection::vec(treatment(), width)))
    ) {
        let stored = planes_of(&raw, &plan);
        prop_assert!(stored.len() <= 1 + plan.len() + raw.len());
        prop_assert!(decode(Codec::Planes, &stored, raw.len()).unwrap() == raw);
    }

    #[test]
    fn any_bytes_of_any_dtype_return(
        raw in prop::collection::vec(prop_oneof![1 => any::<u8>(), 3 => 0u8..4], 0..2000),
        dtype in prop::option::of(prop::sample::select(Dtype::ALL)),
    ) {
        assert_returns(&raw, dtype);
    }

    #[test]
    fn hostile_bytes_never_panic(
        mut stored in prop::collection::vec(any::<u8>(), 0..300),
        codec in prop::sample::select(&[Codec::Raw, Codec::Zstd, Codec::Planes]),
        width in prop::sample::select(&[0u8, 2, 4, 8]),
        raw_len in 0usize..600,
    ) {
        if let (Some(first), 1..) = (stored.first_mut(), width) {
            *first = width;
        }
        let _ = decode(codec, &stored, raw_len);
    }

    #[test]
    fn a_flipped_bit_never_panics_nor_changes_the_length(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let raw: Vec<u8> = weights(600);
        let mut stored = planes_of(&raw, &[Treatment::Raw, HUFFMAN, MATCHES, HUFFMAN]);
        let at = at.index(stored.len());
        stored[at] ^= 1 << bit;
        let result = catch_unwind(AssertUnwindSafe(|| decode(Codec::Planes, &stored, raw.len())));
        prop_assert!(result.is_ok());
    }
}

#[test]
fn a_chunk_cut_anywhere_is_corrupt() {
    let raw: Vec<u8> = weights(500);
    let planes = planes_of(&raw, &[Treatment::Raw, HUFFMAN, MATCHES, HUFFMAN]);
    for len in 0..planes.len() {
        assert_corrupt(Codec::Planes, &planes[..len], raw.len());
    }
    let frame = frame_of(&raw, FrameStyle::Matches);
    for len in 0..frame.len() {
        assert_corrupt(Codec::Zstd, &frame[..len], raw.len());
        assert_corrupt(Codec::Raw, &raw[..len], raw.len());
    }
}

#[test]
fn a_byte_too_many_is_corrupt() {
    let raw: Vec<u8> = weights(500);
    let mut planes = planes_of(&raw, &[Treatment::Raw, HUFFMAN, MATCHES, HUFFMAN]);
    planes.push(0);
    assert_corrupt(Codec::Planes, &planes, raw.len());
    let mut frame = frame_of(&raw, FrameStyle::Huffman);
    let twice = [frame.clone(), frame_of(&[], FrameStyle::Huffman)].concat();
    assert_corrupt(Codec::Zstd, &twice, raw.len());
    frame.push(0);
    assert_corrupt(Codec::Zstd, &frame, raw.len());
}

#[test]
fn another_declared_length_is_corrupt() {
    let raw: Vec<u8> = weights(500);
    let planes = planes_of(&raw, &[Treatment::Raw, HUFFMAN, MATCHES, HUFFMAN]);
    let frame = frame_of(&raw, FrameStyle::Matches);
    for raw_len in [0, 1, 4, raw.len() - 4, raw.len() - 1, raw.len() + 1, raw.len() + 4, 2 * raw.len()] {
        assert_corrupt(Codec::Planes, &planes, raw_len);
        assert_corrupt(Codec::Zstd, &frame, raw_len);
        assert_corrupt(Codec::Raw, &raw, raw_len);
    }
}

#[test]
fn wrong_widths_kinds_and_lengths_of_planes_are_corrupt() {
    let good = [2, 0, 2, 0xAA, 0xBB, 0x11];
    decode(Codec::Planes, &good, 4).unwrap();
    for width in [0, 1, 3, 4, 5, 8, 16, 255] {
        let mut bad = good;
        bad[0] = width;
        assert_corrupt(Codec::Planes, &bad, 4);
    }
    for kind in 1..=255 {
        let mut bad = good;
        bad[1] = kind;
        assert_corrupt(Codec::Planes, &bad, 4);
    }
    for length in [1u64, 100, u64::from(u32::MAX), u64::MAX - 8, u64::MAX] {
        let bad = [&[2, 1, 2][..], &length.to_le_bytes(), &[0x11]].concat();
        assert_corrupt(Codec::Planes, &bad, 4);
    }
}

/// A standard frame by hand: magic, descriptor for a one-segment frame with 8 bytes of content size, one
/// block.
fn handmade_frame(content: u64, block: &[u8]) -> Vec<u8> {
    [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0][..], &content.to_le_bytes(), block].concat()
}

#[test]
fn zstd_bombs_are_refused_before_anything_is_allocated() {
    // A last block that repeats one byte 131,071 times: 4 bytes.
    let block = [0xFB, 0xFF, 0x0F, 0x41];
    assert_eq!(decode(Codec::Zstd, &handmade_frame(131_071, &block), 131_071).unwrap(), vec![0x41; 131_071]);
    for declared in [4, 131_072, 1 << 40, u64::MAX - 2] {
        assert_corrupt(Codec::Zstd, &handmade_frame(declared, &block), 4);
        assert_corrupt(Codec::Zstd, &handmade_frame(declared, &block), 131_071);
    }
    let plane = handmade_frame(1 << 50, &block);
    let planes = [&[2, 1, 2][..], &(plane.len() as u64).to_le_bytes(), &plane, &[0]].concat();
    assert_corrupt(Codec::Planes, &planes, 8);
}

#[test]
fn frames_of_other_kinds_are_corrupt() {
    // No content size: single segment off, a window of 1 KiB, a raw block of four bytes.
    let unsized_frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x00, 0x21, 0, 0, 1, 2, 3, 4];
    assert_corrupt(Codec::Zstd, &unsized_frame, 4);
    // A skippable frame before a good one.
    let skippable =
        [&[0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9][..], &frame_of(&[1; 40], FrameStyle::Huffman)].concat();
    assert_corrupt(Codec::Zstd, &skippable, 40);
    // A dictionary that nobody has.
    let dictionary = [0x28, 0xB5, 0x2F, 0xFD, 0x21, 0x07, 0x04, 0x21, 0, 0, 1, 2, 3, 4];
    assert_corrupt(Codec::Zstd, &dictionary, 4);
}

#[test]
fn a_decoder_is_sound_after_an_error() {
    let raw: Vec<u8> = weights(500);
    let planes = planes_of(&raw, &[Treatment::Raw, HUFFMAN, MATCHES, HUFFMAN]);
    let mut decoder = Decoder::default();
    let mut out = vec![0; raw.len()];
    assert!(decoder.decode(Codec::Planes, &planes[..planes.len() - 3], &mut out).is_err());
    decoder.decode(Codec::Planes, &planes, &mut out).unwrap();
    assert!(out == raw);
}

#[test]
fn reserved_and_unknown_codecs_are_unsupported() {
    for id in 3..=255 {
        assert!(matches!(Codec::from_id(id), Err(FormatError::Unsupported { .. })), "{id}");
    }
    for codec in [Codec::Raw, Codec::Zstd, Codec::Planes] {
        assert_eq!(Codec::from_id(codec.id()), Ok(codec));
    }
}
