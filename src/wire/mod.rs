//! From bytes to frames, and back: the framing of ESL and AMI. Pure, and safe against any input.

pub mod ami;
pub mod esl;
pub mod limits;
