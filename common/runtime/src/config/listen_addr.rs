//! On which address does a server listen?
//!
//! `127.0.0.1:7443`, `[::1]:7443`, `[::]:7443`, or a link-local address with the interface it belongs to,
//! `[fe80::1%eth0]:7443`. An IPv6 address without brackets is refused: `fe80::1:7443` is an address
//! without a port as much as an address with one. The interface's number is looked up when it is needed,
//! not when the file is read, because it may come up later and its number may change.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::net::is_loopback;

/// An address and port to listen on, as written in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenAddr {
    addr: SocketAddr,
    zone: Option<String>,
}

/// Why a text is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenAddrError {
    /// IPv6 without brackets.
    #[error("{0:?} is ambiguous, write an IPv6 address in brackets as in \"[::1]:7443\"")]
    Ambiguous(String),
    /// A link-local address belongs to an interface.
    #[error("{0:?} is a link-local address, name its interface as in \"[fe80::1%eth0]:7443\"")]
    NoZone(String),
    /// An interface for an address that has none.
    #[error("{0:?} names an interface, only link-local addresses (fe80::/10) have one")]
    NeedlessZone(String),
    /// Anything else.
    #[error("{0:?} is not an IP address and port, write \"127.0.0.1:7443\" or \"[::]:7443\"")]
    Malformed(String),
}

/// The interface of a link-local address is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot listen on {addr}: no network interface {zone:?}: {source}")]
pub struct ZoneError {
    addr: String,
    zone: String,
    source: rustix::io::Errno,
}

impl ListenAddr {
    /// Whether it is reachable from this machine only, so that plain connections are allowed.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.addr.ip())
    }

    /// Whether it is reachable on one network segment only, so that it is of no use to be advertised.
    pub fn is_link_local(&self) -> bool {
        match self.addr {
            SocketAddr::V4(v4) => v4.ip().is_link_local(),
            SocketAddr::V6(v6) => v6.ip().is_unicast_link_local(),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// The address for the operating system, the interface looked up now.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn resolve(&self) -> Result<SocketAddr, ZoneError> {
        let (SocketAddr::V6(v6), Some(zone)) = (self.addr, &self.zone) else {
            return Ok(self.addr);
        };
        let scope_id = zone_index(zone).map_err(|source| ZoneError {
            addr: self.to_string(),
            zone: zone.clone(),
            source,
        })?;
        Ok(SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope_id)))
    }
}

fn zone_index(zone: &str) -> Result<u32, rustix::io::Errno> {
    if let Ok(number) = zone.parse() {
        return Ok(number);
    }
    let any_socket = socket(AddressFamily::INET6, SocketType::DGRAM, None)
        .or_else(|_no_ipv6| socket(AddressFamily::INET, SocketType::DGRAM, None))?;
    name_to_index(&any_socket, zone)
}

impl From<SocketAddr> for ListenAddr {
    fn from(addr: SocketAddr) -> Self {
        let zone = match addr {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id().to_string()),
            _ => None,
        };
        Self { addr, zone }
    }
}

impl FromStr for ListenAddr {
    type Err = ListenAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ListenAddrError::Malformed(text.to_owned());
        let Some(inner) = text.strip_prefix('[') else {
            if text.matches(':').count() > 1 {
                return Err(ListenAddrError::Ambiguous(text.to_owned()));
            }
            let addr = text.parse().map_err(|_invalid| malformed())?;
            return Ok(Self { addr, zone: None });
        };
        let (host, port) = inner.split_once("]:").ok_or_else(malformed)?;
        // The standard parser takes "+1" for a number.
        let port = if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok() } else { None };
        let port = port.ok_or_else(malformed)?;
        let (host, zone) = match host.split_once('%') {
            None => (host, None),
            Some((host, zone)) if is_zone(zone) => (host, Some(zone.to_owned())),
            Some(_) => return Err(malformed()),
        };
        let ip: Ipv6Addr = host.parse().map_err(|_invalid| malformed())?;
        match (ip.is_unicast_link_local(), &zone) {
            (true, None) => Err(ListenAddrError::NoZone(text.to_owned())),
            (false, Some(_)) => Err(ListenAddrError::NeedlessZone(text.to_owned())),
            _ => Ok(Self { addr: SocketAddr::V6(SocketAddrV6::new(ip, port, 0, 0)), zone }),
        }
    }
}

/// Linux allows interface names of up to 15 bytes, without `/` and white space. "0" means none.
fn is_zone(zone: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'[' | b']');
    (1..=15).contains(&zone.len()) && zone.bytes().all(allowed) && zone.parse() != Ok(0_u32)
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "[{}%{zone}]:{}", self.addr.ip(), self.addr.port()),
            None => write!(f, "{}", self.addr),
        }
    }
}

impl Serialize for ListenAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ListenAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_a_port_are_taken_and_written_back() {
        for (text, loopback) in [
            ("127.0.0.1:7443", true),
            ("[::1]:7443", true),
            ("[::]:7443", false),
            ("0.0.0.0:0", false),
            ("[2001:db8::1]:7443", false),
            ("[fe80::1%eth0]:7443", false),
            ("[fe80::1%3]:7443", false),
        ] {
            let addr: ListenAddr = text.parse().unwrap();
            assert_eq!(addr.to_string(), text);
            assert_eq!(addr.is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn case_152_a_zone_is_the_interface_or_a_clear_error() {
        let numbered: ListenAddr = "[fe80::1%3]:7443".parse().unwrap();
        assert!(numbered.is_link_local());
        assert_eq!(numbered.resolve().unwrap().to_string(), "[fe80::1%3]:7443");
        let named: ListenAddr = "[fe80::1%lo]:7443".parse().unwrap();
        let SocketAddr::V6(resolved) = named.resolve().unwrap() else { panic!("not IPv6") };
        assert!(resolved.scope_id() > 0);
        let absent: ListenAddr = "[fe80::1%nonesuch0]:7443".parse().unwrap();
        let error = absent.resolve().unwrap_err().to_string();
        assert!(error.contains("no network interface \"nonesuch0\""), "{error}");
    }

    #[test]
    fn case_152_an_address_without_brackets_is_ambiguous() {
        for text in ["fe80::1:7443", "::1", ":::7443", "fe80::1%eth0:7443"] {
            let error = text.parse::<ListenAddr>().unwrap_err();
            assert_eq!(error, ListenAddrError::Ambiguous(text.to_owned()));
        }
    }

    #[test]
    fn case_152_anything_else_is_refused_without_a_panic() {
        let parsed = |text: &str| text.parse::<ListenAddr>();
        assert!(matches!(parsed("[fe80::1]:1"), Err(ListenAddrError::NoZone(_))));
        assert!(matches!(parsed("[::1%lo]:1"), Err(ListenAddrError::NeedlessZone(_))));
        for text in [
            "",
            "[",
            "[]:1",
            "[::1]",
            "[::1]:",
            "[::1]:+1",
            "[::1]:65536",
            "[fe80::1%]:1",
            "[fe80::1%%25eth0]:1",
            "[fe80::1%0]:1",
            "[fe80::1%a-much-too-long-name]:1",
            "[127.0.0.1]:1",
            "localhost:7443",
            ":7443",
            "7443",
            "127.0.0.1",
            "127.0.0.1:7443 ",
        ] {
            assert!(matches!(parsed(text), Err(ListenAddrError::Malformed(_))), "{text:?}");
        }
    }
}
