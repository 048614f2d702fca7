//! The batch engine: how many run at once, what survives a crash, who may do what, and what is measured.

mod asking;
mod contents;
mod control;
mod crash;
mod figures;
mod operations;
mod running;
mod surface;
mod tasks;
mod world;
