//! Which word does a person read for a value of the wire?
//!
//! The words are those of every list, page and log of usher. A value that this build does not know, sent by a newer
//! coordinator, is shown as what it is instead of a guess.

use usher_proto::json::{EnumNames, enum_name};
use usher_proto::v1;

use crate::output::text::{ABSENT, clean};

/// `MAXUSERS`, `LOWEST_LOAD`; a dash if the message does not say.
pub(crate) fn word<E: EnumNames>(number: i32) -> String {
    if number == 0 { ABSENT.to_owned() } else { enum_name::<E>(number).into_owned() }
}

/// `ssh 10.0.0.1:22`, with brackets around an IPv6 address.
pub(crate) fn endpoint(endpoint: &v1::Endpoint) -> String {
    let address = clean(&endpoint.address);
    let address = if address.contains(':') { format!("[{address}]") } else { address };
    format!("{} {address}:{}", clean(&endpoint.kind), endpoint.port)
}

/// Endpoints with commas between them, or a dash.
pub(crate) fn endpoints(endpoints: &[v1::Endpoint]) -> String {
    let shown: Vec<String> = endpoints.iter().map(endpoint).collect();
    if shown.is_empty() { ABSENT.to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enums_are_shown_without_their_prefix_and_newer_ones_by_number() {
        assert_eq!(word::<v1::PlacementReason>(v1::PlacementReason::LowestLoad.into()), "LOWEST_LOAD");
        assert_eq!(word::<v1::HostState>(v1::HostState::MaxUsers.into()), "MAXUSERS");
        assert_eq!(word::<v1::HostState>(0), "-");
        assert_eq!(word::<v1::HostState>(99), "UNRECOGNIZED_99");
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let endpoint_of =
            |address: &str| endpoint(&v1::Endpoint { kind: "ssh".into(), address: address.into(), port: 22 });
        assert_eq!(endpoint_of("10.0.0.1"), "ssh 10.0.0.1:22");
        assert_eq!(endpoint_of("fe80::1"), "ssh [fe80::1]:22");
    }
}
