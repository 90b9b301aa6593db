/* What happens in the process that runs one rule. */
#include "conformance/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "plugin/guard.h"
#include "plugin/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAR_FD 900 /* safe from a plugin that closes descriptors that it did not open */

static struct tsr_conformance_rule_run *current; /* for the signal handler */
static int                              verdict_fd = -1;
static _Atomic uint64_t                 forks;
static void (*on_signal)(const char *what);

/* ---- the verdict --------------------------------------------------------------------- */

static void send_bytes(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t w = write(verdict_fd, text + at, n - at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            break;
        at += (size_t)w;
    }
}

static void send_verdict(enum tsr_verdict v, const char *text, size_t n)
{
    send_bytes(&(char){ (char)('0' + (int)v) }, 1);
    send_bytes(text, n);
}

_Noreturn static void end(struct tsr_conformance_rule_run *r, enum tsr_verdict v)
{
    if (r->fd < 0) {
        r->verdict = v;
        siglongjmp(r->back, 1);
    }
    send_verdict(v, r->text, strlen(r->text));
    if (*r->figures) {
        send_bytes(&(char){ TSR_VERDICT_SPLIT }, 1);
        send_bytes(r->figures, strlen(r->figures));
    }
    tsr_guard_current = NULL; /* it is the rule that ends here, not a call */
    _exit(0);
}

static void say(struct tsr_conformance_rule_run *r, const char *fmt, va_list ap)
{
    (void)vsnprintf(r->text, sizeof r->text, fmt, ap);
    for (char *p = r->text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) /* a plugin's own words may be in it */
            *p = ' ';
}

_Noreturn void tsr_conformance_rule_fail(struct tsr_conformance_case *c, const char *fmt, ...)
{
    struct tsr_conformance_rule_run *r = (struct tsr_conformance_rule_run *)(void *)c;
    va_list                          ap;
    va_start(ap, fmt);
    say(r, fmt, ap);
    va_end(ap);
    end(r, c->rule && c->rule->flags & TSR_CONFORMANCE_RULE_ADVICE ? TSR_CONFORMANCE_WARN
                                                                   : TSR_CONFORMANCE_FAILED);
}

_Noreturn void tsr_conformance_rule_skip(struct tsr_conformance_case *c, const char *fmt, ...)
{
    struct tsr_conformance_rule_run *r = (struct tsr_conformance_rule_run *)(void *)c;
    va_list                          ap;
    va_start(ap, fmt);
    say(r, fmt, ap);
    va_end(ap);
    end(r, TSR_CONFORMANCE_SKIP);
}

void tsr_conformance_rule_figure(struct tsr_conformance_case *c, const char *name, double value,
                                 const char *unit)
{
    struct tsr_conformance_rule_run *r = (struct tsr_conformance_rule_run *)(void *)c;
    size_t                           at = strlen(r->figures);
    int n = snprintf(r->figures + at, sizeof r->figures - at, "%s\t%.17g\t%s\n", name, value, unit);
    if (n < 0 || (size_t)n >= sizeof r->figures - at)
        r->figures[at] = '\0';
}

/* Without a separate process, memory that a rule leaves stays reachable, so that a leak detector reports
 * only the plugin. */
static void keep(const struct tsr_conformance_case *c, void *p)
{
    static void   **kept;
    static uint64_t n;
    void          **more = c->o && c->o->in_process ? tsr_renew(kept, n + 1, sizeof *more) : NULL;
    if (!more)
        return;
    kept = more;
    kept[n++] = p;
}

void *tsr_conformance_rule_memory(struct tsr_conformance_case *c, uint64_t bytes)
{
    void *p = tsr_new_aligned(1, bytes ? bytes : 1);
    if (!p)
        tsr_conformance_rule_skip(c, "this machine has no %llu bytes for the check",
                                  (unsigned long long)bytes);
    memset(p, 0, bytes ? bytes : 1);
    keep(c, p);
    return p;
}

