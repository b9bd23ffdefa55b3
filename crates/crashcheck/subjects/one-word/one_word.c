// A file system for tests of the tester: one file, `word`, of 8 bytes, which are the first of persistent memory.
//
// A write is durable when the system call returns. Mount options: `start=0xN`, the physical address of the
// persistent memory, and the planted bugs `no-fence` (the last fence is missing) and `no-flush`. With `log` a write goes to
// the second line of persistent memory, and the next mount moves it to the first, as a file system replays its journal; the
// planted bug `log-no-fence` may take it from the second before it is in the first. With `disk=` the first line is the beginning
// of this disk instead, and each write begins with such a move; planted bugs: `disk-no-flush` takes the word from the log before
// the disk has emptied its cache, `disk-late` before it is written to the disk at all.
//
// SPDX-License-Identifier: MIT OR GPL-2.0-or-later

#include <linux/file.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define BYTES 8
#define LOG 8 // words from the first

static struct {
	u64 *word, on_disk;
	struct file *disk;
	bool no_fence, no_flush, log, log_no_fence, disk_no_flush, disk_late;
} mounted;

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

static int put_on_disk(u64 word)
{
	loff_t at = 0;

	if (kernel_write(mounted.disk, &word, BYTES, &at) != BYTES)
		return -EIO;
	mounted.on_disk = word;
	return mounted.disk_no_flush ? filemap_write_and_wait(mounted.disk->f_mapping) : vfs_fsync(mounted.disk, 0);
}

static void clear_log(void)
{
	put(&mounted.word[LOG], 0);
	fence(false);
}

static int replay(void)
{
	u64 word = mounted.word[LOG];
	int error = 0;

	if (!word)
		return 0;
	if (mounted.disk_late)
		clear_log();
	if (mounted.disk) {
		error = put_on_disk(word);
	} else {
		put(mounted.word, word);
		fence(mounted.log_no_fence);
	}
	if (!error && !mounted.disk_late)
		clear_log();
	return error;
}

static ssize_t word_read(struct file *file, char __user *to, size_t len, loff_t *at)
{
	u64 *home = mounted.disk ? &mounted.on_disk : mounted.word;
	bool is_in_log = mounted.log && mounted.word[LOG];

	return simple_read_from_buffer(to, len, at, is_in_log ? &mounted.word[LOG] : home, BYTES);
}

// One store of 8 bytes cannot tear, so the operation is atomic whatever is forgotten after it.
static ssize_t word_write(struct file *file, const char __user *from, size_t len, loff_t *at)
{
	u64 word = 0;
	int error = mounted.disk ? replay() : 0;

	if (error)
		return error;
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
	char *rest = options, *option, *disk = NULL;
	u64 start = 0;
	loff_t at = 0;
	int error;

	memset(&mounted, 0, sizeof(mounted));
	while ((option = strsep(&rest, ",")) != NULL) {
		if (!strncmp(option, "start=", 6) && kstrtou64(option + 6, 0, &start))
			return -EINVAL;
		mounted.no_fence |= !strcmp(option, "no-fence");
		mounted.no_flush |= !strcmp(option, "no-flush");
		mounted.log |= !strcmp(option, "log");
		mounted.log_no_fence |= !strcmp(option, "log-no-fence");
		mounted.disk_no_flush |= !strcmp(option, "disk-no-flush");
		mounted.disk_late |= !strcmp(option, "disk-late");
		if (!strncmp(option, "disk=", 5))
			disk = option + 5;
	}
	mounted.word = start ? memremap(start, PAGE_SIZE, MEMREMAP_WB) : NULL;
	if (!mounted.word)
		return -EINVAL;
	if (disk) {
		struct file *file = filp_open(disk, O_RDWR, 0);

		if (IS_ERR(file))
			return PTR_ERR(file);
		mounted.disk = file;
		mounted.log = true;
		if (kernel_read(file, &mounted.on_disk, BYTES, &at) != BYTES)
			return -EIO;
	}
	error = mounted.log ? replay() : 0;
	return error ? error : simple_fill_super(sb, 0x776f7264, files);
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
	if (mounted.disk)
		fput(mounted.disk);
	mounted.disk = NULL;
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
