/* A rank stands still, as a process or in a call that never returns, at each place where others may wait for it:
 * nothing hangs, the rank is named, the exit code is 6.  Each case is a process of its own. */
#include "even_layout.h"
#include "golden.h"
#include "wide.h"

#include "../fixtures/error_is.h"
#include "runtime/group.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STALL_US UINT64_C(1000000)
#define LONG_MS  120000 /* nothing of this takes as long */
#define AT_ONCE  4u

static const char *backend_plugin, *transport_plugin;

struct scene {
    const char        *name;
    enum tsr_rank_kind kind;
    uint32_t           stages, ranks;
    const char        *backend;   /* of the last rank; or NULL */
    const char        *transport; /* %d: the process that coordinates; AT_FORK; or NULL */
    const char        *facts;
};

#define P       TSR_RUNTIME_RANKS_PROCESSES
#define T       TSR_RUNTIME_RANKS_THREADS
#define AT_FORK "fork" /* the first thing that a forked process does */
#define NEVER   "return"
#define HELD    "held" /* a killed process of it does not end */

static const struct scene scenes[] = {
    { "a load goes on for ever", P, 2, 1, "frozen:at=load,how=spin", NULL, "1 loads" }, /* first */
    { "a process that has just begun", P, 2, 1, NULL, AT_FORK, "1 starts" },
    { "a process starts", P, 2, 1, "frozen:at=create", NULL, "1 loads" },
    { "a process loads", P, 2, 1, "frozen:at=load,n=3", NULL, "1 loads layer" },
    { "a call of a process loads", P, 1, 2, "frozen:at=load,how=thread,n=3", NULL, "1 loads" },
    { "a process joins", P, 1, 2, NULL, "frozen:at=create,not_pid=%d", "1 starts" },
    { "a prompt", P, 2, 1, "frozen:at=prefill", NULL, "1 works layer" },
    { "a token", P, 1, 2, "frozen:at=decode,n=4", NULL, "1 works layer" },
    { "a process in a sum", P, 1, 2, NULL, "frozen:at=sum,n=3,not_pid=%d", "1 sums" },
    { "a process sends", P, 2, 1, NULL, "frozen:at=send,n=3,not_pid=%d", "1 progress" },
    { "a process waits", P, 2, 1, NULL, "frozen:at=wait,n=5,not_pid=%d", "1 progress" },
    { "a message is lost", P, 2, 1, NULL, "frozen:at=lose,n=4", "1 idle lost" },
    { "a process ends", P, 2, 1, "frozen:at=end", NULL, "1 ends asked" },
    { "a process leaves", P, 2, 1, NULL, "frozen:at=end,not_pid=%d", "1 ends asked" },
    { HELD, P, 2, 1, "frozen:at=end", NULL, "1 ends asked" },
    { "a thread loads", T, 2, 1, "frozen:at=load,how=thread,n=3", NULL, "1 loads " NEVER },
    { "a thread loads, others wait", T, 1, 2, "frozen:at=load,how=thread", NULL, "1 loads " NEVER },
    { "a thread at a prompt", T, 2, 1, "frozen:at=prefill,how=thread", NULL,
      "1 works layer " NEVER },
    { "a thread at a token", T, 1, 2, "frozen:at=decode,how=thread,n=4", NULL,
      "1 works layer " NEVER },
    { "a thread in a sum", T, 1, 2, NULL, "frozen:at=sum,how=thread,n=3", "sums " NEVER },
    { "a thread sends", T, 2, 1, NULL, "frozen:at=send,how=thread,n=3", "late " NEVER },
    { "a thread ends", T, 2, 1, "frozen:at=end,how=thread", NULL, "1 ends " NEVER },
};

/* ---- one case ------------------------------------------------------------------ */

static bool held; /* no process ends, as far as this one can see: its kernel waits for a device */

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    return held ? 0 : __real_waitpid(pid, status, options);
}

/* A prompt and some tokens; then the end. */
static tsr_status work(struct tsr_runtime_group *c, const struct tsr_model *m, struct tsr_err *err)
{
    struct tsr_engine_pass  p;
    struct tsr_engine_token t[3] = { { .id = 1 }, { .id = 5 }, { .id = 7, .logits = true } };
    struct tsr_engine_token one = { .id = 9, .logits = true };
    float                  *logits = malloc(m->hp.vocab * sizeof *logits);
    if (!logits)
        return TSR_E_NOMEM;
    tsr_runtime_group_pass(c, &p);
    tsr_status st = p.start(p.ctx, 0, t, 3, logits, err);
    if (st == TSR_OK)
        st = p.finish(p.ctx, 0, err);
    for (int i = 0; i < 4 && st == TSR_OK; i++) {
        st = p.start(p.ctx, 0, &one, 1, logits, err);
        if (st == TSR_OK)
            st = p.finish(p.ctx, 0, err);
    }
    if (st == TSR_OK)
        st = tsr_runtime_group_stop(c, err);
    free(logits);
    return st;
}

static void stop_here(void)
{
    (void)kill(getpid(), SIGSTOP);
}

