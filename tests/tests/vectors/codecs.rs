//! Encoded chunks. A frame's bytes depend on the zstd that made it, so these vectors are only decoded.

use everstep_format::codec::{Codec, Decoder, Encoder, Habit};
use everstep_format::dtype::Dtype;
use serde::{Deserialize, Serialize};

use crate::bytes::Hex;
use crate::{Refusal, refusal, vectors};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CodecVectors {
    about: String,
    decodes: Vec<Decodes>,
    refused: Vec<Refused>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Decodes {
    name: String,
    codec: u8,
    stored: Hex,
    raw: Hex,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Refused {
    name: String,
    codec: u8,
    raw_len: usize,
    stored: Hex,
    refusal: Refusal,
}

#[test]
fn chunks_decode_as_the_vectors_say() {
    let CodecVectors { decodes, refused, .. } = vectors("codecs.json", &fresh());
    assert!(decodes.len() >= 16 && refused.len() >= 20);
    for Decodes { name, codec, stored, raw } in decodes {
        let decoded = decode(codec, &stored.0, raw.0.len()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(Hex(decoded), raw, "{name}");
    }
    for Refused { name, codec, raw_len, stored, refusal: expected } in refused {
        assert_eq!(refusal(decode(codec, &stored.0, raw_len)), expected, "{name}");
    }
}

fn decode(codec: u8, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, everstep_format::FormatError> {
    let mut out = vec![0; raw_len];
    Decoder::default().decode(Codec::from_id(codec)?, stored, &mut out).map(|()| out)
}

fn fresh() -> CodecVectors {
    let mut decodes = handmade();
    decodes.extend(encoded());
    CodecVectors {
        about: "Stored chunks and their raw bytes; codec 0 raw, 1 zstd, 2 planes. Refused: what a decoder must not \
                accept for that raw length."
            .to_owned(),
        decodes,
        refused: refused(),
    }
}

fn decodes(name: &str, codec: u8, stored: &[u8], raw: &[u8]) -> Decodes {
    Decodes { name: name.to_owned(), codec, stored: Hex(stored.to_vec()), raw: Hex(raw.to_vec()) }
}

/// A frame that holds `raw` (at most 255 bytes) in one raw block.
fn plain_frame(raw: &[u8]) -> Vec<u8> {
    let len = u8::try_from(raw.len()).unwrap();
    let block = (u32::from(len) << 3 | 1).to_le_bytes();
    [&[0x28, 0xB5, 0x2F, 0xFD, 0x20, len][..], &block[..3], raw].concat()
}

fn handmade() -> Vec<Decodes> {
    let frame = plain_frame(&[0x7F, 0x80]);
    let framed_plane = [&[4, 0, 2, 2, 1, 0x00, 0x01, 0, 0][..], &[11, 0, 0, 0, 0, 0, 0, 0], &frame].concat();
    let floats = [0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0];
    vec![
        decodes("raw", 0, b"abc", b"abc"),
        decodes("zstd, one raw block", 1, &plain_frame(b"abcd"), b"abcd"),
        decodes("zstd, one repeated byte", 1, &[0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, 0x41], b"AAAAA"),
        decodes(
            "planes, f32 1.0 and -2.0, all planes raw",
            2,
            &[4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x7F, 0x80],
            &floats,
        ),
        decodes(
            "planes, f32 1.0 and -2.0, two planes constant",
            2,
            &[4, 0, 2, 2, 0, 0, 1, 0, 0, 0x7F, 0x80],
            &floats,
        ),
        decodes("planes, f32 1.0 and -2.0, top plane a frame", 2, &framed_plane, &floats),
        decodes("planes, bf16 1.0", 2, &[2, 2, 2, 0, 0x7F], &[0x80, 0x3F]),
        decodes("planes, f16 -0.0", 2, &[2, 0, 0, 1, 0], &[0, 0x80]),
        decodes(
            "planes, f64 -infinity",
            2,
            &[8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0xE0, 0xFF],
            &F64_MINUS_INFINITY,
        ),
        decodes("planes, f32 NaN with a payload", 2, &[4, 0, 0, 0, 0, 0x02, 0, 0, 0xFF], &[1, 0, 0x80, 0x7F]),
    ]
}

const F64_MINUS_INFINITY: [u8; 8] = [0, 0, 0, 0, 0, 0, 0xF0, 0xFF];

/// What the encoder made of small data, once.
fn encoded() -> Vec<Decodes> {
    let ramp = |count: u16| (0..count).map(|step| (f32::from(step) - 300.0) / 1024.0);
    let f32s: Vec<u8> = ramp(600).flat_map(f32::to_le_bytes).collect();
    let bf16s: Vec<u8> =
        ramp(600).flat_map(|value| [value.to_le_bytes()[2], value.to_le_bytes()[3]]).collect();
    let f64s: Vec<u8> = ramp(200).flat_map(|value| f64::from(value).to_le_bytes()).collect();
    let ints: Vec<u8> = (0..300u32).flat_map(u32::to_le_bytes).collect();
    let text = "step 1000 loss 2.25; step 2000 loss 2.125; ".repeat(12);
    let cases: [(&str, &[u8], Option<Dtype>); 6] = [
        ("encoded f32 ramp", &f32s, Some(Dtype::F32)),
        ("encoded bf16 ramp", &bf16s, Some(Dtype::Bf16)),
        ("encoded f64 ramp", &f64s, Some(Dtype::F64)),
        ("encoded u32 steps", &ints, Some(Dtype::U32)),
        ("encoded text", text.as_bytes(), None),
        ("encoded zeros", &[0; 400], Some(Dtype::F32)),
    ];
    let encode = |(name, raw, dtype): (&str, &[u8], Option<Dtype>)| {
        let encoded = Encoder::default().encode(raw, dtype, &mut Habit::default());
        assert_ne!(encoded.codec, Codec::Raw, "{name}");
        decodes(name, encoded.codec.id(), &encoded.bytes, raw)
    };
    cases.into_iter().map(encode).collect()
}

fn refused() -> Vec<Refused> {
    let good_planes = [2, 0, 2, 0xAA, 0xBB, 0x11];
    let good_frame = plain_frame(b"abcd");
    let with = |at: usize, byte: u8| {
        let mut bad = good_planes;
        bad[at] = byte;
        bad.to_vec()
    };
    let two_frames = [good_frame.clone(), plain_frame(b"")].concat();
    let skippable_first = [&[0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9][..], &good_frame].concat();
    let endless_plane = [&[2, 1, 2][..], &[0xFF; 8], &[0x11]].concat();
    let bomb = [0x28, 0xB5, 0x2F, 0xFD, 0xE0, 0, 0, 0, 0, 0, 1, 0, 0, 0xFB, 0xFF, 0x0F, 0x41];
    let liar = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 4, 0xFB, 0xFF, 0x0F, 0x41];
    let no_size = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x00, 0x21, 0, 0, b'a', b'b', b'c', b'd'];
    let cases: [(&str, u8, usize, &[u8]); 19] = [
        ("raw, a byte short", 0, 4, b"abc"),
        ("raw, a byte long", 0, 2, b"abc"),
        ("zstd, a byte short", 1, 4, &good_frame[..12]),
        ("zstd, a byte long", 1, 4, &[&good_frame[..], &[0]].concat()),
        ("zstd, another raw length", 1, 5, &good_frame),
        ("zstd, two frames", 1, 4, &two_frames),
        ("zstd, a skippable frame first", 1, 4, &skippable_first),
        ("zstd, no content size", 1, 4, &no_size),
        ("zstd, a content size of a terabyte", 1, 4, &bomb),
        ("zstd, a block longer than the content size", 1, 4, &liar),
        ("zstd, not a frame", 1, 4, b"abcdefgh"),
        ("planes, no bytes", 2, 4, b""),
        ("planes, width 3", 2, 4, &with(0, 3)),
        ("planes, width 8 for two planes", 2, 8, &with(0, 8)),
        ("planes, unknown kind", 2, 4, &with(1, 3)),
        ("planes, a byte short", 2, 4, &good_planes[..5]),
        ("planes, a byte long", 2, 4, &[&good_planes[..], &[0]].concat()),
        ("planes, raw length of no whole elements", 2, 5, &good_planes),
        ("planes, a frame without end", 2, 4, &endless_plane),
    ];
    let corrupt = cases.into_iter().map(|case| (case, Refusal::Corrupt));
    let reserved: [(&str, u8, usize, &[u8]); 3] = [
        ("reserved codec 3", 3, 1, &[0]),
        ("reserved codec 4", 4, 1, &[]),
        ("unknown codec 255", 255, 1, &[0]),
    ];
    let unsupported = reserved.into_iter().map(|case| (case, Refusal::Unsupported));
    let vector = |((name, codec, raw_len, stored), refusal): ((&str, u8, usize, &[u8]), Refusal)| Refused {
        name: name.to_owned(),
        codec,
        raw_len,
        stored: Hex(stored.to_vec()),
        refusal,
    };
    corrupt.chain(unsupported).map(vector).collect()
}
