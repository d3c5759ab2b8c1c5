//! NumPy's array format: headers, and random access to blocks.

use std::sync::{Mutex, PoisonError};

use half::f16;

use super::array::{Array, Origin, Slab, elements, shape_text};
use super::spool::Spool;
use super::turned::{Stopped, Turning};
use super::zip::Member;
use crate::DataError;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Limit on the length of a header. Headers hold one short dictionary; NumPy rejects longer ones.
const LONGEST_HEADER: usize = 10_000;

/// Kind of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NpyKind {
    Float,
    Signed,
    Unsigned,
    /// Characters of four bytes.
    Unicode,
    /// Characters of one byte.
    Bytes,
}

/// Type and shape of a stored array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: NpyKind,
    pub size: usize,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
}

/// A member of an `.npz` file.
pub(crate) struct NpyArray {
    member: Member,
    header: Header,
    /// Bytes before the first number.
    start: u64,
    /// A copy in C order of an array in Fortran order, after the first read.
    turned: Mutex<Option<Spool>>,
}

impl NpyArray {
    pub fn open(mut member: Member) -> Result<Self, DataError> {
        if let Some(name) = member.origin.name.strip_suffix(".npy") {
            member.origin.name = name.to_string();
        }
        let origin = member.origin.clone();
        let mut prefix = [0; 12];
        let known = prefix.len().min(member.size as usize);
        member.read_at(0, &mut prefix[..known])?;
        if known < 12 || !prefix.starts_with(MAGIC) {
            return Err(origin.damaged("it is not a NumPy array"));
        }
        let (start, length) = match prefix[6] {
            1 => (10, usize::from(u16::from_le_bytes([prefix[8], prefix[9]]))),
            2 | 3 => (12, u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]) as usize),
            version => return Err(origin.damaged(format!("version {version} of NumPy's format is unknown"))),
        };
        if length > LONGEST_HEADER {
            return Err(origin.damaged(format!("its header declares {length} bytes")));
        }
        let mut text = vec![0; length];
        member.read_at(start, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        let header = Header::parse(&text, &origin)?;
        let start = start + length as u64;
        let declared = elements(&header.shape).and_then(|count| count.checked_mul(header.size));
        if declared.is_none_or(|bytes| bytes as u64 != member.size - start) {
            let held = member.size - start;
            return Err(
                origin.damaged(format!("{} does not fit its {held} bytes", shape_text(&header.shape)))
            );
        }
        Ok(Self { member, header, start, turned: Mutex::new(None) })
    }

    /// Whether it holds numbers.
    pub fn has_numbers(&self) -> bool {
        !matches!(self.header.kind, NpyKind::Unicode | NpyKind::Bytes)
    }

    /// The texts of an array of strings, in order.
    pub fn texts(&self) -> Result<Vec<String>, DataError> {
        let bytes = self.member.read_all()?;
        let data = &bytes[self.start as usize..];
        if self.header.size == 0 {
            return Ok(vec![String::new(); elements(&self.header.shape).unwrap_or(0).min(data.len())]);
        }
        let entries = data.chunks_exact(self.header.size);
        match self.header.kind {
            NpyKind::Bytes => Ok(entries
                .map(|entry| String::from_utf8_lossy(entry).trim_end_matches('\0').to_string())
                .collect()),
            NpyKind::Unicode => entries.map(|entry| self.unicode(entry)).collect(),
            _ => Err(self.member.origin.unfit("numbers", "text")),
        }
    }

    fn unicode(&self, entry: &[u8]) -> Result<String, DataError> {
        let codes = entry.chunks_exact(4).map(|code| {
            let code: [u8; 4] = code.try_into().expect("four bytes");
            if self.header.big_endian { u32::from_be_bytes(code) } else { u32::from_le_bytes(code) }
        });
        let text: Option<String> = codes.take_while(|&code| code != 0).map(char::from_u32).collect();
        text.ok_or_else(|| self.member.origin.damaged("a text is not valid Unicode"))
    }

    /// The raw bytes of a block, last axis fastest.
    fn raw(&self, block: &Slab) -> Result<Vec<u8>, DataError> {
        let size = self.header.size;
        let mut out = vec![0; block.len() * size];
        if out.is_empty() {
            return Ok(out);
        }
        if self.header.fortran && self.header.shape.len() > 1 {
            self.gather_rows(block, &mut out)?;
        } else {
            walk(block, &self.header.shape, &mut out, size, |offset, piece| {
                self.member.read_at(self.start + (offset * size) as u64, piece)
            })?;
        }
        Ok(out)
    }

    /// Reads a block of an array in Fortran order. The first read converts the whole array.
    fn gather_rows(&self, block: &Slab, out: &mut [u8]) -> Result<(), DataError> {
        let (shape, size) = (&self.header.shape, self.header.size);
        let mut guard = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            let read = |offset: u64, out: &mut [u8]| self.member.read_at(self.start + offset, out);
            *guard = Some(Turning { shape, size }.turn(read).map_err(|stopped| match stopped {
                Stopped::Reading(error) => error,
                Stopped::Writing => self.member.origin.unfit(
                    "Fortran order, and no space for a temporary file to convert it",
                    "C order, from `numpy.ascontiguousarray`, or a folder with free space in `TMPDIR`",
                ),
            })?);
        }
        let spool = guard.as_ref().expect("it was just turned");
        walk(block, shape, out, size, |offset, piece| {
            let read = spool.read_at((offset * size) as u64, piece);
            read.map_err(|error| DataError::reading(&self.member.origin.path, error))
        })
    }

    fn numbers<T>(&self, block: &Slab, convert: impl Fn(f64) -> T) -> Result<Vec<T>, DataError> {
        if matches!(self.header.kind, NpyKind::Unicode | NpyKind::Bytes) {
            return Err(self.member.origin.unfit("text", "real numbers"));
        }
        let raw = self.raw(block)?;
        let (kind, big_endian) = (self.header.kind, self.header.big_endian);
        Ok(raw.chunks_exact(self.header.size).map(|bytes| convert(decode(bytes, kind, big_endian))).collect())
    }
}

