// Leaves of a sorted tree, after FAST and FAIR: an insertion shifts entries to the right, one word at a time, so that a crash leaves
// one twice, which readers skip. A full leaf splits: the new one gets a copy, is linked, and only then the old one is cut. BUG 1 to 6.
#include "pm.h"

#define ENTRIES 16
struct leaf { uint64_t next; char pad[56]; uint64_t entries[ENTRIES + 8]; };     // key * 1000 + value; 0 after the last
struct tree { uint64_t used; char pad[56]; struct leaf leaves[16]; };

static uint64_t count(const struct leaf *l) {
    uint64_t n = 0;
    while (n < ENTRIES && l->entries[n]) n++;
    return n;
}

static void insert_into(struct leaf *l, uint64_t entry) {
    uint64_t at = count(l), first = 0;
    if (BUG == 3) {                                             // logic: from the left, so that it overwrites what it has not moved
        while (first < at && l->entries[first] < entry) first++;
        for (; first <= at; first++) {
            uint64_t moved = l->entries[first];
            l->entries[first] = entry;
            persist(&l->entries[first], 8);
            entry = moved;
        }
        return;
    }
    for (; at > 0 && l->entries[at - 1] > entry; at--) {
        l->entries[at] = l->entries[at - 1];
        if (at % 8 == 0 && BUG != 1) persist(&l->entries[at], 8);   // ordering: of two lines the right one comes first
    }
    l->entries[at] = entry;
    flush(&l->entries[at], 8);
    if (BUG != 2) fence();                                      // missing last fence
}

static struct leaf *split(struct tree *t, struct leaf *l) {
    struct leaf *new = &t->leaves[t->used++];
    persist(&t->used, 8);
    for (int i = 0; i < ENTRIES / 2; i++) new->entries[i] = l->entries[ENTRIES / 2 + i];
    new->next = l->next;
    if (BUG != 6) flush(&new->next, 8);                         // missing flush: the leaves after it are lost
    if (BUG != 4) { flush(new->entries, ENTRIES / 2 * 8); fence(); }    // ordering: linked before it is there
    if (BUG == 5) { l->entries[ENTRIES / 2] = 0; persist(&l->entries[ENTRIES / 2], 8); }    // logic: cut before it is linked
    l->next = new - t->leaves;
    persist(&l->next, 8);
    // From the right: what readers see ends earlier with each word.
    for (int i = ENTRIES - 1; i >= ENTRIES / 2; i--) l->entries[i] = 0;
    persist(&l->entries[ENTRIES / 2], ENTRIES / 2 * 8);
    if (BUG == 4) persist(new->entries, ENTRIES / 2 * 8);
    return new;
}

static void insert(struct tree *t, uint64_t key) {
    struct leaf *l = &t->leaves[0];
    uint64_t entry = key * 1000 + key % 7;
    while (l->next && t->leaves[l->next].entries[0] <= entry) l = &t->leaves[l->next];
    if (count(l) == ENTRIES) {
        struct leaf *new = split(t, l);
        if (new->entries[0] <= entry) l = new;
    }
    insert_into(l, entry);
}

int main(int argc, char **argv) {
    struct tree *t = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        uint64_t last = 0, at = 0;
        do {
            const struct leaf *l = &t->leaves[at];
            for (uint64_t i = 0; i < count(l); i++)
                if (l->entries[i] > last) printf("%lu\n", last = l->entries[i]);
        } while ((at = t->leaves[at].next) && at < 16);
        return 0;
    }
    t->used = 1;
    persist(&t->used, 8);
    for (uint64_t key = 100; key < 114; key++) insert(t, key);
    crashcheck_checkpoint(0);
    const uint64_t keys[] = {50, 105 * 2, 51, 106 * 2, 40, 41, 42, 43, 44, 45, 46, 47};    // the third and the last split a leaf
    for (int i = 0; i < 12; i++) { insert(t, keys[i]); crashcheck_checkpoint(i + 1); }
    return 0;
}
