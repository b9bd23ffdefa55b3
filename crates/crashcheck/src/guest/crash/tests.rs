use super::*;

const OOPS: &str = "\
[   14.001122] EXT4-fs error (device pmem0): ext4_lookup:1858: inode #2: comm ls: iget: bad extra_isize
[   14.101122] BUG: kernel NULL pointer dereference, address: 0000000000000018
[   14.101130] #PF: supervisor read access in kernel mode
[   14.101131] #PF: error_code(0x0000) - not-present page
[   14.101132] PGD 0 P4D 0
[   14.101140] Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI
[   14.101150] CPU: 0 UID: 0 PID: 211 Comm: mount Not tainted 6.12.95+deb12-amd64 #1  Debian 6.12.95-1
[   14.101160] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009)
[   14.101170] RIP: 0010:ext4_fill_super+0x1a2/0x3400 [ext4]
[   14.101180] Code: 48 8b 47 18 <48> 8b 40 18
[   14.101190] RSP: 0018:ffffb21ac0123d10 EFLAGS: 00010246
[   14.101200] RAX: 0000000000000000 RBX: ffff9f8081234000 RCX: 0000000000000000
[   14.101210] Call Trace:
[   14.101220]  <TASK>
[   14.101230]  ? __die_body.cold+0x19/0x27
[   14.101240]  get_tree_bdev_flags+0x15f/0x1e0
[   14.101250]  vfs_get_tree+0x29/0xe0
[   14.101260]  entry_SYSCALL_64_after_hwframe+0x76/0x7e
[   14.101270] RIP: 0033:0x7f6e8a2b1c2a
[   14.101280]  </TASK>
[   14.101290] Modules linked in: ext4 crc16 mbcache jbd2
[   14.101300] ---[ end trace 0000000000000000 ]---
[   14.101310] Kernel panic - not syncing: Fatal exception
[   14.101320] Kernel Offset: disabled
";

fn crash(console: &str) -> KernelCrash {
    KernelCrash::of(console).unwrap_or_else(|| panic!("no report in {console}"))
}

#[test]
fn an_oops_has_a_function_a_call_trace_and_last_lines() {
    let crash = crash(OOPS);
    assert_eq!(crash.said, "BUG: kernel NULL pointer dereference, address: #");
    assert_eq!(crash.function.as_deref(), Some("ext4_fill_super"));
    let trace = [
        "get_tree_bdev_flags+0x15f/0x1e0",
        "vfs_get_tree+0x29/0xe0",
        "entry_SYSCALL_64_after_hwframe+0x76/0x7e",
    ];
    assert_eq!(crash.trace, trace);
    assert_eq!(
        crash.last[crash.last.len() - 2..],
        ["Kernel panic - not syncing: Fatal exception", "Kernel Offset: disabled"]
    );
    let text = crash.to_string();
    assert!(text.starts_with("the kernel crashed in ext4_fill_super: BUG: kernel NULL pointer"), "{text}");
    assert!(text.contains("call trace:\n  get_tree_bdev_flags+0x15f/0x1e0\n"), "{text}");
    assert!(
        text.contains("the last lines of the console:\n") && text.contains("PID: # Comm: mount"),
        "{text}"
    );
}

#[test]
fn the_same_crash_at_another_time_is_the_same_and_one_in_another_function_is_not() {
    let later = OOPS.replace("[   14.1", "[ 1233.7").replace("PID: 211", "PID: 4045");
    let later = later.replace("ffffb21ac0123d10", "ffffb21ac0777d10").replace("<48> 8b", "<47> 8b");
    assert_ne!(later, OOPS);
    assert_eq!(KernelCrash::text(&later), KernelCrash::text(OOPS));
    let elsewhere = OOPS.replace("ext4_fill_super+0x1a2", "ext4_iget+0x1a2");
    assert_ne!(KernelCrash::text(&elsewhere), KernelCrash::text(OOPS));
    let by_another = OOPS.replace("vfs_get_tree+0x29/0xe0", "reconfigure_super+0x29/0xe0");
    assert_ne!(KernelCrash::text(&by_another), KernelCrash::text(OOPS));
}

