//! A real control plane with nodes, neighbours and Dragoman in it: scenarios that a user reads, and what they are made of. The
//! instruments in `lab` measure in the same worlds.

pub mod client;
mod collector;
pub mod company;
pub mod control_plane;
mod differential;
pub mod dragoman;
pub mod go;
pub mod installed;
mod manifest;
mod node;
pub mod objects;
mod only;
mod prometheus;
mod promises;
pub mod proxy;
pub mod scenarios;
pub mod start;
mod terminal;
pub mod usage;
pub mod wait;
pub mod world;
