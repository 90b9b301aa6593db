/* What the guard costs: calls of the same functions, which do nothing, through the registry's table and through the
 * plugin's own, in turns.  Each line is "NAME nanoseconds", the median of ROUNDS; "-held" is
 * with HELD descriptors of the host.   bench_guard UNRULY.so */
#include "plugin/guard.h"
#include "base/clock.h"
#include "base/held.h"
#include "base/pool.h"
#include "plugin/spec.h"
#include "tessera/backend.h"
#include "tessera/solver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 9
#define HELD   20 /* descriptors, as a large run has */

static double now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other processes' time is not ours */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double v[ROUNDS])
{
    qsort(v, ROUNDS, sizeof *v, compare);
    return v[ROUNDS / 2];
}

/* ---- one instance by either table --------------------------------------------------------------- */

struct one {
    const struct tsr_backend_v1 *backend;
    const struct tsr_solver_v1  *solver;
    void                        *device, *solving;
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_guard: %s\n", what);
    exit(1);
}

/* The plugin's own table of a kind; the registry has mapped the same file. */
static const void *own_table(const char *path, const char *kind)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        fail(dlerror());
    const struct tsr_plugin *p = dlsym(so, "tsr_plugin_v1");
    for (uint32_t i = 0; p && i < p->n_components; i++)
        if (strcmp(p->components[i]->kind, kind) == 0)
            return p->components[i]->iface;
    fail("the plugin lacks a kind");
    return NULL;
}

static void make(struct one *o, const struct tsr_plugin_spec *b, const struct tsr_plugin_spec *s)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (o->backend->create(b->found.host, b->options, &o->device, &e.err) != TSR_OK ||
        o->solver->create(s->found.host, s->options, &o->solving, &e.err) != TSR_OK)
        fail(e.text);
}

/* ---- the loops ------------------------------------------------------------------------------------ */

static double run(const struct one *o, long n, struct tsr_err *err)
{
    struct tsr_op op = { 0 };
    double        from = now_ns();
    for (long i = 0; i < n; i++)
        if (o->backend->run(o->device, NULL, &op, err) != TSR_OK)
            fail(err->text);
    return (now_ns() - from) / (double)n;
}

static double upload(const struct one *o, long n, struct tsr_err *err)
{
    double from = now_ns();
    for (long i = 0; i < n; i++)
        if (o->backend->upload(o->device, NULL, 0, NULL, 0, err) != TSR_OK)
            fail(err->text);
    return (now_ns() - from) / (double)n;
}

static double solve(const struct one *o, long n, struct tsr_err *err)
{
    struct tsr_solver_instance in = { .struct_size = sizeof in };
    struct tsr_solver_solution out = { .struct_size = sizeof out };
    double                     from = now_ns();
    for (long i = 0; i < n; i++)
        if (o->solver->solve(o->solving, &in, &out, err) != TSR_OK)
            fail(err->text);
    return (now_ns() - from) / (double)n;
}

/* What leave_step does ten times a second, and with the umask once a second. */
static double look(long n, bool with_umask)
{
    struct tsr_plugin_state was;
    char                    what[1200];
    tsr_plugin_state_take(&was);
    double from = now_ns();
    for (long i = 0; i < n; i++)
        if (tsr_plugin_state_compare_later(&was, with_umask, what, sizeof what))
            fail(what);
    double each = (now_ns() - from) / (double)n;
    tsr_plugin_state_free(&was);
    return each;
}

static void measure(const struct one *guarded, const struct one *own, bool held)
{
    static double (*const loops[])(const struct one *, long, struct tsr_err *) = { run, upload,
                                                                                   solve };
    static const char *const names[] = { "queued", "mode", "few" };
    static const long        calls[] = { 2000000, 2000000, 500 };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    double                   with[ROUNDS], without[ROUNDS], more[ROUNDS];
    for (size_t k = held ? 2 : 0; k < 3; k++) {
        for (int r = 0; r < ROUNDS; r++) {
            without[r] = loops[k](own, calls[k], &e.err);
            with[r] = loops[k](guarded, calls[k], &e.err);
            more[r] = with[r] - without[r];
        }
        double m = median(more), w = median(with), o = median(without);
        printf("%s%s %.1f # guarded %.1f, the function alone %.1f\n", names[k], held ? "-held" : "",
               m, w, o);
    }
    for (int r = 0; r < ROUNDS; r++) {
        without[r] = look(500, false);
        with[r] = look(500, true);
    }
    printf("look%s %.1f\numask%s %.1f # a look with it\n", held ? "-held" : "", median(without),
           held ? "-held" : "", median(with));
}

int main(int argc, char **argv)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_pool       *pool = NULL;
    struct tsr_registry   *r = NULL;
    struct tsr_plugin_spec b, s;
    if (argc != 2)
        fail("usage: bench_guard UNRULY.so");
    if (tsr_pool_create(&pool, 1, &e.err) != TSR_OK ||
        tsr_plugin_registry_create(&r, pool, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(r, argv[1], &e.err) != TSR_OK ||
        tsr_plugin_spec_open(&b, r, TSR_KIND_BACKEND, "unruly", &e.err) != TSR_OK ||
        tsr_plugin_spec_open(&s, r, TSR_KIND_SOLVER, "unruly", &e.err) != TSR_OK)
        fail(e.text);
    struct one guarded = { .backend = b.found.iface, .solver = s.found.iface };
    struct one own = { .backend = own_table(argv[1], TSR_KIND_BACKEND),
                       .solver = own_table(argv[1], TSR_KIND_SOLVER) };
    if (own.backend->run == guarded.backend->run)
        fail("the registry's table has the plugin's own functions");
    make(&guarded, &b, &s);
    make(&own, &b, &s);
    measure(&guarded, &own, false);
    for (int i = 0; i < HELD; i++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            fail("/dev/null cannot be opened");
        tsr_held_add(fd, "/dev/null");
    }
    measure(&guarded, &own, true);
    guarded.backend->destroy(guarded.device);
    guarded.solver->destroy(guarded.solving);
    own.backend->destroy(own.device);
    own.solver->destroy(own.solving);
    tsr_plugin_spec_close(&b);
    tsr_plugin_spec_close(&s);
    tsr_plugin_registry_destroy(r);
    tsr_pool_destroy(pool);
    return 0;
}
