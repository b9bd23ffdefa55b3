// A queue between two threads: one puts items of two lines in, the other takes them out. BUG 1 to 6.
#include "pm.h"
#include <pthread.h>

#define SLOTS 2
#define ITEMS 4

struct queue {
    uint64_t head, pad_head[7], tail, pad_tail[7];
    char items[SLOTS][128];
};
static struct queue *q;
static volatile int turn;                                       // even: put, odd: take. Not a lock: those are fences, too

static void put(int number) {
    char *item = q->items[(BUG == 5 ? q->head : q->tail) % SLOTS];      // logic: over one that is still there
    memset(item, 'a' + number, 128);
    flush(item, BUG == 6 ? 64 : 128);                           // missing flush of the second line
    if (BUG != 1) fence();                                      // ordering: it counts before it is there
    q->tail++;
    if (BUG != 2) persist(&q->tail, 8);                         // missing flush: the other thread flushes its own word alone
}

static void take(void) {
    if (BUG == 4) {                                             // logic: emptied while it still counts
        memset(q->items[q->head % SLOTS], '-', 128);
        persist(q->items[q->head % SLOTS], 128);
    }
    q->head++;
    flush(&q->head, 8);
    if (BUG != 3) fence();                                      // missing last fence
}

static void *consumer(void *unused) {
    for (int i = 0; i < ITEMS; i++) {
        while (turn < 2 * i + 1) {}
        take();
        crashcheck_checkpoint(2 * i + 2);
        turn = 2 * i + 2;
    }
    return unused;
}

int main(int argc, char **argv) {
    q = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        for (uint64_t at = q->head; at < q->tail && at < q->head + SLOTS; at++) printf("%.128s\n", q->items[at % SLOTS]);
        return 0;
    }
    put(0);
    crashcheck_checkpoint(0);
    pthread_t thread;
    if (pthread_create(&thread, 0, consumer, 0) != 0) return 2;
    for (int i = 0; i < ITEMS; i++) {
        while (turn < 2 * i) {}
        put(i + 1);
        crashcheck_checkpoint(2 * i + 1);
        turn = 2 * i + 1;
    }
    return pthread_join(thread, 0);
}
