//! Public bug reports about clients of ESL and AMI and about call statistics, reduced to small inputs, each with the
//! result that is right here. The names are the numbers of the cases: E and L of ESL, A and M of AMI.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod ami;
mod esl;

use bytes::BytesMut;
use pointsman::call::attempt::{CallEvent, Finished};
use pointsman::call::outcome::CauseTable;
use pointsman::call::tracker::{Output, Tracker};
use pointsman::wire::limits::FrameError;
use tokio_util::codec::Decoder;

/// `connection outcome pdd/duration [sip status]`, milliseconds, `-` for unknown.
fn summary(finished: &Finished) -> String {
    let shown = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let outcome = CauseTable::default().outcome(&finished.evidence);
    let sip = finished.sip_status.map(|status| format!(" {status}")).unwrap_or_default();
    format!("{} {outcome} {}/{}{sip}", finished.trunk, shown(finished.pdd_ms), shown(finished.duration_ms))
}

/// The attempts that an output finished; and the promise that each of them was told of before.
#[derive(Default)]
struct Attempts {
    placed: Vec<String>,
    finished: Vec<String>,
}

impl Attempts {
    fn take(&mut self, output: &Output) {
        for event in &output.events {
            match event {
                CallEvent::Placed(placed) => {
                    assert!(!self.placed.contains(&placed.leg.to_string()), "{} placed twice", placed.leg);
                    self.placed.push(placed.leg.to_string());
                }
                CallEvent::Finished(finished) => {
                    let at = self.placed.iter().position(|leg| leg == finished.leg.as_str());
                    self.placed.remove(at.unwrap_or_else(|| panic!("{} finished and not placed", finished.leg)));
                    self.finished.push(summary(finished));
                }
                CallEvent::Ringing { .. } | CallEvent::Answered { .. } | CallEvent::Forgotten(_) => {}
            }
        }
    }
}

fn live(tracker: &Tracker) -> Vec<String> {
    let mut live: Vec<String> = tracker.live_legs().map(|leg| leg.leg.to_string()).collect();
    live.sort_unstable();
    live
}

/// All frames of the bytes, cut at `at`, and what ended them.
fn frames_cut<C>(bytes: &[u8], at: &[usize]) -> (Vec<C::Item>, Option<FrameError>)
where
    C: Decoder<Error = FrameError> + Default,
{
    let mut codec = C::default();
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let ends = at.iter().copied().chain([bytes.len()]);
    let mut start = 0;
    for end in ends {
        buffer.extend_from_slice(&bytes[start..end]);
        start = end;
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    match codec.decode_eof(&mut buffer) {
        Ok(_) => (frames, None),
        Err(error) => (frames, Some(error)),
    }
}
