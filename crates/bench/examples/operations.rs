//! Repeats an operation for `scripts/instructions`: OPERATION COUNT. Without arguments it lists them.

use std::io::Write;

use fastness_base::AnyError;

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let Some(operation) = args.next() else {
        return Ok(writeln!(std::io::stdout(), "{}", fastness_bench::OPERATIONS.join("\n"))?);
    };
    fastness_bench::repeat(&operation, args.next().and_then(|count| count.parse().ok()).unwrap_or(0))
}
