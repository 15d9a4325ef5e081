//! Bodies of segments, without copies, whose progress can be watched: a request is given up when nothing moves, not when
//! it takes long.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use aws_sdk_s3::primitives::SdkBody;
use bytes::{Bytes, BytesMut};
use futures::future::{Either, select};
use http_body::{Body, Frame, SizeHint};

use crate::{Payload, World};

/// Bytes handed to the connection at a time; small, so that a slow link still shows progress.
pub(crate) const FRAME_BYTES: usize = 64 * 1024;
/// Looks at the progress per idle time.
const LOOKS: u32 = 4;

/// Counts the steps that a request makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Something moved.
    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `call`; `None` once nothing has moved for `idle`.
pub(crate) async fn watch<T>(
    world: &dyn World,
    idle: Duration,
    progress: &Progress,
    call: impl Future<Output = T>,
) -> Option<T> {
    let mut call = pin!(call);
    let (mut seen, mut quiet) = (progress.steps(), 0);
    while quiet < LOOKS {
        match select(call.as_mut(), world.sleep(idle / LOOKS)).await {
            Either::Left((done, _)) => return Some(done),
            Either::Right(_) => {
                let now = progress.steps();
                quiet = if now == seen { quiet + 1 } else { 0 };
                seen = now;
            }
        }
    }
    None
}

/// The segments of a payload as one body of known length.
#[derive(Debug)]
pub(crate) struct SegmentBody {
    segments: VecDeque<Bytes>,
    left: u64,
    progress: Progress,
}

impl SegmentBody {
    /// A body of `payload`, as the SDK takes it.
    pub(crate) fn sdk_body(payload: &Payload, progress: &Progress) -> SdkBody {
        let segments = payload.0.iter().filter(|segment| !segment.is_empty()).cloned().collect();
        SdkBody::from_body_1_x(Self { segments, left: payload.len(), progress: progress.clone() })
    }
}

impl Body for SegmentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(segment) = self.segments.front_mut() else { return Poll::Ready(None) };
        let frame = segment.split_to(segment.len().min(FRAME_BYTES));
        if segment.is_empty() {
            self.segments.pop_front();
        }
        self.left -= frame.len() as u64;
        self.progress.step();
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The payload in one buffer; no copy when it has one segment.
pub(crate) fn in_one(payload: &Payload) -> Bytes {
    match payload.0.as_slice() {
        [] => Bytes::new(),
        [only] => only.clone(),
        segments => {
            let mut joined = BytesMut::with_capacity(segments.iter().map(Bytes::len).sum());
            segments.iter().for_each(|segment| joined.extend_from_slice(segment));
            joined.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemWorld;

    #[tokio::test]
    async fn segments_arrive_whole_and_in_order() {
        let payload =
            Payload(vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from(vec![7; FRAME_BYTES + 1])]);
        let progress = Progress::default();
        let body = SegmentBody::sdk_body(&payload, &progress);
        assert_eq!(body.content_length(), Some(payload.len()));
        let read = aws_sdk_s3::primitives::ByteStream::new(body).collect().await.unwrap().into_bytes();
        assert_eq!(read, in_one(&payload));
        assert_eq!(progress.steps(), 3);
    }

    #[tokio::test]
    async fn a_call_without_progress_is_given_up_and_one_with_progress_is_not() {
        let world = SystemWorld::new();
        let progress = Progress::default();
        let idle = Duration::from_millis(40);
        let stuck = watch(&world, idle, &progress, std::future::pending::<()>()).await;
        assert_eq!(stuck, None);
        let slow = async {
            for _ in 0..30 {
                world.sleep(Duration::from_millis(4)).await;
                progress.step();
            }
        };
        assert_eq!(watch(&world, idle, &progress, slow).await, Some(()));
    }
}
