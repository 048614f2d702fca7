//! What is shared, over a real store.
