/* The process belongs to the host: its state before and after a component's work. */
#include "conformance/any/any.h"

#include "plugin/fpmode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void work(struct tsr_conformance_case *c)
{
    (void)c->kind->exercise(c, false, NULL);
}

void tsr_any_silent(struct tsr_conformance_case *c)
{
    if (c->o->in_process)
        tsr_conformance_rule_skip(c,
                                  "without its own process the streams are not the plugin's alone");
    work(c);
    uint64_t n = tsr_conformance_child_output();
    char     said[120];
    if (n == 0)
        return;
    ssize_t got = pread(STDERR_FILENO, said, sizeof said - 1, 0);
    said[got > 0 ? got : 0] = '\0';
    tsr_conformance_rule_fail(c, "it wrote %llu bytes to stdout or stderr: %s",
                              (unsigned long long)n, said);
}

static uint64_t entries(const char *folder)
{
    uint64_t n = 0;
    DIR     *d = opendir(folder);
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

/* Threads by their names: a driver keeps some of its own, as long as the process lives. */
static uint64_t threads(char *names, size_t cap)
{
    uint64_t       n = 0;
    DIR           *d = opendir("/proc/self/task");
    struct dirent *e;
    names[0] = '\0';
    while (d && (e = readdir(d))) {
        char    path[sizeof "/proc/self/task//comm" + sizeof e->d_name], name[32];
        int     file = -1;
        ssize_t got = 0;
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        if ((file = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
            got = read(file, name, sizeof name - 1);
            (void)close(file);
        }
        name[got > 0 ? got - 1 : 0] = '\0'; /* its newline */
        if (strncmp(name, "cuda", 4) == 0)
            continue;
        n++;
        size_t used = strlen(names);
        (void)snprintf(names + used, cap - used, "%s%s", used ? ", " : "", name);
    }
    if (d)
        (void)closedir(d);
    return n;
}

void tsr_any_no_threads(struct tsr_conformance_case *c)
{
    char     names[200];
    uint64_t before = threads(names, sizeof names);
    work(c);
    uint64_t after = threads(names, sizeof names);
    for (int i = 0; i < 200 && after > before; i++) { /* one that was joined may still be going */
        (void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        after = threads(names, sizeof names);
    }
    if (before == 0)
        tsr_conformance_rule_skip(c, "this system does not show threads");
    if (after > before)
        tsr_conformance_rule_fail(
            c,
            "%llu thread%s of it live on after destroy(), of those named %s; host->parallel_for() "
            "lends the host's",
            (unsigned long long)(after - before), after - before == 1 ? "" : "s", names);
}

void tsr_any_no_forks(struct tsr_conformance_case *c)
{
    work(c);
    uint64_t forks = tsr_conformance_child_forks();
    int      status;
    if (forks)
        tsr_conformance_rule_fail(c, "it called fork() %llu times", (unsigned long long)forks);
    if (waitpid(-1, &status, WNOHANG) >= 0 || errno != ECHILD)
        tsr_conformance_rule_fail(c, "it started a process and did not wait for it");
}

void tsr_any_fp_mode(struct tsr_conformance_case *c)
{
    struct tsr_plugin_fpmode before = tsr_fpmode_get();
    work(c);
    struct tsr_plugin_fpmode after = tsr_fpmode_get();
    if (!tsr_fpmode_equal(before, after)) {
        tsr_fpmode_set(before);
        tsr_conformance_rule_fail(
            c,
            "the control word is %x/%x instead of %x/%x; -ffast-math in a link command "
            "and _MM_SET_FLUSH_ZERO_MODE do that",
            after.vector, after.scalar, before.vector, before.scalar);
    }
}

void tsr_any_locale(struct tsr_conformance_case *c)
{
    char        before[512];
    locale_t    thread = uselocale((locale_t)0);
    const char *now = setlocale(LC_ALL, NULL);
    (void)snprintf(before, sizeof before, "%s", now ? now : "");
    work(c);
    now = setlocale(LC_ALL, NULL);
    if (strcmp(before, now ? now : "") != 0)
        tsr_conformance_rule_fail(c, "the locale was \"%s\" and is \"%s\"", before, now ? now : "");
    if (uselocale((locale_t)0) != thread)
        tsr_conformance_rule_fail(c, "uselocale() gave the calling thread another locale");
}

void tsr_any_signals(struct tsr_conformance_case *c)
{
    struct sigaction before[NSIG], now;
    memset(before, 0, sizeof before);
    for (int s = 1; s < NSIG; s++)
        (void)sigaction(s, NULL, &before[s]);
    work(c);
    for (int s = 1; s < NSIG; s++)
        if (sigaction(s, NULL, &now) == 0 &&
            (now.sa_handler != before[s].sa_handler || now.sa_flags != before[s].sa_flags))
            tsr_conformance_rule_fail(c, "the handler of signal %d (%s) is another one", s,
                                      strsignal(s));
}

void tsr_any_signal_mask(struct tsr_conformance_case *c)
{
    sigset_t mask, mask_now;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &mask);
    work(c);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &mask_now);
    for (int s = 1; s < NSIG; s++)
        if (sigismember(&mask, s) != sigismember(&mask_now, s))
            tsr_conformance_rule_fail(c, "signal %d (%s) is %s now", s, strsignal(s),
                                      sigismember(&mask_now, s) == 1 ? "blocked"
                                                                     : "no longer blocked");
}

void tsr_any_working_folder(struct tsr_conformance_case *c)
{
    char before[PATH_MAX] = "", now[PATH_MAX] = "";
    if (!getcwd(before, sizeof before))
        tsr_conformance_rule_skip(c, "the working folder of this check has no name");
    work(c);
    if (!getcwd(now, sizeof now) || strcmp(before, now) != 0)
        tsr_conformance_rule_fail(c, "the working folder was %s and is %s", before,
                                  *now ? now : "gone");
}

void tsr_any_environment(struct tsr_conformance_case *c)
{
    uint64_t n = 0;
    while (environ && environ[n])
        n++;
    char **before = tsr_conformance_rule_memory(c, (n + 1) * sizeof *before);
    for (uint64_t i = 0; i < n; i++) {
        size_t bytes = strlen(environ[i]) + 1;
        before[i] = tsr_conformance_rule_memory(c, bytes);
        memcpy(before[i], environ[i], bytes);
    }
    work(c);
    uint64_t now = 0;
    while (environ && environ[now])
        now++;
    if (now != n)
        tsr_conformance_rule_fail(c, "the environment had %llu variables and has %llu",
                                  (unsigned long long)n, (unsigned long long)now);
    for (uint64_t i = 0; i < n; i++)
        if (strcmp(before[i], environ[i]) != 0)
            tsr_conformance_rule_fail(c, "the environment has another variable %.*s",
                                      (int)strcspn(environ[i], "="), environ[i]);
}

void tsr_any_umask(struct tsr_conformance_case *c)
{
    mode_t before = umask(022);
    (void)umask(before);
    work(c);
    mode_t now = umask(before);
    if (now != before)
        tsr_conformance_rule_fail(c, "the umask was %03o and is %03o", (unsigned)before,
                                  (unsigned)now);
}

void tsr_any_limits(struct tsr_conformance_case *c)
{
    struct rlimit before[RLIM_NLIMITS], now;
    memset(before, 0, sizeof before);
    for (unsigned i = 0; i < RLIM_NLIMITS; i++)
        (void)getrlimit((__rlimit_resource_t)i, &before[i]);
    work(c);
    for (unsigned i = 0; i < RLIM_NLIMITS; i++)
        if (getrlimit((__rlimit_resource_t)i, &now) == 0 &&
            (now.rlim_cur != before[i].rlim_cur || now.rlim_max != before[i].rlim_max))
            tsr_conformance_rule_fail(c, "resource limit %u was %llu and is %llu (getrlimit)", i,
                                      (unsigned long long)before[i].rlim_cur,
                                      (unsigned long long)now.rlim_cur);
}

void tsr_any_open_files(struct tsr_conformance_case *c)
{
    work(c); /* on first use, services of the host open files */
    uint64_t before = entries("/proc/self/fd");
    work(c);
    uint64_t now = entries("/proc/self/fd");
    if (before == 0)
        tsr_conformance_rule_skip(c, "this system does not show open files");
    if (now > before)
        tsr_conformance_rule_fail(c, "%llu more file%s open than before",
                                  (unsigned long long)(now - before),
                                  now - before == 1 ? " is" : "s are");
}

#define MOST_FDS 512 /* checked descriptors; the verdict's own is above */

void tsr_any_closed_files(struct tsr_conformance_case *c)
{
    bool open_before[MOST_FDS];
    for (int fd = 0; fd < MOST_FDS; fd++)
        open_before[fd] = fcntl(fd, F_GETFD) >= 0;
    work(c);
    for (int fd = 0; fd < MOST_FDS; fd++)
        if (open_before[fd] && fcntl(fd, F_GETFD) < 0)
            tsr_conformance_rule_fail(c, "descriptor %d, which was the host's, is closed", fd);
}

/* Descriptor counts miss a descriptor that is closed and reused for another file. */
void tsr_any_host_files(struct tsr_conformance_case *c)
{
    struct stat before[MOST_FDS], now;
    bool        open_before[MOST_FDS];
    memset(before, 0, sizeof before);
    for (int fd = 0; fd < MOST_FDS; fd++)
        open_before[fd] = fstat(fd, &before[fd]) == 0;
    work(c);
    for (int fd = 0; fd < MOST_FDS; fd++)
        if (open_before[fd] && fstat(fd, &now) == 0 &&
            (now.st_dev != before[fd].st_dev || now.st_ino != before[fd].st_ino))
            tsr_conformance_rule_fail(c, "descriptor %d, which was the host's, is another file now",
                                      fd);
}
