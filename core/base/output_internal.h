/* What the files of base/output share. */
#ifndef TSR_BASE_OUTPUT_INTERNAL_H
#define TSR_BASE_OUTPUT_INTERNAL_H

#include "base/output.h"

#include <limits.h>

struct tsr_output_lock {
    int  dir;                /* the folder */
    int  fd;                 /* the lock file; -1: no locks here */
    bool keep;               /* a part could not be removed: the next lock holder removes it */
    char name[NAME_MAX + 1]; /* of the output in the folder */
    char stem[NAME_MAX + 1]; /* of its hidden names: "." and the name, short enough */
    char lock_name[NAME_MAX + 16]; /* "STEM.lock" */
};

#define TSR_OUTPUT_PART_NAME (NAME_MAX + 16)

/* "." and a name of n letters.  A long name is replaced by its hash, so that there is room for a suffix. */
void tsr_output_stem(char stem[NAME_MAX + 1], const char *name, size_t n);
/* A name for a part that is not in use. */
void tsr_output_part_new(const struct tsr_output_lock *l, char text[TSR_OUTPUT_PART_NAME]);
/* The path in the words of the caller: the folder of `path` with another name in it. */
char *tsr_output_beside(const char *path, const char *name);
/* Removes a name of any type in a folder, recursively; allocates no memory. */
void tsr_output_wipe(int dir, const char *name);
/* Calls f for each name in the folder. */
void tsr_output_each_name(int         at, void (*f)(int at, const char *name, const void *arg),
                          const void *arg);
/* Removes the leftovers of a killed run; only the lock holder knows that no process writes them. */
void tsr_output_sweep(int at, const char *stem);
#define TSR_OUTPUT_TRIES 101 /* of 10 ms, for a lock */
/* EWOULDBLOCK: another process holds it.  For a file system without locks the result is 0, and
 * *have false. */
int tsr_output_try_lock(int fd, bool *have);
/* TSR_E_INPUT: "PATH: another tessera (process N) WHAT". */
tsr_status tsr_output_refuse(int fd, const char *path, const char *what, struct tsr_err *err);
/* Whether the name of the lock exists. */
bool tsr_output_is_taken(const struct tsr_output_lock *l);
/* 0, or TSR_ELOST: the folder or the lock file is not open any more, so names in it are not to be touched. */
int tsr_output_check(const struct tsr_output_lock *l);
/* Renames `from` to the name of the lock.  EEXIST: the name exists and `fresh` is set. */
int tsr_output_take_name(const struct tsr_output_lock *l, const char *from, bool fresh);
/* Removes the hidden files in an output folder that no process is writing. */
void tsr_output_settle(const char *folder);
/* 0 or an errno. */
int tsr_output_sync_dir(int dir);

#endif
