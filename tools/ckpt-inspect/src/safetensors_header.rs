//! What the first bytes of a model file say, judged before anything is believed. Pure: the caller reads.

use safetensors::tensor::Metadata;

/// The library's own limit of a header.
const HEADER_BYTES: u64 = 100_000_000;
/// First bytes of files that other tools load by running what is in them: a zip archive, as torch.save writes it, and
/// pickles of protocols 2 to 5.
const RUNNABLE: [&[u8]; 5] = [b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];

/// Bytes of the header of a file of `file_len` bytes that begins with `first`.
///
/// # Errors
/// What is wrong, for a person.
pub(crate) fn header_len(first: &[u8], file_len: u64) -> Result<u64, String> {
    let length = first.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    let length = length.ok_or_else(|| format!("{file_len} bytes are too few for a safetensors file"))?;
    if length <= HEADER_BYTES && length <= file_len.saturating_sub(8) {
        return Ok(length);
    }
    if RUNNABLE.iter().any(|magic| first.starts_with(magic)) {
        return Err("this is a pickle or an archive of pickles (torch.save), and loading one runs whatever code is in it; \
                    Everstep never does. Convert it where you trust it, with safetensors.torch.save_file, and import that"
            .to_owned());
    }
    Err(format!("not a safetensors file: a header of {length} bytes in a file of {file_len}"))
}

/// Reads the header `json` of a file of `file_len` bytes; every tensor lies inside the file.
///
/// # Errors
/// What is wrong, for a person.
pub(crate) fn parse(json: &[u8], file_len: u64) -> Result<Metadata, String> {
    let metadata: Metadata =
        serde_json::from_slice(json).map_err(|e| format!("the header is not valid: {e}"))?;
    let data_len = u64::try_from(metadata.data_len()).unwrap_or(u64::MAX);
    let expected = data_len.saturating_add(8 + json.len() as u64);
    if expected == file_len {
        return Ok(metadata);
    }
    Err(format!("the header describes a file of {expected} bytes, found {file_len}; was it cut short?"))
}
