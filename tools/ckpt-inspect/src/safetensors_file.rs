//! Reading and writing safetensors files: headers by the safetensors library, data by range.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use everstep::{
    Bounds, ByteSource, Content, Dtype, ObjectEntry, Owner, Replicas, Selection, Shard, Source, State, Value,
};
use safetensors::Dtype as FileDtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::failure::Failure;
use crate::safetensors_header;

/// Name of the object that keeps a file's own metadata.
pub(crate) const METADATA: &str = "__metadata__";
/// Bytes of the index of a sharded model.
const INDEX_BYTES: u64 = 256 << 20;

/// A file's own metadata.
pub(crate) type FileMetadata = Option<HashMap<String, String>>;

/// A model in one file or several.
pub(crate) struct Model {
    tensors: Vec<FileTensor>,
    metadata: FileMetadata,
}

/// One tensor of a file.
struct FileTensor {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    data: FileRange,
}

/// A range of a file, read when needed.
struct FileRange {
    file: std::sync::Arc<File>,
    start: u64,
    len: u64,
}

impl ByteSource for FileRange {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(into, self.start + offset)
    }
}

impl Model {
    /// Opens `FILE.safetensors`, or the index of a sharded model, and judges every header.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path.extension().is_some_and(|extension| extension == "json") {
            return Self::open_sharded(path);
        }
        let (tensors, metadata) = open_file(path)?;
        Ok(Self { tensors, metadata })
    }

    fn open_sharded(path: &Path) -> Result<Self, Failure> {
        let map = weight_map(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut model = Self { tensors: Vec::new(), metadata: None };
        for (file, names) in map {
            let (tensors, metadata) = open_file(&folder.join(&file))?;
            let found: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            if let Some(name) = names.iter().find(|name| !found.contains(name.as_str())) {
                let message =
                    format!("{}: tensor {name:?} is not in {file}, where it should be", path.display());
                return Err(Failure::usage(&message));
            }
            model.tensors.extend(tensors.into_iter().filter(|tensor| names.contains(&tensor.name)));
            model.metadata = model.metadata.or(metadata);
        }
        Ok(model)
    }

    /// The selected part as a state to save. Bytes are read during the save.
    pub(crate) fn state(&self, selection: &Selection) -> Result<State<'_>, Failure> {
        let selected = self.tensors.iter().filter(|tensor| selection.matches(&tensor.name));
        let shards: Vec<Shard<'_>> = selected.map(FileTensor::shard).collect();
        if shards.is_empty() && !self.tensors.is_empty() {
            return Err(Failure::usage("no tensor of the file is selected; look at --select and --exclude"));
        }
        let object = |metadata: &HashMap<String, String>| {
            let sorted: BTreeMap<_, _> = metadata.iter().collect();
            let pairs = sorted.into_iter().map(|(k, v)| (Value::Text(k.clone()), Value::Text(v.clone())));
            let content = Content::Value(Value::Map(pairs.collect()));
            ObjectEntry { name: METADATA.to_owned(), owner: Owner::Job, content }
        };
        Ok(State { shards, objects: self.metadata.iter().map(object).collect() })
    }
}

impl FileTensor {
    fn shard(&self) -> Shard<'_> {
        Shard {
            name: self.name.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            bounds: Bounds::whole(&self.shape),
            alias_of: None,
            replicas: Replicas::None,
            source: Source::Reader(&self.data),
        }
    }
}

/// File, and the names that it should hold. A file is named by its bare name: an index must not lead anywhere else.
fn weight_map(path: &Path) -> Result<BTreeMap<String, HashSet<String>>, Failure> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: HashMap<String, String>,
    }
    let bad = |what: String| Failure::usage(&format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|e| Failure::file(path, "read", &e))?;
    let len = file.metadata().map_err(|e| Failure::file(path, "read", &e))?.len();
    if len > INDEX_BYTES {
        return Err(bad(format!("{len} bytes are too many for an index, at most {INDEX_BYTES}")));
    }
    let index: Index = serde_json::from_reader(std::io::BufReader::new(file))
        .map_err(|e| bad(format!("not the index of a sharded safetensors model: {e}")))?;
    let mut map: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for (name, file) in index.weight_map {
        let bare = PathBuf::from(&file);
        if bare.file_name() != Some(bare.as_os_str()) || file.contains(['\\', ':', '\0']) {
            return Err(bad(format!(
                "tensor {name:?} lies in {file:?}; expected the bare name of a file beside the index"
            )));
        }
        map.entry(file).or_default().insert(name);
    }
    Ok(map)
}

