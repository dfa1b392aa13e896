//! Names that are checked once: not empty, not too long, free of control characters.
//!
//! They are cheap to clone (shared text), since every report and every decision carries some.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {fault}")]
pub struct IdError {
    /// Which kind of id it was to be.
    pub what: &'static str,
    /// What is wrong, and what is allowed.
    pub fault: String,
}

/// Which characters an id may hold.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Alphabet {
    /// `A-Z a-z 0-9 _ . -`
    Word,
    /// Anything but control characters.
    Printable,
}

fn check(what: &'static str, text: &str, max_bytes: usize, alphabet: Alphabet) -> Result<(), IdError> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > max_bytes {
        format!("has {} bytes, allowed are {max_bytes}", text.len())
    } else if alphabet == Alphabet::Word
        && !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
    {
        "may only hold A-Z a-z 0-9 _ . -".to_owned()
    } else if text.chars().any(char::is_control) {
        "holds a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(IdError { what, fault })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $alphabet:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes the text.
            ///
            /// # Errors
            /// [`IdError`] if it is empty, too long, or holds a character that is not allowed.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                check($what, text, $max, Alphabet::$alphabet)?;
                Ok(Self(Arc::from(text)))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

id!(
    /// Identity of a host: a UUID made when its agent was installed, never its name or address.
    HostId, "host id", 128, Word
);
id!(
    /// Changes with every boot of a host.
    BootId, "boot id", 128, Word
);
id!(
    /// Name of a pool.
    PoolName, "pool", 128, Word
);
id!(
    /// What a user opens: a database, an application, a desktop, a home.
    ResourceId, "resource", 1024, Printable
);
id!(
    /// A gateway's own id of one login.
    RequestId, "request_id", 128, Printable
);
id!(
    /// Identity of a gateway: the name in its certificate, or what it calls itself on plain loopback.
    GatewayId, "gateway", 128, Printable
);
id!(
    /// Where a host stands or a client comes from.
    Zone, "zone", 128, Printable
);
id!(
    /// Names one decision and the coordinator that made it.
    DecisionId, "decision_id", 128, Word
);
id!(
    /// A named kind of transaction whose latency is sampled.
    OperationName, "operation", 128, Word
);

/// Name of a host as people say it. Two spellings that differ in case or in a final dot are the same name.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName {
    shown: Arc<str>,
    key: Arc<str>,
}

impl HostName {
    /// Checks and takes the name. A host name that could be markup is refused here, not escaped later.
    ///
    /// # Errors
    /// [`IdError`] if it is empty, longer than 253 bytes, or holds other characters than `A-Z a-z 0-9 _ . - :`.
    pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
        let text = text.as_ref();
        check("host name", text, 253, Alphabet::Word)?;
        let key = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if key.is_empty() {
            return Err(IdError { what: "host name", fault: "is only a dot".to_owned() });
        }
        let key: Arc<str> = Arc::from(key);
        let shown = if *key == *text { key.clone() } else { Arc::from(text) };
        Ok(Self { shown, key })
    }

    /// As the host spells it.
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// As it is compared: lower case, no final dot.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether a person who types `text` means this host.
    pub fn matches(&self, text: &str) -> bool {
        text.strip_suffix('.').unwrap_or(text).eq_ignore_ascii_case(&self.key)
    }
}

impl PartialEq for HostName {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for HostName {}

impl TryFrom<String> for HostName {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.shown.as_ref().to_owned()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_cannot_be_one_and_say_why() {
        assert_eq!(RequestId::new("").unwrap_err().to_string(), "request_id is empty");
        assert_eq!(PoolName::new("a b").unwrap_err().to_string(), "pool may only hold A-Z a-z 0-9 _ . -");
        assert_eq!(
            RequestId::new("x".repeat(129)).unwrap_err().to_string(),
            "request_id has 129 bytes, allowed are 128"
        );
        assert!(ResourceId::new("mail/crm \u{7f}").is_err());
        assert_eq!(ResourceId::new("mail/crm.nsf").unwrap().as_str(), "mail/crm.nsf");
    }

    #[test]
    fn host_names_compare_without_case_and_final_dot() {
        let name = HostName::new("App1.example.").unwrap();
        assert_eq!(name, HostName::new("app1.EXAMPLE").unwrap());
        assert!(name.matches("APP1.example"));
        assert_eq!(name.as_str(), "App1.example.");
        assert!(HostName::new(".").is_err());
    }

    #[test]
    fn case_161_a_name_that_is_a_script_is_refused() {
        assert!(HostName::new("<img src=x onerror=alert(1)>").is_err());
    }

    #[test]
    fn ids_are_checked_when_read_from_json_too() {
        assert!(serde_json::from_str::<PoolName>("\"desk\"").is_ok());
        assert!(serde_json::from_str::<PoolName>("\"\"").is_err());
    }
}
