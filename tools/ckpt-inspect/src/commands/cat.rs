//! `cat`: the elements of a tensor with statistics, or an object.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use everstep::format::row::{ElementType, Kind};
use everstep::{Bounds, Checkpoint, Dtype, Entry, Progress, Rank, StoredContent};
use serde_json::{Value as Json, json};

use crate::cli::CatArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{self, element, fields, printable, say, shape, size};
use crate::place::Place;
use crate::progress::Bar;
use crate::tensor::element::{Element, elements};
use crate::tensor::layout::Layout;
use crate::tensor::slabs::slabs;
use crate::tensor::slice::Slice;
use crate::tensor::statistics::Statistics;
use crate::value;

/// Bytes of opaque state that JSON carries.
const HEX_BYTES: usize = 4096;

pub(crate) fn run(context: &Context, args: &CatArgs) -> Result<ExitCode, Failure> {
    let (url, [reference, name]) = Place::with_two(&args.place, "REF and TENSOR")?;
    if args.raw && context.json {
        return Err(Failure::usage("--raw writes bytes, --json a document: choose one"));
    }
    if args.raw && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "--raw does not write bytes to a terminal; send them to a file or a pipe",
        ));
    }
    let repository = context.open(&url)?;
    let checkpoint = context.resolve(&repository, &reference)?;
    let Some(entry) = checkpoint.entry(&name)? else {
        // Reading it tells which names are similar.
        return Err(checkpoint.read(&name, None).map(drop).expect_err("there is no such name").into());
    };
    match entry.kind {
        Kind::Tensor => tensor(context, args, (&checkpoint, &entry)),
        Kind::Object => object(context, args, (&checkpoint, &entry)),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Part of a tensor that is looked at.
struct Part<'c> {
    checkpoint: &'c Checkpoint,
    entry: &'c Entry,
    dtype: Dtype,
    slice: Slice,
    /// Elements.
    count: u64,
    bytes: u64,
}

impl<'c> Part<'c> {
    fn of(checkpoint: &'c Checkpoint, entry: &'c Entry, slice: Option<&str>) -> Result<Self, Failure> {
        let ElementType::Dtype(dtype) = entry.element else {
            let dtype = element(&entry.element);
            return Err(Failure::usage(&format!(
                "the elements of {:?} are {dtype}, which this version does not know",
                entry.name
            )));
        };
        let slice = match slice {
            None => Slice::whole(&entry.shape),
            Some(text) => Slice::parse(text, &entry.shape)
                .map_err(|why| Failure::usage(&format!("--slice {}: {why}", printable(text))))?,
        };
        let size = slice.bounds.elements().and_then(|count| Some((count, dtype.byte_len(count)?)));
        let (count, bytes) =
            size.ok_or_else(|| Failure::usage("that are more bytes than can be counted; use --slice"))?;
        Ok(Self { checkpoint, entry, dtype, slice, count, bytes })
    }

    /// Hands the bytes to `take`, slab by slab, with the number of elements in each.
    fn read(
        &self,
        quiet: bool,
        mut take: impl FnMut(&[u8], u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let bar = Bar::new("reading", quiet);
        bar.planned(self.bytes);
        for slab in slabs(&self.slice.bounds, self.dtype) {
            let count = slab.elements().unwrap_or(0);
            let bytes = self.checkpoint.read(&self.entry.name, Some(slab))?;
            take(&bytes, count)?;
            bar.done(bytes.len() as u64);
        }
        Ok(())
    }
}

/// What was seen of a part.
#[derive(Default)]
struct Seen {
    /// Of the numbers, or of their real parts.
    real: Statistics,
    imaginary: Option<Statistics>,
    /// The elements to be shown.
    shown: Vec<Element>,
}

impl Seen {
    /// Reads all of `part` once and keeps the elements at `wanted`, which ascend.
    fn read(part: &Part<'_>, wanted: &[u64], quiet: bool) -> Result<Self, Failure> {
        let mut seen = Self::default();
        let mut wanted = wanted.iter().copied().peekable();
        let mut index = 0;
        part.read(quiet, |bytes, count| {
            for element in elements(part.dtype, bytes, count) {
                if wanted.next_if_eq(&index).is_some() {
                    seen.shown.push(element);
                }
                seen.add(element);
                index += 1;
            }
            Ok(())
        })?;
        Ok(seen)
    }

