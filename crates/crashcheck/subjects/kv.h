// The table of kv.c: slots that point to records, which are never changed.
#include "pm.h"
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

#define SLOTS 16
struct slot { uint64_t record; char key[56]; };      // one line; record 0: no value
struct table {
    uint64_t redo_valid;
    uint64_t records_used;
    char pad[48];
    struct { uint64_t slot, record; char pad[48]; } redo[2];
    struct slot slots[SLOTS];
    char records[64][64];
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// That of a key, or a free one, which gets it.
static struct slot *slot_of(struct table *t, const char *key) {
    for (int i = key[0] % SLOTS;; i = (i + 1) % SLOTS) {
        struct slot *slot = &t->slots[i];
        if (strcmp(slot->key, key) == 0) return slot;
        if (slot->key[0] == 0) {
            strcpy(slot->key, key);
            persist(slot->key, sizeof slot->key);
            return slot;
        }
    }
}

static uint64_t new_record(struct table *t, const char *value) {
    uint64_t record = ++t->records_used;             // durable with anything later: a record is used only if it is linked
    persist(&t->records_used, 8);
    strcpy(t->records[record], value);
    if (BUG != 1) flush(t->records[record], 64);     // missing flush of the value
    fence();
    return record;
}

static void link_record(struct table *t, struct slot *slot, uint64_t record) {
    slot->record = record;
    if (BUG != 2) persist(&slot->record, 8);         // missing flush of what makes it seen
}

static void redo(struct table *t) {
    for (int i = 0; i < 2; i++) link_record(t, &t->slots[t->redo[i].slot], t->redo[i].record);
    t->redo_valid = 0;
    persist(&t->redo_valid, 8);
}
