// A list that grows at its head, in an arena. BUG 1 to 4.
#include "pm.h"

struct node { uint64_t value, next; char pad[48]; };
struct list { uint64_t head, used; char pad[48]; struct node nodes[100]; };

static void push(struct list *l, uint64_t value) {
    uint64_t at = l->used + 1;
    struct node *node = &l->nodes[at];
    if (BUG == 1) { l->head = at; persist(&l->head, 8); }   // logic: reachable before it is there
    node->value = value;
    node->next = BUG == 1 ? at - 1 : l->head;
    if (BUG != 2) flush(node, sizeof *node);                // missing flush of the node
    if (BUG != 3) fence();                                  // ordering: node and head together
    l->used = at;
    l->head = at;
    if (BUG != 4) persist(&l->head, 16);                    // missing flush of the head
    else fence();
}

int main(int argc, char **argv) {
    struct list *l = pm_map(argv[2]);
    if (strcmp(argv[1], "show") == 0) {
        for (uint64_t at = l->head; at; at = l->nodes[at].next) {
            if (at >= 100) { printf("a node outside of the list\n"); return 1; }
            printf("%lu\n", l->nodes[at].value);
        }
        return 0;
    }
    crashcheck_checkpoint(0);
    for (long n = 1; n <= 3; n++) { push(l, n * 11); crashcheck_checkpoint(n); }
    return 0;
}
