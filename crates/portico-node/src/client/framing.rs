//! Where the body of an HTTP/1.1 answer is in the bytes that come in. Pure: bytes in, parts of the
//! body out.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Response, Version};
use memchr::memchr_iter;
use std::io;

/// Of a head, and of what may stand between chunks.
const MOST_HEAD: usize = 64 << 10;
const MOST_LINE: usize = 4 << 10;
const MOST_HEADERS: usize = 100;

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length: so much is left.
    Length(u64),
    Chunked(Chunked),
    /// By the end of the connection.
    Connection,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunked {
    Size,
    Data(u64),
    EndOfData,
    Trailer,
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Data(Bytes),
    /// Nothing before more bytes come.
    More,
    End,
}

/// The head of an answer, taken out of the buffer; `None` while it is not all there. What only
/// announces the answer is skipped.
pub fn head(buffer: &mut BytesMut) -> io::Result<Option<Response<Framing>>> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(buffer).map_err(invalid)? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if buffer.len() > MOST_HEAD => {
                return Err(invalid("its head is too long"));
            }
            httparse::Status::Partial => return Ok(None),
        };
        let status = head.code.unwrap_or_default();
        if (100..200).contains(&status) && status != 101 {
            buffer.advance(length);
            continue;
        }
        let mut answer = Response::builder().status(status).version(Version::HTTP_11);
        for header in head.headers.iter() {
            answer = answer.header(header.name, header.value);
        }
        let mut answer = answer.body(Framing::Connection).map_err(invalid)?;
        *answer.body_mut() = framing(status, answer.headers())?;
        buffer.advance(length);
        return Ok(Some(answer));
    }
}

fn framing(status: u16, headers: &HeaderMap) -> io::Result<Framing> {
    if matches!(status, 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if let Some(encoding) = headers.get(http::header::TRANSFER_ENCODING) {
        return match encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            true => Ok(Framing::Chunked(Chunked::Size)),
            false => Err(invalid("its transfer encoding is unknown")),
        };
    }
    match headers.get(http::header::CONTENT_LENGTH) {
        Some(length) => Ok(Framing::Length(
            length
                .to_str()
                .map_err(invalid)?
                .trim()
                .parse()
                .map_err(invalid)?,
        )),
        None => Ok(Framing::Connection),
    }
}

impl Framing {
    /// The next part of the body, taken out of the buffer.
    pub fn next(&mut self, buffer: &mut BytesMut) -> io::Result<Next> {
        match self {
            Framing::Connection => Ok(data(&mut { u64::MAX }, buffer)),
            Framing::Length(0) => Ok(Next::End),
            Framing::Length(left) => Ok(data(left, buffer)),
            Framing::Chunked(chunked) => chunked.next(buffer),
        }
    }

    /// Whether a connection may end here.
    pub fn may_end(&self) -> bool {
        *self == Framing::Connection
    }
}

impl Chunked {
    fn next(&mut self, buffer: &mut BytesMut) -> io::Result<Next> {
        loop {
            *self = match self {
                Chunked::End => return Ok(Next::End),
                Chunked::Data(left) if *left > 0 => return Ok(data(left, buffer)),
                Chunked::Data(_) => Chunked::EndOfData,
                Chunked::Size => match line(buffer, size)? {
                    None => return Ok(Next::More),
                    Some(0) => Chunked::Trailer,
                    Some(size) => Chunked::Data(size),
                },
                Chunked::EndOfData => match line(buffer, is_empty)? {
                    None => return Ok(Next::More),
                    Some(true) => Chunked::Size,
                    Some(false) => return Err(invalid("a chunk is longer than it says")),
                },
                Chunked::Trailer => match line(buffer, is_empty)? {
                    None => return Ok(Next::More),
                    Some(true) => Chunked::End,
                    Some(false) => Chunked::Trailer,
                },
            }
        }
    }
}

/// What there is of so much.
fn data(left: &mut u64, buffer: &mut BytesMut) -> Next {
    let length = usize::try_from(*left)
        .unwrap_or(usize::MAX)
        .min(buffer.len());
    *left -= length as u64;
    match length {
        0 => Next::More,
        _ => Next::Data(buffer.split_to(length).freeze()),
    }
}

/// What a line says, which is taken out of the buffer.
fn line<T>(buffer: &mut BytesMut, read: fn(&[u8]) -> io::Result<T>) -> io::Result<Option<T>> {
    let start = buffer.get(..=MOST_LINE).unwrap_or(buffer);
    let mut ends = memchr_iter(b'\n', start)
        .filter_map(|end| Some((end, start.get(..end)?.strip_suffix(b"\r")?)));
    match ends.next() {
        Some((end, line)) => {
            let read = read(line)?;
            buffer.advance(end + 1);
            Ok(Some(read))
        }
        None if buffer.len() > MOST_LINE => Err(invalid("a line between its chunks is too long")),
        None => Ok(None),
    }
}

