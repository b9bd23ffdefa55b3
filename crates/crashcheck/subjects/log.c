// Records behind each other, stored past the caches, and their number. BUG 1 to 4. Its oracle is `prefix`.
#include "pm.h"

struct log { uint64_t count; char pad[56]; char records[64][64]; };

static void copy_nt(char *to, const char *from) {
    for (int at = 0; at < 64; at += 16) _mm_stream_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
}

static void append(struct log *l, long n) {
    char record[64] = {0};
    snprintf(record, 64, "record %ld, which is long enough for four stores", n);
    if (BUG == 1) { l->count = n; persist(&l->count, 8); }  // logic: counted before it is there
    copy_nt(l->records[n - 1], record);
    if (BUG != 2) fence();                                  // ordering: record and count together
    l->count = n;
    if (BUG != 3) flush(&l->count, 8);                      // missing flush of the count
    if (BUG != 4) fence();                                  // acknowledged before it is durable
}

int main(int argc, char **argv) {
    struct log *l = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        for (uint64_t n = 0; n < l->count && n < 64; n++) printf("%.64s\n", l->records[n]);
        return 0;
    }
    crashcheck_checkpoint(0);
    for (long n = 1; n <= 4; n++) { append(l, n); crashcheck_checkpoint(n); }
    return 0;
}
