//! SPARC workflows over a real store: by hand, by a model, by forms, and through restarts.

mod agents;
mod by_hand;
mod resources;
mod restarts;
mod stage;
