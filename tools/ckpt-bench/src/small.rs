//! A state of 150 tensors: save, save again unchanged, save with 5 % changed, load.

use std::path::Path;

use everstep::{
    Bounds, Checkpoint, Dtype, Error, Options, Repository, SaveReport, Saved, Step, Target, Writer,
};

use crate::clock::timed;
use crate::figures::Figures;
use crate::{reference, state};

const TENSORS: u64 = 150;
const WIDTH: u64 = 1024;

#[derive(Default)]
struct Measured {
    write: Figures,
    read: Figures,
    hash: Figures,
    copy: Figures,
    save: Figures,
    again: Figures,
    changed: Figures,
    load: Figures,
}

/// Measures and prints.
pub(crate) fn run(folder: &Path, megabytes: u64, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let elements = usize::try_from(megabytes * 1_000_000 / TENSORS / 4 / WIDTH * WIDTH)?;
    let names: Vec<String> = (0..TENSORS).map(|n| format!("layers.{n:03}.weight")).collect();
    let mut tensors: Vec<Vec<u8>> = (0..TENSORS).map(|seed| state::weights(elements, seed)).collect();
    let bytes: u64 = tensors.iter().map(|tensor| tensor.len() as u64).sum();
    println!(
        "\nstate of {TENSORS} tensors, {:.0} MB, {rounds} rounds: median (least-most)",
        bytes as f64 / 1e6
    );

    let mut measured = Measured::default();
    let mut reports = None;
    for round in 0..rounds {
        let place = folder.join(format!("small-{round}"));
        let (_, tensor) = (&mut reports, &mut tensors);
        reports = Some(one_round(&mut measured, &place, &names, tensor)?);
        std::fs::remove_dir_all(&place)?;
    }
    if let Some(reports) = reports {
        print(&measured, &reports, bytes);
    }
    Ok(())
}

fn one_round(
    measured: &mut Measured,
    place: &Path,
    names: &[String],
    tensors: &mut [Vec<u8>],
) -> Result<[SaveReport; 3], Box<dyn std::error::Error>> {
    std::fs::create_dir_all(place)?;
    let file = place.join("reference");
    measured.write.push(reference::write_fsync(&file, tensors)?);
    measured.read.push(reference::read_cache_fresh(&file)?);
    std::fs::remove_file(&file)?;
    measured.hash.push(reference::blake3(tensors));
    let mut warm = vec![1; 64 << 20];
    measured.copy.push(reference::memcpy(tensors, &mut warm));

    let address = place.join("repository").display().to_string();
    let repository = Repository::init(&address, &Options::default(), Default::default())?;
    let run = repository.run("bench")?;
    let mut writer = run.writer(Default::default())?;
    let first = save(&mut measured.save, &mut writer, names, tensors)?;
    let again = save(&mut measured.again, &mut writer, names, tensors)?;
    let every_twentieth = tensors.iter_mut().step_by(20);
    every_twentieth.for_each(|tensor| tensor.iter_mut().step_by(4).for_each(|byte| *byte ^= 1));
    let changed = save(&mut measured.changed, &mut writer, names, tensors)?;
    let latest = writer.latest().ok_or("nothing was saved")?;
    load(&mut measured.load, &latest, names, tensors)?;
    writer.close()?;
    Ok([first, again, changed])
}

fn save(
    figures: &mut Figures,
    writer: &mut Writer,
    names: &[String],
    tensors: &[Vec<u8>],
) -> Result<SaveReport, Error> {
    let state = state::state(names, tensors, WIDTH);
    let (seconds, report) = timed(|| writer.save(Step(1), &state, Saved::default()));
    figures.push(seconds);
    report
}

fn load(
    figures: &mut Figures,
    checkpoint: &Checkpoint,
    names: &[String],
    tensors: &[Vec<u8>],
) -> Result<(), Box<dyn std::error::Error>> {
    let (seconds, loaded) = timed(|| {
        // Fresh memory, as a restarting trainer has it.
        let mut fresh: Vec<Vec<u8>> = tensors.iter().map(|tensor| vec![0; tensor.len()]).collect();
        let targets = names.iter().zip(&mut fresh).map(|(name, into)| {
            let shape = state::shape(into.len() as u64, WIDTH);
            let bounds = Bounds::whole(&shape);
            Target { name: name.clone(), dtype: Dtype::F32, shape, bounds, into }
        });
        let report = checkpoint.load(targets.collect(), &Default::default());
        report.map(|_| fresh)
    });
    figures.push(seconds);
    if loaded? != tensors {
        return Err("what was loaded is not what was saved".into());
    }
    Ok(())
}

fn print(measured: &Measured, [first, again, changed]: &[SaveReport; 3], bytes: u64) {
    let rate = |figures: &Figures| bytes as f64 / 1e9 / figures.median();
    println!(
        "  references: write+fsync {:.2} GB/s, cached read {:.2} GB/s, BLAKE3 {:.2} GB/s, memcpy {:.2} GB/s",
        rate(&measured.write),
        rate(&measured.read),
        rate(&measured.hash),
        rate(&measured.copy),
    );
    let stored = |report: &SaveReport| report.bytes_uploaded as f64 / bytes as f64;
    let line = |what: &str, figures: &Figures, reference: &Figures, per: &str, note: String| {
        println!(
            "  {what:<24} {:>18} x {per:<12} {:.2} GB/s{note}",
            figures.per(reference).text(),
            rate(figures)
        );
    };
    let of = |report: &SaveReport| {
        format!(
            ", {} chunks up, {} reused, {:.3} x raw stored",
            report.chunks_uploaded,
            report.chunks_reused,
            stored(report)
        )
    };
    line("save, durable", &measured.save, &measured.write, "write+fsync", of(first));
    line("save again, unchanged", &measured.again, &measured.write, "write+fsync", of(again));
    line("save, 5 % changed", &measured.changed, &measured.write, "write+fsync", of(changed));
    line("load, warm, verified", &measured.load, &measured.read, "cached read", String::new());
}
