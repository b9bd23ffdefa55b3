// A value of three lines in two slots, of which one counts: the other is written, then they change. BUG 1 to 4.
#include "pm.h"

struct slots { uint64_t which; char pad[56]; char value[2][192]; };

static void update(struct slots *s, char with) {
    uint64_t other = BUG == 1 ? s->which : !s->which;       // logic: writes the one that counts
    memset(s->value[other], with, 192);
    if (BUG == 2) flush(s->value[other], 128);              // missing flush of the last line
    else flush(s->value[other], 192);
    if (BUG != 3) fence();                                  // ordering: value and choice together
    s->which = other;
    if (BUG == 4) flush(s->value, 8);                       // missing flush: of another line
    else flush(&s->which, 8);
    fence();
}

int main(int argc, char **argv) {
    struct slots *s = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        printf("%.192s\n", s->value[s->which & 1]);
        return 0;
    }
    update(s, 'a');
    crashcheck_checkpoint(0);
    update(s, 'b');
    crashcheck_checkpoint(1);
    update(s, 'c');
    crashcheck_checkpoint(2);
    return 0;
}