const char *tsr_conformance_status_name(tsr_status st)
{
    static _Thread_local char other[32];
    static const char *const  names[] = {
         "TSR_OK",   "TSR_E_INVAL",  "TSR_E_CONFIG",  "TSR_E_UNSUPPORTED", "TSR_E_NOMEM",
         "TSR_E_IO", "TSR_E_DEVICE", "TSR_E_NUMERIC", "TSR_E_CANCELLED"
    };
    if (st <= 0 && st > -(tsr_status)(sizeof names / sizeof *names))
        return names[-st];
    (void)snprintf(other, sizeof other, "status %d", st);
    return other;
}

/* ---- crashes --------------------------------------------------------------------------- */

static void on_crash(int sig, siginfo_t *info, void *context)
{
    char        text[400], where[300];
    const char *what = text + strlen("it ");
    (void)context;
    if ((sig == SIGSEGV || sig == SIGBUS) &&
        tsr_conformance_guarded_describe(info->si_addr, where, sizeof where))
        (void)snprintf(text, sizeof text, "it reached for %s (%s)", where, strsignal(sig));
    else
        (void)snprintf(text, sizeof text, "it ended with signal %d (%s) at address %p", sig,
                       strsignal(sig), info->si_addr);
    if (on_signal)
        on_signal(what);
    send_verdict(TSR_CONFORMANCE_CRASHED, text, strlen(text));
    tsr_guard_current = NULL;
    _exit(1);
}

static void watch_crashes(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS };
    static char      stack[64 * 1024];
    stack_t          alt = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_crash;
    a.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
    (void)sigaltstack(&alt, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)sigaction(signals[i], &a, NULL);
}

void tsr_conformance_child_on_signal(void (*f)(const char *what))
{
    on_signal = f;
}

/* ---- the process ------------------------------------------------------------------------- */

static void before_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

uint64_t tsr_conformance_child_forks(void)
{
    return atomic_load(&forks);
}

uint64_t tsr_conformance_child_output(void)
{
    struct stat s;
    (void)fflush(NULL);
    return fstat(STDERR_FILENO, &s) == 0 ? (uint64_t)s.st_size : 0;
}

/* Only in a child of ours; in process, the debugger has the signals and the streams. */
static void settle(struct tsr_conformance_rule_run *r)
{
    struct rlimit none = { 0, 0 }, large = { 1 << 30, 1 << 30 };
    current = r;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)setrlimit(RLIMIT_FSIZE, &large); /* its output to our streams goes to memory */
    (void)signal(SIGINT, SIG_IGN);         /* the parent's to decide */
    int far = fcntl(r->fd, F_DUPFD_CLOEXEC, FAR_FD);
    if (far >= 0) {
        (void)close(r->fd);
        r->fd = far;
    }
    verdict_fd = r->fd;
    (void)pthread_atfork(before_fork, NULL, NULL);
    tsr_log_set_level(TSR_LOG_WARN + 1); /* standard error is the plugin's alone here */
    tsr_progress_quiet(1);
    watch_crashes();
}

/* ---- options ------------------------------------------------------------------------------ */

static const struct tsr_option *find_option(const struct tsr_component *c, const char *key,
                                            size_t n)
{
    for (uint64_t i = 0; i < c->n_options; i++)
        if (strlen(c->options[i].name) == n && strncmp(c->options[i].name, key, n) == 0)
            return &c->options[i];
    return NULL;
}

static bool is_set(const struct tsr_conformance_case *c, const char *name)
{
    size_t n = strlen(name);
    for (uint64_t i = 0; i < c->o->n_sets; i++)
        if (strncmp(c->o->sets[i], name, n) == 0 && c->o->sets[i][n] == '=')
            return true;
    return false;
}

