//! Commands as FreeSWITCH's event socket takes them. Whatever would change the meaning of a command is refused here,
//! wherever it came from.

use crate::ids::LegId;
use crate::pbx::command::CommandError;

/// Longest value. Values are short lists of names; some old FreeSWITCH cut a command at a few kilobytes.
const MAX_VALUE: usize = 8192;

/// Longest Unique-ID that FreeSWITCH gives a leg.
const MAX_LEG: usize = 256;

/// `api global_setvar name=value`.
///
/// The command splits its argument at every `=` (a third part makes it compare-and-set, which answers `+OK` and does
/// nothing), eats quotes, backslashes and blanks at the ends, and writes `${` as `%{`.
pub(super) fn set_variable(name: &str, value: &str) -> Result<String, CommandError> {
    check_name(name)?;
    if value.is_empty() {
        return Err(illegal("an empty value removes the variable"));
    }
    if value.len() > MAX_VALUE {
        return Err(illegal("the value is too long"));
    }
    if value.chars().any(|c| c.is_control() || matches!(c, '=' | '\'' | '"' | '`' | '\\')) || value.contains("${") {
        return Err(illegal("the value holds a character that FreeSWITCH would change"));
    }
    if value.trim() != value || value.starts_with("^^") {
        return Err(illegal("the value begins or ends with something that FreeSWITCH would change"));
    }
    packet(format!("api global_setvar {name}={value}"))
}

/// `api global_setvar name`, which removes the variable.
pub(super) fn clear_variable(name: &str) -> Result<String, CommandError> {
    check_name(name)?;
    packet(format!("api global_setvar {name}"))
}

/// `api global_getvar name`.
pub(super) fn get_variable(name: &str) -> Result<String, CommandError> {
    check_name(name)?;
    packet(format!("api global_getvar {name}"))
}

/// `api uuid_dump leg json`. A Unique-ID is whatever somebody set it to (`origination_uuid=`), and comes from the PBX.
pub(super) fn describe(leg: &LegId) -> Result<String, CommandError> {
    let id = leg.as_str();
    if id.is_empty() || id.len() > MAX_LEG || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(illegal("the leg's id holds a character that would end it"));
    }
    packet(format!("api uuid_dump {id} json"))
}

/// `auth password`, or `userauth user:password`.
pub(super) fn login(user: Option<&str>, password: &str) -> Result<String, CommandError> {
    if user.into_iter().chain([password]).any(|text| text.chars().any(char::is_control)) {
        return Err(illegal("the user or the password holds a control character"));
    }
    packet(match user {
        None => format!("auth {password}"),
        Some(user) => format!("userauth {user}:{password}"),
    })
}

fn check_name(name: &str) -> Result<(), CommandError> {
    if is_name(name) {
        Ok(())
    } else {
        Err(illegal("the name of the variable holds more than letters, digits and _-."))
    }
}

/// Whether `name` is a name of a variable (or of a family or a key of AstDB) that both kinds of PBX take as it is.
pub(super) fn is_name(name: &str) -> bool {
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    starts_well
        && name.len() <= 256
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// A whole command. FreeSWITCH takes any packet with these words for the order to reload the event socket.
fn packet(command: String) -> Result<String, CommandError> {
    let lower = command.to_ascii_lowercase();
    if lower.contains("mod_event_socket") && (lower.contains("reload") || lower.contains("unload")) {
        return Err(illegal("FreeSWITCH would take it for the order to reload its event socket"));
    }
    Ok(command + "\n\n")
}

fn illegal(why: &str) -> CommandError {
    CommandError::Illegal(why.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_freeswitch_would_change_is_refused() {
        assert_eq!(
            set_variable("pm_route_intl_1", "vendor-a").unwrap(),
            "api global_setvar pm_route_intl_1=vendor-a\n\n"
        );
        assert_eq!(
            set_variable("pm_route_intl", "vendor-a,vendor.b").unwrap(),
            "api global_setvar pm_route_intl=vendor-a,vendor.b\n\n"
        );
        assert_eq!(clear_variable("pm_x").unwrap(), "api global_setvar pm_x\n\n");
        assert_eq!(get_variable("pm_x").unwrap(), "api global_getvar pm_x\n\n");
        for value in [
            "",
            " a",
            "a ",
            "a\n\napi shutdown",
            "a\r",
            "a\0",
            "a=b",
            "'a'",
            "\"a\"",
            "a\\n",
            "${x}",
            "^^;a",
            "\u{7f}",
            "\u{85}",
            "reload mod_event_socket",
        ] {
            assert!(set_variable("pm_x", value).is_err(), "{value:?}");
        }
        for name in ["", "a b", "a=b", "a\nb", "_a", "a(b)", "a:1", "${a}", "ä", &"x".repeat(257)] {
            assert!(set_variable(name, "v").is_err(), "{name:?}");
            assert!(clear_variable(name).is_err(), "{name:?}");
            assert!(get_variable(name).is_err(), "{name:?}");
        }
        assert!(set_variable("pm_x", &"v".repeat(MAX_VALUE + 1)).is_err());
    }

    #[test]
    fn a_leg_or_a_password_cannot_break_out() {
        assert_eq!(describe(&LegId::new("u-1")).unwrap(), "api uuid_dump u-1 json\n\n");
        for leg in ["", "a b", "a\n\napi shutdown", "ä", &"x".repeat(257)] {
            assert!(describe(&LegId::new(leg)).is_err(), "{leg:?}");
        }
        assert_eq!(login(None, "Clue Con").unwrap(), "auth Clue Con\n\n");
        assert_eq!(login(Some("ops@pbx"), "s3cret").unwrap(), "userauth ops@pbx:s3cret\n\n");
        assert!(login(None, "a\nb").is_err());
        assert!(login(Some("a\0"), "b").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_one_command(name in any::<String>(), value in any::<String>(), leg in any::<String>()) {
            let packets = [
                set_variable(&name, &value),
                set_variable("pm_x", &value),
                clear_variable(&name),
                get_variable(&name),
                describe(&LegId::new(&leg)),
                login(Some(&name), &value),
                login(None, &value),
            ];
            for packet in packets.into_iter().flatten() {
                prop_assert!(packet.ends_with("\n\n"));
                let line = &packet[..packet.len() - 2];
                prop_assert!(!line.chars().any(char::is_control), "{packet:?}");
            }
        }
    }
}
