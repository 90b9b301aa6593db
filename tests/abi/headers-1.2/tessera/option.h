/* tessera/option.h - option: a key that a user can set on a component, as data.
 *
 * The plugin provides an array of options in its component, and a struct with one field per option.
 * The host reads the array, checks the user's values, fills the struct and passes it to create().
 * No code of the plugin runs for this.  The struct and its strings belong to the host until
 * destroy() returns.
 *
 * Example: an integer, a choice and a flag.
 *
 *     struct opts { int64_t bits, range; int32_t symmetric; };
 *     static const struct tsr_choice ranges[] = {
 *         { "absmax", "The largest magnitude of the group.", 0 },
 *         { "search", "The range with the least squared error.", 1 },
 *     };
 *     static const struct tsr_option options[] = {
 *         TSR_OPTION_INT(struct opts, bits, 4, 2, 8, "bits", "Bit width of the codes."),
 *         TSR_OPTION_ENUM(struct opts, range, 0, ranges, "How the range of a group is found."),
 *         TSR_OPTION_BOOL(struct opts, symmetric, 1, "Without a stored zero point."),
 *     };
 */
#ifndef TSR_OPTION_H
#define TSR_OPTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types of an option, and the type of its field in the option struct. */
#define TSR_OPT_BOOL   1u /* int32_t, 0 or 1                      */
#define TSR_OPT_INT    2u /* int64_t                              */
#define TSR_OPT_REAL   3u /* double                               */
#define TSR_OPT_ENUM   4u /* int64_t, one of choices[]            */
#define TSR_OPT_STRING 5u /* const char *, the host's, never NULL */

/* Bits of tsr_option.flags. */
#define TSR_OPT_REQUIRED 1u /* no default; the user must set it            */
#define TSR_OPT_ADVANCED 2u /* only --help-all shows it                    */
#define TSR_OPT_JSON     4u /* of a step's string: any YAML value, as JSON */

/* A named value of a TSR_OPT_ENUM option. */
struct tsr_choice {
    const char *name;
    const char *help;
    int64_t     value;
};

/* i: BOOL, INT, ENUM; r: REAL; s: STRING. */
union tsr_value {
    int64_t     i;
    double      r;
    const char *s;
};

/* One YAML key.  The host checks the value and stores it at offset in a zeroed struct that it owns,
 * of tsr_component.options_size bytes. */
struct tsr_option {
    const char              *name;        /* [a-z][a-z0-9_]*, unique in the component */
    const char              *help;        /* one sentence for --help                  */
    const char              *unit;        /* "bits", "MiB", ... or NULL               */
    const char              *replaced_by; /* not NULL: deprecated; a warning names it */
    uint32_t                 type, flags;
    uint64_t                 offset;
    union tsr_value          def, min, max; /* min == max: unbounded                 */
    const struct tsr_choice *choices;
    uint64_t                 n_choices;
};

/* The offset of field f of struct S.  A field of another type than ctype does not compile. */
#ifdef __cplusplus
#define TSR_FIELD(S, f, ctype) (offsetof(S, f) + 0 * sizeof(0 ? &((S *)0)->f : (ctype *)0))
#else
#define TSR_FIELD(S, f, ctype) (offsetof(S, f) + 0 * sizeof(_Generic(&((S *)0)->f, ctype * : 1)))
#endif

/* Initialisers of a struct tsr_option, for .c files.  S: the option struct.  f: its field, and the
 * name of the key.  d: the default.  lo, hi: the range (lo == hi: unbounded).  u: the unit or NULL.
 * table: an array of struct tsr_choice.  h: the help. */
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

#ifdef __cplusplus
}
#endif
#endif