fn is_empty(line: &[u8]) -> io::Result<bool> {
    Ok(line.is_empty())
}

/// What follows a semicolon is of no interest to us.
fn size(line: &[u8]) -> io::Result<u64> {
    let digits = line
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let text = str::from_utf8(digits).map_err(invalid)?;
    match digits.iter().all(u8::is_ascii_hexdigit) {
        true => u64::from_str_radix(text, 16).map_err(invalid),
        false => Err(invalid("the size of a chunk is not a number")),
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The status and the body, when the bytes come in parts of these sizes; how it ended.
    fn read(bytes: &[u8], sizes: &[usize]) -> io::Result<(u16, Vec<u8>, Next)> {
        let (mut buffer, mut answer, mut body, mut rest) =
            (BytesMut::new(), None, Vec::new(), bytes);
        let mut sizes = sizes.iter().cycle();
        loop {
            if answer.is_none() {
                answer = head(&mut buffer)?;
            }
            let next = answer
                .as_mut()
                .map_or(Ok(Next::More), |answer| answer.body_mut().next(&mut buffer))?;
            match next {
                Next::Data(data) => body.extend(data),
                Next::More if !rest.is_empty() => {
                    let (part, left) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
                    buffer.extend_from_slice(part);
                    rest = left;
                }
                ended => {
                    return Ok((
                        answer.map_or(0, |answer| answer.status().as_u16()),
                        body,
                        ended,
                    ));
                }
            }
        }
    }

    #[test]
    fn bodies_end_as_their_heads_say() {
        let cases: [(&str, u16, &str, Next); 8] = [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
                200,
                "abc",
                Next::End,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
                200,
                "abc",
                Next::More,
            ),
            (
                "HTTP/1.1 403 \r\n\r\nuntil the end",
                403,
                "until the end",
                Next::More,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", Next::End),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: \
                 Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
                200,
                "abc0123456789",
                Next::End,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                200,
                "abc",
                Next::More,
            ),
            (
                "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: \
                 1\r\n\r\na",
                200,
                "a",
                Next::End,
            ),
            ("HTTP/1.1 200 OK\r\nContent-L", 0, "", Next::More),
        ];
        for (bytes, status, body, end) in cases {
            for size in [1, 2, 7, 1000] {
                let read = read(bytes.as_bytes(), &[size]).unwrap();
                assert_eq!(
                    read,
                    (status, body.as_bytes().to_vec(), end.clone()),
                    "{bytes:?} by {size}"
                );
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MOST_HEAD));
        for bytes in [
            "SMTP".to_owned(),
            endless,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned(),
            format!("{chunks}x\r\n"),
            format!("{chunks}+3\r\nabc\r\n"),
            format!("{chunks}11111111111111111\r\n"),
            format!("{chunks}3\r\nabcd\r\n"),
            format!("{chunks}{}", "1".repeat(MOST_LINE + 2)),
        ] {
            assert!(read(bytes.as_bytes(), &[1000]).is_err(), "{bytes:.80}");
        }
    }

    #[test]
    fn a_line_ends_with_both_characters_and_in_time() {
        let length_of = |line: &[u8]| Ok(line.len());
        let long = |length| format!("{}\r\n", "x".repeat(length));
        for (bytes, length) in [
            ("ab\r\nc".to_owned(), Some(2)),
            ("\r\n".to_owned(), Some(0)),
            ("\n\r\r\n".to_owned(), Some(2)),
            ("a\nb\r".to_owned(), None),
            (String::new(), None),
            (long(MOST_LINE - 1), Some(MOST_LINE - 1)),
        ] {
            let mut buffer = BytesMut::from(bytes.as_str());
            assert_eq!(
                line(&mut buffer, length_of).unwrap(),
                length,
                "{bytes:.80?}"
            );
            assert_eq!(
                buffer.len(),
                length.map_or(bytes.len(), |length| bytes.len() - length - 2),
                "{bytes:.80?}"
            );
        }
        assert!(line(&mut BytesMut::from(long(MOST_LINE).as_str()), length_of).is_err());
        assert_eq!(
            line(
                &mut BytesMut::from("x".repeat(MOST_LINE).as_str()),
                length_of
            )
            .unwrap(),
            None
        );
    }

    proptest! {
        #[test]
        fn chunks_come_out_as_they_went_in(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..10),
            sizes in prop::collection::vec(1_usize..50, 1..10),
        ) {
            let mut bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            for chunk in &chunks {
                bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            prop_assert_eq!(read(&bytes, &sizes).unwrap(), (200, chunks.concat(), Next::End));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), chunked in any::<bool>()) {
            let head: &[u8] = if chunked { b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" } else { b"" };
            let _ = read(&[head, &bytes].concat(), &[7]);
        }
    }
}
