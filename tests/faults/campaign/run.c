/* faults/campaign/run.c - commands at once, with signals and changes of their inputs at their times. */
#include "campaign.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_PROCESSES 200

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void onto(int fd, const char *path, int flags)
{
    int got = open(path, flags, 0644);
    if (got < 0 || dup2(got, fd) != fd)
        _exit(127);
    (void)close(got);
}

static pid_t spawn(const struct place *w, const struct campaign_case *c, const struct plan *p,
                   int i, bool other)
{
    pid_t pid = fork();
    if (pid != 0) {
        if (pid > 0)
            (void)setpgid(pid, pid);
        return pid;
    }
    const struct words *args = other ? &c->other : &c->run;
    const char         *argv[MOST_WORDS + 5], *name = strrchr(w->tessera, '/');
    char                path[600];
    int                 n = 0;
    (void)setpgid(0, 0);
    argv[n++] = w->tessera;
    for (int k = 0; k < args->n; k++)
        argv[n++] = args->at[k];
    argv[n++] = "--threads";
    argv[n++] = p && p->threads == 2 ? "2" : "1";
    argv[n] = NULL;
    if (chdir(w->folder) != 0)
        _exit(127);
    onto(0, c->input ? c->input : "/dev/null", O_RDONLY);
    (void)snprintf(path, sizeof path, "%s/%d.out", w->say, i);
    onto(1, p && p->stdout_full ? "/dev/full" : path, O_WRONLY | O_CREAT | O_TRUNC);
    (void)snprintf(path, sizeof path, "%s/%d.err", w->say, i);
    onto(2, path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!p || p->call_at) {
        (void)setenv("TSR_INJECT_PROGRAM", name ? name + 1 : w->tessera, 1);
        (void)setenv("TSR_INJECT_STATE", w->state, 1);
        (void)setenv("LD_PRELOAD", w->inject, 1);
    }
    (void)execv(w->tessera, (char *const *)argv);
    _exit(127);
}

/* Every process below one, children before their own. */
static int below(pid_t pid, pid_t *to, int n)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    if (!d)
        return n;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char  name[400];
        FILE *f;
        int   child, first = n;
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof name, "%s/%s/children", path, e->d_name);
        if (!(f = fopen(name, "r")))
            continue;
        while (n < MOST_PROCESSES && fscanf(f, "%d", &child) == 1)
            to[n++] = child;
        (void)fclose(f);
        for (int last = n; first < last; first++)
            n = below(to[first], to, n);
    }
    (void)closedir(d);
    return n;
}

static void kill_all(void)
{
    pid_t all[MOST_PROCESSES];
    for (int n = below(getpid(), all, 0), i = 0; i < n; i++)
        (void)kill(all[i], SIGKILL);
}

/* What is under way. */
struct under {
    const struct plan *plan;
    struct ended      *e;
    pid_t              pid[3], target;
    bool               done[3];
    uint64_t           rng;
    double             t0, resume;
    bool               signalled, changed;
};

static void send_signal(struct under *u)
{
    const struct plan *p = u->plan;
    pid_t              all[MOST_PROCESSES];
    u->target = u->pid[0];
    if (p->to_child) {
        int n = below(u->pid[0], all, 0);
        if (n == 0)
            return; /* not yet */
        u->target = all[draw(&u->rng) % (uint64_t)n];
    } else if (p->to_group)
        u->target = -u->pid[0];
    u->signalled = true;
    u->e->sent |= kill(u->target, p->signal) == 0;
    if (p->signal == SIGSTOP)
        u->resume = now() + p->frozen;
}

static void take_ended(struct under *u, pid_t pid, int status)
{
    for (int i = 0; i < u->e->n; i++)
        if (u->pid[i] == pid) {
            u->done[i] = true;
            u->e->status[i] = status;
        }
}

static bool all_done(const struct under *u, int started)
{
    for (int i = 0; i < u->e->n; i++)
        if (i >= started || !u->done[i])
            return false;
    return true;
}

void run_commands(const struct place *w, const struct campaign_case *c, const struct outcome *start,
                  const struct plan *p, bool other, struct ended *e)
{
    struct under u = { .plan = p, .e = e, .t0 = now(), .rng = p ? p->rng : 0 };
    int          started = 0, status;
    double       ended_at = 0;
    pid_t        pid;
    memset(e, 0, sizeof *e);
    e->n = p ? p->racers : 1;
    memset(w->live, 0, sizeof *w->live);
    if (p) {
        w->live->which = p->call_class;
        w->live->from = p->call_from;
        w->live->at = p->call_at;
        w->live->error = p->error;
    }
    for (;;) {
        double t = now() - u.t0;
        while (started < e->n && (!p || p->delay[started] <= t)) {
            u.pid[started] =
                spawn(w, c, p, started, other || (p && p->other && started == e->n - 1));
            if (u.pid[started] < 0)
                u.done[started] = true;
            started++;
        }
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            take_ended(&u, pid, status);
        if (p && p->signal_at >= 0 && !u.signalled && t >= p->signal_at && !u.done[0])
            send_signal(&u);
        if (u.resume > 0 && now() >= u.resume) {
            (void)kill(u.target, SIGCONT);
            u.resume = 0;
        }
        if (p && p->change_at >= 0 && !p->change_between && !u.changed && t >= p->change_at &&
            !all_done(&u, started)) {
            u.changed = true;
            e->changed = input_change(w, start, p, e->changed_file);
        }
        if (pid < 0 && errno == ECHILD && started == e->n)
            break;
        if (all_done(&u, started)) {
            if (ended_at <= 0)
                ended_at = now();
            if (now() - ended_at > 20 * w->slow && !e->left) {
                e->left = true;
                kill_all();
            }
        } else if (t > w->patience && !e->hangs) {
            e->hangs = true;
            kill_all();
        }
        (void)nanosleep(&(struct timespec){ 0, 500000 }, NULL);
    }
}
