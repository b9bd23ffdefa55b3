//! What a console says of how its kernel crashed, as text that is the same for the same crash.
//!
//! Motivation: the output of a recovery that panicked its kernel is lost with it, and what is left is the
//! console. Two crashes in different functions are different states, and two of the same are one: so what is
//! different each time (times, addresses, registers, numbers of processes) is left out.
//!
//! Source: the kernel's `Documentation/admin-guide/bug-hunting.rst`; formats as Linux 5.1 to 6.12 print them.

/// What is kept of a report.
const FRAMES_MAX: usize = 24;
const LAST_LINES_MAX: usize = 8;
const LINE_CHARS_MAX: usize = 160;
/// The title of the call trace.
const TRACE: &str = "call trace:\n";

/// How the first line of a report of the kernel begins.
const BEGINS: [&str; 11] = [
    "BUG: ",
    "kernel BUG at ",
    "Oops: ",
    "general protection fault",
    "invalid opcode:",
    "divide error:",
    "stack segment:",
    "watchdog: BUG: ",
    "watchdog: CPU",
    "Kernel panic - not syncing",
    "traps: PANIC",
];
/// Registers and the like: something else each time.
const REGISTERS: [&str; 21] = [
    "RIP:",
    "RSP:",
    "RAX:",
    "RDX:",
    "RBP:",
    "R08:",
    "R10:",
    "R11:",
    "R13:",
    "FS:",
    "GS:",
    "CS:",
    "CR2:",
    "DR0:",
    "DR3:",
    "PKRU:",
    "Code:",
    "PGD ",
    "Call Trace:",
    "Modules linked in:",
    "---[ ",
];
/// Functions that report, and wait for others: the one that called them is meant.
const NOT_MEANT: [&str; 22] = [
    "dump_stack_lvl",
    "dump_stack",
    "show_stack",
    "panic",
    "vpanic",
    "nmi_panic",
    "__warn",
    "report_bug",
    "handle_bug",
    "check_panic_on_warn",
    "warn_slowpath_fmt",
    "die",
    "oops_end",
    "__die_body",
    "exc_page_fault",
    "exc_invalid_op",
    "__schedule",
    "schedule",
    "schedule_timeout",
    "io_schedule",
    "schedule_preempt_disabled",
    "context_switch",
];

/// A crash, or a hang, of a guest's kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCrash {
    /// The first line of its report.
    pub said: String,
    /// Where it was, if it says so: a function.
    pub function: Option<String>,
    /// The call trace as the kernel printed it, innermost first, without frames that it is not sure of.
    pub trace: Vec<String>,
    /// The end of the console, without registers and frames.
    pub last: Vec<String>,
}

impl KernelCrash {
    /// The first report on a console: later ones often follow from it. None if there is none.
    pub fn of(console: &str) -> Option<KernelCrash> {
        let lines: Vec<&str> = console.lines().map(without_time).collect();
        let begin = lines.iter().position(|line| is_begin(line))?;
        let report = &lines[begin..];
        let trace = call_trace(report);
        // A trap says where it was; a kernel that panics by itself does not.
        let at = report.iter().find_map(|line| line.strip_prefix("RIP: 0010:").and_then(function_of));
        let caller =
            || trace.iter().filter_map(|frame| function_of(frame)).find(|name| !NOT_MEANT.contains(name));
        let function = at.or_else(caller).map(str::to_owned);
        Some(KernelCrash { said: same(lines[begin]), function, trace, last: last_lines(&lines) })
    }

    /// Of a crash as text: the function, and those of the call trace, without offsets. None for other text.
    pub fn functions_of(text: &str) -> Option<Vec<String>> {
        let first = text.lines().next()?.strip_prefix("the kernel crashed")?;
        let function =
            first.strip_prefix(" in ").and_then(|rest| rest.split_once(": ")).map(|(name, _)| name);
        let trace = text.lines().skip_while(|line| *line != TRACE.trim_end()).skip(1);
        let frames = trace.map_while(|line| line.strip_prefix("  "));
        let named = frames.map(|frame| match (function_of(frame), frame.split_once(" [")) {
            (Some(name), Some((_, module))) => format!("{name} [{module}"),
            (Some(name), None) => name.to_owned(),
            (None, _) => frame.to_owned(),
        });
        let mut functions: Vec<String> = function.into_iter().map(str::to_owned).chain(named).collect();
        if functions.is_empty() {
            functions.push(first.trim_start_matches([':', ' ']).to_owned());
        }
        Some(functions)
    }

