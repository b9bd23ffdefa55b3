// What the programs under test share: a file that is persistent memory.
#include "../include/crashcheck.h"
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef BUG
#define BUG 0
#endif

static void *pm_map(const char *path) {
    int fd = open(path, O_RDWR);
    void *at = fd < 0 ? MAP_FAILED : mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) { perror(path); exit(2); }
    return at;
}

// Writes lines back. They are durable after a fence.
static void flush(const void *at, size_t len) {
    const char *end = (const char *)at + len;
    for (const char *line = (const char *)((uintptr_t)at & ~63); line < end; line += 64) asm volatile("clwb %0" : "+m"(*(volatile char *)line));
}
static void fence(void) { _mm_sfence(); }
static inline void persist(const void *at, size_t len) { flush(at, len); fence(); }
