//! Permission classes of the manager interface.

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes(u32);

/// Names of the classes, in Asterisk's order of bits.
const NAMES: [&str; 19] = [
    "system",
    "call",
    "log",
    "verbose",
    "command",
    "agent",
    "user",
    "config",
    "dtmf",
    "reporting",
    "cdr",
    "dialplan",
    "originate",
    "agi",
    "cc",
    "aoc",
    "test",
    "security",
    "message",
];

impl Classes {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self((1 << NAMES.len()) - 1);
    pub(crate) const SYSTEM: Self = Self(1);
    pub(crate) const CALL: Self = Self(1 << 1);
    pub(crate) const COMMAND: Self = Self(1 << 4);
    pub(crate) const REPORTING: Self = Self(1 << 9);
    pub(crate) const DIALPLAN: Self = Self(1 << 11);

    /// A list of names, `all`, `on`, `off` or `none`; words that are not known are ignored.
    pub(crate) fn parse(list: &str) -> Self {
        list.split(',').map(|word| word.trim().to_ascii_lowercase()).fold(Self::NONE, |set, word| match word.as_str() {
            "all" | "on" | "true" | "yes" => Self::ALL,
            word => Self(set.0 | NAMES.iter().position(|name| *name == word).map_or(0, |bit| 1 << bit)),
        })
    }

    /// Those in both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those in either.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every class of `other` is here: what an event needs.
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any class of `other` is here: what an action needs.
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// As `Privilege` lists them.
    pub(crate) fn list(self) -> String {
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::Classes;

    #[test]
    fn lists_are_read_and_written() {
        let classes = Classes::parse("system, call ,nonsense");
        assert_eq!(classes, Classes::SYSTEM.or(Classes::CALL));
        assert_eq!(classes.list(), "system,call");
        assert_eq!(Classes::parse("off"), Classes::NONE);
        assert!(Classes::parse("on").contains(Classes::DIALPLAN));
        assert!(Classes::CALL.or(Classes::SYSTEM).meets(Classes::CALL.or(Classes::REPORTING)));
        assert!(!Classes::CALL.contains(Classes::CALL.or(Classes::SYSTEM)));
    }
}
