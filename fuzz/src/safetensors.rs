//! Headers of imported safetensors files, as the command line judges them.

#[path = "../../tools/ckpt-inspect/src/safetensors_header.rs"]
mod header;

/// A whole file, short as it is. What is accepted lies inside it.
pub fn safetensors(bytes: &[u8]) {
    let file_len = bytes.len() as u64;
    let Ok(len) = header::header_len(bytes, file_len) else { return };
    let data = 8 + usize::try_from(len).expect("it lies in the file");
    let Ok(metadata) = header::parse(&bytes[8..data], file_len) else { return };
    for name in metadata.offset_keys() {
        let (start, end) = metadata.info(&name).expect("a tensor by its name").data_offsets;
        assert!(start <= end && data + end <= bytes.len(), "a tensor outside of the file");
    }
}
