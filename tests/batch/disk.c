#include "disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
    if (!p) {
        (void)fputs("out of memory\n", stderr);
        abort();
    }
    return p;
}

uint64_t disk_random(struct disk *d, uint64_t n)
{
    d->rng += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = d->rng;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static void resize(struct disk_blob *b, uint64_t n)
{
    if (n > b->cap) {
        b->cap = 2 * n + 64;
        b->p = must(realloc(b->p, b->cap));
    }
    if (n > b->n)
        memset(b->p + b->n, 0, n - b->n);
    b->n = n;
}

static void write_at(struct disk_blob *b, uint64_t at, const char *p, uint64_t n)
{
    if (n == 0)
        return;
    if (at + n > b->n)
        resize(b, at + n);
    memcpy(b->p + at, p, n);
}

static void copy(struct disk_blob *to, const struct disk_blob *from)
{
    resize(to, from->n);
    if (from->n)
        memcpy(to->p, from->p, from->n);
}

static void drop_ops(struct disk_inode *i)
{
    for (int k = 0; k < i->n_ops; k++)
        free(i->ops[k].data.p);
    i->n_ops = 0;
}

static void apply_op(struct disk_blob *b, const struct disk_op *op)
{
    if (op->truncate)
        resize(b, op->at);
    else
        write_at(b, op->at, op->data.p, op->data.n);
}

void disk_init(struct disk *d, uint64_t seed)
{
    memset(d, 0, sizeof *d);
    d->rng = seed * 0x2545f4914f6cdd1du + 1;
    d->fault_at = UINT64_MAX;
}

void disk_free(struct disk *d)
{
    for (int i = 0; i < d->n_inodes; i++) {
        drop_ops(&d->inodes[i]);
        free(d->inodes[i].live.p);
        free(d->inodes[i].durable.p);
    }
    d->n_inodes = 0;
}

/* ---- names -------------------------------------------------------------- */

static struct disk_name *find(struct disk_name *names, int n, const char *path)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i].path, path) == 0)
            return &names[i];
    return NULL;
}

static void set_name(struct disk_name *names, int *n, const char *path, int inode)
{
    struct disk_name *e = find(names, *n, path);
    if (!e) {
        if (*n == DISK_NAMES)
            abort();
        e = &names[(*n)++];
        (void)snprintf(e->path, sizeof e->path, "%s", path);
    }
    e->inode = inode;
}

static void apply(struct disk_name *names, int *n, const struct disk_change *c)
{
    set_name(names, n, c->to.path, c->to.inode);
    if (*c->from)
        set_name(names, n, c->from, -1);
}

static void change_name(struct disk *d, const char *path, int inode, const char *from)
{
    if (d->n_changes == DISK_OPS)
        abort();
    struct disk_change *c = &d->changes[d->n_changes++];
    (void)snprintf(c->to.path, sizeof c->to.path, "%s", path);
    (void)snprintf(c->from, sizeof c->from, "%s", from);
    c->to.inode = inode;
    apply(d->live, &d->n_live, c);
}

static int inode_of(const struct disk *d, const char *path)
{
    const struct disk_name *e = find((struct disk_name *)(uintptr_t)d->live, d->n_live, path);
    return e ? e->inode : -1;
}

const struct disk_blob *disk_file(const struct disk *d, const char *path)
{
    int i = inode_of(d, path);
    return i < 0 ? NULL : &d->inodes[i].live;
}

/* ---- power -------------------------------------------------------------- */

/* Each change that was not synced is there, or not, or there in part: a piece of a write, or its
 * length without its bytes. */
static void settle(struct disk *d, struct disk_inode *i)
{
    for (int k = 0; k < i->n_ops; k++) {
        struct disk_op *op = &i->ops[k];
        switch (disk_random(d, 4)) {
        case 0:
            break;
        case 1:
            apply_op(&i->durable, op);
            break;
        case 2:
            if (!op->truncate)
                write_at(&i->durable, op->at, op->data.p, disk_random(d, op->data.n + 1));
            break;
        default:
            if (!op->truncate && i->durable.n < op->at + op->data.n)
                resize(&i->durable, op->at + op->data.n);
        }
    }
    drop_ops(i);
    copy(&i->live, &i->durable);
}

