//! How is a long list cut into messages that every peer accepts?
//!
//! gRPC peers refuse messages of more than 4 MiB by default, and a list of 60 000 replicas is larger. A page stays
//! below a bound that leaves room for the envelope under 1 MiB.

use super::ReplicaFound;

/// Bound of one page's replicas: below 1 MiB with room for the fields around them.
pub const DEFAULT_PAGE_BYTES: usize = 900 * 1024;

/// Tags and lengths around the strings of one replica on the wire: at most 4 tags and 4 lengths of up to 5 bytes.
const OVERHEAD_BYTES: usize = 24;

/// Cuts `replicas` into runs of at most `max_bytes` on the wire. There is at least one run, since an empty list must
/// be told too; a replica longer than `max_bytes` gets a run of its own.
#[must_use]
pub fn pages(replicas: &[ReplicaFound], max_bytes: usize) -> Vec<&[ReplicaFound]> {
    let mut pages = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, replica) in replicas.iter().enumerate() {
        let size = wire_bytes(replica);
        if index > start && bytes + size > max_bytes {
            pages.extend(replicas.get(start..index));
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    pages.extend(replicas.get(start..));
    pages
}

fn wire_bytes(replica: &ReplicaFound) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    replica.resource_id.len() + length(&replica.path) + length(&replica.title) + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replica(id: usize, path_bytes: usize) -> ReplicaFound {
        ReplicaFound { resource_id: format!("r{id}"), path: Some("x".repeat(path_bytes)), title: None }
    }

    #[test]
    fn case_121_a_list_of_seven_megabytes_fits_into_pages_below_one() {
        let replicas: Vec<_> = (0..60_000).map(|id| replica(id, 120)).collect();
        let pages = pages(&replicas, DEFAULT_PAGE_BYTES);
        assert!((8..=20).contains(&pages.len()), "{}", pages.len());
        let largest =
            pages.iter().map(|page| page.iter().map(wire_bytes).sum::<usize>()).max().expect("a page");
        assert!(largest <= DEFAULT_PAGE_BYTES);
    }

    #[test]
    fn an_empty_list_is_one_empty_page() {
        assert_eq!(pages(&[], 100), [&[] as &[ReplicaFound]]);
    }

    proptest! {
        #[test]
        fn pages_hold_everything_once_and_in_order(
            sizes in proptest::collection::vec(0_usize..300, 0..60), max_bytes in 1_usize..1000,
        ) {
            let replicas: Vec<_> = sizes.iter().enumerate().map(|(id, &bytes)| replica(id, bytes)).collect();
            let pages = pages(&replicas, max_bytes);
            prop_assert_eq!(pages.concat(), replicas.clone());
            for page in pages {
                prop_assert!(page.len() <= 1 || page.iter().map(wire_bytes).sum::<usize>() <= max_bytes);
            }
        }
    }
}
