// Four values, changed through a log that only the next start replays. All bugs are in the recovery: they show only if that crashes
// as well, `--recovery-crashes 1`; BUG 5 and 6 only if two recoveries crash, one after the other.
#include "pm.h"

struct entry { uint64_t at, value, added; };
struct wal {
    uint64_t count; char pad[56];
    uint64_t attempts, done; char pad_attempts[48];
    struct { uint64_t value; char pad[56]; } table[4];
    struct entry entries[8];
};

static void replay(struct wal *w, uint64_t from, uint64_t count) {
    for (uint64_t n = from; n < count && n < 8; n++) {
        struct entry *e = &w->entries[n];
        uint64_t *value = &w->table[e->at & 3].value;
        if (BUG == 1 || (BUG == 6 && w->attempts > 2)) *value += e->added;  // logic: adds again what is there already
        else *value = e->value;
        if (BUG != 2 || e->at != 1) flush(value, 8);                       // missing flush of a value
        if (BUG == 4) { w->done = n + 1; persist(&w->done, 8); }           // ordering: done before the value is durable
    }
    if (BUG != 3) fence();                                                 // ordering: the log may end before the values are durable
}

static void clear(struct wal *w) {
    w->count = 0;
    persist(&w->count, 8);
}

static void recover(struct wal *w) {
    uint64_t count = w->count;
    if (count == 0) return;
    w->attempts++;
    persist(&w->attempts, 8);
    if (BUG == 5 && w->attempts > 1) {                                     // logic: the next attempt empties the log first
        clear(w);
        replay(w, 0, count);
    } else {
        replay(w, w->done, count);
        clear(w);
    }
    w->attempts = w->done = 0;
    persist(&w->attempts, 16);
}

static void set(struct wal *w, uint64_t at, uint64_t value, uint64_t added) {
    w->entries[w->count] = (struct entry){at, value, added};
    persist(&w->entries[w->count], sizeof(struct entry));
    w->count++;
    persist(&w->count, 8);
}

int main(int argc, char **argv) {
    struct wal *w = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        recover(w);
        for (int at = 0; at < 4; at++) printf("%lu\n", w->table[at].value);
        return 0;
    }
    crashcheck_checkpoint(0);
    set(w, 1, 10, 10);
    crashcheck_checkpoint(1);
    set(w, 2, 20, 20);
    crashcheck_checkpoint(2);
    set(w, 1, 15, 5);
    crashcheck_checkpoint(3);
    return 0;
}