void disk_power_cut(struct disk *d)
{
    for (int i = 0; i < d->n_inodes; i++)
        settle(d, &d->inodes[i]);
    /* names come back up to some change: their order is kept, as journaling file systems do */
    int keep = (int)disk_random(d, (uint64_t)d->n_changes + 1);
    for (int k = 0; k < keep; k++)
        apply(d->durable, &d->n_durable, &d->changes[k]);
    d->n_changes = 0;
    memcpy(d->live, d->durable, sizeof d->live);
    d->n_live = d->n_durable;
    d->power_lost = false;
}

/* ---- operations --------------------------------------------------------- */

/* Counts an operation; true: it fails with *e. */
static bool hit(struct disk_process *p, int *e, bool *shorter)
{
    struct disk *d = p->d;
    *e = EIO;
    if (shorter)
        *shorter = false;
    if (p->dead)
        return true;
    if (d->ops++ != d->fault_at)
        return false;
    switch (d->fault) {
    case DISK_ERRNO:
        *e = d->fault_errno;
        return true;
    case DISK_SHORT:
        if (shorter)
            *shorter = true;
        return false;
    case DISK_POWER:
        d->power_lost = true;
        p->dead = true;
        return true;
    case DISK_DIE:
        p->dead = true;
        return true;
    default:
        return false;
    }
}

static int d_open(void *ctx, const char *path, enum tsr_io_how how, int *file)
{
    struct disk_process *p = ctx;
    struct disk         *d = p->d;
    int                  e, i = inode_of(d, path), f = 0;
    if (hit(p, &e, NULL))
        return e;
    if (i < 0 && how == TSR_BATCH_IO_READ)
        return ENOENT;
    if (i < 0) {
        if (d->n_inodes == DISK_INODES)
            abort();
        i = d->n_inodes++;
        change_name(d, path, i, "");
    } else if (how == TSR_BATCH_IO_NEW && d->inodes[i].live.n) {
        resize(&d->inodes[i].live, 0);
        d->inodes[i].ops[d->inodes[i].n_ops++] = (struct disk_op){ .truncate = true };
    }
    while (f < DISK_FDS && p->fd[f].inode >= 0)
        f++;
    if (f == DISK_FDS)
        abort();
    p->fd[f].inode = i;
    p->fd[f].append = how == TSR_BATCH_IO_APPEND;
    *file = f;
    return 0;
}

static struct disk_inode *of(struct disk_process *p, int file)
{
    if (file < 0 || file >= DISK_FDS || p->fd[file].inode < 0)
        abort(); /* a file that is not open */
    return &p->d->inodes[p->fd[file].inode];
}

static int d_size(void *ctx, int file, uint64_t *bytes)
{
    int e;
    if (hit(ctx, &e, NULL))
        return e;
    *bytes = of(ctx, file)->live.n;
    return 0;
}

static int d_read(void *ctx, int file, uint64_t at, void *dst, uint64_t bytes, uint64_t *got)
{
    int e;
    *got = 0;
    if (hit(ctx, &e, NULL))
        return e;
    const struct disk_blob *b = &of(ctx, file)->live;
    if (at < b->n)
        *got = bytes < b->n - at ? bytes : b->n - at;
    if (*got)
        memcpy(dst, b->p + at, *got);
    return 0;
}

static int d_write(void *ctx, int file, uint64_t at, const void *src, uint64_t bytes, uint64_t *put)
{
    struct disk_process *p = ctx;
    struct disk_inode   *i = of(p, file);
    bool                 shorter;
    int                  e;
    bool                 failed = hit(p, &e, &shorter);
    if (failed && !(p->dead && p->d->ops == p->d->fault_at + 1))
        return e;
    if (failed || shorter) /* a death in the midst of a write leaves a piece of it */
        bytes = shorter ? 1 + disk_random(p->d, bytes) : disk_random(p->d, bytes + 1);
    if (p->fd[file].append)
        at = i->live.n;
    if (i->n_ops == DISK_OPS)
        abort();
    struct disk_op *op = &i->ops[i->n_ops++];
    *op = (struct disk_op){ .at = at };
    write_at(&op->data, 0, src, bytes);
    write_at(&i->live, at, src, bytes);
    *put = bytes;
    return failed ? e : 0;
}