    /// What a console says, whether it has a report or not.
    pub fn text(console: &str) -> String {
        match KernelCrash::of(console) {
            Some(crash) => crash.to_string(),
            None => shown("", &last_lines(&console.lines().map(without_time).collect::<Vec<_>>())),
        }
    }
}

impl std::fmt::Display for KernelCrash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.function {
            Some(function) => writeln!(f, "the kernel crashed in {function}: {}", self.said)?,
            None => writeln!(f, "the kernel crashed: {}", self.said)?,
        }
        f.write_str(&shown(TRACE, &self.trace))?;
        f.write_str(&shown("the last lines of the console:\n", &self.last))
    }
}

fn shown(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    title.to_owned() + &lines.iter().map(|line| format!("  {line}\n")).collect::<String>()
}

/// Without what stands before each line: `[   12.345678]`, and who it was, `[    T1]`.
fn without_time(line: &str) -> &str {
    let mut rest = line.trim_end();
    while let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        if inside.is_empty() || !inside.chars().all(|c| c.is_ascii_digit() || " .TC".contains(c)) {
            break;
        }
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    rest
}

fn is_begin(line: &str) -> bool {
    BEGINS.iter().any(|begin| line.starts_with(begin))
        || line.starts_with("INFO: task ") && line.contains(" blocked for more than ")
        || line.starts_with("rcu: INFO: ") && line.contains(" stall")
}

/// The frames after the first `Call Trace:`.
fn call_trace(report: &[&str]) -> Vec<String> {
    let mut lines = report.iter().skip_while(|line| line.trim() != "Call Trace:").skip(1);
    let mut frames = Vec::new();
    while let Some(line) = lines.next().map(|line| line.trim()).filter(|_| frames.len() < FRAMES_MAX) {
        if is_frame(line) {
            frames.push(same(line));
        } else if !(line.starts_with("? ")
            || matches!(line, "<TASK>" | "<IRQ>" | "</IRQ>" | "<NMI>" | "</NMI>"))
        {
            break;
        }
    }
    frames
}

/// `ext4_iget+0x12/0x340 [ext4]`.
fn is_frame(line: &str) -> bool {
    let (symbol, module) = line.split_once(' ').unwrap_or((line, "[]"));
    let has_offsets =
        symbol.split_once("+0x").is_some_and(|(name, rest)| !name.is_empty() && rest.contains("/0x"));
    has_offsets && module.starts_with('[') && module.ends_with(']')
}

/// The name in `ext4_iget+0x12/0x340 [ext4]`.
fn function_of(frame: &str) -> Option<&str> {
    let (name, _) = frame.split_once("+0x")?;
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
}

fn last_lines(lines: &[&str]) -> Vec<String> {
    let is_shown = |line: &&&str| {
        let line = line.trim();
        let is_of_trace = is_frame(line) || line.starts_with("? ") || line.starts_with('<');
        !line.is_empty() && !is_of_trace && !REGISTERS.iter().any(|register| line.starts_with(register))
    };
    let mut last: Vec<String> =
        lines.iter().rev().filter(is_shown).take(LAST_LINES_MAX).map(|line| same(line.trim())).collect();
    last.reverse();
    last
}

/// A line with `#` for what is different each time: addresses, numbers of processes, and how long it took.
fn same(line: &str) -> String {
    let mut out = String::new();
    let mut rest: String = line.chars().take(LINE_CHARS_MAX).collect();
    while !rest.is_empty() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if len == 0 {
            out.extend(rest.chars().next());
            rest = rest.chars().skip(1).collect();
            continue;
        }
        let word = rest[..len].to_owned();
        let digits = word.strip_prefix("0x").unwrap_or(&word);
        let is_address = digits.len() >= 8 && digits.chars().all(|c| c.is_ascii_hexdigit());
        let is_number = word.trim_end_matches('s').chars().all(|c| c.is_ascii_digit());
        let is_after = |words: &[&str]| words.iter().any(|word| out.ends_with(word));
        let names_process = out.starts_with("INFO: task ") || out.starts_with("watchdog: ");
        let is_process = is_after(&["PID: ", "pid ", "pid:", "t=", "g=", "q=", "stuck for "])
            || names_process && out.ends_with(':');
        out.push_str(if is_address || is_number && is_process { "#" } else { &word });
        rest = rest[len..].to_owned();
    }
    out
}

#[cfg(test)]
mod tests;
