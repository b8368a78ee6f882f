//! The local control socket: how the command line talks to a running instance.
