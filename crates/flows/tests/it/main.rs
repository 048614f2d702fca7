//! What is shared, over a real store.

mod registry;
mod registry_network;
mod task_tools;
mod test_engine;
