/*
 * A disk whose flush takes a fixed time, for programs that are started with this library in LD_PRELOAD: fsync and
 * fdatasync sleep SLOW_FLUSH_US microseconds and do nothing else. If SLOW_FLUSH_LOCK names a file, one flush follows the
 * other, in all processes together; without it they overlap.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static long flush_us;
static const char *lock_path;

__attribute__((constructor)) static void begin(void) {
    const char *us = getenv("SLOW_FLUSH_US");
    flush_us = us ? atol(us) : 0;
    /* PostgreSQL writes over its environment, to show what it does in the list of processes. */
    const char *path = getenv("SLOW_FLUSH_LOCK");
    lock_path = path ? strdup(path) : NULL;
}

/* The lock belongs to an open file, so each thread opens one. -1: there is none. */
static int lock_of_thread(void) {
    static __thread int lock = -1;
    static __thread pid_t owner;
    if (owner != getpid()) {
        owner = getpid();
        /* The kernel may add 50 us to each sleep otherwise. */
        prctl(PR_SET_TIMERSLACK, 1UL);
        if (lock_path && (lock = open(lock_path, O_RDWR | O_CLOEXEC)) < 0)
            abort();
    }
    return lock;
}

static int flush(void) {
    int lock = lock_of_thread(), before = errno;
    struct timespec left = {flush_us / 1000000, flush_us % 1000000 * 1000};
    if (lock >= 0)
        while (flock(lock, LOCK_EX) && errno == EINTR) {}
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {}
    if (lock >= 0)
        flock(lock, LOCK_UN);
    errno = before;
    return 0;
}

int fsync(int fd) { (void)fd; return flush(); }
int fdatasync(int fd) { (void)fd; return flush(); }
