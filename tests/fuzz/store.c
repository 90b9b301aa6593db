/* fuzz/store.c - an input as a file, in memory where the machine has a file system there. */
#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[40], path[120];
static int  owner;

static void clean(void)
{
    if (owner != getpid()) /* libFuzzer forks for -fork and -merge */
        return;
    (void)unlink(path);
    (void)rmdir(folder);
}

const char *fuzz_store(const char *name, const uint8_t *data, size_t size)
{
    if (owner != getpid()) {
        owner = getpid();
        (void)snprintf(folder, sizeof folder, "/dev/shm/fuzz-XXXXXX");
        if (!mkdtemp(folder)) {
            (void)snprintf(folder, sizeof folder, "/tmp/fuzz-XXXXXX");
            if (!mkdtemp(folder))
                abort();
        }
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        if (atexit(clean) != 0)
            abort();
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0)
        abort();
    return folder;
}
