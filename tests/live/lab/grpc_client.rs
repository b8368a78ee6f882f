//! The gRPC of Google's, in Python: services that say who they are, and a client whose own resolver asks an xDS server
//! for them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::backend::Answer;
use super::cached;
use super::folder::Folder;
use super::process::Process;

const PROGRAM: &str = include_str!("grpc_client.py");

/// A process of that program.
#[derive(Debug)]
struct Python {
    folder: Folder,
    _process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Python {
    /// `bootstrap` is where the xDS server is and how to reach it, in gRPC's own form.
    fn start(args: &[&str], bootstrap: &Value) -> Self {
        let folder = Folder::new("grpc");
        folder.write("grpc_client.py", PROGRAM);
        folder.write("bootstrap.json", &bootstrap.to_string());
        let python = cached("edges/bin/python");
        let mut all = vec!["GRPC_XDS_BOOTSTRAP=bootstrap.json", python.to_str().unwrap(), "-I", "grpc_client.py"];
        all.extend(args);
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let (process, input, output) = Process::talking("env", &all, &folder.join("log"));
        Self { folder, _process: process, input, output: BufReader::new(output) }
    }

    fn tells<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("Python: {error} in {line:?} (scripts/live-setup?):\n{}", self.log()))
    }

    fn log(&self) -> String {
        self.folder.read("log")
    }
}

/// Services, each of which answers with its name.
#[derive(Debug)]
pub(crate) struct Services {
    _python: Python,
    /// Where they listen on 127.0.0.1.
    pub(crate) ports: BTreeMap<String, u16>,
}

impl Services {
    pub(crate) fn start(names: &[&str]) -> Self {
        let mut python = Python::start(&[&["services"], names].concat(), &json!({}));
        let ports = python.tells();
        Self { _python: python, ports }
    }
}

/// The bootstrap of a client, for the xDS server at this port of 127.0.0.1.
pub(crate) fn bootstrap(node: &str, port: u16, credentials: &Value) -> Value {
    json!({
        "xds_servers": [{
            "server_uri": format!("127.0.0.1:{port}"),
            "channel_creds": [credentials],
            "server_features": ["xds_v3"],
        }],
        "node": { "id": node, "cluster": "edges" },
    })
}

/// A client.
#[derive(Debug)]
pub(crate) struct GrpcClient(Python);

impl GrpcClient {
    pub(crate) fn start(bootstrap: &Value) -> Self {
        Self(Python::start(&["client"], bootstrap))
    }

    fn order<T: DeserializeOwned>(&mut self, order: &Value) -> T {
        writeln!(self.0.input, "{order}").unwrap();
        self.0.tells()
    }

    /// So many calls one after the other: how often who answered; after a `!` what went wrong.
    pub(crate) fn call(&mut self, target: &str, count: u32) -> BTreeMap<String, u32> {
        self.order(&json!({ "do": "call", "target": target, "count": count }))
    }

    /// Calls on and on.
    pub(crate) fn begin(&mut self, target: &str) {
        let () = self.order(&json!({ "do": "begin", "target": target }));
    }

    /// No more: every call since.
    pub(crate) fn end(&mut self) -> Vec<Answer> {
        self.order(&json!({ "do": "end" }))
    }

    pub(crate) fn log(&self) -> String {
        self.0.log()
    }
}

impl Drop for GrpcClient {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("gRPC's log:\n{}", self.log());
        }
    }
}
