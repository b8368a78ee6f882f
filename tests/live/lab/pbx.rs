//! What the tests ask of any PBX.

use super::asterisk::{Asterisk, Kind};
use super::freeswitch::FreeSwitch;
use super::sipp::Vendor;

/// Which PBX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switch {
    Asterisk(Kind),
    FreeSwitch,
}

impl Switch {
    /// Starts one with these vendors.
    pub(crate) fn start(self, vendors: &[&Vendor]) -> Box<dyn Pbx> {
        match self {
            Self::Asterisk(kind) => Box::new(Asterisk::start(kind, vendors)),
            Self::FreeSwitch => Box::new(FreeSwitch::start(vendors)),
        }
    }

    /// Whether it tells the SIP status of a vendor's final answer. Asterisk does from 20.17, 22.7 and 23.1 on.
    pub(crate) fn tells_sip_status(self) -> bool {
        matches!(self, Self::FreeSwitch | Self::Asterisk(Kind::Recent))
    }
}

/// A PBX whose dialplan hunts as the shipped one does.
pub(crate) trait Pbx {
    /// Its lines in a configuration of pointsman's.
    fn node(&self, id: &str) -> String;

    /// Where callers reach it.
    fn sip_port(&self) -> u16;

    /// What a caller dials to make it hunt for `number` over the route map "intl".
    fn hunted(&self, number: &str) -> String;

    /// What a caller dials to call `number` over both vendors at once.
    fn forked(&self, number: &str) -> String;

    /// What its control port wants to hear to send every event of calls, and the name of its protocol for `replay`.
    fn subscription(&self) -> (u16, &'static [u8], &'static str);

    /// The hunt order of a map as the dialplan would read it now: names with commas between, read by a session of our
    /// own.
    fn order(&self, map: &str) -> String;

    /// Sets the hunt order of a map by hand, as pointsman would.
    fn set_order(&self, map: &str, names: &[&str]);

    /// A global variable; empty where it is not set.
    fn global(&self, name: &str) -> String;

    /// The trunks over which the call to `number` went, in order, by its log.
    fn tried(&self, number: &str) -> Vec<String>;

    /// Stops it properly and waits for its end.
    fn stop(&mut self);

    /// Ends it at once, calls and all, without a word to anybody.
    fn crash(&mut self);

    /// Starts it again, with nothing of what it had in memory.
    fn boot(&mut self);
}
