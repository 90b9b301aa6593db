#include "batch/io.h"

#include "base/held.h"
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int io_open(void *ctx, const char *path, enum tsr_io_how how, int *file)
{
    static const int flags[] = { O_RDONLY, O_RDWR | O_CREAT | O_APPEND, O_RDWR | O_CREAT,
                                 O_RDWR | O_CREAT | O_EXCL };
    (void)ctx;
    if (how == TSR_BATCH_IO_NEW && unlink(path) != 0 && errno != ENOENT)
        return errno;
    return tsr_output_open(path, flags[how], file);
}

static int io_size(void *ctx, int file, uint64_t *bytes)
{
    struct stat st;
    int         e = tsr_held_check(file);
    (void)ctx;
    if (e)
        return e;
    if (fstat(file, &st) != 0)
        return errno;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static int io_read(void *ctx, int file, uint64_t at, void *dst, uint64_t bytes, uint64_t *got)
{
    char *p = dst;
    int   e = tsr_held_check(file);
    (void)ctx;
    *got = 0;
    if (e)
        return e;
    while (*got < bytes) {
        ssize_t n = pread(file, p + *got, bytes - *got, (off_t)(at + *got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        *got += (uint64_t)n;
    }
    return 0;
}

static int io_write(void *ctx, int file, uint64_t at, const void *src, uint64_t bytes,
                    uint64_t *put)
{
    ssize_t n;
    int     e = tsr_held_check(file);
    (void)ctx;
    if (e)
        return e;
    do
        n = pwrite(file, src, bytes, (off_t)at); /* O_APPEND wins over the place */
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno;
    if (n == 0)
        return EIO;
    *put = (uint64_t)n;
    return 0;
}

static int io_truncate(void *ctx, int file, uint64_t bytes)
{
    (void)ctx;
    return tsr_output_cut(file, bytes);
}

/* A file that reused the number meanwhile got none of the data. */
static int sync_held(int file)
{
    int e = fdatasync(file) == 0 ? 0 : errno, lost = tsr_held_check(file);
    return lost ? lost : e;
}

static int io_sync(void *ctx, int file)
{
    (void)ctx;
    return sync_held(file);
}

/* One thread of the process does what sync_begin() asks for; it begins with the first one. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  begun, over;
    bool            there, busy, done;
    int             file, result;
} beside = { .lock = PTHREAD_MUTEX_INITIALIZER,
             .begun = PTHREAD_COND_INITIALIZER,
             .over = PTHREAD_COND_INITIALIZER };

static void *sync_thread(void *arg)
{
    (void)arg;
    (void)pthread_mutex_lock(&beside.lock);
    for (;;) {
        while (!beside.busy || beside.done)
            (void)pthread_cond_wait(&beside.begun, &beside.lock);
        int file = beside.file;
        (void)pthread_mutex_unlock(&beside.lock);
        int result = sync_held(file);
        (void)pthread_mutex_lock(&beside.lock);
        beside.result = result;
        beside.done = true;
        (void)pthread_cond_broadcast(&beside.over);
    }
    return NULL;
}

static int io_sync_begin(void *ctx, int file)
{
    pthread_t      t;
    pthread_attr_t a;
    int            e = 0;
    (void)ctx;
    (void)pthread_mutex_lock(&beside.lock);
    if (!beside.there) {
        e = pthread_attr_init(&a);
        if (e == 0) {
            (void)pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
            e = pthread_create(&t, &a, sync_thread, NULL);
            (void)pthread_attr_destroy(&a);
        }
        beside.there = e == 0;
    }
    if (e == 0) {
        beside.file = file;
        beside.done = false;
        beside.busy = true;
        (void)pthread_cond_signal(&beside.begun);
    }
    (void)pthread_mutex_unlock(&beside.lock);
    return e;
}

static int io_sync_end(void *ctx, int file, bool wait)
{
    int e = EAGAIN;
    (void)ctx;
    (void)file;
    (void)pthread_mutex_lock(&beside.lock);
    while (wait && !beside.done)
        (void)pthread_cond_wait(&beside.over, &beside.lock);
    if (beside.done) {
        beside.busy = beside.done = false;
        e = beside.result;
    }
    (void)pthread_mutex_unlock(&beside.lock);
    return e;
}

static int io_close(void *ctx, int file)
{
    (void)ctx;
    return tsr_held_close(file);
}

static int io_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return tsr_output_rename(from, to);
}

static int io_sync_folder(void *ctx, const char *path)
{
    (void)ctx;
    return tsr_output_sync_folder(path);
}

/* Of the open file and not of the process: two opens exclude each other. */
static int io_lock(void *ctx, int file)
{
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int          e = tsr_held_check(file);
    (void)ctx;
    if (e)
        return e;
    if (fcntl(file, F_OFD_SETLK, &l) == 0)
        return 0;
    return errno == EACCES || errno == EAGAIN ? EWOULDBLOCK : errno;
}

const struct tsr_batch_io tsr_io_system = {
    .open = io_open,
    .size = io_size,
    .read = io_read,
    .write = io_write,
    .truncate = io_truncate,
    .sync = io_sync,
    .sync_begin = io_sync_begin,
    .sync_end = io_sync_end,
    .close = io_close,
    .rename = io_rename,
    .sync_folder = io_sync_folder,
    .lock = io_lock,
};

int tsr_batch_io_put(const struct tsr_batch_io *io, int file, uint64_t at, const void *src,
                     uint64_t bytes)
{
    const char *p = src;
    while (bytes > 0) {
        uint64_t n = 0;
        int      e = io->write(io->ctx, file, at, p, bytes, &n);
        if (e)
            return e;
        p += n;
        at += n;
        bytes -= n;
    }
    return 0;
}
