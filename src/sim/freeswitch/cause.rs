//! What FreeSWITCH makes of the ends of a leg: names and Q.850 numbers.

use crate::sim::call::End;

/// A hangup cause: FreeSWITCH's name and the Q.850 number it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) name: &'static str,
    pub(crate) q850: u16,
}

const fn cause(name: &'static str, q850: u16) -> Cause {
    Cause { name, q850 }
}

pub(crate) const NORMAL_CLEARING: Cause = cause("NORMAL_CLEARING", 16);
pub(crate) const ORIGINATOR_CANCEL: Cause = cause("ORIGINATOR_CANCEL", 16);
pub(crate) const LOSE_RACE: Cause = cause("LOSE_RACE", 16);
pub(crate) const NO_ANSWER: Cause = cause("NO_ANSWER", 19);

/// The cause that FreeSWITCH makes of a SIP status.
pub(crate) fn of_status(status: u16) -> Cause {
    match status {
        401 | 402 | 403 | 407 | 603 | 607 | 608 => cause("CALL_REJECTED", 21),
        404 => cause("UNALLOCATED_NUMBER", 1),
        485 | 604 => cause("NO_ROUTE_DESTINATION", 3),
        408 | 504 => cause("RECOVERY_ON_TIMER_EXPIRE", 102),
        410 => cause("NUMBER_CHANGED", 22),
        413 | 414 | 416 | 420 | 421 | 423 | 505 | 513 => cause("INTERWORKING", 127),
        480 => cause("NO_USER_RESPONSE", 18),
        400 | 481 | 500 | 503 => cause("NORMAL_TEMPORARY_FAILURE", 41),
        486 | 600 => cause("USER_BUSY", 17),
        484 => cause("INVALID_NUMBER_FORMAT", 28),
        487 => ORIGINATOR_CANCEL,
        488 | 606 => cause("INCOMPATIBLE_DESTINATION", 88),
        502 => cause("NETWORK_OUT_OF_ORDER", 38),
        405 => cause("SERVICE_UNAVAILABLE", 63),
        406 | 415 | 501 => cause("SERVICE_NOT_IMPLEMENTED", 79),
        482 | 483 => cause("EXCHANGE_ROUTING_ERROR", 25),
        _ => cause("NORMAL_UNSPECIFIED", 31),
    }
}

/// The status that FreeSWITCH reports as received, where it does.
pub(crate) fn status(end: End) -> Option<u16> {
    match end {
        End::Refused(status) => Some(status),
        End::Unreachable => Some(503),
        End::NoReply => Some(408),
        _ => None,
    }
}

/// The cause with which a leg ends.
pub(crate) fn of_end(end: End) -> Cause {
    match end {
        End::RingTimeout { .. } => NO_ANSWER,
        End::CallerGone => ORIGINATOR_CANCEL,
        End::LostRace => LOSE_RACE,
        End::HungUp(_) | End::Vanished => NORMAL_CLEARING,
        End::Refused(_) | End::Unreachable | End::NoReply => of_status(status(end).unwrap_or_default()),
    }
}

/// The usual words of a SIP status.
pub(crate) fn phrase(status: u16) -> &'static str {
    match status {
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        410 => "Gone",
        480 => "Temporarily Unavailable",
        484 => "Address Incomplete",
        486 => "Busy Here",
        487 => "Request Terminated",
        500 => "Server Internal Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Time-out",
        600 => "Busy Everywhere",
        603 => "Decline",
        _ => "Failure",
    }
}
