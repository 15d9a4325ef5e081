//! Stores that are almost S3 (C15): everything is one plain PUT with a length.

use everstep_sim::s3_stub::{S3Stub, Seen, StubSettings};
use everstep_store::s3::{Checksums, S3Options};
use everstep_store::{Class, Payload, Store};
use http::Method;

use crate::stores::{bare, key, options, read};

/// 12 MiB that no framing could hide in.
fn chunk() -> Vec<u8> {
    (0..3u32 << 20).flat_map(|number| number.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect()
}

/// Header and payload, as packs are written.
async fn save(options: S3Options) -> Vec<u8> {
    let chunk = chunk();
    let store = bare(options).await;
    let segments = chunk.chunks(5 << 20).map(bytes::Bytes::copy_from_slice).collect();
    store.put(&key(1), Payload(segments), Class::Bulk).await.unwrap();
    assert_eq!(read(&store, 1).await.len(), chunk.len());
    chunk
}

fn is_plain(request: &Seen) -> bool {
    let encodings =
        ["transfer-encoding", "content-encoding", "x-amz-trailer", "x-amz-decoded-content-length"];
    !request.is_multipart() && encodings.iter().all(|name| request.header(name).is_none())
}

#[tokio::test]
async fn c15_a_store_that_refuses_checksum_headers_takes_a_save() {
    let stub = S3Stub::with(StubSettings { refuse_checksums: true, ..StubSettings::default() });
    let chunk = save(options(&stub)).await;
    assert!(stub.objects("bucket")[0].1 == chunk);
}

#[tokio::test]
async fn c15_a_store_that_would_keep_chunk_framing_gets_none() {
    let stub = S3Stub::start();
    let chunk = save(options(&stub)).await;
    assert!(stub.objects("bucket")[0].1 == chunk, "the stub keeps bodies as they come");
    assert!(stub.seen().iter().all(is_plain));
}

#[tokio::test]
async fn c15_no_upload_has_parts_that_could_be_unequal() {
    let stub = S3Stub::start();
    save(options(&stub)).await;
    let puts: Vec<Seen> = stub.seen().into_iter().filter(|request| request.method == Method::PUT).collect();
    assert_eq!(puts.len(), 1);
    assert_eq!(puts[0].header("content-length"), Some("12582912"));
    assert!(is_plain(&puts[0]));
}

#[tokio::test]
async fn c15_an_option_turns_the_stores_own_checksums_on_as_a_header() {
    let stub = S3Stub::start();
    let chunk = save(S3Options { checksums: Checksums::Crc32c, ..options(&stub) }).await;
    let put = &stub.seen()[0];
    assert!(put.header("x-amz-checksum-crc32c").is_some() && is_plain(put), "{put:?}");
    assert!(stub.objects("bucket")[0].1 == chunk);
}

#[tokio::test]
async fn c15_a_server_that_verifies_checksums_agrees_with_ours() {
    let server = everstep_tests::servers::ministack();
    let bucket = server.bucket();
    let options = S3Options { checksums: Checksums::Crc32c, ..server.options() };
    let store = everstep_tests::servers::open(&bucket, "", options).await;
    store.put(&key(1), chunk().into(), Class::Bulk).await.unwrap();
    assert!(read(&store, 1).await == chunk());
}
