//! `export`: write a checkpoint's tensors to a safetensors file, in bounded memory. The file appears whole or not at all.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use everstep::format::row::{ElementType, Kind};
use everstep::{
    Bounds, Checkpoint, Dtype, Entry, Progress, RestoreOptions, Selection, StoredContent, Target, Value,
};
use serde_json::json;

use crate::cli::ExportArgs;
use crate::commands::{Context, selection};
use crate::failure::Failure;
use crate::output::{self, count, printable, say, size};
use crate::place::Place;
use crate::progress::Bar;
use crate::safetensors_file::{FileMetadata, METADATA, header};

/// Bytes restored at one time.
const BATCH_BYTES: u64 = 128 << 20;

pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let (url, reference) = Place::with_second(&args.at.place, "REF")?;
    let selection = selection(&args.selection)?;
    let repository = context.open(&url)?;
    if args.output.exists() && !args.force {
        let message =
            format!("{} exists; give another name, or --force to replace it", args.output.display());
        return Err(Failure::usage(&message));
    }
    let checkpoint = context.resolve(&repository, &reference)?;
    let plan = Plan::of(&checkpoint, &selection)?;
    let bar = Bar::new("exporting", context.json);
    let bytes = write(&checkpoint, &plan, &args.output, &bar)?;
    drop(bar);
    print(context, &checkpoint, &plan, (&args.output, bytes));
    Ok(ExitCode::SUCCESS)
}

/// What goes into the file, and what does not fit into one.
struct Plan {
    tensors: Vec<Wanted>,
    metadata: FileMetadata,
    left_out: Vec<String>,
}

struct Wanted {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: u64,
}

impl Plan {
    fn of(checkpoint: &Checkpoint, selection: &Selection) -> Result<Self, Failure> {
        let mut plan = Self { tensors: Vec::new(), metadata: None, left_out: Vec::new() };
        for entry in checkpoint.entries(selection)? {
            match (entry.kind, &entry.element) {
                (Kind::Tensor, ElementType::Dtype(dtype)) => plan.tensors.push(wanted(&entry, *dtype)),
                (Kind::Tensor, other) => {
                    let message = format!(
                        "tensor {:?} has dtype {}, unknown to this version",
                        entry.name,
                        other.name()
                    );
                    return Err(Failure::usage(&format!("{message}; leave it out with --exclude")));
                }
                (Kind::Object, _) if &*entry.name == METADATA => plan.metadata = metadata(checkpoint)?,
                (Kind::Object, _) => plan.left_out.push(entry.name.to_string()),
            }
        }
        // The order that the safetensors library writes: wide types first, then by name.
        let order = |w: &Wanted| crate::safetensors_file::order(w.dtype);
        plan.tensors.sort_by(|a, b| order(b).cmp(&order(a)).then_with(|| a.name.cmp(&b.name)));
        Ok(plan)
    }
}

fn wanted(entry: &Entry, dtype: Dtype) -> Wanted {
    Wanted { name: entry.name.to_string(), dtype, shape: entry.shape.clone(), bytes: entry.raw_bytes }
}

/// The file's own metadata, where an import kept it.
fn metadata(checkpoint: &Checkpoint) -> Result<FileMetadata, Failure> {
    let StoredContent::Value(Value::Map(pairs)) = checkpoint.object(METADATA, None)? else { return Ok(None) };
    let text = pairs.into_iter().filter_map(|pair| match pair {
        (Value::Text(key), Value::Text(text)) => Some((key, text)),
        _ => None,
    });
    Ok(Some(text.collect()))
}

fn write(checkpoint: &Checkpoint, plan: &Plan, path: &Path, bar: &Bar) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, "write", &error);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Beside the target, so that it can take its place in one step; a failure leaves nothing behind.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let tensors: Vec<_> =
        plan.tensors.iter().map(|w| (w.name.as_str(), w.dtype, w.shape.as_slice(), w.bytes)).collect();
    let header = header(&tensors, &plan.metadata)?;
    out.write_all(&header).map_err(failed)?;
    bar.planned(plan.tensors.iter().map(|w| w.bytes).sum());
    let mut written = header.len() as u64;
    for batch in batches(&plan.tensors)? {
        let bytes = read(checkpoint, &batch)?;
        out.write_all(&bytes).map_err(failed)?;
        bar.done(bytes.len() as u64);
        written += bytes.len() as u64;
    }
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(written)
}

/// A box of one tensor and its bytes.
struct Slab<'p> {
    tensor: &'p Wanted,
    bounds: Bounds,
    bytes: u64,
}

