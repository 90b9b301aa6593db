/* base/held.h - descriptors that the host keeps open; detects when a plugin closed or replaced one.
 *
 * A plugin runs in this process and can close any descriptor.  The kernel then reuses the number for the
 * next opened file, and the host would read or write the wrong file without an error.  Code that keeps a
 * descriptor open therefore registers it here; device and inode later show whether it is still the same
 * file:
 *   tsr_held_add(fd, path);   ... tsr_held_check(fd) before a use ...   tsr_held_close(fd);
 * The plugin guard compares all of them around plugin calls (plugin/guard.c).  Numbers from TSR_HELD_MOST
 * on are not watched.  After fork() the child has the same table; a child closes inherited descriptors with
 * tsr_held_close(), as its parent does.  [any] */
#ifndef TSR_BASE_HELD_H
#define TSR_BASE_HELD_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_HELD_MOST 4096 /* numbers that are watched */
#define TSR_HELD_NAME 160

/* A descriptor that no longer refers to the host's file. */
struct tsr_held_loss {
    int  fd;
    bool closed; /* false: it leads to another file */
    char name[TSR_HELD_NAME];
};

/* fd is open and owned by the caller; name is for messages and is copied; a long name keeps its
 * end. */
void tsr_held_add(int fd, const char *name);
/* 0, or TSR_ELOST: it leads elsewhere now.  0 for a number that was never added. */
int tsr_held_check(int fd);
/* Closes it: 0 or an errno.  TSR_ELOST: the number now belongs to another file, and stays open. */
int tsr_held_close(int fd);

/* The next lost descriptor that was not reported yet; false: there is none.  The first call compares every
 * descriptor. */
bool tsr_held_next_loss(struct tsr_held_loss *loss, bool first);

#endif
