/* tessera/plugin.h - what every plugin exports and what the host gives it.
 *
 * Part of ABI major 1, which is append-only: see docs/abi.md for the rules
 * and tests/abi/layout_v1.c for the frozen offsets.  Depends on the C
 * standard library only.  C11, or C++11 and later.
 *
 * Thread tags used in these headers:
 *   [setup]   host calls from one thread at a time, no work in flight
 *   [worker]  any thread; never two calls at once on the same instance
 *   [any]     any thread, may run concurrently with everything else
 */
#ifndef TSR_PLUGIN_H
#define TSR_PLUGIN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ABI_MAJOR    1
#define TSR_ABI_MINOR    1
#define TSR_PLUGIN_MAGIC UINT64_C(0x314e474c50525354) /* "TSRPLGN1", LE */

/* True when table p is new enough to contain member m and m is set.
 * The size test comes first, so a short (older) table is never over-read. */
#define TSR_HAS(type, p, m) ((p)->struct_size >= offsetof(type, m) + sizeof((p)->m) && (p)->m)

/* Stores into an out-struct only when the caller's copy has room for m.
 * Needed for members added after minor 0. */
#define TSR_SET(type, p, m, v)                                                                     \
    ((p)->struct_size >= offsetof(type, m) + sizeof((p)->m) ? (void)((p)->m = (v)) : (void)0)

/* ---- status and error text -------------------------------------------- */

typedef int32_t tsr_status;
#define TSR_OK            0
#define TSR_E_INVAL       (-1) /* caller broke the contract                  */
#define TSR_E_CONFIG      (-2) /* the user's options cannot work             */
#define TSR_E_UNSUPPORTED (-3) /* well-formed, but not by this plugin        */
#define TSR_E_NOMEM       (-4)
#define TSR_E_IO          (-5)
#define TSR_E_DEVICE      (-6) /* CUDA or fabric failure                     */
#define TSR_E_NUMERIC     (-7) /* NaN/Inf, not positive definite, diverged   */
#define TSR_E_CANCELLED   (-8)

/* Error text sink.  Owned by the caller of a fallible function; NULL is
 * allowed.  Written only when the function returns a negative status. */
struct tsr_err {
    uint32_t struct_size;
    uint32_t cap; /* bytes at text, including the NUL */
    char    *text;
};

/* Compiled into the plugin: no varargs cross the ABI.  What comes out is one line: a control
 * character, which a name or a text out of a file may have, becomes '?'. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), unused))
#endif
static inline tsr_status
tsr_fail(struct tsr_err *err, tsr_status st, const char *fmt, ...)
{
    if (err && err->cap) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(err->text, err->cap, fmt, ap);
        va_end(ap);
        for (uint32_t i = 0; i < err->cap && err->text[i]; i++)
            if ((unsigned char)err->text[i] < ' ' || err->text[i] == 127)
                err->text[i] = '?';
    }
    return st;
}

/* ---- host services ---------------------------------------------------- */

#define TSR_LOG_DEBUG 0
#define TSR_LOG_INFO  1
#define TSR_LOG_WARN  2

struct tsr_host {
    uint32_t struct_size;
    uint16_t abi_major, abi_minor;
    void    *ctx; /* host's; plugins pass it back untouched */

    /* One line, no newline; copied before return.  [any] */
    void (*log)(void *ctx, int32_t level, const char *msg);

    /* Accounted memory.  align is a power of two.  NULL when exhausted.
     * release() takes the size given to alloc() and accepts NULL.  [any] */
    void *(*alloc)(void *ctx, uint64_t size, uint64_t align);
    void (*release)(void *ctx, void *p, uint64_t size);

    /* Runs body over [0,n) in chunks of at least grain items and returns
     * when all are done; the first failure stops the rest and is returned.
     * Chunk borders depend only on (n, grain).  Plugins start no threads of
     * their own.  [worker] */
    tsr_status (*parallel_for)(void *ctx, uint64_t n, uint64_t grain,
                               tsr_status (*body)(void *arg, uint64_t begin, uint64_t end),
                               void *arg);

    /* Nonzero when the user has asked to stop.  Poll it; return
     * TSR_E_CANCELLED within about 100 ms.  [any] */
    int32_t (*cancelled)(void *ctx);

    /* Optional host interface by id ("tessera.cuda/1"), or NULL.  The table
     * lives as long as the process.  [any] */
    const void *(*service)(void *ctx, const char *id);
};

/* ---- options ---------------------------------------------------------- */

#define TSR_OPT_BOOL   1u /* int32_t, 0 or 1                      */
#define TSR_OPT_INT    2u /* int64_t                              */
#define TSR_OPT_REAL   3u /* double                               */
#define TSR_OPT_ENUM   4u /* int64_t, one of values[]             */
#define TSR_OPT_STRING 5u /* const char *, host-owned, never NULL */

#define TSR_OPT_REQUIRED 1u /* no default; YAML must give it        */
#define TSR_OPT_ADVANCED 2u /* hidden from --help, shown by --help-all */

struct tsr_choice {
    const char *name;
    const char *help;
    int64_t     value;
};
union tsr_value {
    int64_t     i;
    double      r;
    const char *s;
};

