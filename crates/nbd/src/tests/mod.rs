//! Tests of the parts.

mod budget;
mod rules;
