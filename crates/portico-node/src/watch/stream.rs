//! The events of one watch, as they come in.

use super::event::{self, Event};
use super::{News, leave_out};
use crate::client::RequestError;
use crate::objects::Kind;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use memchr::memchr;
use std::{io, mem};
use tower::BoxError;

/// The most bytes of one event.
const MOST_LINE: usize = 64 << 20;

pub(super) struct EventStream<B> {
    kind: Kind,
    body: B,
    lines: Lines,
    /// Up to where its events have been read.
    revision: Option<String>,
    begun: bool,
}

impl<B> EventStream<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    pub(super) fn new(kind: Kind, body: B) -> Self {
        Self {
            kind,
            body,
            lines: Lines::default(),
            revision: None,
            begun: false,
        }
    }

    /// Up to where its events have been read, if there were any.
    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// There was an event.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Waits for the next part of the answer, and adds what its events say to the news. `false` at
    /// the end.
    pub(super) async fn read(&mut self, news: &mut Vec<News>) -> Result<bool, RequestError> {
        let Some(frame) = self.body.frame().await else {
            return Ok(false);
        };
        let frame = frame.map_err(|error| RequestError::Read(io::Error::other(error)))?;
        // Trailers say nothing of objects.
        if let Ok(data) = frame.into_data() {
            self.lines.add(data).map_err(RequestError::Read)?;
        }
        while let Some(line) = self.lines.next() {
            self.take(event::read(self.kind, &line)?, news);
        }
        Ok(true)
    }

    fn take(&mut self, event: Event, news: &mut Vec<News>) {
        self.begun = true;
        let revision = event.revision();
        if !revision.is_empty() {
            match &mut self.revision {
                Some(reached) => revision.clone_into(reached),
                none => *none = Some(revision.to_owned()),
            }
        }
        let reached = revision
            .parse()
            .ok()
            .map(|version| News::Reached(self.kind, version));
        match event {
            Event::Applied(object) => news.push(News::Apply(object)),
            Event::Deleted(metadata) => news.extend(metadata.name(self.kind).map(News::Delete)),
            Event::Unreadable(metadata, error) => drop(leave_out(self.kind, metadata, &error)),
            Event::Other(_) => {}
        }
        news.extend(reached);
    }
}

/// The lines of a body, which comes in parts.
#[derive(Default)]
struct Lines {
    /// What came in last, from the next line on. Empty while the stream waits, so that it keeps no
    /// buffer of the connection.
    part: Bytes,
    /// The beginning of a line that came in before it.
    begun: Vec<u8>,
}

impl Lines {
    /// The next line, with its end. A part without an end when the body ends was cut off, and is
    /// not a line.
    fn next(&mut self) -> Option<Bytes> {
        let Some(length) = memchr(b'\n', &self.part) else {
            self.begun.extend_from_slice(&mem::take(&mut self.part));
            return None;
        };
        let line = self.part.split_to(length + 1);
        if self.begun.is_empty() {
            return Some(line);
        }
        self.begun.extend_from_slice(&line);
        Some(mem::take(&mut self.begun).into())
    }

    /// The next part, when there is no line left.
    fn add(&mut self, part: Bytes) -> io::Result<()> {
        self.part = part;
        match self.begun.len() > MOST_LINE {
            true => Err(io::Error::other("an event is too long")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_came_in() {
        let text = b"one\n\ntwo, longer\nthree\ncut off";
        for size in 1..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for part in text.chunks(size) {
                lines.add(Bytes::from_static(part)).unwrap();
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(
                found,
                ["one\n", "\n", "two, longer\n", "three\n"],
                "by {size}"
            );
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let (mut lines, part) = (Lines::default(), Bytes::from(vec![b' '; MOST_LINE / 4]));
        let refused = (0..10).find(|_| lines.next().is_some() || lines.add(part.clone()).is_err());
        assert_eq!(refused, Some(5));
    }
}
