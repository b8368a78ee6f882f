//! From hunt orders and states to the global variables that dialplans read: the contract with every dialplan.
//!
//! | variable | value |
//! |---|---|
//! | `pm_route_<map>` | what this node calls the connections of the hunt order, comma-separated: one value, so always whole |
//! | `pm_route_<map>_count` | how many; `0` where every connection is blocked |
//! | `pm_route_<map>_<i>`, i = 1.. | the i-th of them; slots past the end are not set |
//! | `pm_conn_<connection>` | `good`, `last`, `blocked`, `retry` or `bad` |
//! | `pm_conn_<connection>_<map>` | the same, of a connection that is judged per map |
//! | `pm_generation` | grows with every change; written after everything else |
//!
//! [`desired`] says what a node should hold, [`reconcile`] which single write comes next so that a reader never misses
//! a vendor, and [`apply`] drives it over a link. [`readback`] reads what a node holds, and [`report`] tells people.

pub mod apply;
pub mod desired;
pub mod names;
pub mod readback;
pub mod reconcile;
pub mod report;
pub mod slots;
