// Values of any length under names, from a script. Each BUG, 1 to 6, is in what odd inputs reach alone: the script in `blob` does not.
//
//   blob run PM SCRIPT     carries out the lines "put NAME LENGTH", "del NAME", "cut NAME LENGTH"; of others nothing
//   blob show PM           recovers, and prints names, lengths and contents
#include "pm.h"

#define SLOTS 8
#define VALUE_MAX 4096
struct slot { char name[256]; uint64_t len; char padding[56]; uint64_t is_used; char more_padding[56]; char value[VALUE_MAX]; };
struct pool { struct slot slots[SLOTS]; };

static long number = 0;

// Writes whole lines back.
static void flush_value(const char *at, size_t len) {
    if (BUG == 1) len = len / 64 * 64;                                          // the last part of a line is not flushed
    if (BUG == 2 && len > 2048) len = 2048;                                     // a long value is flushed in part
    flush(at, len);
}

static struct slot *find(struct pool *p, const char *name) {
    for (int i = 0; i < SLOTS; i++)
        if (p->slots[i].is_used && strncmp(p->slots[i].name, name, 256) == 0) return &p->slots[i];
    return 0;
}

static void done(void) { crashcheck_checkpoint(++number); }

static int put(struct pool *p, const char *name, size_t len) {
    size_t name_len = strlen(name);
    if (len > VALUE_MAX || name_len > 255 || find(p, name)) return 1;
    struct slot *s = 0;
    for (int i = 0; i < SLOTS && !s; i++)
        if (!p->slots[i].is_used) s = &p->slots[i];
    if (!s) return 1;
    for (size_t at = 0; at < len; at++) s->value[at] = 'a' + number % 26;
    for (size_t at = 0; at < sizeof s->name; at++) s->name[at] = at < name_len ? name[at] : 0;
    s->len = len;
    flush_value(s->value, len);
    flush(&s->len, 8);
    flush(s->name, BUG == 4 && name_len == 255 ? 192 : 256);                    // the end of the longest name is not
    fence();
    s->is_used = 1;
    if (!(BUG == 3 && len == 0)) persist(&s->is_used, 8);                       // an empty value is not there
    return 0;
}

static int del(struct pool *p, const char *name) {
    struct slot *s = find(p, name);
    if (!s) return 1;
    s->is_used = 0;
    if (!(BUG == 5 && s->len % 8)) persist(&s->is_used, 8);                     // of odd lengths it is there again
    return 0;
}

static int cut(struct pool *p, const char *name, size_t len) {
    struct slot *s = find(p, name);
    if (!s || len > VALUE_MAX) return 1;
    if (len > s->len) {
        for (size_t at = s->len; at < len; at++) s->value[at] = 0;
        if (BUG != 6) persist(s->value, len);                                   // what grows has old bytes at its end
    }
    s->len = len;
    persist(&s->len, 8);
    return 0;
}

int main(int argc, char **argv) {
    struct pool *p = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        for (int i = 0; i < SLOTS; i++) {
            struct slot *s = &p->slots[i];
            if (!s->is_used) continue;
            printf("%.256s %lu ", s->name, (unsigned long)s->len);
            for (uint64_t at = 0, same = 0; at < s->len && s->len <= VALUE_MAX; at += same, same = 0) {
                while (at + same < s->len && s->value[at + same] == s->value[at]) same++;
                printf("%02x*%lu ", (unsigned char)s->value[at], (unsigned long)same);
            }
            printf("\n");
        }
        return 0;
    }
    FILE *script = fopen(argv[3], "r");
    if (!script) return 2;
    crashcheck_checkpoint(0);
    char line[1024], word[8], name[512];
    unsigned long len;
    while (fgets(line, sizeof line, script)) {
        if (sscanf(line, "%7s %511s %lu", word, name, &len) == 3 && strcmp(word, "put") == 0) put(p, name, len), done();
        else if (sscanf(line, "%7s %511s %lu", word, name, &len) == 3 && strcmp(word, "cut") == 0) cut(p, name, len), done();
        else if (sscanf(line, "%7s %511s", word, name) == 2 && strcmp(word, "del") == 0) del(p, name), done();
    }
    return 0;
}
