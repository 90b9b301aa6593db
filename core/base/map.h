/* base/map.h - a whole file mapped read-only; only for files that Tessera wrote.
 *
 * Mapped pages can disappear: reading a truncated file or a failing disk raises SIGBUS.  The address
 * range of every map is registered, so that the program's signal handler can name the file
 * (tsr_map_find()).  A program without this handler is killed by the signal.
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
/* No pointer into the memory may be used afterwards.  A zeroed map is valid.  [setup] */
void tsr_map_close(struct tsr_map *m);

/* Asks the system to start reading [at, at+bytes) from the disk, for pages that are not in memory, and
 * does not wait.  [any] */
void tsr_map_want(const struct tsr_map *m, uint64_t at, uint64_t bytes);

/* The bytes are not needed any more: their whole pages leave the memory of this process and, where no other maps them,
 * of the system.  Reading them again reads the disk.  Bytes in no map, as those of tsr_new(), stay.  [any] */
void tsr_map_drop(const void *p, uint64_t bytes);

/* The mapped file at an address, and the offset in it; shorter: the file now ends before that
 * offset.  False if the address is in no map.  For signal handlers. */
struct tsr_map_place {
    const char *path;
    uint64_t    byte;
    bool        shorter;
};
bool tsr_map_find(const void *address, struct tsr_map_place *place);

#endif
