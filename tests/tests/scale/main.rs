//! Metadata of very large jobs: parts of many ranks, merged into one index, and read by a rank of another world size.
//! Every chunk has another hash, so nothing here compresses better than it would in life.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod collecting;
mod job;
mod memory;

use std::time::Instant;

use bytes::Bytes;
use everstep_format::name::Rank;
use everstep_format::part::PartRef;
use everstep_format::{index, invariant};
use everstep_save::merge::{Names, Part, merge};
use job::{Job, Planned, RANKS_A_NODE};
use rayon::prelude::*;

/// Bytes of an index per row, at most.
const BYTES_A_ROW: f64 = 48.0;

fn bytes_a_row(index: &index::EncodedIndex) -> f64 {
    index.reference.len as f64 / index.reference.rows as f64
}

/// Parts as they lie in the store, decoded as the leader does.
fn decoded(parts: &[(Bytes, PartRef)]) -> Vec<Part> {
    let names = Names::default();
    let read = |(rank, (bytes, reference)): (u32, &(Bytes, PartRef))| {
        Part::read(Rank(rank), bytes, reference, &names).unwrap()
    };
    let numbered: Vec<_> = (0..).zip(parts).collect();
    numbered.into_par_iter().map(read).collect()
}

#[test]
fn the_parts_of_many_ranks_make_one_sound_index_of_at_most_48_bytes_a_row() {
    let job = Job { ranks: 64, tensors: 300 };
    let rows = merge(decoded(&job.parts())).unwrap();
    assert_eq!(rows.len(), 64 * 300);
    let index = index::write(invariant::rows_are_sound(&rows).unwrap()).unwrap();
    let per_row = bytes_a_row(&index);
    assert!(per_row <= BYTES_A_ROW, "{per_row:.1} bytes a row");
    assert_eq!(index::read_all(&index.bytes, &index.reference).unwrap(), rows);
}

/// Seconds by the clock, and of all cores together: on a busy machine the latter tells more.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} s ({:.1} cpu)", self.wall, self.cpu)
    }
}

/// Processor time of this process, user and system, in seconds: fields 14 and 15, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

#[expect(clippy::disallowed_methods, reason = "figures measure real time")]
fn cost<T>(work: impl FnOnce() -> T) -> (Cost, T) {
    let (started, before) = (Instant::now(), cpu_seconds());
    let done = work();
    (Cost { wall: started.elapsed().as_secs_f64(), cpu: cpu_seconds() - before }, done)
}

/// Numbers of ranks to look at: from the environment (10,000 take 14 GB of memory and some minutes), or up to those of a very large job.
fn ranks() -> Vec<u32> {
    match std::env::var("EVERSTEP_RANKS") {
        Ok(text) => text.split_whitespace().map(|ranks| ranks.parse().unwrap()).collect(),
        Err(_) => vec![232, 1_856],
    }
}

/// Run by `make bench`. The reference, measured in the same run, is hashing the parts with BLAKE3 on one thread.
#[test]
#[ignore = "judges nothing: prints figures of jobs of 232 and 1,856 ranks, for make bench"]
fn figures_of_metadata_at_scale() {
    for ranks in ranks() {
        figures_of(Job { ranks, tensors: 2_169 });
    }
}

fn figures_of(job: Job) {
    let parts = job.parts();
    let part_bytes: usize = parts.iter().map(|(bytes, _)| bytes.len()).sum();
    let hash_all =
        || parts.iter().fold(0, |sum, (bytes, _)| sum + usize::from(blake3::hash(bytes).as_bytes()[0]));
    let (reference, _) = cost(hash_all);
    let (read, decoded) = cost(|| decoded(&parts));
    drop(parts);
    let (merging, rows) = cost(|| merge(decoded).unwrap());
    let (check, sound) = cost(|| invariant::rows_are_sound(&rows).unwrap());
    let (write, index) = cost(|| index::write(sound).unwrap());
    drop(rows);
    let wall = read.wall + merging.wall + check.wall + write.wall;
    println!("{} ranks x {} pieces, parts of {:.0} MB", job.ranks, job.tensors, part_bytes as f64 / 1e6);
    println!("  merged in {wall:.1} s, {:.0} x hashing the parts:", wall / reference.wall);
    println!("    read {read}, merge {merging}, check {check}, write {write}");
    println!("  index {:.0} MB, {:.1} bytes a row", index.reference.len as f64 / 1e6, bytes_a_row(&index));
    let Planned { read, plan, estimate, by_a_node } =
        job.plan_for_a_rank_of(job.ranks + job.ranks / 2, &index);
    let requests = estimate.requests;
    println!(
        "  a rank of {} reads it in {read}, plans in {plan}: {requests} requests",
        job.ranks + job.ranks / 2
    );
    let [alone, handed_on] = by_a_node.map(|bytes| bytes as f64 / 1e6);
    println!(
        "  a node of {RANKS_A_NODE} ranks reads {alone:.0} MB of index, {handed_on:.0} MB if one hands it on"
    );
}