/* One YAML key.  The host validates, then stores the value at offset in a
 * zeroed block of options_size bytes that it owns (see tsr_component). */
struct tsr_option {
    const char              *name;        /* [a-z][a-z0-9_]*, unique in the component */
    const char              *help;        /* one sentence for --help                  */
    const char              *unit;        /* "bits", "MiB", ... or NULL               */
    const char              *replaced_by; /* non-NULL: deprecated, warn and say this  */
    uint32_t                 type, flags;
    uint64_t                 offset;
    union tsr_value          def, min, max; /* min==max: unbounded; ints stay ints  */
    const struct tsr_choice *choices;
    uint64_t                 n_choices;
};

/* ---- plugin descriptor ------------------------------------------------ */

/* One thing that YAML can name.  Pure data: listing, validating and --help
 * run no plugin code. */
struct tsr_component {
    uint32_t                 struct_size;
    uint32_t                 option_stride; /* sizeof(struct tsr_option) as compiled  */
    const char              *kind;          /* "tessera.quantizer/1"                      */
    const char              *name;          /* "rtn"                                 */
    const char              *summary;       /* one sentence                          */
    const void              *iface;         /* the table that kind names             */
    const struct tsr_option *options;
    uint64_t                 n_options;
    uint64_t                 options_size; /* bytes of the plugin's option struct   */
};

/* The only symbol a plugin exports.  The first 16 bytes never change, in
 * any major version: read them, then decide whether to read further. */
struct tsr_plugin {
    uint64_t                           magic; /* TSR_PLUGIN_MAGIC                       */
    uint32_t                           struct_size;
    uint16_t                           abi_major, abi_minor; /* of the headers it was built with */
    const char                        *id;      /* reverse DNS: "org.example.rtn"        */
    const char                        *version; /* the plugin's own, semver              */
    const char                        *license; /* SPDX expression                       */
    const char                        *build;   /* compiler, flags, CUDA; for bug reports */
    const struct tsr_component *const *components;
    uint64_t                           n_components;
    uint32_t                           needs_minor; /* oldest host minor it can run on       */
    uint32_t                           reserved;    /* zero                                  */
};

/* Write the descriptor in a .c file, also when the plugin is CUDA or C++:
 * neither accepts C99 designated initialisers everywhere. */
#if defined(TSR_BUILTIN) /* linked into the host, e.g. for tests  */
#define TSR_PLUGIN_SYMBOL(name) const struct tsr_plugin tsr_builtin_##name
#else
#define TSR_PLUGIN_SYMBOL(name)                                                                    \
    __attribute__((visibility("default"))) extern const struct tsr_plugin tsr_plugin_v1;           \
    const struct tsr_plugin                                               tsr_plugin_v1
#endif

#define TSR_PLUGIN_HEADER TSR_PLUGIN_MAGIC, sizeof(struct tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_MINOR

/* offsetof that fails to compile when the field has the wrong type. */
#ifdef __cplusplus
#define TSR_FIELD(S, f, ctype) (offsetof(S, f) + 0 * sizeof(0 ? &((S *)0)->f : (ctype *)0))
#else
#define TSR_FIELD(S, f, ctype) (offsetof(S, f) + 0 * sizeof(_Generic(&((S *)0)->f, ctype * : 1)))
#endif

#define TSR_OPTION_INT(S, f, d, lo, hi, u, h)                                                      \
    {                                                                                              \
        .name = #f, .help = h, .unit = u, .type = TSR_OPT_INT, .offset = TSR_FIELD(S, f, int64_t), \
        .def = { .i = d }, .min = { .i = lo }, .max = {                                            \
            .i = hi                                                                                \
        }                                                                                          \
    }
#define TSR_OPTION_BOOL(S, f, d, h)                                                                \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_BOOL, .offset = TSR_FIELD(S, f, int32_t), .def = {  \
            .i = d                                                                                 \
        }                                                                                          \
    }
#define TSR_OPTION_REAL(S, f, d, lo, hi, u, h)                                                     \
    {                                                                                              \
        .name = #f, .help = h, .unit = u, .type = TSR_OPT_REAL, .offset = TSR_FIELD(S, f, double), \
        .def = { .r = d }, .min = { .r = lo }, .max = {                                            \
            .r = hi                                                                                \
        }                                                                                          \
    }
#define TSR_OPTION_ENUM(S, f, d, table, h)                                                         \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_ENUM, .offset = TSR_FIELD(S, f, int64_t),           \
        .def = { .i = d }, .choices = table, .n_choices = sizeof(table) / sizeof(table[0])         \
    }
#define TSR_OPTION_STRING(S, f, d, h)                                                              \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .offset = TSR_FIELD(S, f, const char *),    \
        .def = {                                                                                   \
            .s = d                                                                                 \
        }                                                                                          \
    }

/* ---- dtypes ------------------------------------------------------------ */

/* Element types.  Values are written to files: never renumber. */
#define TSR_F32  1u
#define TSR_F16  2u
#define TSR_BF16 3u
#define TSR_U8   4u
#define TSR_U32  5u
#define TSR_I8   6u

#ifdef __cplusplus
}
#endif
#endif
