// A file system for tests of the tester: one file, `word`, of 8 bytes, which are the first of persistent memory.
//
// A write is durable when the system call returns. Mount options: `start=0xN`, the physical address of the
// persistent memory, and the planted bugs `no-fence` (the last fence is missing) and `no-flush`. With `log` a write goes to
// the second line of persistent memory, and the next mount moves it to the first, as a file system replays its journal; the
// planted bug `log-no-fence` may take it from the second before it is in the first.
//
// SPDX-License-Identifier: MIT OR GPL-2.0-or-later

#include <linux/fs.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define BYTES 8
#define LOG 8 // words from the first

static struct { u64 *word; bool no_fence, no_flush, log, log_no_fence; } mounted;

static void put(u64 *to, u64 word)
{
	WRITE_ONCE(*to, word);
	if (!mounted.no_flush)
		asm volatile("clflushopt %0" : "+m"(*to));
}

static void fence(bool is_left_out)
{
	if (!is_left_out)
		asm volatile("sfence" ::: "memory");
}

static void replay(void)
{
	if (!mounted.word[LOG])
		return;
	put(mounted.word, mounted.word[LOG]);
	fence(mounted.log_no_fence);
	put(&mounted.word[LOG], 0);
	fence(false);
}

static ssize_t word_read(struct file *file, char __user *to, size_t len, loff_t *at)
{
	bool is_in_log = mounted.log && mounted.word[LOG];

	return simple_read_from_buffer(to, len, at, &mounted.word[is_in_log ? LOG : 0], BYTES);
}

// One store of 8 bytes cannot tear, so the operation is atomic whatever is forgotten after it.
static ssize_t word_write(struct file *file, const char __user *from, size_t len, loff_t *at)
{
	u64 word = 0;

	if (copy_from_user(&word, from, min_t(size_t, len, BYTES)))
		return -EFAULT;
	put(&mounted.word[mounted.log ? LOG : 0], word);
	fence(mounted.no_fence);
	return len;
}

static const struct file_operations word_operations = {
	.owner = THIS_MODULE, .read = word_read, .write = word_write, .llseek = default_llseek,
};

static int fill(struct super_block *sb, void *options, int silent)
{
	static const struct tree_descr files[] = { [2] = { "word", &word_operations, 0644 }, { "" } };
	char *rest = options, *option;
	u64 start = 0;

	memset(&mounted, 0, sizeof(mounted));
	while ((option = strsep(&rest, ",")) != NULL) {
		if (!strncmp(option, "start=", 6) && kstrtou64(option + 6, 0, &start))
			return -EINVAL;
		mounted.no_fence |= !strcmp(option, "no-fence");
		mounted.no_flush |= !strcmp(option, "no-flush");
		mounted.log |= !strcmp(option, "log");
		mounted.log_no_fence |= !strcmp(option, "log-no-fence");
	}
	mounted.word = start ? memremap(start, PAGE_SIZE, MEMREMAP_WB) : NULL;
	if (!mounted.word)
		return -EINVAL;
	if (mounted.log)
		replay();
	return simple_fill_super(sb, 0x776f7264, files);
}

static struct dentry *mount_one(struct file_system_type *type, int flags, const char *name, void *options)
{
	return mount_nodev(type, flags, options, fill);
}

static void unmount(struct super_block *sb)
{
	kill_litter_super(sb);
	if (mounted.word)
		memunmap(mounted.word);
	mounted.word = NULL;
}

static struct file_system_type one_word = {
	.owner = THIS_MODULE, .name = "one_word", .mount = mount_one, .kill_sb = unmount,
};

static int __init load(void)
{
	return register_filesystem(&one_word);
}

static void __exit unload(void)
{
	unregister_filesystem(&one_word);
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("A file system of one word, for tests");
MODULE_LICENSE("Dual MIT/GPL");
