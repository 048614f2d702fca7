//! Agents that are not ours, and do what agents do.