impl Array for NpyArray {
    fn is_double(&self) -> bool {
        let whole = matches!(self.header.kind, NpyKind::Signed | NpyKind::Unsigned);
        self.header.size > if whole { 2 } else { 4 }
    }

    fn origin(&self) -> &Origin {
        &self.member.origin
    }

    fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    fn read_f64(&self, block: &Slab) -> Result<Vec<f64>, DataError> {
        self.numbers(block, |value| value)
    }

    fn read_f32(&self, block: &Slab) -> Result<Vec<f32>, DataError> {
        if self.header.kind == NpyKind::Float && self.header.size == 4 && !self.header.big_endian {
            let raw = self.raw(block)?;
            let single = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
            return Ok(raw.chunks_exact(4).map(single).collect());
        }
        self.numbers(block, |value| value as f32)
    }

    /// Whether access must be sequential. A compressed member is decompressed from its start, and one in Fortran order
    /// is read whole. Checksums are only verified when all of a member is read in order.
    fn is_sequential(&self) -> bool {
        true
    }
}

/// Visits the contiguous pieces of a block of a C-ordered array: their offset in elements, and their part of `out`.
fn walk(
    block: &Slab,
    shape: &[usize],
    out: &mut [u8],
    size: usize,
    mut visit: impl FnMut(usize, &mut [u8]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let (walked, length) = block.contiguous_tail(shape);
    let mut counter = vec![0; walked];
    for piece in out.chunks_exact_mut((length * size).max(1)) {
        let at = |axis: usize| block.start[axis] + counter.get(axis).copied().unwrap_or(0);
        let offset = (0..shape.len()).fold(0, |offset, axis| offset * shape[axis] + at(axis));
        visit(offset, piece)?;
        for axis in (0..walked).rev() {
            counter[axis] += 1;
            if counter[axis] < block.count[axis] {
                break;
            }
            counter[axis] = 0;
        }
    }
    Ok(())
}

fn decode(bytes: &[u8], kind: NpyKind, big_endian: bool) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    if big_endian {
        word[..bytes.len()].reverse();
    }
    let bits = u64::from_le_bytes(word);
    let unused = 64 - 8 * bytes.len() as u32;
    match (kind, bytes.len()) {
        (NpyKind::Float, 2) => f16::from_bits(bits as u16).to_f64(),
        (NpyKind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
        (NpyKind::Float, _) => f64::from_bits(bits),
        (NpyKind::Signed, _) => ((bits << unused) as i64 >> unused) as f64,
        _ => bits as f64,
    }
}

impl Header {
    /// Parses the dictionary of a header, a Python literal.
    fn parse(text: &str, origin: &Origin) -> Result<Self, DataError> {
        let broken = || origin.damaged("its header is not one of NumPy's");
        let value = |key: &str| {
            let quoted = [format!("'{key}'"), format!("\"{key}\"")];
            let after =
                quoted.iter().find_map(|quoted| text.split_once(quoted.as_str())).map(|(_, after)| after);
            after.and_then(|after| after.trim_start().strip_prefix(':')).map(str::trim_start)
        };
        let description = value("descr").ok_or_else(broken)?;
        let quote = description.chars().next().filter(|&quote| quote == '\'' || quote == '"');
        let Some((_, rest)) = quote.and_then(|quote| description.split_once(quote)) else {
            return Err(origin.unfit("a compound type", "real numbers"));
        };
        let (description, _) = rest.split_once(['\'', '"']).ok_or_else(broken)?;
        if description.ends_with('O') {
            return Err(origin.ragged("Python objects"));
        }
        let (kind, size, big_endian) = parse_type(description)
            .ok_or_else(|| origin.unfit(format!("elements of type `{description}`"), "real numbers"))?;
        let fortran = match value("fortran_order") {
            Some(flag) if flag.starts_with("True") => true,
            Some(flag) if flag.starts_with("False") => false,
            _ => return Err(broken()),
        };
        let shape =
            value("shape").and_then(|shape| shape.strip_prefix('(')?.split_once(')')).ok_or_else(broken)?.0;
        let extents = shape.split(',').map(str::trim).filter(|extent| !extent.is_empty());
        let shape: Result<Vec<usize>, _> = extents.map(str::parse).collect();
        let shape = shape.map_err(|_| broken())?;
        if shape.len() > 32 {
            return Err(broken());
        }
        Ok(Self { kind, size, big_endian, fortran, shape })
    }
}

/// Parses types such as `<f4`: kind, bytes, whether big-endian.
fn parse_type(description: &str) -> Option<(NpyKind, usize, bool)> {
    let mut letters = description.chars();
    let order = letters.next()?;
    let kind = letters.next()?;
    let count: usize = letters.as_str().parse().ok()?;
    let big_endian = match order {
        '<' | '|' | '=' => false,
        '>' => true,
        _ => return None,
    };
    let (kind, size) = match (kind, count) {
        ('f', 2 | 4 | 8) => (NpyKind::Float, count),
        ('i', 1 | 2 | 4 | 8) => (NpyKind::Signed, count),
        ('u', 1 | 2 | 4 | 8) | ('b', 1) => (NpyKind::Unsigned, count),
        ('U', _) => (NpyKind::Unicode, count.checked_mul(4)?),
        ('S', _) => (NpyKind::Bytes, count),
        _ => return None,
    };
    Some((kind, size, big_endian))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn origin() -> Origin {
        Origin { path: Arc::new("a.npz".into()), name: "values".to_string() }
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 101, 3), }      \n";
        let header = Header::parse(text, &origin()).unwrap();
        let expected = Header {
            kind: NpyKind::Float,
            size: 4,
            big_endian: false,
            fortran: false,
            shape: vec![3, 101, 3],
        };
        assert_eq!(header, expected);
        let scalar = "{'descr': '>i8', 'fortran_order': True, 'shape': (), }";
        let header = Header::parse(scalar, &origin()).unwrap();
        assert_eq!((header.kind, header.big_endian, header.shape.len()), (NpyKind::Signed, true, 0));
    }

    #[test]
    fn strange_headers_are_refused() {
        for text in [
            "",
            "{'descr': '<f4'}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, ",
            "{'descr': '<f16', 'fortran_order': False, 'shape': (1,), }",
        ] {
            assert!(Header::parse(text, &origin()).is_err(), "{text}");
        }
    }

    #[test]
    fn walking_visits_pieces_in_order() {
        let shape = [3, 4, 2];
        let data: Vec<u8> = (0..24).collect();
        let block = Slab { start: vec![1, 1, 0], count: vec![2, 2, 2] };
        let mut out = vec![0; block.len()];
        walk(&block, &shape, &mut out, 1, |offset, piece| {
            piece.copy_from_slice(&data[offset..offset + piece.len()]);
            Ok(())
        })
        .unwrap();
        assert_eq!(out, [10, 11, 12, 13, 18, 19, 20, 21]);
    }
}
