/* A signal or an exit() in a plugin's call is named: the plugin, and the call.  The handler of signals
 * writes one line and lets the signal end the process; it allocates and locks nothing. */
#include "plugin/guard.h"

#include "base/held.h"
#include "base/map.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct line {
    char   text[1500];
    size_t n;
};

static void say(struct line *l, const char *s)
{
    while (*s && l->n < sizeof l->text)
        l->text[l->n++] = *s++;
}

static void begin(struct line *l, const struct tsr_plugin_guard *g)
{
    l->n = 0;
    say(l, "tessera: error: ");
    say(l, g->part->who);
    say(l, ": ");
    say(l, g->call);
    say(l, "() ");
}

static void end(struct line *l)
{
    say(l, "\n");
    (void)!write(STDERR_FILENO, l->text, l->n);
}

/* ---- signals ----------------------------------------------------------------------------------- */

static const struct {
    int         signal;
    const char *what;
} deadly[] = {
    { SIGSEGV, "reached for memory that is not there (signal 11, SIGSEGV)" },
    { SIGBUS, "reached for memory that cannot be read (signal 7, SIGBUS)" },
    { SIGILL, "came to an instruction that this processor does not have (signal 4, SIGILL)" },
    { SIGFPE, "divided by zero or the like (signal 8, SIGFPE)" },
    { SIGABRT, "called abort() or failed an assertion (signal 6, SIGABRT)" },
};
#define N_DEADLY (sizeof deadly / sizeof *deadly)

static struct sigaction before[N_DEADLY];

/* Whoever had the signal before, or the default, gets it once the handler returns.  Threads that crash
 * together wait for the first to say its line, which ends them all. */
static void on_deadly(int sig, siginfo_t *info, void *context)
{
    static atomic_flag             said = ATOMIC_FLAG_INIT;
    const struct tsr_plugin_guard *g = tsr_guard_current;
    size_t                         i = 0;
    struct line                    l;
    struct tsr_map_place           cut;
    if (sig == SIGBUS && tsr_map_find(info->si_addr, &cut))
        g = NULL; /* a truncated file is not the fault of the reader; main() names it */
    while (i + 1 < N_DEADLY && deadly[i].signal != sig)
        i++;
    while (g && atomic_flag_test_and_set(&said))
        (void)pause();
    if (g) {
        begin(&l, g);
        say(&l, deadly[i].what);
        say(&l, "; this is the plugin's fault");
        end(&l);
    }
    tsr_guard_current = NULL; /* a second signal of this thread is not held up */
    (void)sigaction(sig, &before[i], NULL);
    if (before[i].sa_flags & SA_SIGINFO && before[i].sa_sigaction)
        before[i].sa_sigaction(sig, info, context);
    else
        (void)raise(sig);
}

static void watch_signals(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_deadly;
    a.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK);
    for (size_t i = 0; i < N_DEADLY; i++) {
        /* an existing handler belongs to a sanitizer or a test, except main()'s for truncated files:
         * it is called next */
        if (sigaction(deadly[i].signal, NULL, &before[i]) != 0 ||
            (before[i].sa_handler != SIG_DFL && deadly[i].signal != SIGBUS))
            continue;
#ifdef TSR_GUARD_SANITIZED
        if (before[i].sa_handler != SIG_DFL)
            continue;
#endif
        (void)sigaction(deadly[i].signal, &a, NULL);
    }
}

/* ---- exit ---------------------------------------------------------------------------------------- */

static void (*asked)(const struct tsr_plugin_guard *g, const char *what);

void tsr_plugin_guard_on_exit(void (*f)(const struct tsr_plugin_guard *g, const char *what))
{
    asked = f;
}

_Noreturn static void refuse_exit(const struct tsr_plugin_guard *g, const char *what)
{
    struct line l;
    if (asked)
        asked(g, what);
    begin(&l, g);
    say(&l, what);
    say(&l, ", which is the host's to do; this is the plugin's fault");
    end(&l);
    tsr_guard_current = NULL;
    (void)syscall(SYS_exit_group, tsr_exit_code(TSR_E_PLUGIN));
    abort();
}

static void on_exit_of(void)
{
    if (tsr_guard_current)
        refuse_exit(tsr_guard_current, "called exit()");
}

static void on_quick_exit(void)
{
    if (tsr_guard_current)
        refuse_exit(tsr_guard_current, "called quick_exit()");
}

#ifndef TSR_GUARD_SANITIZED
/* A plugin's _exit() resolves to this function, because the program's symbols precede those of the C
 * library; the library's own exit() does not. */
__attribute__((visibility("default"))) _Noreturn void _exit(int status)
{
    if (tsr_guard_current)
        refuse_exit(tsr_guard_current, "called _exit()");
    (void)syscall(SYS_exit_group, status);
    __builtin_trap();
}

__attribute__((visibility("default"))) _Noreturn void _Exit(int status)
{
    _exit(status);
}
#endif

static void watch(void)
{
    int fd =
        open("/", O_PATH | O_CLOEXEC); /* only there to detect that all descriptors were closed */
    if (fd >= 0)
        tsr_held_add(fd, "/");
    tsr_fail_lost_by(tsr_plugin_guard_tell_loss);
    watch_signals();
    (void)atexit(on_exit_of);
    (void)at_quick_exit(on_quick_exit);
}

void tsr_plugin_guard_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch);
}
