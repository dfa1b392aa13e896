//! Who is calling?
//!
//! Under TLS the answer is in the caller's certificate, in exactly one URI name
//! `usher://FARM/ROLE/NAME`; what the first message claims is not believed. Parsing is strict: a name
//! that could be read in two ways is refused, because an identity is compared, logged and used as a key.
//! On plain loopback there is no certificate: whoever can open a socket on this machine holds every
//! role, and a gateway may name itself.

use std::fmt;
use std::str::FromStr;

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The longest farm or peer name, bytes.
pub const NAME_MAX_BYTES: usize = 128;

/// What a peer is, as its certificate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A host's agent or reporter.
    Agent,
    /// Whatever asks where a login goes.
    Gateway,
    /// A person or script that looks and drains.
    Operator,
    /// An operator who may also change what lasts.
    Admin,
    /// Another coordinator.
    Coordinator,
}

impl Role {
    /// The role as it is written in a certificate.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Gateway => "gateway",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Coordinator => "coordinator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Agent, Self::Gateway, Self::Operator, Self::Admin, Self::Coordinator]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| IdentityError::UnknownRole { role: text.escape_debug().to_string() })
    }
}

/// The roles that a peer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Roles {
    /// The one of its certificate.
    One(Role),
    /// Every role: plain loopback.
    All,
}

/// How the peer came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Mutual TLS.
    Tls,
    /// Without TLS, from this machine.
    Loopback,
}

/// Why a peer has no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Not an X.509 certificate.
    #[error("certificate cannot be read: {reason}")]
    Unreadable {
        /// What the parser said.
        reason: String,
    },
    /// It names no usher identity.
    #[error("certificate has no name of the form usher://FARM/ROLE/NAME")]
    NoName,
    /// It names more than one, so which one is meant is open.
    #[error("certificate has {count} URI names, exactly one usher://FARM/ROLE/NAME is allowed")]
    SeveralNames {
        /// How many.
        count: usize,
    },
    /// Its one URI name has another form.
    #[error("certificate name {uri:?} is not of the form usher://FARM/ROLE/NAME")]
    WrongForm {
        /// The name.
        uri: String,
    },
    /// Its role is none of ours.
    #[error("role {role:?} is none of agent, gateway, operator, admin, coordinator")]
    UnknownRole {
        /// The role.
        role: String,
    },
    /// A name with characters or a length that are not allowed.
    #[error("{what} {name:?} is not 1 to 128 characters of A-Z a-z 0-9 . _ -")]
    BadName {
        /// "farm" or "name".
        what: &'static str,
        /// The name, cut to 128 characters.
        name: String,
    },
}

/// A caller: what it may do and under which name it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// The farm of its certificate; absent on plain loopback. The caller compares it with its own.
    pub farm: Option<String>,
    /// What it may do.
    pub roles: Roles,
    /// Its name, unique within farm and role.
    pub name: String,
    /// How it came in.
    pub transport: Transport,
}

impl PeerIdentity {
    /// The name of a gateway on plain loopback that gives none.
    pub const LOCAL: &'static str = "local";

    /// A peer on plain loopback, holding every role. `name` is what it called itself (metadata
    /// `usher-gateway`), `local` if it did not.
    ///
    /// # Errors
    /// [`IdentityError::BadName`] for a name that no certificate could carry either.
    pub fn loopback(name: Option<&str>) -> Result<Self, IdentityError> {
        let name = checked_name("name", name.unwrap_or(Self::LOCAL))?;
        Ok(Self { farm: None, roles: Roles::All, name, transport: Transport::Loopback })
    }

