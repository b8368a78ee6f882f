//! Names of nodes, connections, customers and route maps.
//!
//! Identifiers of the configuration become parts of variable names on both kinds of PBX (`pm_conn_<connection>`,
//! `pm_route_<map>`), of file names and of command lines, so their alphabet is fixed here, once: a value of these
//! types cannot break out of anything that it is put into.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest identifier. Variable names on Asterisk share a line of 1,000 bytes with their value.
pub const MAX_ID_LEN: usize = 64;

/// Why a text is not an identifier. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be an id: use 1 to 64 letters, digits, '_', '-' or '.', starting with a letter or a digit")]
pub struct BadId(String);

fn check(text: &str) -> Result<(), BadId> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let starts_well = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if starts_well && text.len() <= MAX_ID_LEN && text.chars().all(legal) {
        Ok(())
    } else {
        Err(BadId(text.chars().take(80).collect()))
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the alphabet and the length.
            ///
            /// # Errors
            /// [`BadId`] where the text cannot be an identifier.
            pub fn new(text: &str) -> Result<Self, BadId> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.to_string()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

id!(
    /// A PBX instance.
    NodeId
);
id!(
    /// A vendor trunk, whatever the nodes call it.
    ConnectionId
);
id!(
    /// The owner of connections.
    CustomerId
);
id!(
    /// A route map.
    MapId
);
id!(
    /// A group of nodes that an edge sends calls to.
    GroupId
);
id!(
    /// Who holds a token of the HTTP server or of the xDS server.
    TokenName
);

/// The PBX's own identifier of a call leg: FreeSWITCH's Unique-ID, Asterisk's Uniqueid. Opaque, and unique on its
/// node only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LegId(Arc<str>);

impl LegId {
    /// From the text that the PBX sent.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LegId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for LegId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// What quality is judged for: a connection, or (with `judge_per = "map"`) a connection within one route map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QualityKey {
    /// The connection.
    pub connection: ConnectionId,
    /// The route map, where connections are judged per map.
    pub map: Option<MapId>,
}

impl QualityKey {
    /// The key of a connection that is judged over all maps.
    #[must_use]
    pub fn connection(connection: ConnectionId) -> Self {
        Self { connection, map: None }
    }
}

impl fmt::Display for QualityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.map {
            None => f.pad(self.connection.as_str()),
            Some(map) => write!(f, "{} ({map})", self.connection),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_break_out_of_a_variable_name_or_a_command() {
        for good in ["vendor-a", "v1", "10.0.0.7", "A_b-c.d"] {
            assert!(ConnectionId::new(good).is_ok(), "{good}");
        }
        let long = "x".repeat(MAX_ID_LEN + 1);
        for bad in ["", "-a", ".", "a b", "a=b", "a\nb", "a,b", "a:b", "${x}", "a/b", "ä", long.as_str()] {
            assert!(ConnectionId::new(bad).is_err(), "{bad}");
        }
    }
}
