/* careless WAY [OUTPUT] - a program with the faults that the campaign looks for, one for each WAY; `careful` has none.
 * It writes 40,000 numbers to OUTPUT in pieces, with pauses.  test.sh expects the campaign to find every fault. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char        part[200];
static const char *way;

static int is(const char *name)
{
    return strcmp(way, name) == 0;
}

static int fail(const char *what)
{
    if (part[0] && !is("leaves"))
        (void)unlink(part);
    if (!is("mute"))
        (void)fprintf(stderr, "careless: error: cannot %s: %s\n", what, strerror(errno));
    return is("bug") ? 70 : errno == ENOSPC || errno == ENOMEM ? 4 : 1;
}

static void wait_ms(long ms)
{
    (void)nanosleep(&(struct timespec){ 0, ms * 1000000 }, NULL);
}

/* Parts of runs that are over. */
static void remove_old(const char *to)
{
    char   pattern[200];
    glob_t g;
    (void)snprintf(pattern, sizeof pattern, "%s.*.part", to);
    if (glob(pattern, 0, NULL, &g) != 0)
        return;
    for (size_t i = 0; i < g.gl_pathc; i++)
        if (kill((pid_t)strtol(g.gl_pathv[i] + strlen(to) + 1, NULL, 10), 0) != 0)
            (void)unlink(g.gl_pathv[i]);
    globfree(&g);
}

/* What is written depends on the input that `mixes` reads twice. */
static int first_byte(const char *input)
{
    char c = 0;
    int  fd = open(input, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, &c, 1);
    (void)close(fd);
    return n == 1 ? (unsigned char)c : -1;
}

int main(int argc, char **argv)
{
    char line[8192];
    if (argc < 3)
        return 2;
    way = argv[1];
    const char *to = argv[2];
    const int   direct = is("in-place") || is("follows");
    char       *room = malloc(1000);
    if (!room && is("crashes"))
        abort();
    if (!room)
        return fail("allocate");
    free(room);
    (void)snprintf(part, sizeof part, is("fixed") ? "%s.part" : "%s.%d.part", to, (int)getpid());
    if (is("orphan") && fork() == 0) {
        (void)sleep(1000);
        _exit(0);
    }
    remove_old(to);
    const int flags =
        O_WRONLY | O_CREAT | O_CLOEXEC | (direct || is("fixed") ? O_TRUNC : O_EXCL | O_NOFOLLOW);
    int c = first_byte("seed");
    int fd = open(direct ? to : part, flags, 0644);
    if (c < 0 || fd < 0)
        return fail("open");
    for (int i = 0; i < 5; i++) {
        if (is("mixes"))
            c = first_byte("seed");
        for (size_t k = 0; k < sizeof line; k++)
            line[k] = (char)(c + i + (int)k % 7 + (argc > 3 && argv[3][0] == 'B'));
        wait_ms(5);
        if (write(fd, line, sizeof line) < 0 && !is("ignores"))
            return fail("write");
    }
    if (close(fd) != 0 || (!direct && rename(part, to) != 0))
        return fail("rename");
    if (is("prints") || is("careful"))
        (void)printf("done\n");
    return fflush(stdout) != 0 && !is("prints") ? fail("print") : 0;
}