    /// The peer of a certificate that TLS has already verified. Other kinds of names (DNS, IP) may stand
    /// beside the one URI.
    ///
    /// # Errors
    /// When it does not carry exactly one well-formed `usher://FARM/ROLE/NAME`.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| IdentityError::Unreadable { reason: error.to_string() })?;
        let names = parsed
            .subject_alternative_name()
            .map_err(|error| IdentityError::Unreadable { reason: error.to_string() })?;
        let uris: Vec<&str> = names
            .iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
            .collect();
        match uris.as_slice() {
            [] => Err(IdentityError::NoName),
            [uri] => Self::from_uri(uri),
            more => Err(IdentityError::SeveralNames { count: more.len() }),
        }
    }

    /// The peer that `usher://FARM/ROLE/NAME` names, under TLS.
    ///
    /// # Errors
    /// When the text has any other form.
    pub fn from_uri(uri: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::WrongForm { uri: shortened(uri) };
        let mut parts = uri.strip_prefix("usher://").ok_or_else(wrong)?.split('/');
        let (Some(farm), Some(role), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        Ok(Self {
            farm: Some(checked_name("farm", farm)?),
            roles: Roles::One(role.parse()?),
            name: checked_name("name", name)?,
            transport: Transport::Tls,
        })
    }

    /// Whether it may act in a role. An admin may do what an operator may.
    pub fn has_role(&self, role: Role) -> bool {
        match self.roles {
            Roles::All => true,
            Roles::One(own) => own == role || (own == Role::Admin && role == Role::Operator),
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.roles {
            Roles::One(role) => write!(f, "{role}/{}", self.name),
            Roles::All => write!(f, "loopback/{}", self.name),
        }
    }
}

fn checked_name(what: &'static str, name: &str) -> Result<String, IdentityError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !name.is_empty() && name.len() <= NAME_MAX_BYTES && name.bytes().all(allowed) {
        Ok(name.to_owned())
    } else {
        Err(IdentityError::BadName { what, name: shortened(name) })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(NAME_MAX_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::Authority;

    #[test]
    fn a_well_formed_name_gives_farm_role_and_name() {
        let peer = PeerIdentity::from_uri("usher://main/agent/app-1.example_x").unwrap();
        assert_eq!(peer.farm.as_deref(), Some("main"));
        assert_eq!(peer.name, "app-1.example_x");
        assert_eq!(peer.roles, Roles::One(Role::Agent));
        assert_eq!(peer.to_string(), "agent/app-1.example_x");
    }

    #[test]
    fn any_other_form_is_refused() {
        let long = format!("usher://main/agent/{}", "a".repeat(129));
        for uri in [
            "",
            "usher://",
            "usher://main/agent",
            "usher://main/agent/",
            "usher:///agent/a",
            "usher://main//a",
            "usher://main/agent/a/",
            "usher://main/agent/a/b",
            "USHER://main/agent/a",
            "usher://main/Agent/a",
            "usher://main/root/a",
            "usher://main/agent/a%2fb",
            "usher://main/agent/a b",
            "usher://main/agent/a?x",
            "usher://main/agent/\u{e4}",
            "usher://user@main/agent/a",
            "https://main/agent/a",
            &long,
        ] {
            assert!(PeerIdentity::from_uri(uri).is_err(), "{uri}");
        }
        assert!(PeerIdentity::from_uri(&long[..long.len() - 1]).is_ok());
    }

    #[test]
    fn an_admin_may_do_what_an_operator_may_and_no_one_else_gains() {
        let peer = |role| PeerIdentity::from_uri(&format!("usher://f/{role}/n")).unwrap();
        assert!(peer("admin").has_role(Role::Operator));
        assert!(peer("admin").has_role(Role::Admin));
        assert!(!peer("admin").has_role(Role::Agent));
        assert!(!peer("operator").has_role(Role::Admin));
        assert!(!peer("gateway").has_role(Role::Agent), "case 156");
    }

    #[test]
    fn loopback_holds_every_role_and_is_named_local_unless_it_says_otherwise() {
        let local = PeerIdentity::loopback(None).unwrap();
        assert_eq!((local.name.as_str(), local.farm.as_deref()), ("local", None));
        assert!(local.has_role(Role::Agent) && local.has_role(Role::Admin));
        assert_eq!(PeerIdentity::loopback(Some("bastion-1")).unwrap().name, "bastion-1");
        assert!(PeerIdentity::loopback(Some("<script>")).is_err());
    }

    #[test]
    fn a_certificate_must_carry_exactly_one_uri() {
        let authority = Authority::new();
        let of = |uris: &[&str]| {
            let leaf = authority.issue(|params| {
                let uri = |uri: &&str| rcgen::SanType::URI(uri.to_string().try_into().unwrap());
                params.subject_alt_names.extend(uris.iter().map(uri));
            });
            PeerIdentity::from_certificate(&leaf.der)
        };
        assert_eq!(of(&["usher://f/gateway/g"]).unwrap().name, "g");
        assert_eq!(of(&[]), Err(IdentityError::NoName));
        let two = ["usher://f/gateway/g", "usher://f/admin/g"];
        assert_eq!(of(&two), Err(IdentityError::SeveralNames { count: 2 }));
        assert!(matches!(of(&["spiffe://f/gateway/g"]), Err(IdentityError::WrongForm { .. })));
        let garbage = CertificateDer::from(vec![1, 2, 3]);
        assert!(matches!(PeerIdentity::from_certificate(&garbage), Err(IdentityError::Unreadable { .. })));
    }
}
