/* The executable: signals and file descriptors; the rest is program.c. */
#include "cli/program.h"

#include "base/map.h"
#include "comm/probe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile sig_atomic_t stops;
static bool                  launched; /* by mpirun, which sends the signal twice and kills on
                                        * its own */

/* The first Ctrl-C requests a clean end, the second one ends at once. A closing terminal sends its signal
 * more than once, directly and through its shell. */
static void on_stop(int sig)
{
    if (sig != SIGHUP && stops++ && !launched)
        _exit(130);
    tsr_plugin_cancel();
}

#define DEEP (384 * 1024) /* frames of the CPU's kernels take up to 53 KiB, by their code */

__attribute__((noinline)) static void touch_pages(void)
{
    volatile char deep[DEEP];
    for (size_t i = 0; i < sizeof deep; i += 4096)
        deep[i] = 0;
}

/* Pages of the stack are taken when they are first touched.  At a limit of memory (ulimit -v) that ends the process in the
 * midst of a kernel; so what kernels need is taken now, and later it is an allocation that fails, which is said. */
static void take_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= 2 * (rlim_t)DEEP)
        touch_pages();
}

/* Builds a line that is written at once: nothing here may allocate or lock. */
struct line {
    char   text[4096];
    size_t n;
};

static void say(struct line *l, const char *s)
{
    while (*s && l->n < sizeof l->text)
        l->text[l->n++] = *s++;
}

static void say_number(struct line *l, uint64_t v)
{
    char   digits[24];
    size_t n = sizeof digits;
    digits[--n] = '\0';
    do
        digits[--n] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    say(l, digits + n);
}

/* Reports a mapped file that was truncated or removed; any other fault is a bug in Tessera and gets the
 * default action. */
static void on_bus(int sig, siginfo_t *info, void *context)
{
    static atomic_flag   said = ATOMIC_FLAG_INIT;
    struct tsr_map_place place;
    struct line          l = { .n = 0 };
    (void)context;
    if (info->si_code <= 0 || !tsr_map_find(info->si_addr, &place)) {
        (void)signal(sig, SIG_DFL);
        (void)raise(sig); /* on return */
        return;
    }
    while (atomic_flag_test_and_set(&said)) /* another thread is saying it, and ends the process */
        (void)pause();
    say(&l, "tessera: error: ");
    say(&l, place.path);
    say(&l, ": byte ");
    say_number(&l, place.byte);
    say(&l, place.shorter
                ? " is gone: the file was cut while it was in use; convert the model again, "
                  "and write a new file instead of changing one\n"
                : " cannot be read: its disk or network failed while it was in use\n");
    (void)!write(STDERR_FILENO, l.text, l.n);
    _exit(place.shorter ? 2 : 1);
}

/* A program started without stdin, stdout or stderr must not find its first data file there. */
static void keep_standard_fds(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) == -1) {
            int got = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); /* use of it fails */
            if (got != fd && got >= 0)
                (void)close(got);
        }
}

int main(int argc, char **argv)
{
    struct sigaction stop, ignore, bus, hup;
    uint32_t         rank, ranks;
    keep_standard_fds();
    take_stack();
    launched = tsr_comm_launched(&rank, &ranks);
    memset(&stop, 0, sizeof stop);
    memset(&ignore, 0, sizeof ignore);
    stop.sa_handler = on_stop;
    stop.sa_flags = SA_RESTART;
    ignore.sa_handler = SIG_IGN;
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGUSR1, &stop, NULL); /* of a batch system, before the time is over */
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN) /* as nohup leaves it */
        (void)sigaction(SIGHUP, &stop, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGXFSZ, &ignore, NULL); /* the write that exceeds the limit reports it */
    memset(&bus, 0, sizeof bus);
    bus.sa_sigaction = on_bus;
    bus.sa_flags = SA_SIGINFO;
    (void)sigaction(SIGBUS, &bus, NULL);
    return tsr_cli_main(argc, argv);
}
