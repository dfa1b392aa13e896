//! A hash that is the same on every machine and in every version (FNV-1a, 64 bit).
//!
//! It tells equal requests from different ones and spreads users over shards; nobody gains anything by a collision.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The hash of the parts; where one part ends and the next begins counts.
pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = OFFSET;
    for part in parts {
        let length = (part.len() as u64).to_le_bytes();
        for byte in part.iter().chain(&length) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_part_ends_counts() {
        let parts = |parts: [&'static str; 2]| hash(parts.map(str::as_bytes));
        assert_ne!(parts(["ab", "c"]), parts(["a", "bc"]));
        assert_ne!(parts(["", "x"]), parts(["x", ""]));
        assert_eq!(parts(["ab", "c"]), 0x5091_916f_8cee_b7b0, "it must never change: hosts carry it");
    }
}
