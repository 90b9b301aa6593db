#include "base/held.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOSSES                                                                                     \
    8 /* that wait to be reported; later ones are not needed to know that results are wrong */

struct entry {
    bool     live;
    bool     known_lost; /* and a loss was noted */
    unsigned lost;       /* earlier holders of the number that have not closed it yet */
    dev_t    dev;
    ino_t    ino;
    char     name[TSR_HELD_NAME];
};

static pthread_mutex_t      lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry         table[TSR_HELD_MOST];
static int                  top; /* entries from here on are not in use */
static struct tsr_held_loss losses[LOSSES];
static unsigned             n_losses;

/* ---- forks ---------------------------------------------------------------------------- */

static void before_fork(void)
{
    (void)pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* ---- one number, under the lock ---------------------------------------------------------- */

static bool is_same(const struct entry *e, int fd, bool *closed)
{
    struct stat s;
    *closed = fstat(fd, &s) != 0;
    return !*closed && s.st_dev == e->dev && s.st_ino == e->ino;
}

static void note(struct entry *e, int fd, bool closed)
{
    if (e->known_lost)
        return;
    e->known_lost = true;
    if (n_losses == LOSSES)
        return;
    losses[n_losses] = (struct tsr_held_loss){ .fd = fd, .closed = closed };
    memcpy(losses[n_losses].name, e->name, sizeof e->name);
    n_losses++;
}

static bool compare(struct entry *e, int fd)
{
    bool closed;
    if (!e->known_lost && is_same(e, fd, &closed))
        return true;
    if (!e->known_lost)
        note(e, fd, closed);
    return false;
}

static bool is_watched(int fd)
{
    return fd >= 0 && fd < TSR_HELD_MOST;
}

/* ---- the table ----------------------------------------------------------------------------- */

void tsr_held_add(int fd, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat           s;
    size_t                n = strlen(name);
    if (!is_watched(fd) || fstat(fd, &s) != 0)
        return;
    (void)pthread_once(&once, watch_forks);
    (void)pthread_mutex_lock(&lock);
    struct entry *e = &table[fd];
    if (e->live) { /* the system reused the number, so another caller has closed it */
        note(e, fd, false);
        e->lost++;
    }
    e->live = true;
    e->known_lost = false;
    e->dev = s.st_dev;
    e->ino = s.st_ino;
    (void)snprintf(e->name, sizeof e->name, "%s%s", n < sizeof e->name ? "" : "...",
                   n < sizeof e->name ? name : name + n - (sizeof e->name - 4));
    if (fd >= top)
        top = fd + 1;
    (void)pthread_mutex_unlock(&lock);
}

int tsr_held_check(int fd)
{
    bool good = true;
    if (!is_watched(fd))
        return 0;
    (void)pthread_mutex_lock(&lock);
    struct entry *e = &table[fd];
    if (e->live)
        good = compare(e, fd);
    if (e->lost) /* the caller may be the earlier holder: nothing can reach the file any more */
        good = false;
    (void)pthread_mutex_unlock(&lock);
    return good ? 0 : TSR_ELOST;
}

int tsr_held_close(int fd)
{
    bool good = true;
    if (is_watched(fd)) {
        (void)pthread_mutex_lock(&lock);
        struct entry *e = &table[fd];
        if (e->lost) {
            e->lost--;
            good = false;
        } else if (e->live) {
            good = compare(e, fd);
            e->live = false;
        }
        while (top > 0 && !table[top - 1].live && !table[top - 1].lost)
            top--;
        (void)pthread_mutex_unlock(&lock);
    }
    if (!good)
        return TSR_ELOST;
    return close(fd) == 0 ? 0 : errno;
}

bool tsr_held_next_loss(struct tsr_held_loss *loss, bool first)
{
    (void)pthread_mutex_lock(&lock);
    for (int fd = 0; first && fd < top; fd++)
        if (table[fd].live)
            (void)compare(&table[fd], fd);
    bool some = n_losses > 0;
    if (some) {
        *loss = losses[0];
        memmove(losses, losses + 1, --n_losses * sizeof *losses);
    }
    (void)pthread_mutex_unlock(&lock);
    return some;
}
