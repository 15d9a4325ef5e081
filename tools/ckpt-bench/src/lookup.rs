//! One tensor out of a million: how many reads and bytes it takes to find and read it.

use std::path::Path;

use everstep::{Options, Repository, Saved, Step};

use crate::clock::timed;
use crate::state;

/// Measures and prints.
pub(crate) fn run(folder: &Path, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> =
        (0..count).map(|n| format!("experts.{:05}.{:03}.weight", n / 1000, n % 1000)).collect();
    let tensors: Vec<Vec<u8>> = (0..count).map(|n| state::weights(4, n)).collect();
    println!("\n{count} tensors of 16 bytes: looking one up in a repository opened anew");

    let place = folder.join("lookup");
    std::fs::create_dir_all(&place)?;
    let address = place.display().to_string();
    let repository = Repository::init(&address, &Options::default(), Default::default())?;
    let mut writer = repository.run("bench")?.writer(Default::default())?;
    let state = state::state(&names, &tensors, 4);
    let (seconds, report) = timed(|| writer.save(Step(1), &state, Saved::default()));
    let report = report?;
    writer.close()?;
    let ordinal = report.checkpoint.manifest.ordinal;
    let per_row = report.index_bytes as f64 / count as f64;
    println!(
        "  saved in {seconds:.1} s, index {:.1} MB, {per_row:.1} bytes a row",
        report.index_bytes as f64 / 1e6
    );

    let wanted = usize::try_from(count / 3)?;
    let repository = Repository::open(&address, &Options::default())?;
    let before = repository.traffic();
    let (opened, checkpoint) = timed(|| repository.run("bench")?.checkpoint(ordinal));
    let checkpoint = checkpoint?;
    let (looked_up, bytes) = timed(|| checkpoint.read(&names[wanted], None));
    let after = repository.traffic();
    if bytes? != tensors[wanted] {
        return Err("what was read is not what was saved".into());
    }
    println!(
        "  checkpoint {:.1} ms, tensor {:.1} ms; {} reads of {:.2} MB in all (decision, marker, footer, row group, chunk)",
        opened * 1e3,
        looked_up * 1e3,
        after.gets - before.gets,
        (after.bytes_read - before.bytes_read) as f64 / 1e6,
    );
    std::fs::remove_dir_all(&place)?;
    Ok(())
}
