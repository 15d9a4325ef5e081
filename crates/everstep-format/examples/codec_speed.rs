//! Prints how fast this machine encodes and decodes chunks, next to memcpy and BLAKE3 in the same run.
//!
//! `cargo run --example codec_speed`: GB of raw bytes per second on one thread, the best
//! of a few passes over 8 MiB chunks of normally distributed numbers. A name as argument measures that kind
//! alone.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a stopwatch needs the clock")]
#![allow(clippy::cast_possible_truncation, reason = "made-up numbers may be rounded")]

use std::hint::black_box;
use std::time::Instant;

use everstep_format::codec::{Decoder, Encoded, Encoder, Habit};
use everstep_format::dtype::Dtype;

const CHUNK_BYTES: usize = 8 << 20;
const CHUNKS: usize = 6;
const PASSES: usize = 15;

fn main() {
    let floats = normal_floats(CHUNKS * CHUNK_BYTES / 4);
    let f32s: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
    let bf16s: Vec<u8> =
        floats.iter().flat_map(|value| (value.to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect();
    let f64s: Vec<u8> = floats.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
    let tokens: Vec<u8> =
        floats.iter().map(|value| value.to_bits() % 50_257).flat_map(u32::to_le_bytes).collect();

    let mut copy = vec![1u8; f32s.len()];
    report("memcpy", f32s.len(), || copy.copy_from_slice(black_box(&f32s)));
    report("blake3", f32s.len(), || {
        black_box(blake3::hash(&f32s));
    });
    let wanted = std::env::args().nth(1);
    let all: [(&str, &[u8], Option<Dtype>); 5] = [
        ("f32", &f32s, Some(Dtype::F32)),
        ("bf16", &bf16s, Some(Dtype::Bf16)),
        ("f64 of f32", &f64s, Some(Dtype::F64)),
        ("u32 tokens", &tokens, Some(Dtype::U32)),
        ("f32 as bytes", &f32s, None),
    ];
    for (name, raw, dtype) in
        all.into_iter().filter(|(name, ..)| wanted.as_ref().is_none_or(|one| one == name))
    {
        measure(name, raw, dtype);
    }
}

fn measure(name: &str, raw: &[u8], dtype: Option<Dtype>) {
    let mut encoder = Encoder::default();
    let mut decoder = Decoder::default();
    let mut habit = Habit::default();
    // Each result is dropped before the next, as a bounded number in flight is: fresh memory costs more than
    // encoding.
    report(&format!("{name}: encode"), raw.len(), || {
        for chunk in raw.chunks(CHUNK_BYTES) {
            black_box(encoder.encode(chunk, dtype, &mut habit));
        }
    });
    let encoded: Vec<Encoded> =
        raw.chunks(CHUNK_BYTES).map(|chunk| encoder.encode(chunk, dtype, &mut habit)).collect();
    let mut out = vec![1u8; raw.len()];
    report(&format!("{name}: decode"), raw.len(), || {
        for (chunk, room) in encoded.iter().zip(out.chunks_mut(CHUNK_BYTES)) {
            decoder.decode(chunk.codec, &chunk.bytes, room).expect("an encoder's output decodes");
        }
    });
    assert!(out == raw, "{name} came back changed");
    let stored: usize = encoded.iter().map(|chunk| chunk.bytes.len()).sum();
    println!(
        "{:24} {:8.3} of raw, {:?}",
        format!("{name}: stored"),
        stored as f64 / raw.len() as f64,
        encoded[0].codec
    );
}

fn report(name: &str, bytes: usize, mut work: impl FnMut()) {
    let pass = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let best = (0..PASSES).map(|_| pass(&mut work)).fold(f64::INFINITY, f64::min);
    println!("{name:24} {:8.2} GB/s", bytes as f64 / best / 1e9);
}

/// Sums of twelve uniform numbers, scaled like freshly trained weights; the same on every run.
fn normal_floats(count: usize) -> Vec<f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 33).to_le_bytes()[..4].try_into().map_or(0, u32::from_le_bytes))
            / f64::from(1u32 << 31)
    };
    (0..count).map(|_| ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32 * 0.02).collect()
}