/// Slabs in the order of the file, gathered so that one batch stays near [`BATCH_BYTES`].
fn batches(tensors: &[Wanted]) -> Result<Vec<Vec<Slab<'_>>>, Failure> {
    let mut batches: Vec<Vec<Slab<'_>>> = Vec::new();
    let mut room = 0;
    for slab in tensors.iter().flat_map(slabs) {
        if slab.bytes > room || batches.is_empty() {
            batches.push(Vec::new());
            room = BATCH_BYTES.max(slab.bytes);
        }
        room -= slab.bytes;
        if let Some(batch) = batches.last_mut() {
            batch.push(slab);
        }
    }
    Ok(batches)
}

/// The tensor in boxes of whole slices along its first dimension, each near [`BATCH_BYTES`] at most.
fn slabs(tensor: &Wanted) -> Vec<Slab<'_>> {
    let whole = Bounds::whole(&tensor.shape);
    let rows = tensor.shape.first().copied().unwrap_or(1);
    // Types below a byte are not cut: a cut could fall inside a byte.
    if tensor.bytes <= BATCH_BYTES || rows <= 1 || tensor.dtype.bits() < 8 {
        return vec![Slab { tensor, bounds: whole, bytes: tensor.bytes }];
    }
    let row_bytes = tensor.bytes / rows;
    let step = (BATCH_BYTES / row_bytes.max(1)).max(1);
    let slab = |start: u64| {
        let mut bounds = whole.clone();
        bounds.offset[0] = start;
        bounds.extent[0] = step.min(rows - start);
        let bytes = bounds.extent[0] * row_bytes;
        Slab { tensor, bounds, bytes }
    };
    (0..rows).step_by(usize::try_from(step).unwrap_or(usize::MAX)).map(slab).collect()
}

fn read(checkpoint: &Checkpoint, batch: &[Slab<'_>]) -> Result<Vec<u8>, Failure> {
    let len = batch.iter().map(|slab| slab.bytes).sum::<u64>();
    let len =
        usize::try_from(len).map_err(|_| Failure::usage("a tensor is larger than this machine's memory"))?;
    let mut bytes = vec![0; len];
    let mut rest = bytes.as_mut_slice();
    let mut targets = Vec::with_capacity(batch.len());
    for slab in batch {
        let (into, tail) = rest.split_at_mut(usize::try_from(slab.bytes).unwrap_or(len));
        rest = tail;
        targets.push(Target {
            name: slab.tensor.name.clone(),
            dtype: slab.tensor.dtype,
            shape: slab.tensor.shape.clone(),
            bounds: slab.bounds.clone(),
            into,
        });
    }
    // Every name comes from the index; what no target asks for belongs to other batches.
    let options = RestoreOptions { strict: false, ..RestoreOptions::default() };
    checkpoint.load(targets, &options)?;
    Ok(bytes)
}

fn print(context: &Context, checkpoint: &Checkpoint, plan: &Plan, (path, bytes): (&Path, u64)) {
    let manifest = checkpoint.manifest();
    if context.json {
        output::json(&json!({
            "schema": "everstep.export/1",
            "run": manifest.run.as_str(),
            "ordinal": manifest.ordinal.0,
            "step": manifest.step.0,
            "file": path.display().to_string(),
            "bytes": bytes,
            "tensors": plan.tensors.len(),
            "left_out": plan.left_out,
        }));
        return;
    }
    let tensors = count(plan.tensors.len() as u64, "tensor");
    say!("wrote {} ({tensors}, {})", path.display(), size(bytes));
    if !plan.left_out.is_empty() {
        let names: Vec<String> = plan.left_out.iter().map(|name| printable(name)).collect();
        say!("left out, since safetensors holds tensors only: {}", names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c24_a_tensor_beyond_4_gibibytes_is_written_in_batches_that_reach_its_end() {
        let elements = (1 << 32) + 1;
        let wanted = |name: &str, dtype: Dtype, elements: u64| Wanted {
            name: name.to_owned(),
            dtype,
            shape: vec![elements],
            bytes: dtype.byte_len(elements).unwrap(),
        };
        let tensors = [wanted("f", Dtype::F32, (1 << 29) + 1), wanted("b", Dtype::U8, elements)];
        let batches = batches(&tensors).unwrap();
        let bytes: u64 = batches.iter().flatten().map(|slab| slab.bytes).sum();
        assert_eq!(bytes, (1 << 31) + 4 + elements);
        let largest = batches.iter().map(|batch| batch.iter().map(|slab| slab.bytes).sum::<u64>()).max();
        assert_eq!(largest, Some(BATCH_BYTES));
        let last = batches.last().and_then(|batch| batch.last()).unwrap();
        assert_eq!((last.bounds.end(0), &*last.tensor.name), (elements, "b"));
        let listed: Vec<_> =
            tensors.iter().map(|w| (w.name.as_str(), w.dtype, w.shape.as_slice(), w.bytes)).collect();
        let header = header(&listed, &None).unwrap();
        let text = String::from_utf8_lossy(&header[8..]);
        assert!(text.contains("[2147483652,6442450949]"), "{text}");
    }
}
