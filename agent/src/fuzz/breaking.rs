//! How is an input broken so that it finds most?

/// SplitMix64: the whole state is one number, so that a run is repeated by its seed alone.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Below `bound`, which is above 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A part of `bytes`, mostly a short one.
    fn range(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let left = bytes.len() - start;
        let longest = if self.below(4) == 0 { left } else { left.min(16) };
        start..start + self.below(longest + 1)
    }
}

/// Words that stand for numbers, at and beyond the ends of every type, and words that some parsers take for numbers.
const WORST_NUMBERS: [&[u8]; 32] = [
    b"0",
    b"-0",
    b"1",
    b"-1",
    b"+1",
    b"00",
    b"127",
    b"128",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"2147483647",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9007199254740993",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999999999",
    b"0.5",
    b"0.0000000000000000000001",
    b"1e308",
    b"1e400",
    b"-1e400",
    b"nan",
    b"inf",
    b"0x10",
    b"1_000",
    "\u{0661}".as_bytes(),
];

/// Bytes that end, begin or hide something in most formats.
const WORST_BYTES: [&[u8]; 16] = [
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b"\xff",
    b"\xc3",
    b"\"",
    b"\\",
    b":",
    b"\x1b[31m",
    "\u{feff}".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{85}".as_bytes(),
    "\u{1f600}".as_bytes(),
];

/// One of `whole`, broken in one to four ways, of at most `most_bytes`.
pub(super) fn broken(random: &mut Random, whole: &[Vec<u8>], words: &[&[u8]], most_bytes: usize) -> Vec<u8> {
    if random.below(64) == 0 {
        return (0..random.below(64)).map(|_| random.byte()).collect();
    }
    let mut bytes = random.of(whole).clone();
    for _ in 0..=random.below(4) {
        break_once(random, &mut bytes, whole, words, most_bytes);
    }
    bytes.truncate(most_bytes);
    bytes
}

fn break_once(
    random: &mut Random,
    bytes: &mut Vec<u8>,
    whole: &[Vec<u8>],
    words: &[&[u8]],
    most_bytes: usize,
) {
    let range = random.range(bytes);
    let at = range.start;
    match random.below(14) {
        0 => {
            let bit = random.below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        1 => {
            let byte = random.byte();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        2 if random.below(3) == 0 => bytes.truncate(at),
        2 => drop(bytes.drain(range)),
        3..=5 => {
            let number = *random.of(&WORST_NUMBERS);
            if let Some(range) = a_number(bytes, at) {
                bytes.splice(range, number.iter().copied());
            }
        }
        6 | 7 => {
            let list = if words.is_empty() { &WORST_BYTES[..] } else { words };
            let (word, replaced) = (*random.of(list), random.below(3) == 0);
            bytes.splice(if replaced { range } else { at..at }, word.iter().copied());
        }
        8 => {
            let word = *random.of(&WORST_BYTES);
            bytes.splice(at..at, word.iter().copied());
        }
        9 => {
            let number = random.of(&[0_u64, 1, u64::from(u32::MAX), i64::MAX as u64, u64::MAX]).to_le_bytes();
            let end = bytes.len().min(at + 8);
            bytes.splice(at..end, number);
        }
        10 => {
            let other = random.of(whole);
            let part = other[random.range(other)].to_vec();
            bytes.splice(range, part);
        }
        11 => {
            let part = bytes[range].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, part);
        }
        12 if random.below(16) == 0 && !range.is_empty() => {
            let part = bytes[range.clone()].to_vec();
            let most = random.below(most_bytes + 1);
            let many: Vec<u8> = part.into_iter().cycle().take(most).collect();
            bytes.splice(range, many);
        }
        12 => repeat_a_line(random, bytes, at),
        _ => swap_lines(random, bytes),
    }
}

/// The first number after `at`.
fn a_number(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let start = at + bytes.get(at..)?.iter().position(is_digit)?;
    let length = bytes[start..].iter().take_while(|byte| is_digit(byte) || **byte == b'.').count();
    Some(start..start + length)
}

fn line_around(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |after| at + after + 1);
    start..end
}

fn repeat_a_line(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let line = line_around(bytes, at);
    let repeated = bytes[line.clone()].repeat(1 + random.below(3));
    bytes.splice(line.end..line.end, repeated);
}

fn swap_lines(random: &mut Random, bytes: &mut Vec<u8>) {
    let from = random.below(bytes.len() + 1);
    let moved: Vec<u8> = bytes.drain(line_around(bytes, from)).collect();
    let to = random.below(bytes.len() + 1);
    let place = line_around(bytes, to).start;
    bytes.splice(place..place, moved);
}
