//! Metadata of very large jobs: parts of many ranks, merged into one index, and read by a rank of another world size.
//! Every chunk has another hash, so nothing here compresses better than it would in life.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod job;

use std::time::Instant;

use everstep_format::{index, invariant, part};
use everstep_save::merge::{Part, merge};
use job::Job;
use rayon::prelude::*;

/// Bytes of an index per row, at most.
const BYTES_A_ROW: f64 = 48.0;

fn bytes_a_row(index: &index::EncodedIndex) -> f64 {
    index.reference.len as f64 / index.reference.rows as f64
}

/// Parts as they lie in the store, decoded and merged as the leader does.
fn merged(parts: &[(bytes::Bytes, part::PartRef)]) -> Vec<everstep_format::row::Row> {
    let read = |(rank, (bytes, reference)): (u32, &(bytes::Bytes, part::PartRef))| Part {
        rank: everstep_format::name::Rank(rank),
        rows: part::read(bytes, reference).unwrap(),
    };
    let numbered: Vec<_> = (0..).zip(parts).collect();
    merge(numbered.into_par_iter().map(read).collect()).unwrap()
}

#[test]
fn the_parts_of_many_ranks_make_one_sound_index_of_at_most_48_bytes_a_row() {
    let job = Job { ranks: 64, tensors: 300 };
    let rows = merged(&job.parts());
    assert_eq!(rows.len(), 64 * 300);
    invariant::rows_are_sound(&rows).unwrap();
    let index = index::write(&rows).unwrap();
    let per_row = bytes_a_row(&index);
    assert!(per_row <= BYTES_A_ROW, "{per_row:.1} bytes a row");
    assert_eq!(index::read_all(&index.bytes, &index.reference).unwrap(), rows);
}

fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let done = work();
    (started.elapsed().as_secs_f64(), done)
}

/// Run by `make bench`. The reference, measured in the same run, is hashing the parts with BLAKE3 on one thread.
#[test]
#[ignore = "prints figures of jobs of 1,856 and 10,000 ranks and takes minutes: make bench"]
fn figures_of_metadata_at_scale() {
    println!(
        "ranks x pieces | parts | merge (read, merge, check, write) | index | plan for one rank of 1.5 x as many"
    );
    for ranks in [232, 1_856, 10_000] {
        let job = Job { ranks, tensors: 2_169 };
        let parts = job.parts();
        let part_bytes: usize = parts.iter().map(|(bytes, _)| bytes.len()).sum();
        let (reference, ()) = seconds(|| {
            parts.iter().for_each(|(bytes, _)| {
                std::hint::black_box(blake3::hash(bytes));
            });
        });
        let (read_and_merge, rows) = seconds(|| merged(&parts));
        drop(parts);
        let (check, ()) = seconds(|| invariant::rows_are_sound(&rows).unwrap());
        let (write, index) = seconds(|| index::write(&rows).unwrap());
        let total = read_and_merge + check + write;
        drop(rows);
        let (looked_at, (plan, estimate)) = job.plan_for_a_rank_of(ranks + ranks / 2, &index);
        println!(
            "{ranks:>6} x 2169 | {:.0} MB | {total:.1} s ({read_and_merge:.1}, {check:.1}, {write:.1}), {:.0} x hashing them | \
             {:.0} MB, {:.1} bytes a row, read in {looked_at:.1} s | {:.0} ms, {} requests",
            part_bytes as f64 / 1e6,
            total / reference,
            index.reference.len as f64 / 1e6,
            bytes_a_row(&index),
            plan * 1e3,
            estimate.requests,
        );
    }
}
