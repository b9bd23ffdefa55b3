// Notes in persistent memory: how many there are in the first line, then a note of 64 bytes in each line.
//
//   cc -g -Icrates/crashcheck/include -o notes examples/crashcheck/notes.c
//   crashcheck run --pm 4K --recover './notes show {pm}' -- ./notes run {pm}
//
// -DBUG leaves a write-back out, and the tester says which.
#include <crashcheck.h>
#include <emmintrin.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct note { char text[64]; };
struct notes {
    _Alignas(64) long count;
    _Alignas(64) struct note notes[63];
};

// What lies in one cache line is durable on return.
static void persist(const void *line) {
    _mm_clflush(line);
    _mm_sfence();
}

static void add(struct notes *all, const char *text) {
    struct note *note = &all->notes[all->count];
    for (size_t i = 0; i < sizeof note->text - 1 && text[i]; i++) note->text[i] = text[i];
#ifndef BUG
    persist(note);
#endif
    all->count++;
    persist(&all->count);
}

int main(int argc, char **argv) {
    int file = argc == 3 ? open(argv[2], O_RDWR) : -1;
    struct notes *all = MAP_FAILED;
    if (file >= 0) all = mmap(0, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (all == MAP_FAILED) return fprintf(stderr, "usage: notes run|show FILE\n"), 2;
    if (!strcmp(argv[1], "show")) {
        for (long i = 0; i < all->count; i++) puts(all->notes[i].text);
        return 0;
    }
    crashcheck_checkpoint(0);
    const char *texts[] = {"milk", "bread", "eggs"};
    for (long i = 0; i < 3; i++) {
        add(all, texts[i]);
        crashcheck_checkpoint(i + 1);
    }
    return 0;
}
