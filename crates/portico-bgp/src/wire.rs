//! Reading bytes that may end anywhere.

/// What is left to be read. Nothing is taken where there is too little.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes as many bytes as the next byte says.
    pub(crate) fn short_block(&mut self) -> Option<&'a [u8]> {
        self.block(|reader| reader.u8().map(usize::from))
    }

    /// Takes as many bytes as the next two say.
    pub(crate) fn long_block(&mut self) -> Option<&'a [u8]> {
        self.block(|reader| reader.u16().map(usize::from))
    }

    fn block(&mut self, length: impl FnOnce(&mut Self) -> Option<usize>) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = length(&mut ahead)?;
        let taken = ahead.take(count)?;
        *self = ahead;
        Some(taken)
    }
}
