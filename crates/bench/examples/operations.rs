//! Repeats an operation for `scripts/instructions`. Usage: operations OPERATION COUNT (0 if it is no number).

fn main() -> Result<(), fastness_base::AnyError> {
    let mut args = std::env::args().skip(1);
    let (operation, count) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    fastness_bench::repeat(&operation, count.parse().unwrap_or(0))
}
