//! What would a peer send that speaks the protocol, but means harm?
//!
//! A message taken apart into its fields, without knowing which message it is: a single value deep inside it can be
//! replaced by the worst of its kind, and all lengths around it are still right, so that it reaches the reader.

use crate::Random;

/// A field's number and what it holds.
struct Field {
    number: u64,
    value: Value,
}

enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// Numbers that break sums, comparisons and conversions.
pub(crate) const WORST_NUMBERS: [f64; 10] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    -1.0,
    -0.0,
    0.0,
    100.000_000_000_1,
    1e300,
];

/// Bounds of counts, enums, ports and times, and the numbers beside them.
const WORST_INTEGERS: [u64; 14] = [
    0,
    1,
    2,
    9,
    99,
    101,
    65_536,
    300_001,
    86_400_001,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    u64::MAX >> 1,
    u64::MAX,
];

/// Texts at and beyond the bounds, of characters that end in the middle of one.
fn worst_text(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => Vec::new(),
        1 => b"<img src=x onerror=alert(1)>\n\x1b[31m".to_vec(),
        2 => format!("x{}", "é".repeat(random.below(600))).into_bytes(),
        3 => "x".repeat(*random.of(&[1, 128, 129, 256, 257, 1024, 1025, 5000])).into_bytes(),
        4 => vec![0xff, 0xfe],
        _ => "\u{202e}\u{0}".as_bytes().to_vec(),
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn array<const N: usize>(bytes: &[u8], at: &mut usize) -> Option<[u8; N]> {
    let part = bytes.get(*at..*at + N)?.try_into().ok()?;
    *at += N;
    Some(part)
}

/// The fields, if the bytes are some. A text may look like a message; it is then broken as one.
fn parse(bytes: &[u8]) -> Option<Vec<Field>> {
    let (mut at, mut fields) = (0, Vec::new());
    while at < bytes.len() {
        let key = varint(bytes, &mut at)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(bytes, &mut at)?),
            1 => Value::Fixed64(array(bytes, &mut at)?),
            2 => {
                let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
                let part = bytes.get(at..at.checked_add(length)?)?;
                at += length;
                match parse(part) {
                    Some(fields) if !fields.is_empty() => Value::Message(fields),
                    _ => Value::Bytes(part.to_vec()),
                }
            }
            5 => Value::Fixed32(array(bytes, &mut at)?),
            _ => return None,
        };
        fields.push(Field { number: key >> 3, value });
    }
    Some(fields)
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_part(bytes: &mut Vec<u8>, number: u64, part: &[u8]) {
    put_varint(bytes, number << 3 | 2);
    put_varint(bytes, part.len() as u64);
    bytes.extend_from_slice(part);
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { number, value } in fields {
        match value {
            Value::Varint(value) => {
                put_varint(&mut bytes, number << 3);
                put_varint(&mut bytes, *value);
            }
            Value::Fixed64(part) => {
                put_varint(&mut bytes, number << 3 | 1);
                bytes.extend_from_slice(part);
            }
            Value::Fixed32(part) => {
                put_varint(&mut bytes, number << 3 | 5);
                bytes.extend_from_slice(part);
            }
            Value::Bytes(part) => put_part(&mut bytes, *number, part),
            Value::Message(fields) => put_part(&mut bytes, *number, &encode(fields)),
        }
    }
    bytes
}

fn break_in(random: &mut Random, fields: &mut Vec<Field>) {
    if fields.is_empty() {
        return;
    }
    let at = random.below(fields.len());
    let Field { number, value } = &mut fields[at];
    if let Value::Message(inner) = value
        && random.below(8) > 0
    {
        return break_in(random, inner);
    }
    match random.below(12) {
        0 => {
            fields.remove(at);
        }
        1 => *number = 1 + random.next() % 45,
        2 => {
            // Lists beyond their bounds; bytes repeated, since a field cannot be copied without its encoding.
            let field = encode(&fields[at..=at]);
            let times = *random.of(&[1, 2, 65, 257]);
            fields.extend(parse(&field.repeat(times)).unwrap_or_default());
        }
        _ => match value {
            Value::Varint(value) => *value = *random.of(&WORST_INTEGERS),
            Value::Fixed64(part) => *part = random.of(&WORST_NUMBERS).to_le_bytes(),
            Value::Fixed32(part) => *part = [0xff; 4],
            Value::Bytes(part) => *part = worst_text(random),
            Value::Message(_) => *value = Value::Bytes(Vec::new()),
        },
    }
}

/// Replaces one value of a message by one that is worse. Bytes that are no message stay as they are.
pub(crate) fn break_a_field(random: &mut Random, bytes: &mut Vec<u8>) {
    if let Some(mut fields) = parse(bytes) {
        break_in(random, &mut fields);
        *bytes = encode(&fields);
    }
}
