// A hash table of words. It logs its operations, which is all that its oracle needs: `--operations`. BUG 1 to 6.
//
//   kv run PM LOG       one thread; the log is a file            kv list PM     recovers, and prints keys and values
//   kv threads PM       two threads; the log is by messages
#include "kv.h"

static int fd = -1;
static void say(const char *format, ...) {
    char line[256];
    va_list list;
    va_start(list, format);
    int len = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (fd < 0) crashcheck_operations(line, len);
    else if (write(fd, line, len) != len) exit(3);
}

static void put(struct table *t, const char *key, const char *value) {
    say("put %s %s\n", key, value);
    if (BUG == 5) say("ok\n");                       // answered before anything is durable
    pthread_mutex_lock(&mutex);
    link_record(t, slot_of(t, key), new_record(t, value));
    pthread_mutex_unlock(&mutex);
    if (BUG != 5) say("ok\n");
}

static void del(struct table *t, const char *key) {
    say("del %s\n", key);
    pthread_mutex_lock(&mutex);
    struct slot *slot = slot_of(t, key);
    slot->record = 0;
    if (BUG != 3) persist(&slot->record, 8);         // missing flush: it is there again
    pthread_mutex_unlock(&mutex);
    say("ok\n");
}

// Both or none: by a log of what is to be linked, which a recovery goes through again.
static void put_both(struct table *t, const char *one, const char *two, const char *value) {
    say("put %s %s %s %s\n", one, value, two, value);
    pthread_mutex_lock(&mutex);
    struct slot *slots[2] = {slot_of(t, one), slot_of(t, two)};
    for (int i = 0; i < 2; i++) {
        t->redo[i].slot = slots[i] - t->slots;
        t->redo[i].record = new_record(t, value);
    }
    persist(t->redo, sizeof t->redo);
    t->redo_valid = BUG != 4;                        // logic: never used
    if (BUG != 6) persist(&t->redo_valid, 8);        // ordering: the table may change before the log is valid
    redo(t);
    pthread_mutex_unlock(&mutex);
    say("ok\n");
}

static void *other(void *arg) {
    put(arg, "x", "of-two");
    put_both(arg, "y", "z", "of-two");
    del(arg, "x");
    return 0;
}

int main(int argc, char **argv) {
    struct table *t = pm_map(argv[2]);
    if (strcmp(argv[1], "list") == 0) {
        if (t->redo_valid) redo(t);
        for (int i = 0; i < SLOTS; i++)
            if (t->slots[i].record) printf("%.15s %.63s\n", t->slots[i].key, t->records[t->slots[i].record]);
        return 0;
    }
    if (strcmp(argv[1], "run") == 0) {
        fd = open(argv[3], O_WRONLY | O_APPEND);
        put(t, "a", "one");
        put(t, "b", "two");
        put(t, "a", "three");
        del(t, "b");
        put_both(t, "a", "b", "four");
        put(t, "c", "five");
        return 0;
    }
    pthread_t thread;
    if (pthread_create(&thread, 0, other, t)) return 2;
    put(t, "x", "of-one");
    put_both(t, "x", "y", "of-one");
    pthread_join(thread, 0);
    return 0;
}
