/* What a program tells the crash tester of Fastness. Each call is one instruction, which does nothing unless
   the tester traces the program (docs/guide/crash-testing.md). For C and C++, on x86-64. MIT OR Apache-2.0. */
#ifndef CRASHCHECK_H
#define CRASHCHECK_H

#include <stddef.h>

#ifndef __x86_64__
#error "the crash tester knows x86-64 only"
#endif

/* One operation has ended. What lies between two checkpoints is judged by itself: it has to be atomic and
   durable. Number 0 ends the preparation, which is not judged; then 1, 2, ... */
static inline void crashcheck_checkpoint(long number) {
    __asm__ volatile("nopl 0x7a5c0001(%%rax,%%rax,1)" : : "D"(3L), "S"(number) : "memory");
}

/* A line, or several, of the program's log of operations (--operations instruction): "put KEY VALUE\n" before
   the call, "ok\n" after it. At most 4096 bytes. */
static inline void crashcheck_operations(const char *lines, size_t len) {
    __asm__ volatile("nopl 0x7a5c0001(%%rax,%%rax,1)" : : "D"(4L), "S"(lines), "d"(len) : "memory");
}

#endif
