//! The record with a signature: found at the end of a message, cut off, put there.

const TSIG: u16 = 250;
const ANY: u16 = 255;
const HEADER: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Wire format, lower case.
    pub name: Vec<u8>,
    pub algorithm: Vec<u8>,
    pub time: u64,
    pub fudge: u16,
    pub mac: Vec<u8>,
    pub original_id: u16,
    pub error: u16,
    pub other: Vec<u8>,
}

/// The message as it was before it was signed, and the record; `None` where the last record is
/// none.
pub(super) fn strip(bytes: &[u8]) -> Option<(Vec<u8>, Record)> {
    let count = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (questions, additional) = (count(4)?, count(10)?);
    let before =
        usize::from(count(6)?) + usize::from(count(8)?) + usize::from(additional.checked_sub(1)?);
    let mut reader = Reader { bytes, at: HEADER };
    for _ in 0..questions {
        reader.skip_name()?;
        reader.take(4)?;
    }
    for _ in 0..before {
        reader.skip_record()?;
    }
    let start = reader.at;
    let record = reader.signature()?;
    let mut message = bytes.get(..start)?.to_vec();
    *message.get_mut(10..)?.first_chunk_mut()? = (additional - 1).to_be_bytes();
    Some((message, record))
}

impl Record {
    /// What is signed beside the message.
    pub(super) fn variables(&self) -> Vec<u8> {
        let mut bytes = self.name.clone();
        bytes.extend(ANY.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.algorithm);
        bytes.extend(self.timers());
        bytes.extend(self.error.to_be_bytes());
        bytes.extend(length(&self.other));
        bytes.extend(&self.other);
        bytes
    }

    /// The same for the second and later messages of a transfer.
    pub(super) fn timers(&self) -> Vec<u8> {
        let time = self.time.to_be_bytes();
        let mut bytes = time.get(2..).unwrap_or_default().to_vec();
        bytes.extend(self.fudge.to_be_bytes());
        bytes
    }

    /// The message with this record at its end.
    pub(super) fn append(&self, message: &[u8]) -> Vec<u8> {
        let mut data = self.algorithm.clone();
        data.extend(self.timers());
        data.extend(length(&self.mac));
        data.extend(&self.mac);
        data.extend(self.original_id.to_be_bytes());
        data.extend(self.error.to_be_bytes());
        data.extend(length(&self.other));
        data.extend(&self.other);
        let mut bytes = message.to_vec();
        if let Some(count) = bytes.get_mut(10..).and_then(|rest| rest.first_chunk_mut()) {
            *count = u16::from_be_bytes(*count).saturating_add(1).to_be_bytes();
        }
        bytes.extend(&self.name);
        bytes.extend(TSIG.to_be_bytes());
        bytes.extend(ANY.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(length(&data));
        bytes.extend(&data);
        bytes
    }
}

fn length(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).unwrap_or_default().to_be_bytes()
}

/// A name as people write it, in wire format and lower case.
pub(super) fn wire_name(text: &str) -> Option<Vec<u8>> {
    let name = crate::zone::names::host_name(text)?;
    let one = |label: &[u8]| -> Vec<u8> {
        let length = u8::try_from(label.len()).unwrap_or_default();
        std::iter::once(length)
            .chain(label.to_ascii_lowercase())
            .collect()
    };
    Some(name.iter().flat_map(one).chain([0]).collect())
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    fn skip_name(&mut self) -> Option<()> {
        loop {
            match *self.take(1)?.first()? {
                0 => return Some(()),
                length @ 1..=63 => drop(self.take(usize::from(length))?),
                // A pointer is the end of a name.
                0xc0.. => return self.take(1).map(drop),
                _ => return None,
            }
        }
    }

    fn skip_record(&mut self) -> Option<()> {
        self.skip_name()?;
        self.take(8)?;
        let length = self.number()?;
        self.take(usize::from(length)).map(drop)
    }

    /// A name that is written out, as those of keys and algorithms have to be.
    fn name(&mut self) -> Option<Vec<u8>> {
        let start = self.at;
        self.skip_name()?;
        let name = self.bytes.get(start..self.at)?;
        // Lengths are no letters, and stay as they are.
        (name.last() == Some(&0) && name.len() <= 255).then(|| name.to_ascii_lowercase())
    }

    /// The last record, if it is a signature.
    fn signature(&mut self) -> Option<Record> {
        let name = self.name()?;
        if (self.number()?, self.number()?, self.take(4)?) != (TSIG, ANY, &[0; 4]) {
            return None;
        }
        let length = usize::from(self.number()?);
        let end = self.at + length;
        let algorithm = self.name()?;
        let time = self
            .take(6)?
            .iter()
            .fold(0, |time, byte| time << 8 | u64::from(*byte));
        let fudge = self.number()?;
        let mac = self
            .number()
            .and_then(|length| self.take(usize::from(length)))?
            .to_vec();
        let (original_id, error) = (self.number()?, self.number()?);
        let other = self
            .number()
            .and_then(|length| self.take(usize::from(length)))?
            .to_vec();
        let whole = self.at == end && end == self.bytes.len();
        whole.then_some(Record {
            name,
            algorithm,
            time,
            fudge,
            mac,
            original_id,
            error,
            other,
        })
    }
}
