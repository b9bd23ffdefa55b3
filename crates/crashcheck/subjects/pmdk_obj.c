// libpmemobj: two numbers, changed in transactions. cc pmdk_obj.c -lpmemobj
#include "pm.h"
#include <libpmemobj.h>

struct root { uint64_t a; char pad[120]; uint64_t b; };

int main(int argc, char **argv) {
    if (strcmp(argv[1], "create") == 0) {
        PMEMobjpool *pool = pmemobj_create(argv[2], "crashcheck", 0, 0666);
        if (!pool) { fprintf(stderr, "%s\n", pmemobj_errormsg()); return 1; }
        pmemobj_root(pool, sizeof(struct root));
        pmemobj_close(pool);
        return 0;
    }
    PMEMobjpool *pool = pmemobj_open(argv[2], "crashcheck");
    if (!pool) { fprintf(stderr, "%s\n", pmemobj_errormsg()); return 1; }
    PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
    struct root *root = pmemobj_direct(oid);
    if (strcmp(argv[1], "show") == 0) {
        printf("%lu %lu\n", root->a, root->b);
    } else {
        crashcheck_checkpoint(0);
        for (long n = 1; n <= 2; n++) {
            TX_BEGIN(pool) {
                if (BUG != 1) pmemobj_tx_add_range(oid, 0, 8);              // BUG 1: not in the undo log
                pmemobj_tx_add_range(oid, offsetof(struct root, b), 8);
                root->a += n;
                root->b += n;
            } TX_END
            crashcheck_checkpoint(n);
        }
    }
    pmemobj_close(pool);
    return 0;
}
