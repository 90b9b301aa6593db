/* A disk that can fail, tear and forget: what was not synced may be lost when the power goes. */
#ifndef TEST_BATCH_DISK_H
#define TEST_BATCH_DISK_H

#include "batch/io.h"

#include <stdint.h>

#define DISK_INODES 64
#define DISK_NAMES  16
#define DISK_OPS    512
#define DISK_FDS    64

struct disk_blob {
    char    *p;
    uint64_t n, cap;
};

/* A change that the disk does not have yet. */
struct disk_op {
    bool             truncate;
    uint64_t         at; /* or the new size */
    struct disk_blob data;
};

struct disk_inode {
    struct disk_blob live, durable;
    struct disk_op   ops[DISK_OPS];
    int              n_ops;
    int              mark;  /* ops that a sync beside the work takes */
    int              owner; /* of the lock: process + 1, or 0 */
};

struct disk_name {
    char path[64];
    int  inode; /* -1: gone */
};
/* A name begins to mean an inode, and another (or "") ends to, at once. */
struct disk_change {
    struct disk_name to;
    char             from[64];
};

enum disk_fault { DISK_FINE, DISK_ERRNO, DISK_SHORT, DISK_DIE, DISK_POWER };

struct disk {
    struct disk_inode  inodes[DISK_INODES];
    int                n_inodes;
    struct disk_name   live[DISK_NAMES], durable[DISK_NAMES];
    int                n_live, n_durable;
    struct disk_change changes[DISK_OPS]; /* of names that the disk does not have yet, in order */
    int                n_changes;
    uint64_t           rng, ops, fault_at; /* fault at the op of this number */
    enum disk_fault    fault;
    int                fault_errno;
    bool               no_locks;
    bool               power_lost; /* a DISK_POWER fault came */
};

/* A process on the disk. */
struct disk_process {
    struct disk *d;
    int          id;
    bool         dead; /* nothing that it asks for happens any more */
    struct {
        int  inode; /* -1: closed */
        bool append;
    } fd[DISK_FDS];
};

void     disk_init(struct disk *d, uint64_t seed);
void     disk_free(struct disk *d);
uint64_t disk_random(struct disk *d, uint64_t n); /* below n */
void disk_process_start(struct disk_process *p, struct disk *d, int id, struct tsr_batch_io *io);
void disk_process_end(struct disk_process *p); /* its locks are free */
/* What the disk holds after the power came back; every process must have ended. */
void disk_power_cut(struct disk *d);
/* The live content of a path, or NULL. */
const struct disk_blob *disk_file(const struct disk *d, const char *path);

#endif
