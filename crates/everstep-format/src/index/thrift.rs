//! Just enough of the Thrift compact protocol to look at parquet's own structs before its library reads them: that
//! library takes memory for what a count claims, and stack for what nests.

pub(super) const I32: u8 = 5;
const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;
/// Deeper than parquet's own structs nest.
const DEPTH: u8 = 8;
/// Longer than any list but those of columns and row groups, which have limits of their own.
const LIST_ITEMS: u64 = 1024;

/// Reads the Thrift compact protocol; `None` at the first thing that is not it.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// The next field's id and type; `Some(None)` at the end of the struct.
    pub(super) fn field(&mut self, last: &mut i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let delta = i64::from(byte >> 4);
        *last = if delta == 0 { self.zigzag()? } else { last.checked_add(delta)? };
        Some(Some((*last, byte & 0x0f)))
    }

    /// The fields of a struct that are numbers and have the ids 0 to 4; the rest of it is skipped.
    pub(super) fn first_numbers(&mut self) -> Option<[Option<u64>; 5]> {
        let mut last = 0;
        let mut numbers = [None; 5];
        while let Some((id, kind)) = self.field(&mut last)? {
            match usize::try_from(id).ok().and_then(|id| numbers.get_mut(id)) {
                Some(number) if kind == I32 => *number = u64::try_from(self.zigzag()?).ok(),
                _ => self.skip(kind, 1)?,
            }
        }
        Some(numbers)
    }

    pub(super) fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        match kind {
            1 | 2 => Some(()),
            3 => self.take(1).map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8).map(drop),
            BINARY => {
                let len = usize::try_from(self.varint()?).ok()?;
                self.take(len).map(drop)
            }
            LIST => self.skip_list(depth),
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            // Sets, maps and unknown types: no struct of parquet has them.
            _ => None,
        }
    }

    /// The kind and the number of a list's items.
    pub(super) fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let len = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((head & 0x0f, len))
    }

    fn skip_list(&mut self, depth: u8) -> Option<()> {
        let (kind, len) = self.list()?;
        if len > LIST_ITEMS {
            return None;
        }
        // Parquet has no lists of booleans where this is used, and its library takes no byte for one: any number of them
        // would keep it busy, and the two readings would part ways.
        let is_boolean = matches!(kind, 1 | 2) && len > 0;
        (!is_boolean).then_some(())?;
        (0..len).try_for_each(|_| self.skip(kind, depth + 1))
    }
}