/* As the program does: the sentence on stderr, and the exit code. */
_Noreturn static void play(const struct scene *s, const struct tsr_model *m)
{
    struct tsr_errbuf                err = TSR_ERRBUF(err);
    struct tsr_pool                 *pool;
    struct tsr_registry             *r = golden_registry(1, backend_plugin, &pool);
    struct tsr_runtime_layout        l;
    struct tsr_runtime_group        *c = NULL;
    char                             transport[120];
    struct tsr_runtime_group_options opt = { .ranks = s->kind,
                                             .kv_dtype = TSR_F16,
                                             .context = 16,
                                             .threads = 1,
                                             .stall_us = STALL_US,
                                             .deadline_us = 2 * STALL_US };
    tsr_status st = tsr_plugin_registry_add_path(r, transport_plugin, &err.err);
    if (s->transport && strcmp(s->transport, AT_FORK) == 0) {
        if (pthread_atfork(NULL, NULL, stop_here) != 0)
            _exit(99);
    } else if (s->transport) {
        const char *at = strstr(s->transport, "%d");
        (void)snprintf(transport, sizeof transport, "%.*s",
                       at ? (int)(at - s->transport) : (int)sizeof transport - 1, s->transport);
        if (at)
            (void)snprintf(transport + strlen(transport), 16, "%d", (int)getpid());
        opt.transport = transport;
    }
    if (st == TSR_OK)
        st = even_layout(&l, &m->hp, 1, s->stages, s->ranks, 1, &err.err);
    uint32_t ranks = s->stages * s->ranks;
    if (st == TSR_OK && s->backend) {
        l.backends = calloc(ranks, sizeof *l.backends);
        for (uint32_t i = 0; l.backends && i < ranks; i++)
            l.backends[i] = strdup(i + 1 < ranks ? "cpu" : s->backend);
    }
    if (st == TSR_OK)
        st = tsr_runtime_group_start(&c, r, m, NULL, &l, &opt, &err.err);
    held = strcmp(s->name, HELD) == 0;
    if (st == TSR_OK)
        st = work(c, m, &err.err);
    tsr_runtime_group_destroy(c);
    if (st != TSR_OK)
        (void)fprintf(stderr, "tessera: error: %s\n", err.text);
    _exit(st == TSR_OK ? 0 : tsr_exit_code(st));
}

/* ---- all of them --------------------------------------------------------------- */

struct player {
    pid_t  pid;
    int    said; /* its stderr */
    char   text[4096];
    size_t n;
};

static void begin(struct player *p, const struct scene *s, const struct tsr_model *m)
{
    int   pipes[2];
    pid_t parent = getpid();
    assert_int_equal(pipe(pipes), 0);
    *p = (struct player){ .pid = fork(), .said = pipes[0] };
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(pipes[1], 2) < 0)
            _exit(99);
        (void)close(pipes[0]);
        (void)close(pipes[1]);
        play(s, m);
    }
    (void)close(pipes[1]);
}

static bool ends(struct player *p, const struct scene *s)
{
    int status = 0, code = -1;
    for (;;) { /* until the last process that has its stderr is gone */
        struct pollfd f = { .fd = p->said, .events = POLLIN };
        if (poll(&f, 1, LONG_MS) <= 0) {
            print_error("%s: hangs\n", s->name);
            (void)kill(p->pid, SIGKILL);
            break;
        }
        ssize_t got = read(p->said, p->text + p->n, sizeof p->text - 1 - p->n);
        if (got <= 0)
            break;
        p->n += (size_t)got;
    }
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
    }
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    (void)close(p->said);
    char *sentence = strstr(p->text, "tessera: error: ");
    bool  ok = code == 6 && sentence && has_facts(sentence, s->facts) &&
              !strstr(sentence + 1, "tessera: error: ");
    if (ok &&
        strcmp(s->name, HELD) == 0) { /* said before the sentence, which is of the first failure */
        *sentence = '\0';
        ok = has_facts(p->text, "1 killed 10");
        *sentence = 't';
    }
    if (!ok)
        print_error("%s: exit %d, says:\n%s", s->name, code, p->text);
    return ok;
}

static void all_freeze(void **state)
{
    char              folder[64];
    struct tsr_model *m = wide_load("llama", true, folder);
    struct player     p[AT_ONCE], slow;
    const size_t      n = sizeof scenes / sizeof *scenes;
    const char       *only = getenv("TSR_TEST_SCENE");
    size_t            wrong = 0, run = 0;
    (void)state;
    bool longest = !only || strcmp(only, scenes[0].name) == 0;
    if (longest) /* beside all others */
        begin(&slow, &scenes[0], m);
    for (size_t i = 1; i < n; i += AT_ONCE) {
        size_t end = i + AT_ONCE < n ? i + AT_ONCE : n;
        for (size_t k = i; k < end; k++)
            if (!only || strcmp(only, scenes[k].name) == 0)
                begin(&p[k - i], &scenes[k], m);
        for (size_t k = i; k < end; k++)
            if (!only || strcmp(only, scenes[k].name) == 0) {
                run++;
                wrong += !ends(&p[k - i], &scenes[k]);
            }
    }
    if (longest) {
        run++;
        wrong += !ends(&slow, &scenes[0]);
    }
    wide_free(m, folder);
    assert_true(run > 0);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(all_freeze) };
    if (argc != 3)
        return 2;
    backend_plugin = argv[1];
    transport_plugin = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
