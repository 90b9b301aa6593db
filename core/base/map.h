/* base/map.h - a whole file in memory, mapped read-only: for files of ours alone.
 *
 * What is mapped can vanish: a file that is cut, or a disk that fails, is a SIGBUS at the place that
 * is read.  Every map is known by its addresses, so that the program's handler can name the file
 * (tsr_map_find()).  A program without such a handler dies of the signal.
 */
#ifndef TSR_BASE_MAP_H
#define TSR_BASE_MAP_H

#include "base/file.h"

struct tsr_map {
    struct tsr_file      file; /* open as long as the map is there */
    const unsigned char *data; /* NULL: not mapped */
    uint64_t             bytes;
    unsigned             slot;
};

/* Opens and maps a regular file that is not empty.  At most 64 maps are there at a time.  [setup] */
tsr_status tsr_map_open(struct tsr_map *m, const char *path, struct tsr_err *err);
/* The same for a file that is open; takes it over, also on error. */
tsr_status tsr_map_file(struct tsr_map *m, struct tsr_file *file, struct tsr_err *err);
/* Nothing may use the memory any more.  A zeroed map is fine.  [setup] */
void tsr_map_close(struct tsr_map *m);

/* Asks the system to begin reading [at, at+bytes) from the disk, as far as memory does not have it, and
 * does not wait.  [any] */
void tsr_map_want(const struct tsr_map *m, uint64_t at, uint64_t bytes);

/* The file behind an address and the byte in it; shorter: the file ends before that byte now.  False
 * where no map is.  For signal handlers. */
struct tsr_map_place {
    const char *path;
    uint64_t    byte;
    bool        shorter;
};
bool tsr_map_find(const void *address, struct tsr_map_place *place);

#endif