fn open_file(path: &Path) -> Result<(Vec<FileTensor>, FileMetadata), Failure> {
    let unreadable = |error: std::io::Error| Failure::file(path, "read", &error);
    let bad = |what: String| Failure::usage(&format!("{}: {what}", path.display()));
    let mut file = File::open(path).map_err(unreadable)?;
    let file_len = file.metadata().map_err(unreadable)?.len();
    let mut first = Vec::with_capacity(8);
    file.by_ref().take(8).read_to_end(&mut first).map_err(unreadable)?;
    let header_len = safetensors_header::header_len(&first, file_len).map_err(&bad)?;
    let mut header =
        vec![0; usize::try_from(header_len).map_err(|_| bad("the header is too large".to_owned()))?];
    file.read_exact(&mut header).map_err(unreadable)?;
    let metadata = safetensors_header::parse(&header, file_len).map_err(&bad)?;
    let file = std::sync::Arc::new(file);
    let names = metadata.offset_keys();
    let tensors = names.iter().filter_map(|name| Some((name, metadata.info(name)?)));
    let tensors = tensors.map(|(name, info)| file_tensor(&file, 8 + header_len, name, info).map_err(&bad));
    Ok((tensors.collect::<Result<_, _>>()?, metadata.metadata().clone()))
}

fn file_tensor(
    file: &std::sync::Arc<File>,
    data: u64,
    name: &str,
    info: &TensorInfo,
) -> Result<FileTensor, String> {
    let dtype = from_file(info.dtype).ok_or_else(|| {
        format!("tensor {name:?} has dtype {:?}, which Everstep does not store", info.dtype)
    })?;
    let (start, end) = info.data_offsets;
    let range = FileRange { file: file.clone(), start: data + start as u64, len: (end - start) as u64 };
    let shape = info.shape.iter().map(|&n| n as u64).collect();
    Ok(FileTensor { name: name.to_owned(), dtype, shape, data: range })
}

/// The bytes before the data: length, header, padding to 8 bytes. `tensors` are in file order, with their bytes.
pub(crate) fn header(
    tensors: &[(&str, Dtype, &[u64], u64)],
    metadata: &FileMetadata,
) -> Result<Vec<u8>, Failure> {
    let size = |n: u64| {
        usize::try_from(n).map_err(|_| Failure::usage("a tensor is larger than this machine's memory"))
    };
    let mut at = 0;
    let mut infos = Vec::with_capacity(tensors.len());
    for (name, dtype, shape, bytes) in tensors {
        let file_dtype = to_file(*dtype).ok_or_else(|| {
            let message = format!("tensor {name:?} has dtype {dtype}, which safetensors cannot hold");
            Failure::usage(&format!("{message}; leave it out with --exclude"))
        })?;
        let end = at + size(*bytes)?;
        let shape = shape.iter().map(|&n| size(n)).collect::<Result<_, _>>()?;
        infos.push(((*name).to_owned(), TensorInfo { dtype: file_dtype, shape, data_offsets: (at, end) }));
        at = end;
    }
    let invalid = |e: String| Failure::usage(&format!("these tensors do not make a safetensors file: {e}"));
    let header = Metadata::new(metadata.clone(), infos).map_err(|e| invalid(e.to_string()))?;
    let mut json = serde_json::to_vec(&header).map_err(|e| invalid(e.to_string()))?;
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

/// Where a type stands in the library's order of tensors within a file.
pub(crate) fn order(dtype: Dtype) -> Option<FileDtype> {
    to_file(dtype)
}

const PAIRS: &[(FileDtype, Dtype)] = &[
    (FileDtype::BOOL, Dtype::Bool),
    (FileDtype::U8, Dtype::U8),
    (FileDtype::U16, Dtype::U16),
    (FileDtype::U32, Dtype::U32),
    (FileDtype::U64, Dtype::U64),
    (FileDtype::I8, Dtype::I8),
    (FileDtype::I16, Dtype::I16),
    (FileDtype::I32, Dtype::I32),
    (FileDtype::I64, Dtype::I64),
    (FileDtype::F16, Dtype::F16),
    (FileDtype::BF16, Dtype::Bf16),
    (FileDtype::F32, Dtype::F32),
    (FileDtype::F64, Dtype::F64),
    (FileDtype::C64, Dtype::Complex64),
    (FileDtype::F8_E4M3, Dtype::F8E4m3fn),
    (FileDtype::F8_E4M3FNUZ, Dtype::F8E4m3fnuz),
    (FileDtype::F8_E5M2, Dtype::F8E5m2),
    (FileDtype::F8_E5M2FNUZ, Dtype::F8E5m2fnuz),
    (FileDtype::F8_E8M0, Dtype::F8E8m0fnu),
    (FileDtype::F4, Dtype::F4E2m1),
];

fn from_file(dtype: FileDtype) -> Option<Dtype> {
    PAIRS.iter().find(|(file, _)| *file == dtype).map(|(_, ours)| *ours)
}

fn to_file(dtype: Dtype) -> Option<FileDtype> {
    PAIRS.iter().find(|(_, ours)| *ours == dtype).map(|(file, _)| *file)
}
