//! 20,000 tensors of 1 to 64 KiB: what a save costs per tensor, and what is stored when 5 % of them change.

use std::path::Path;

use everstep::{Options, Repository, SaveReport, Saved, Step, Writer};

use crate::clock::timed;
use crate::figures::Figures;
use crate::{reference, state};

const TENSORS: u64 = 20_000;
const WIDTH: u64 = 64;

/// Measures and prints.
pub(crate) fn run(folder: &Path, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> =
        (0..TENSORS).map(|n| format!("blocks.{:03}.{:02}.weight", n / 100, n % 100)).collect();
    let mut tensors: Vec<Vec<u8>> = (0..TENSORS).map(|n| state::weights(size(n), n)).collect();
    let bytes: usize = tensors.iter().map(Vec::len).sum();
    println!(
        "\n{TENSORS} tensors of 1-64 KiB, {:.0} MB, {rounds} rounds: median (least-most)",
        bytes as f64 / 1e6
    );

    let [mut write, mut first, mut second] = [Figures::default(), Figures::default(), Figures::default()];
    let mut last = None;
    for round in 0..rounds {
        let place = folder.join(format!("many-{round}"));
        std::fs::create_dir_all(&place)?;
        write.push(reference::write_fsync(&place.join("reference"), &tensors)?);
        let address = place.join("repository").display().to_string();
        let repository = Repository::init(&address, &Options::default(), Default::default())?;
        let mut writer = repository.run("bench")?.writer(Default::default())?;
        save(&mut first, &mut writer, &names, &tensors)?;
        let changed = change(&mut tensors);
        last = Some((save(&mut second, &mut writer, &names, &tensors)?, changed));
        writer.close()?;
        std::fs::remove_dir_all(&place)?;
    }
    if let Some((report, changed)) = last {
        let per_tensor = |figures: &Figures| figures.median() * 1e6 / TENSORS as f64;
        println!(
            "  save                     {:>18} x write+fsync  {:.1} us a tensor",
            first.per(&write).text(),
            per_tensor(&first)
        );
        println!(
            "  save, 5 % changed        {:>18} x write+fsync  {:.1} us a tensor",
            second.per(&write).text(),
            per_tensor(&second)
        );
        let ratio = report.bytes_uploaded as f64 / changed as f64;
        println!(
            "  stored {:.1} MB for {:.1} MB changed: {ratio:.2} x",
            report.bytes_uploaded as f64 / 1e6,
            changed as f64 / 1e6
        );
    }
    Ok(())
}

/// Elements of tensor `n`: 1 to 64 KiB, all sizes alike often.
fn size(n: u64) -> usize {
    usize::try_from((n * 2_654_435_761 % 64 + 1) * 256).unwrap_or(256)
}

/// Changes every twentieth tensor; returns their bytes.
fn change(tensors: &mut [Vec<u8>]) -> u64 {
    let mut changed = 0;
    for tensor in tensors.iter_mut().step_by(20) {
        tensor.iter_mut().step_by(4).for_each(|byte| *byte ^= 1);
        changed += tensor.len() as u64;
    }
    changed
}

fn save(
    figures: &mut Figures,
    writer: &mut Writer,
    names: &[String],
    tensors: &[Vec<u8>],
) -> Result<SaveReport, everstep::Error> {
    let state = state::state(names, tensors, WIDTH);
    let (seconds, report) = timed(|| writer.save(Step(1), &state, Saved::default()));
    figures.push(seconds);
    report
}
