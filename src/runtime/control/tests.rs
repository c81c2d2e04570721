//! Two and more control planes in one process, on addresses of the loopback network.

mod cuts;
mod ends;
mod hostile;
mod kit;
mod mail;
mod plain;
