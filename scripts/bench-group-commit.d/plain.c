/* Threads that each write a record to a file of their own and flush it: plain SECONDS THREADS FOLDER; prints the flushes of all. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int is_over;
static atomic_long done;
static const char *folder;

static void *run(void *number) {
    char path[4096];
    static char record[4096];
    snprintf(path, sizeof path, "%s/plain.%ld", folder, (long)number);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        abort();
    for (long at = 0; !atomic_load(&is_over); at = (at + 1) % 1024) {
        if (pwrite(file, record, sizeof record, at * (long)sizeof record) != sizeof record || fdatasync(file))
            abort();
        atomic_fetch_add(&done, 1);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    int seconds = atoi(words[1]), threads = atoi(words[2]);
    folder = words[3];
    pthread_t all[256];
    if (threads < 1 || threads > 256)
        return 2;
    for (long number = 0; number < threads; number++)
        if (pthread_create(&all[number], NULL, run, (void *)number))
            abort();
    sleep(seconds);
    atomic_store(&is_over, 1);
    for (int number = 0; number < threads; number++)
        pthread_join(all[number], NULL);
    printf("%ld\n", atomic_load(&done));
    return 0;
}
