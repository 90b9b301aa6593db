/* Reads the state of the process, compares it and puts it back.  Nothing here may fail: what cannot be read
 * is left out of the comparison. */
#include "plugin/state.h"

#include "base/held.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int signals[TSR_STATE_SIGNALS] = {
    SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,  SIGFPE,  SIGUSR1, SIGSEGV,
    SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD, SIGCONT, SIGTSTP, SIGXFSZ, SIGSYS,
};

/* ---- the parts ------------------------------------------------------------------------ */

static struct tsr_plugin_state_file file_of(int fd)
{
    struct stat                  s;
    struct tsr_plugin_state_file f = { -1, 0, 0 };
    if (fd >= 0 && fstat(fd, &s) == 0)
        f = (struct tsr_plugin_state_file){ fd, s.st_dev, s.st_ino };
    return f;
}

static bool same_file(struct tsr_plugin_state_file a, struct tsr_plugin_state_file b)
{
    return a.fd == b.fd && (a.fd < 0 || (a.dev == b.dev && a.ino == b.ino));
}

/* Asked of the kernel: umask() itself could only be read by changing it under all threads. */
static mode_t read_umask(void)
{
    char        text[512];
    int         fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t     n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    const char *at;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strstr(text, "\nUmask:");
    return at ? (mode_t)strtoul(at + 7, NULL, 8) : (mode_t)-1;
}

static void read_locale(char *to, size_t cap)
{
    const char *now = setlocale(LC_ALL, NULL);
    size_t      n = now ? strlen(now) : 0;
    if (n >= cap)
        n = 0;
    memcpy(to, now ? now : "", n);
    to[n] = '\0';
}

static struct tsr_plugin_state_file folder_now(void)
{
    struct stat s;
    if (stat(".", &s) != 0)
        return (struct tsr_plugin_state_file){ -1, 0, 0 };
    return (struct tsr_plugin_state_file){ 0, s.st_dev, s.st_ino };
}

static bool follows_crash(int sig)
{
    return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE || sig == SIGABRT ||
           sig == SIGSYS || sig == SIGTRAP;
}

void tsr_plugin_state_take(struct tsr_plugin_state *s)
{
    s->fp = tsr_fpmode_get();
    (void)pthread_sigmask(SIG_BLOCK, NULL, &s->mask);
    s->thread_locale = uselocale((locale_t)0);
    read_locale(s->locale, sizeof s->locale);
    for (int i = 0; i < TSR_STATE_SIGNALS; i++)
        (void)sigaction(signals[i], NULL, &s->action[i]);
    s->folder = folder_now();
    if (!getcwd(s->path, sizeof s->path))
        s->path[0] = '\0';
    s->umask = read_umask();
    s->umask_earlier = false;
    for (int fd = 0; fd < 3; fd++) {
        s->std[fd] = file_of(fd);
        s->copy[fd] = s->std[fd].fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
}

void tsr_plugin_state_take_known(struct tsr_plugin_state *s, const struct tsr_plugin_state *same,
                                 bool with_umask)
{
    *s = *same;
    s->umask_earlier = !with_umask;
    s->fp = tsr_fpmode_get();
    for (int i = 0; i < TSR_STATE_SIGNALS; i++)
        if (follows_crash(signals[i]))
            (void)sigaction(signals[i], NULL, &s->action[i]);
    for (int fd = 0; fd < 3; fd++)
        s->copy[fd] = s->std[fd].fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

void tsr_plugin_state_free(struct tsr_plugin_state *s)
{
    for (int fd = 0; fd < 3; fd++)
        if (s->copy[fd] >= 0)
            (void)close(s->copy[fd]);
    s->copy[0] = s->copy[1] = s->copy[2] = -1;
}

/* ---- differences ------------------------------------------------------------------------ */

struct found {
    char    *text;
    size_t   cap;
    unsigned n;
};

__attribute__((format(printf, 3, 4))) static void add(struct found *f, const char *name,
                                                      const char *fmt, ...)
{
    size_t  at = strnlen(f->text, f->cap);
    va_list ap;
    va_start(ap, fmt);
    if (f->n++ > 0)
        (void)snprintf(f->text + at, f->cap - at, ", and %s", name);
    else
        (void)vsnprintf(f->text + at, f->cap - at, fmt, ap);
    va_end(ap);
}

static void compare_fp(const struct tsr_plugin_state *was, struct found *f)
{
    struct tsr_plugin_fpmode now = tsr_fpmode_get();
    if (tsr_fpmode_equal(was->fp, now))
        return;
    tsr_fpmode_set(was->fp);
    add(f, "the floating-point mode",
        "changed the processor's floating-point mode from %x/%x to %x/%x", was->fp.vector,
        was->fp.scalar, now.vector, now.scalar);
}

static void compare_locale(const struct tsr_plugin_state *was, struct found *f)
{
    char now[sizeof was->locale];
    if (uselocale((locale_t)0) != was->thread_locale) {
        (void)uselocale(was->thread_locale);
        add(f, "the thread's locale", "gave the calling thread another locale with uselocale()");
    }
    read_locale(now, sizeof now);
    if (strcmp(now, was->locale) == 0 || !*was->locale)
        return;
    (void)setlocale(LC_ALL, was->locale);
    add(f, "the locale", "changed the locale from \"%s\" to \"%s\"", was->locale, now);
}

/* glibc adds it when it sets a handler. */
#define RESTORER 0x04000000

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_handler == b->sa_handler && (a->sa_flags | RESTORER) == (b->sa_flags | RESTORER);
}

static void compare_signals(const struct tsr_plugin_state *was, bool later, struct found *f)
{
    sigset_t now;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &now);
    for (int s = 1; s < NSIG; s++)
        if (sigismember(&now, s) != sigismember(&was->mask, s)) {
            (void)pthread_sigmask(SIG_SETMASK, &was->mask, NULL);
            add(f, "the signal mask", "%s signal %d (%s)",
                sigismember(&now, s) == 1 ? "blocked" : "unblocked", s, strsignal(s));
            break;
        }
    for (int i = 0; i < TSR_STATE_SIGNALS; i++) {
        struct sigaction a;
        if ((later && follows_crash(signals[i])) || sigaction(signals[i], NULL, &a) != 0 ||
            same_action(&a, &was->action[i]))
            continue;
        (void)sigaction(signals[i], &was->action[i], NULL);
        add(f, "a signal's handler", "changed the handler of signal %d (%s)", signals[i],
            strsignal(signals[i]));
    }
}