static int d_truncate(void *ctx, int file, uint64_t bytes)
{
    struct disk_inode *i = of(ctx, file);
    int                e;
    if (hit(ctx, &e, NULL))
        return e;
    resize(&i->live, bytes);
    if (i->n_ops == DISK_OPS)
        abort();
    i->ops[i->n_ops++] = (struct disk_op){ .truncate = true, .at = bytes };
    return 0;
}

static int d_sync(void *ctx, int file)
{
    struct disk_process *p = ctx;
    struct disk_inode   *i = of(p, file);
    int                  e;
    if (hit(p, &e, NULL)) {
        /* the system forgets what it could not write: a second sync would say that all is well */
        if (!p->dead)
            drop_ops(i);
        return e;
    }
    copy(&i->durable, &i->live);
    drop_ops(i);
    return 0;
}

/* Beside the work: what was written before it began is there when it is over, and nothing else. */
static int d_sync_begin(void *ctx, int file)
{
    struct disk_inode *i = of(ctx, file);
    int                e;
    if (hit(ctx, &e, NULL))
        return e;
    i->mark = i->n_ops;
    return 0;
}

static int d_sync_end(void *ctx, int file, bool wait)
{
    struct disk_process *p = ctx;
    struct disk_inode   *i = of(p, file);
    int                  e, n = i->mark < i->n_ops ? i->mark : i->n_ops;
    if (!wait && !p->dead && disk_random(p->d, 3))
        return EAGAIN;
    if (hit(p, &e, NULL)) {
        if (!p->dead)
            drop_ops(i); /* as in d_sync() */
        return e;
    }
    for (int k = 0; k < n; k++) {
        apply_op(&i->durable, &i->ops[k]);
        free(i->ops[k].data.p);
    }
    memmove(i->ops, i->ops + n, (size_t)(i->n_ops - n) * sizeof *i->ops);
    i->n_ops -= n;
    i->mark = 0;
    return 0;
}

static int d_close(void *ctx, int file)
{
    struct disk_process *p = ctx;
    struct disk_inode   *i = of(p, file);
    int                  e;
    if (i->owner == p->id + 1 && !p->dead)
        i->owner = 0;
    p->fd[file].inode = -1;
    return hit(p, &e, NULL) ? e : 0;
}

static int d_rename(void *ctx, const char *from, const char *to)
{
    struct disk_process *p = ctx;
    int                  e, i = inode_of(p->d, from);
    if (hit(p, &e, NULL))
        return e;
    if (i < 0)
        return ENOENT;
    change_name(p->d, to, i, from);
    return 0;
}

static int d_sync_folder(void *ctx, const char *path)
{
    struct disk_process *p = ctx;
    struct disk         *d = p->d;
    int                  e;
    (void)path;
    if (hit(p, &e, NULL))
        return e;
    for (int k = 0; k < d->n_changes; k++)
        apply(d->durable, &d->n_durable, &d->changes[k]);
    d->n_changes = 0;
    return 0;
}

static int d_lock(void *ctx, int file)
{
    struct disk_process *p = ctx;
    struct disk_inode   *i = of(p, file);
    int                  e;
    if (hit(p, &e, NULL))
        return e;
    if (p->d->no_locks)
        return ENOLCK;
    if (i->owner && i->owner != p->id + 1)
        return EWOULDBLOCK;
    i->owner = p->id + 1;
    return 0;
}

void disk_process_start(struct disk_process *p, struct disk *d, int id, struct tsr_batch_io *io)
{
    memset(p, 0, sizeof *p);
    p->d = d;
    p->id = id;
    for (int i = 0; i < DISK_FDS; i++)
        p->fd[i].inode = -1;
    *io = (struct tsr_batch_io){ .ctx = p,
                                 .open = d_open,
                                 .size = d_size,
                                 .read = d_read,
                                 .write = d_write,
                                 .truncate = d_truncate,
                                 .sync = d_sync,
                                 .sync_begin = d_sync_begin,
                                 .sync_end = d_sync_end,
                                 .close = d_close,
                                 .rename = d_rename,
                                 .sync_folder = d_sync_folder,
                                 .lock = d_lock };
}

void disk_process_end(struct disk_process *p)
{
    p->dead = true;
    for (int i = 0; i < p->d->n_inodes; i++)
        if (p->d->inodes[i].owner == p->id + 1)
            p->d->inodes[i].owner = 0;
}
