//! What the tests ask of any PBX.

/// A PBX whose dialplan hunts as the shipped one does.
pub(crate) trait Pbx {
    /// Its lines in a configuration of pointsman's.
    fn node(&self, id: &str) -> String;

    /// Where callers reach it.
    fn sip_port(&self) -> u16;

    /// What a caller dials to make it hunt for `number` over the route map "intl".
    fn hunted(&self, number: &str) -> String;

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

    /// Starts it again, with nothing of what it had in memory.
    fn boot(&mut self);
}