static void compare_folder(const struct tsr_plugin_state *was, struct found *f)
{
    char now[sizeof was->path];
    if (same_file(folder_now(), was->folder))
        return;
    if (!getcwd(now, sizeof now))
        now[0] = '\0';
    (void)!chdir(was->path);
    add(f, "the working folder", "changed the working folder from %.400s to %.400s",
        *was->path ? was->path : "one without a path", *now ? now : "one without a path");
}

static void compare_umask(const struct tsr_plugin_state *was, struct found *f)
{
    mode_t now = read_umask();
    if (was->umask == (mode_t)-1 || now == (mode_t)-1 || now == was->umask)
        return;
    (void)umask(was->umask);
    add(f, "the umask", "%schanged the umask from %03o to %03o",
        was->umask_earlier ? "or a call before it " : "", (unsigned)was->umask, (unsigned)now);
}

/* A stream that cannot be restored becomes /dev/null: the next file that the host opens must not get
 * its number. */
static void put_back(const struct tsr_plugin_state *was, int fd)
{
    int from = was->copy[fd];
    if (was->std[fd].fd < 0) {
        (void)close(fd);
        return;
    }
    if (from < 0)
        from = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (from >= 0 && from != fd)
        (void)dup2(from, fd);
    if (from > 2 && from != was->copy[fd])
        (void)close(from);
}

static void compare_files(const struct tsr_plugin_state *was, struct found *f)
{
    for (int fd = 0; fd < 3; fd++) {
        static const char *const     names[] = { "stdin", "stdout", "stderr" };
        struct tsr_plugin_state_file now = file_of(fd);
        if (same_file(now, was->std[fd]))
            continue;
        put_back(was, fd);
        add(f, names[fd], "%s %s", now.fd < 0 ? "closed" : "put another file in the place of",
            names[fd]);
    }
}

static void compare_held(struct found *f)
{
    struct tsr_held_loss l;
    for (bool first = true; tsr_held_next_loss(&l, first); first = false)
        add(f, "a file of the host", "%s descriptor %d (%s), which is the host's",
            l.closed ? "closed" : "put another file in the place of", l.fd, l.name);
}

unsigned tsr_plugin_state_compare_held(char *text, size_t cap)
{
    struct found f = { text, cap, 0 };
    *text = '\0';
    compare_held(&f);
    return f.n;
}

static unsigned compare(const struct tsr_plugin_state *was, bool later, bool with_umask, char *text,
                        size_t cap)
{
    struct found f = { text, cap, 0 };
    *text = '\0';
    compare_fp(was, &f);
    compare_locale(was, &f);
    compare_signals(was, later, &f);
    compare_folder(was, &f);
    if (with_umask)
        compare_umask(was, &f);
    compare_files(was, &f);
    compare_held(&f);
    return f.n;
}

unsigned tsr_plugin_state_compare(const struct tsr_plugin_state *was, char *text, size_t cap)
{
    return compare(was, false, true, text, cap);
}

unsigned tsr_plugin_state_compare_later(const struct tsr_plugin_state *was, bool with_umask,
                                        char *text, size_t cap)
{
    return compare(was, true, with_umask, text, cap);
}
