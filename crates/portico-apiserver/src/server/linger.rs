//! A connection that, after its last answer, takes in for a moment what the client still sends.
//!
//! If a socket is closed while there is something to read, the kernel tells the client of a reset,
//! and the client may forget the answer before it has read it. A body that is refused before it has
//! arrived is the usual case.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long after the last answer.
const LONGEST: Duration = Duration::from_secs(1);
const PIECE: usize = 4 * 1024;

pub(super) struct Linger<S> {
    stream: S,
    /// Runs once the last answer is out.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Linger<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, end: None }
    }
}

impl<S: AsyncRead + Unpin> Linger<S> {
    /// Read until the client hangs up, or the time is up.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(LONGEST)));
        loop {
            if end.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece));
            if read.is_err() || piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        self.poll_rest(context)
    }
}
