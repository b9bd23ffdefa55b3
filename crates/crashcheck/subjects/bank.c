// Two accounts, and an undo log for moving money between them. BUG 1 to 4.
#include "pm.h"

struct bank { uint64_t active, old[2]; char pad[40]; uint64_t a; char pad_a[56]; uint64_t b; char pad_b[56]; };

static void move(struct bank *k, uint64_t amount) {
    if (BUG != 1) {                                         // logic: no undo log
        if (BUG == 2) k->active = 1;                        // ordering: active before the log is whole
        k->old[0] = k->a;
        k->old[1] = k->b;
        persist(k, 24);
        k->active = 1;
        persist(&k->active, 8);
    }
    k->a -= amount;
    k->b += amount;
    flush(&k->a, 8);
    if (BUG != 3) flush(&k->b, 8);                          // missing flush of an account
    if (BUG != 4) fence();                                  // ordering: the log ends with the accounts
    k->active = 0;
    persist(&k->active, 8);
}

int main(int argc, char **argv) {
    struct bank *k = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        if (k->active) { k->a = k->old[0]; k->b = k->old[1]; persist(&k->a, 8); persist(&k->b, 8); k->active = 0; persist(k, 8); }
        printf("%lu %lu, together %lu\n", k->a, k->b, k->a + k->b);
        return 0;
    }
    k->a = k->b = 100;
    persist(&k->a, 8);
    persist(&k->b, 8);
    crashcheck_checkpoint(0);
    move(k, 30);
    crashcheck_checkpoint(1);
    move(k, 50);
    crashcheck_checkpoint(2);
    return 0;
}