/* The component's defaults with every --set that is an option of it. */
static void fill_options(struct tsr_conformance_case *c)
{
    const struct tsr_component *p = c->component;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    void                       *block = tsr_conformance_rule_memory(c, p->options_size);
    struct tsr_config_optset    set = { p->options, p->n_options, p->option_stride, block };
    if (p->n_options)
        tsr_config_options_defaults(&set);
    for (uint64_t i = 0; i < c->o->n_sets; i++) {
        const char              *key = c->o->sets[i], *eq = strchr(key, '=');
        const struct tsr_option *o = eq ? find_option(p, key, (size_t)(eq - key)) : NULL;
        if (o && tsr_config_option_set(o, block, eq + 1, &e.err) != TSR_OK)
            tsr_conformance_rule_skip(c, "--set %s: %s", key, e.text);
    }
    for (uint64_t i = 0; i < p->n_options; i++)
        if (p->options[i].flags & TSR_OPT_REQUIRED && !is_set(c, p->options[i].name))
            tsr_conformance_rule_skip(c, "%s: option '%s' has no default; give --set %s=VALUE",
                                      p->name, p->options[i].name, p->options[i].name);
    c->options = block;
}

/* ---- one rule ------------------------------------------------------------------------------ */

static struct tsr_plugin_loaded *load(struct tsr_conformance_rule_run *r)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_plugin_loaded *l = NULL;
    bool                      is_plugin;
    if (tsr_plugin_load(&l, r->c.path, &is_plugin, &e.err) != TSR_OK)
        tsr_conformance_rule_fail(&r->c, "%s", e.text);
    keep(&r->c, l);
    return l;
}

static void run(struct tsr_conformance_rule_run *r)
{
    struct tsr_conformance_case *c = &r->c;
    if (c->rule->flags & TSR_CONFORMANCE_RULE_RAW) {
        c->rule->run(c);
        return;
    }
    struct tsr_plugin_loaded *l = load(r);
    c->plugin = &l->plugin;
    if (!(c->rule->flags & TSR_CONFORMANCE_RULE_FILE)) {
        c->component = &l->entries[r->index].component;
        c->iface = l->entries[r->index].iface;
        c->host = tsr_conformance_rule_memory(c, sizeof *c->host);
        tsr_conformance_test_host_init(c->host, 1);
        fill_options(c);
    }
    c->rule->run(c);
}

void tsr_conformance_rule_run_here(struct tsr_conformance_rule_run *r)
{
    if (r->fd >= 0)
        settle(r);
    else if (sigsetjmp(r->back, 1))
        return;
    run(r);
    *r->text = '\0';
    end(r, TSR_CONFORMANCE_PASS);
}

void tsr_conformance_describe_here(struct tsr_conformance_rule_run *r)
{
    settle(r);
    struct tsr_plugin_loaded *l = load(r);
    size_t                    at = strlen(l->plugin.id) + 1;
    (void)snprintf(r->text, sizeof r->text, "%s\n", l->plugin.id); /* of at most 63 bytes */
    for (uint64_t i = 0; i < l->n; i++) {
        r->c.component = &l->entries[i].component;
        if (!r->c.o->component || strcmp(r->c.o->component, r->c.component->name) == 0)
            fill_options(&r->c);
        int n = snprintf(r->text + at, sizeof r->text - at, "%s\t%s\t", r->c.component->kind,
                         r->c.component->name);
        if (n < 0 || (size_t)n >= sizeof r->text - at)
            tsr_conformance_rule_skip(&r->c,
                                      "%s: more components than a check takes; use --component",
                                      r->c.path);
        at += (size_t)n;
        for (uint64_t k = 0; k < r->c.o->n_sets; k++) { /* which of --set it took */
            const char *eq = strchr(r->c.o->sets[k], '=');
            bool        mine =
                eq && find_option(r->c.component, r->c.o->sets[k], (size_t)(eq - r->c.o->sets[k]));
            if (at + 2 < sizeof r->text)
                r->text[at++] = mine ? '1' : '0';
        }
        r->text[at++] = '\n';
        r->text[at] = '\0';
    }
    end(r, TSR_CONFORMANCE_PASS);
}
