/* The executable: signals and file descriptors; the rest is cli.c. */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stops;

/* The first Ctrl-C asks for a clean end, the second one does not ask. */
static void on_stop(int sig)
{
    (void)sig;
    if (stops++)
        _exit(130);
    tsr_cancel();
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
    struct sigaction stop, ignore;
    keep_standard_fds();
    memset(&stop, 0, sizeof stop);
    memset(&ignore, 0, sizeof ignore);
    stop.sa_handler = on_stop;
    stop.sa_flags = SA_RESTART;
    ignore.sa_handler = SIG_IGN;
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    return tsr_cli_main(argc, argv);
}
