// libpmemlog: records appended one by one. cc pmdk_log.c -lpmemlog; its oracle is `prefix`.
#include "pm.h"
#include <libpmemlog.h>

static int print(const void *buffer, size_t len, void *unused) {
    (void)unused;
    fwrite(buffer, 1, len, stdout);
    return 1;
}

int main(int argc, char **argv) {
    if (strcmp(argv[1], "create") == 0) return pmemlog_create(argv[2], 0, 0666) ? 0 : 1;
    PMEMlogpool *log = pmemlog_open(argv[2]);
    if (!log) { perror("pmemlog_open"); return 1; }
    if (strcmp(argv[1], "show") == 0) {
        pmemlog_walk(log, 0, print, 0);
    } else {
        crashcheck_checkpoint(0);
        for (long n = 1; n <= 3; n++) {
            char record[128];
            int len = snprintf(record, sizeof record, "record %ld, which is longer than one line: %060ld\n", n, n);
            if (pmemlog_append(log, record, len)) { perror("pmemlog_append"); return 1; }
            crashcheck_checkpoint(n);
        }
    }
    pmemlog_close(log);
    return 0;
}
