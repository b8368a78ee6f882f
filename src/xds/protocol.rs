//! Envoy's discovery protocol, version 3: the fields of it that are used here, made of the files in `proto/`.
//!
//! The files have the protocol's own names and numbers and leave out what is not used, so that building this program takes
//! no compiler for protocol buffers and no tens of thousands of lines. A field that is not there is skipped when it is read.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::doc_markdown,
    rust_2018_idioms
)]

include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
