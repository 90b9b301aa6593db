/* base/stamp.h - the system's metadata of files at one time, to detect later changes.
 *
 * A stamp is device, inode, size, mtime and ctime.  A change of a file's bytes changes its ctime, also
 * through a map and if mtime is reset.  A stamp does not show the cause: a new link or mode changes it too.
 */
#ifndef TSR_BASE_STAMP_H
#define TSR_BASE_STAMP_H

#include "base/err.h"

#include <stdbool.h>

struct tsr_stamp {
    bool     there;
    uint64_t dev, ino, size, mtime_ns, ctime_ns;
};

/* That nothing is there is a stamp too; 0 or an errno otherwise, and a stamp of nothing.  [any] */
int  tsr_stamp_take(struct tsr_stamp *s, const char *path);
bool tsr_stamp_same(const struct tsr_stamp *a, const struct tsr_stamp *b);

/* Stamps of many files. */
struct tsr_stamps {
    struct tsr_stamped_path {
        char            *path; /* owned */
        struct tsr_stamp stamp;
    } * v;
    uint64_t n;
};

/* Takes the stamp of a file, or that it is not there; one that was taken before is taken again. */
tsr_status tsr_stamps_take(struct tsr_stamps *s, const char *path, struct tsr_err *err);
/* TSR_E_INPUT names the first file that differs from its stamp. */
tsr_status tsr_stamps_check(const struct tsr_stamps *s, struct tsr_err *err);
/* The same for one file; a file without a stamp is accepted. */
tsr_status tsr_stamps_check_file(const struct tsr_stamps *s, const char *path, struct tsr_err *err);
/* Whether path has a stamp, of a file that was there. */
bool tsr_stamps_there(const struct tsr_stamps *s, const char *path);
void tsr_stamps_free(struct tsr_stamps *s);

#endif
