//! A whole test: the program is traced, crash images are made and recovered, and what comes out is judged.

mod analysis;
mod config;

pub use analysis::{Analysis, open_trace};
pub use config::{
    ImagesConfig, NonTemporalConfig, OracleConfig, PersistenceConfig, PickConfig, PmConfig, RecoverConfig,
    Test, TraceConfig,
};

#[cfg(test)]
mod tests;
