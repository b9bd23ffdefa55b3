// A ring of records that go past the cache, each with its number and a checksum; the last two count. BUG 1 to 6.
#include "pm.h"

#define SLOTS 4
#define WORDS 14
struct record { uint64_t number, sum, data[WORDS]; };           // two lines
struct ring { struct record records[SLOTS]; };

static uint64_t sum_of(const struct record *r) {
    uint64_t sum = 7;
    if (BUG != 4) sum = sum * 31 + r->number;                   // logic: an old record passes for a new one
    for (int i = 0; i < (BUG == 1 ? 6 : WORDS); i++) sum = sum * 31 + r->data[i];   // logic: of the first line only
    return sum;
}

static void append(struct ring *ring, uint64_t number) {
    // Never the place of one of the last two.
    struct record *to = &ring->records[BUG == 5 ? number / 2 % SLOTS : number % SLOTS], r = {.number = number};   // 5: logic
    for (int i = 0; i < WORDS; i++) r.data[i] = number * 100 + i;
    r.sum = sum_of(&r);
    const long long *from = (const long long *)&r;
    for (int i = 0; i < 16; i++) {
        if (BUG != 3 || i != 1) _mm_stream_si64((long long *)to + i, from[i]);
    }
    if (BUG == 3) to->sum = r.sum;                              // missing flush: one word stays in the cache
    if (BUG != 2) fence();                                      // missing last fence
}

static void show(const struct record *r) { printf("%lu: %lu %lu\n", r->number, r->data[0], r->data[WORDS - 1]); }

int main(int argc, char **argv) {
    struct ring *ring = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        const struct record *newest = 0, *before = 0;
        for (int i = 0; i < SLOTS; i++) {
            const struct record *r = &ring->records[i];
            if (r->number == 0) continue;
            if (r->sum != sum_of(r)) {
                if (BUG == 6) break;                            // logic: what comes after one that is half there is not looked at
                continue;
            }
            if (!newest || r->number > newest->number) before = newest, newest = r;
            else if (!before || r->number > before->number) before = r;
        }
        if (before && before->number == newest->number - 1) show(before);
        if (newest) show(newest);
        return 0;
    }
    append(ring, 1);
    append(ring, 2);
    crashcheck_checkpoint(0);
    for (long n = 1; n <= 6; n++) { append(ring, n + 2); crashcheck_checkpoint(n); }
    return 0;
}
