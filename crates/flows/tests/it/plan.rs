//! Plans: the file, how it is made and drawn, and how it is run.

mod crash;
mod failing;
mod file;
mod making;
mod running;
mod surface;
mod world;
