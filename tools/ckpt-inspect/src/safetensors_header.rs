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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c24_a_header_of_a_file_beyond_4_gibibytes_is_read_whole() {
        let (floats, bytes) = ((1u64 << 31) + 4, (1u64 << 32) + 1);
        let json = format!(
            r#"{{"f":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{floats}]}},"b":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[{floats},{}]}}}}"#,
            floats / 4,
            floats + bytes
        );
        let file_len = 8 + json.len() as u64 + floats + bytes;
        let metadata = parse(json.as_bytes(), file_len).unwrap();
        let (start, end) = metadata.info("b").unwrap().data_offsets;
        assert_eq!(((end - start) as u64, metadata.data_len() as u64), (bytes, floats + bytes));
        for other in [file_len - 1, file_len - (1 << 32), file_len + 1] {
            assert!(parse(json.as_bytes(), other).is_err(), "a file of {other} bytes");
        }
        let length = (json.len() as u64).to_le_bytes();
        assert_eq!(header_len(&length, file_len), Ok(json.len() as u64));
    }
}
