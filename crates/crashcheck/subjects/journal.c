// A journal of one entry: its data first, then the mark that makes it valid. BUG 1 to 4.
#include "pm.h"

struct journal { char data[2][64]; uint64_t valid; };

int main(int argc, char **argv) {
    struct journal *j = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        if (j->valid) printf("entry: %.64s %.64s\n", j->data[0], j->data[1]);
        else printf("empty\n");
        return 0;
    }
    if (BUG == 1) { j->valid = 1; persist(&j->valid, 8); }  // logic: valid before it is
    strcpy(j->data[0], "the first half,");
    if (BUG != 2) flush(j->data[0], 64);                    // missing flush of the data
    strcpy(j->data[1], "the second half");
    flush(j->data[1], 64);
    if (BUG != 3) fence();                                  // ordering: data and mark together
    j->valid = 1;
    if (BUG != 4) flush(&j->valid, 8);                      // missing flush of the mark
    fence();
    return 0;
}
