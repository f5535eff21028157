//! The events of one watch, read as they come in and never waited for.

use super::event::{self, Event};
use super::{News, leave_out};
use crate::client::{Arrival, Connection, RequestError};
use crate::objects::Kind;
use bytes::Bytes;
use memchr::memchr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;
use std::{io, mem};
use tokio::sync::oneshot;

/// Of one event.
const MOST_LINE: usize = 64 << 20;
/// News of one call, about: others want to be read, too.
const MANY: usize = 1000;

pub struct Stream {
    connection: Connection,
    kind: Kind,
    lines: Lines,
    /// Where to go on when this ends.
    revision: String,
    /// There was anything.
    seen: bool,
    ends_by: Instant,
    ended: Option<oneshot::Sender<Ended>>,
}

/// How a stream ended, and how far it went. Says whether there was anything.
pub struct Ended {
    pub result: Result<bool, RequestError>,
    pub revision: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    /// There is nothing more to read for now.
    Done,
    /// There may be.
    Unfinished,
    Ended,
}

impl Stream {
    /// A server that has not ended it by then is taken for dead.
    pub(super) fn new(
        connection: Connection,
        kind: Kind,
        revision: &str,
        ends_by: Instant,
        ended: oneshot::Sender<Ended>,
    ) -> Stream {
        let (lines, revision) = (Lines::default(), revision.to_owned());
        Stream {
            connection,
            kind,
            lines,
            revision,
            seen: false,
            ends_by,
            ended: Some(ended),
        }
    }

    /// When it ends by itself.
    pub fn ends_by(&self) -> Instant {
        self.ends_by
    }

    /// The kernel says that there is more to read, and whether it is the last.
    pub fn is_readable(&mut self, closing: bool) {
        self.connection.is_readable(closing);
    }

    /// Read what has come in. Whoever waits for the end is told of it.
    pub fn read(&mut self, now: Instant, scratch: &mut [u8], news: &mut Vec<News>) -> Reading {
        let enough = news.len() + MANY;
        let result = loop {
            if news.len() >= enough {
                return Reading::Unfinished;
            }
            match self.event(scratch, news) {
                Ok(Some(true)) => {}
                Ok(Some(false)) if now < self.ends_by => return Reading::Done,
                Ok(Some(false)) => break Err(RequestError::Timeout),
                Ok(None) => break Ok(self.seen),
                Err(error) => break Err(error),
            }
        };
        if let Some(ended) = self.ended.take() {
            let _ = ended.send(Ended {
                result,
                revision: mem::take(&mut self.revision),
            });
        }
        Reading::Ended
    }

    /// One event, if it is all there; `None` at the end.
    fn event(
        &mut self,
        scratch: &mut [u8],
        news: &mut Vec<News>,
    ) -> Result<Option<bool>, RequestError> {
        let line = loop {
            if let Some(line) = self.lines.next() {
                break line;
            }
            match self.connection.next(scratch).map_err(RequestError::Read)? {
                Arrival::Data(data) => self.lines.add(data).map_err(RequestError::Read)?,
                Arrival::Nothing => return Ok(Some(false)),
                Arrival::End => return Ok(None),
            }
        };
        self.seen = true;
        self.take(event::read(self.kind, &line)?, news);
        Ok(Some(true))
    }

    fn take(&mut self, event: Event, news: &mut Vec<News>) {
        let revision = event.revision();
        if !revision.is_empty() {
            revision.clone_into(&mut self.revision);
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

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.connection.as_raw_fd()
    }
}

/// The lines of a body, which comes in parts.
#[derive(Default)]
struct Lines {
    /// What came in last, from the next line on. Not held while there is nothing in it, so that who
    /// reads has the memory back.
    part: Bytes,
    /// The beginning of a line that came in before it.
    begun: Vec<u8>,
}

impl Lines {
    /// With its end. What has none when the body ends was cut off, and is not a line.
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
