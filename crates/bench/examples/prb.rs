//! Runs the PRB benchmark and prints its table.
#![allow(clippy::print_stdout)]
fn main() -> anyhow::Result<()> {
    let rows = fastness_bench::prb::run(fastness_bench::Options {
        quick: std::env::args().any(|a| a == "--quick"),
    })?;
    println!("{}", fastness_bench::render_table("prb", &rows));
    Ok(())
}
