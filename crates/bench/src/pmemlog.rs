//! Placeholder until written below.
