/* Transports: threads and static memory, which a plugin may not have unless it is a transport that states them
 * (tessera/transport.h). */
#include "conformance/transport/transport.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <time.h>

#define BYTES 37u /* of the message; bad_transport.c knows it */
#define PARTS 8u  /* most writable segments of a file */

static bool states(const struct tsr_conformance_group *g, uint64_t what)
{
    return TSR_HAS(struct tsr_transport_v1, g->t, needs) && g->t->needs & what;
}

/* Two ranks on this thread, with one message from the second to the first; look() is called after every call of
 * the table. */
static void life(struct tsr_conformance_case *c, struct tsr_conformance_group *g,
                 void (*look)(void *arg), void                                *arg)
{
    unsigned char out[BYTES] = { 0 }, in[BYTES];
    void         *self[2];
    tsr_conformance_group_make(g, c, 2);
    for (uint32_t r = 0; r < 2; r++) {
        self[r] = tsr_conformance_group_join(g, r);
        look(arg);
    }
    void *sent = tsr_conformance_group_send(g, self[1], 1, 0, out, BYTES);
    look(arg);
    void *got = tsr_conformance_group_recv(g, self[0], 0, 1, in, BYTES);
    look(arg);
    tsr_conformance_group_wait(g, self[0], 0, got);
    look(arg);
    tsr_conformance_group_wait(g, self[1], 1, sent);
    look(arg);
    g->t->destroy(self[0]);
    look(arg);
    g->t->destroy(self[1]);
    tsr_conformance_group_free(g);
}

/* ---- threads ----------------------------------------------------------------------- */

static uint64_t threads(void)
{
    uint64_t n = 0;
    DIR     *d = opendir("/proc/self/task");
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

static void most_threads(void *arg)
{
    uint64_t *most = arg, n = threads();
    *most = n > *most ? n : *most;
}

void tsr_transport_rule_threads(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    uint64_t                     before = threads(), most = before;
    if (before == 0)
        tsr_conformance_rule_skip(c, "this system does not show threads");
    life(c, &g, most_threads, &most);
    if (most > before && !states(&g, TSR_TRANSPORT_THREADS))
        tsr_conformance_rule_fail(
            c,
            "%llu thread%s of it ran while two ranks worked; host->parallel_for() lends the "
            "host's, and a transport that cannot do without states TSR_TRANSPORT_THREADS",
            (unsigned long long)(most - before), most - before == 1 ? "" : "s");
    for (int i = 0; i < 400 && threads() > before; i++) /* 2 s: the header says "soon" */
        (void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    if (threads() > before)
        tsr_conformance_rule_fail(c, "%llu of its threads live 2 s after destroy()",
                                  (unsigned long long)(threads() - before));
}

/* ---- static memory ----------------------------------------------------------------- */

/* What the plugin's file has of writable memory, and how it was. */
struct statics {
    const void    *base; /* where the file is */
    uint64_t       n;
    unsigned char *at[PARTS], *was[PARTS];
    uint64_t       bytes[PARTS];
    bool           changed; /* since was[] */
};

/* Writable segments without the parts that are read-only after relocation. */
static int find_parts(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct statics *s = arg;
    uintptr_t       from = 0, to = 0, base = (uintptr_t)info->dlpi_addr;
    (void)size;
    if (base != (uintptr_t)s->base)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            from = base + info->dlpi_phdr[i].p_vaddr;
            to = from + info->dlpi_phdr[i].p_memsz;
        }
    for (int i = 0; i < info->dlpi_phnum && s->n < PARTS; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = base + p->p_vaddr, end = begin + p->p_memsz;
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W))
            continue;
        if (begin >= from && begin < to)
            begin = to < end ? to : end;
        if (begin < end) {
            s->at[s->n] = (unsigned char *)begin;
            s->bytes[s->n++] = end - begin;
        }
    }
    return 1;
}

/* Byte by byte: a sanitizer forbids memcpy() and memcmp() the gaps that it leaves between variables. */
__attribute__((no_sanitize("address"))) static bool differs(const volatile unsigned char *a,
                                                            const unsigned char *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return true;
    return false;
}

__attribute__((no_sanitize("address"))) static void copy(unsigned char                *to,
                                                         const volatile unsigned char *from,
                                                         uint64_t                      n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void remember(struct tsr_conformance_case *c, struct statics *s)
{
    for (uint64_t i = 0; i < s->n; i++) {
        if (!s->was[i])
            s->was[i] = tsr_conformance_rule_memory(c, s->bytes[i]);
        copy(s->was[i], s->at[i], s->bytes[i]);
    }
    s->changed = false;
}

static void compare(void *arg)
{
    struct statics *s = arg;
    for (uint64_t i = 0; i < s->n; i++)
        s->changed |= differs(s->at[i], s->was[i], s->bytes[i]);
}

static void look_at_nothing(void *arg)
{
    (void)arg;
}

/* The second of two lives: state that the first one leaves once (the processor's features, say) does not
 * count. */
void tsr_transport_rule_statics(struct tsr_conformance_case *c)
{
    struct tsr_conformance_group g;
    struct statics               s = { 0 };
    Dl_info                      info;
    if (c->o && c->o->in_process)
        tsr_conformance_rule_skip(c,
                                  "without its own process the plugin's memory is not its alone");
    life(c, &g, look_at_nothing, NULL);
    /* a function pointer as an address: POSIX allows it */
    if (!dladdr((const void *)(uintptr_t)g.t->destroy, &info))
        tsr_conformance_rule_skip(c, "the file that its functions are in is not known");
    s.base = info.dli_fbase;
    (void)dl_iterate_phdr(find_parts, &s);
    remember(c, &s);
    life(c, &g, compare, &s);
    if (s.changed && !states(&g, TSR_TRANSPORT_STATICS))
        tsr_conformance_rule_fail(
            c, "static memory of it changes while two ranks work; state hangs off create() and "
               "destroy(), and a transport that cannot do without states TSR_TRANSPORT_STATICS");
    s.changed = false;
    compare(&s);
    if (s.changed)
        tsr_conformance_rule_fail(
            c, "its static memory is another than before create(), although the last instance "
               "has gone");
}
