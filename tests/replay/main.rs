//! Recordings of real PBXs give exactly the attempts that are known to be right, whatever the cut of the reads.

mod recordings;
