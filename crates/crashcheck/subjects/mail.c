// Two threads: one puts letters into PM, the other stamps them as delivered.
//
// A letter is durable before it is handed over, as a fence waits for nothing but what its own thread did.
// Bug 1: the writer leaves the fence to the other thread. 2: it leaves flush and fence to the other thread, which flushes the
// stamp only. 3: the stamp is flushed, and not fenced. 4: the letter is handed over before it is written.
#include "pm.h"
#include <pthread.h>

#define LETTERS 3

struct letter { char text[64]; uint64_t is_delivered; char rest[56]; };
static struct letter *box;
// Not a lock: those are fences, too.
static volatile int handed_over, delivered;

static void *write_letters(void *unused) {
    for (int i = 0; i < LETTERS; i++) {
        while (delivered < i) {}
        if (BUG == 4) { handed_over = i + 1; while (delivered < i + 1) {} }
        snprintf(box[i].text, sizeof box[i].text, "letter %d", i);
        if (BUG != 2) flush(box[i].text, sizeof box[i].text);
        if (BUG != 1 && BUG != 2) fence();
        handed_over = i + 1;
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    box = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        for (int i = 0; i < LETTERS; i++)
            if (box[i].is_delivered) printf("%d: %.64s\n", i, box[i].text);
        return 0;
    }
    pthread_t writer;
    if (pthread_create(&writer, 0, write_letters, 0) != 0) return 2;
    for (int i = 0; i < LETTERS; i++) {
        while (handed_over < i + 1) {}
        crashcheck_checkpoint(i);
        box[i].is_delivered = 1;
        flush(&box[i].is_delivered, 8);
        if (BUG != 3) fence();
        crashcheck_checkpoint(i + 1);
        delivered = i + 1;
    }
    return pthread_join(writer, 0);
}
