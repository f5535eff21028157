//! Reads a store's file without redb, which gives up a whole file for one damaged page. Follows the
//! pages from the roots as redb's format (version 3, its `docs/design.md`) lays them out, takes
//! nothing on trust, and leaves it to the checksums of the records to say which of them are good.
//!
//! Every read is within bounds, no page is visited twice, and nothing is written.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
const PAGE: usize = 4096;
const SLOTS: [usize; 2] = [64, 192];
/// Where in a slot the root of the tree of tables is, and whether there is one.
const ROOT: usize = 8;
const HAS_ROOT: usize = 1;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// No tree of redb's with pages of 4 KiB is nearly as deep.
const DEEPEST: usize = 64;

/// What one of the two states that a file holds has in its tables.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub meta: BTreeMap<String, u64>,
    /// Keys that are no text are shown with what can be shown of them.
    pub objects: Vec<(String, Bytes)>,
}

/// Both states of the file: the newest commit and the one before it, in either order.
pub(super) fn read(file: &Bytes) -> Vec<Found> {
    if !file.starts_with(MAGIC) {
        return Vec::new();
    }
    SLOTS.iter().filter_map(|slot| state(file, *slot)).collect()
}

fn state(file: &Bytes, slot: usize) -> Option<Found> {
    if *file.get(slot + HAS_ROOT)? == 0 {
        return None;
    }
    let pages = Pages::of(file)?;
    let mut found = Found::default();
    for (name, definition) in pages.tree(number(file, slot + ROOT)?, Widths::TEXT) {
        match &*name {
            b"meta" => {
                let widths = Widths { value: Some(8) };
                let numbers = pages.table(&definition, widths).into_iter();
                found.meta = numbers
                    .filter_map(|(key, value)| Some((text(&key), number(&value, 0)?)))
                    .collect();
            }
            b"objects" => {
                let records = pages.table(&definition, Widths::TEXT).into_iter();
                found.objects = records.map(|(key, record)| (text(&key), record)).collect();
            }
            _ => {}
        }
    }
    Some(found)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

/// Which values of a tree have one width; keys are texts here.
#[derive(Clone, Copy)]
struct Widths {
    value: Option<usize>,
}

impl Widths {
    const TEXT: Self = Self { value: None };
}

struct Pages<'a> {
    file: &'a Bytes,
    header_pages: usize,
    region_pages: usize,
}

impl<'a> Pages<'a> {
    fn of(file: &'a Bytes) -> Option<Self> {
        Some(Pages {
            file,
            header_pages: short(file, 16)?,
            region_pages: short(file, 20)?,
        })
    }

    /// A page by its number: 20 bits of index, 20 of region, and 5 of order at the top.
    fn page(&self, number: u64) -> Option<Bytes> {
        let order = u32::try_from(number >> 59).ok()?;
        let index = usize::try_from(number & (0x000f_ffff_u64 >> order)).ok()?;
        let region = usize::try_from((number >> 20) & 0x000f_ffff).ok()?;
        let len = PAGE.checked_shl(order)?;
        let region_len = self
            .header_pages
            .checked_add(self.region_pages)?
            .checked_mul(PAGE)?;
        let start = PAGE
            .checked_add(region.checked_mul(region_len)?)?
            .checked_add(self.header_pages.checked_mul(PAGE)?)?
            .checked_add(index.checked_mul(len)?)?;
        let end = start.checked_add(len)?;
        (end <= self.file.len()).then(|| self.file.slice(start..end))
    }

    /// What the definition of a table leads to.
    fn table(&self, definition: &[u8], widths: Widths) -> Vec<(Bytes, Bytes)> {
        // Its type, its length, whether there is a root, the root.
        match (definition.get(9), number(definition, 10)) {
            (Some(1), Some(root)) => self.tree(root, widths),
            _ => Vec::new(),
        }
    }

    fn tree(&self, root: u64, widths: Widths) -> Vec<(Bytes, Bytes)> {
        let (mut pairs, mut seen, mut waiting) = (Vec::new(), HashSet::new(), vec![(root, 0)]);
        while let Some((number, depth)) = waiting.pop() {
            if depth > DEEPEST || !seen.insert(number) {
                continue;
            }
            let Some(page) = self.page(number) else {
                continue;
            };
            match page.first() {
                Some(&LEAF) => leaf(&page, widths, &mut pairs),
                Some(&BRANCH) => {
                    waiting.extend(children(&page).map(|child| (child, depth + 1)));
                }
                _ => {}
            }
        }
        pairs
    }
}

/// The type, how many pairs, the ends of the keys, the ends of the values, the keys, the values.
fn leaf(page: &Bytes, widths: Widths, pairs: &mut Vec<(Bytes, Bytes)>) {
    let Some(count) = page.get(2..4).and_then(|bytes| bytes.first_chunk()) else {
        return;
    };
    let count = usize::from(u16::from_le_bytes(*count));
    let ends = if widths.value.is_some() { 1 } else { 2 };
    let first = 4 + 4 * ends * count;
    let key_end = |n: usize| short(page, 4 + 4 * n);
    let Some(values) = count.checked_sub(1).and_then(key_end) else {
        return;
    };
    let value_end = |n: usize| match widths.value {
        Some(width) => Some(values + width * (n + 1)),
        None => short(page, 4 + 4 * count + 4 * n),
    };
    for n in 0..count {
        let (key_start, value_start) = match n {
            0 => (Some(first), Some(values)),
            n => (key_end(n - 1), value_end(n - 1)),
        };
        let key = part(page, key_start, key_end(n));
        let value = part(page, value_start, value_end(n));
        if let Some(key) = key {
            pairs.push((key, value.unwrap_or_default()));
        }
    }
}

fn part(page: &Bytes, start: Option<usize>, end: Option<usize>) -> Option<Bytes> {
    let (start, end) = (start?, end?);
    (start <= end && end <= page.len()).then(|| page.slice(start..end))
}

/// The type, how many keys, the checksums of the children, their numbers, the keys.
fn children(page: &Bytes) -> impl Iterator<Item = u64> + use<> {
    let keys = page
        .get(2..4)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| usize::from(u16::from_le_bytes(*bytes)));
    let page = page.clone();
    (0..=keys).filter_map(move |n| number(&page, 8 + 16 * (keys + 1) + 8 * n))
}