    fn add(&mut self, element: Element) {
        let (real, imaginary) = element.parts();
        self.real.add(real);
        if let Some(imaginary) = imaginary {
            self.imaginary.get_or_insert_default().add(imaginary);
        }
    }
}

fn tensor(
    context: &Context,
    args: &CatArgs,
    (checkpoint, entry): (&Checkpoint, &Entry),
) -> Result<(), Failure> {
    if args.rank.is_some() {
        return Err(Failure::usage("--rank chooses among objects; a tensor is the same for all ranks"));
    }
    let part = Part::of(checkpoint, entry, args.slice.as_deref())?;
    if args.raw {
        return part.read(true, |bytes, _| write(bytes));
    }
    let layout = Layout::of(&part.slice.shape);
    let wanted = layout.as_ref().map(Layout::indices).unwrap_or_default();
    let seen = Seen::read(&part, &wanted, context.json)?;
    if context.json {
        output::json(&tensor_document(&part, &seen, layout.as_ref()));
    } else {
        print_tensor(&part, &seen, layout.as_ref());
    }
    Ok(())
}

fn print_tensor(part: &Part<'_>, seen: &Seen, layout: Option<&Layout>) {
    let Slice { bounds, shape: sliced } = &part.slice;
    let mut about = vec![
        ("tensor", printable(&part.entry.name)),
        ("dtype", part.dtype.to_string()),
        ("shape", shape(&part.entry.shape)),
    ];
    if *bounds != Bounds::whole(&part.entry.shape) {
        about.push(("slice", format!("{} of it, shape {}", ranges(bounds), shape(sliced))));
    }
    about.push(("size", size(part.bytes)));
    match &seen.imaginary {
        None => about.extend(seen.real.fields()),
        Some(imaginary) => {
            about.push(("", "real part".to_owned()));
            about.extend(seen.real.fields());
            about.push(("", "imaginary part".to_owned()));
            about.extend(imaginary.fields());
        }
    }
    fields(&about);
    say!("");
    let Some(layout) = layout else {
        say!("(even the edges are too many to show; use --slice)");
        return;
    };
    let texts: Vec<String> = seen.shown.iter().map(|element| element.text()).collect();
    layout.lines(&texts).iter().for_each(|line| say!("{line}"));
}

/// `[0:8, 3:4]`
fn ranges(bounds: &Bounds) -> String {
    let ranges: Vec<String> =
        (0..bounds.rank()).map(|d| format!("{}:{}", bounds.offset[d], bounds.end(d))).collect();
    format!("[{}]", ranges.join(", "))
}

fn tensor_document(part: &Part<'_>, seen: &Seen, layout: Option<&Layout>) -> Json {
    let whole = layout.is_some_and(Layout::is_whole);
    let manifest = part.checkpoint.manifest();
    let mut told = json!({
        "schema": "everstep.cat/1",
        "run": manifest.run.as_str(),
        "ordinal": manifest.ordinal.0,
        "name": &*part.entry.name,
        "kind": "tensor",
        "dtype": part.dtype.name(),
        "shape": part.entry.shape,
        "offset": part.slice.bounds.offset.as_slice(),
        "extent": part.slice.bounds.extent.as_slice(),
        "sliced_shape": part.slice.shape,
        "count": part.count,
        "bytes": part.bytes,
        "statistics": seen.real.json(),
        "values": whole.then(|| nested(&part.slice.shape, &mut seen.shown.iter())),
    });
    if let Some(imaginary) = &seen.imaginary {
        told["statistics"] = json!({ "real": seen.real.json(), "imaginary": imaginary.json() });
    }
    told
}

fn nested(shape: &[u64], values: &mut std::slice::Iter<'_, Element>) -> Json {
    match shape.split_first() {
        None => values.next().map_or(Json::Null, |element| element.json()),
        // Nothing further in has an element, however long this dimension is.
        Some((_, inner)) if inner.contains(&0) => Json::Array(Vec::new()),
        Some((n, inner)) => (0..*n).map(|_| nested(inner, values)).collect(),
    }
}

fn object(
    context: &Context,
    args: &CatArgs,
    (checkpoint, entry): (&Checkpoint, &Entry),
) -> Result<(), Failure> {
    if args.slice.is_some() {
        return Err(Failure::usage("--slice cuts tensors; this is an object"));
    }
    let content = checkpoint.object(&entry.name, args.rank.map(Rank))?;
    if args.raw {
        return match content {
            StoredContent::Opaque(bytes) => write(&bytes),
            StoredContent::Value(value) => write(&value.to_bytes().map_err(everstep::Error::from)?),
        };
    }
    if context.json {
        output::json(&object_document(checkpoint, entry, (args.rank, &content)));
    } else {
        print_object(entry, &content);
    }
    Ok(())
}

fn print_object(entry: &Entry, content: &StoredContent) {
    let (kind, lines) = match content {
        StoredContent::Value(value) => ("value".to_owned(), value::lines(value)),
        StoredContent::Opaque(bytes) => (format!("{} opaque bytes", bytes.len()), value::dump(bytes)),
    };
    fields(&[("object", printable(&entry.name)), ("kind", kind)]);
    say!("");
    lines.iter().for_each(|line| say!("{line}"));
}

fn object_document(
    checkpoint: &Checkpoint,
    entry: &Entry,
    (rank, content): (Option<u32>, &StoredContent),
) -> Json {
    let manifest = checkpoint.manifest();
    let mut told = json!({
        "schema": "everstep.cat/1",
        "run": manifest.run.as_str(),
        "ordinal": manifest.ordinal.0,
        "name": &*entry.name,
        "kind": "object",
        "rank": if entry.ranks.is_empty() { None } else { rank },
    });
    match content {
        StoredContent::Value(value) => told["value"] = value::json(value),
        StoredContent::Opaque(bytes) => {
            let shown = &bytes[..bytes.len().min(HEX_BYTES)];
            told["bytes"] = bytes.len().into();
            told["hex"] = shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
            told["truncated"] = (bytes.len() > HEX_BYTES).into();
        }
    }
    told
}

/// Bytes to stdout; a reader that has gone away ends the process quietly.
fn write(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| Failure::file(std::path::Path::new("stdout"), "write", &error)),
    }
}