#[test]
fn a_bug_a_protection_fault_and_a_panic_are_told_with_their_functions() {
    let bug = "------------[ cut here ]------------\nkernel BUG at fs/jbd2/journal.c:1234!\n\
        Oops: invalid opcode: 0000 [#1] SMP\nRIP: 0010:jbd2_journal_load+0x5/0x10 [jbd2]\n";
    let said = crash(bug);
    assert_eq!(
        (said.said.as_str(), said.function.as_deref()),
        ("kernel BUG at fs/jbd2/journal.c:1234!", Some("jbd2_journal_load"))
    );
    let fault = "[    3.1][  T120] general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP\n\
        [    3.1][  T120] RIP: 0010:list_del+0x9/0x40\n";
    let said = crash(fault);
    assert!(said.said.ends_with("non-canonical address #: 0000 [#1] SMP"), "{}", said.said);
    assert_eq!(said.function.as_deref(), Some("list_del"));
    let panic = "[   12.3] sysrq: Trigger a crash\n[   12.3] Kernel panic - not syncing: sysrq triggered crash\n\
        [   12.3] Call Trace:\n[   12.3]  <TASK>\n[   12.3]  dump_stack_lvl+0x5d/0x80\n[   12.3]  panic+0x157/0x340\n\
        [   12.3]  ? _printk+0x6b/0x90\n[   12.3]  sysrq_handle_crash+0x1a/0x20\n[   12.3]  RIP: 0033:0x7f12\n";
    let said = crash(panic);
    assert_eq!(said.function.as_deref(), Some("sysrq_handle_crash"));
    assert_eq!(said.trace.len(), 3, "{said:?}");
    let nowhere = crash(
        "BUG: unable to handle page fault for address: ffffc90000123456\nRIP: 0010:0x0\n\
        Call Trace:\n notify_change+0x1/0x2\n",
    );
    assert_eq!(
        nowhere.function.as_deref(),
        Some("notify_change"),
        "a pointer that leads nowhere: its caller"
    );
    assert_eq!(crash("Kernel panic - not syncing: VFS: Unable to mount root fs\n").function, None);
}

#[test]
fn a_kernel_that_hangs_says_who_waits() {
    let hung = "[  243.1] INFO: task mount:155 blocked for more than 120 seconds.\n\
        [  243.1]       Not tainted 6.1.0 #1\n[  243.1] task:mount state:D stack:0 pid:155 ppid:150\n\
        [  243.1] Call Trace:\n[  243.1]  <TASK>\n[  243.1]  __schedule+0x34d/0x9e0\n[  243.1]  schedule+0x5a/0xd0\n\
        [  243.1]  jbd2_log_wait_commit+0xd8/0x140 [jbd2]\n[  243.1]  </TASK>\n";
    let said = crash(hung);
    assert_eq!(said.said, "INFO: task mount:# blocked for more than 120 seconds.");
    assert_eq!(said.function.as_deref(), Some("jbd2_log_wait_commit"));
    let stall = "rcu: INFO: rcu_preempt self-detected stall on CPU\n\
        rcu: \t0-....: (5249 ticks this GP) idle=1b4c/1/0x4000000000000000\n\
        RIP: 0010:nova_journal_recover+0x31/0x90 [nova]\nCall Trace:\n nova_fill_super+0x1/0x2 [nova]\n";
    let said = crash(stall);
    assert_eq!((said.function.as_deref(), said.trace.len()), (Some("nova_journal_recover"), 1));
    let lockup = crash(
        "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [mount:155]\nRIP: 0010:xfs_log_mount+0x1/0x2 [xfs]\n",
    );
    assert_eq!(lockup.function.as_deref(), Some("xfs_log_mount"));
}

#[test]
fn any_console_is_read_and_what_is_kept_of_it_is_bounded() {
    for console in [
        "",
        "\n\n",
        "[",
        "[]",
        "[ 1.0] ",
        "EXT4-fs (pmem0): mounted\n",
        "Call Trace:\n a+0x1/0x2\n",
        "+0x/0x",
    ] {
        assert_eq!(KernelCrash::of(console), None, "{console:?}");
    }
    assert_eq!(KernelCrash::text("[    1.5] EXT4-fs (pmem0): bad\n"), "  EXT4-fs (pmem0): bad\n");
    let long = format!(
        "BUG: {}\nCall Trace:\n{}{}",
        "x ü".repeat(9999),
        " f+0x1/0x2\n".repeat(999),
        "word \u{fffd}\n".repeat(999)
    );
    let said = crash(&long);
    assert_eq!((said.trace.len(), said.last.len()), (FRAMES_MAX, LAST_LINES_MAX));
    assert!(KernelCrash::text(&long).len() < 10_000);
}

#[test]
fn the_functions_of_a_crash_are_read_from_its_text() {
    let of = |text: &str| KernelCrash::functions_of(text);
    let functions = of(&crash(OOPS).to_string()).unwrap();
    let expected =
        ["ext4_fill_super", "get_tree_bdev_flags", "vfs_get_tree", "entry_SYSCALL_64_after_hwframe"];
    assert_eq!(functions, expected);
    let module = crash("BUG: x\nRIP: 0010:a+0x1/0x2\nCall Trace:\n nova_mount+0x1/0x2 [nova]\n");
    assert_eq!(of(&module.to_string()).unwrap(), ["a", "nova_mount [nova]"]);
    let unable = crash("Kernel panic - not syncing: VFS: Unable to mount root fs\n").to_string();
    assert_eq!(of(&unable).unwrap(), ["Kernel panic - not syncing: VFS: Unable to mount root fs"]);
    for other in ["", "mount: failed\n", "  the kernel crashed\n"] {
        assert_eq!(of(other), None, "{other:?}");
    }
}
