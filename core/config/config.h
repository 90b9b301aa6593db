/* config/config.h - YAML with a mark on every node, diagnostics with a caret, and option
 * tables that check both the core's keys and a plugin's.
 *
 *   load -> (overrides) -> options_fill(table, node, struct) -> use the struct
 *
 * Every error of a file is collected; the caller prints them all and stops.
 */
#ifndef TSR_CONFIG_CONFIG_H
#define TSR_CONFIG_CONFIG_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* ---- the tree ---------------------------------------------------------- */

enum tsr_node_kind {
    TSR_CONFIG_NODE_NULL,
    TSR_CONFIG_NODE_SCALAR,
    TSR_CONFIG_NODE_LIST,
    TSR_CONFIG_NODE_MAP
};

/* Where a value came from: a file or a --set argument.  line and column count from 1. */
struct tsr_config_mark {
    const struct tsr_config_source *source;
    uint32_t                        line, column, length;
};

struct tsr_config_node {
    enum tsr_node_kind       kind;
    bool                     quoted; /* scalar: '...' or "..." or block, so always a string */
    struct tsr_config_mark   mark;
    const char              *text;  /* scalar */
    uint64_t                 n;     /* list: items; map: pairs */
    struct tsr_config_node **items; /* list items, or map values */
    struct tsr_config_node **keys;  /* map keys (scalars), or NULL */
};

/* A parsed file with everything its nodes point to. */
struct tsr_config_doc;

/* ---- diagnostics ------------------------------------------------------- */

/* Collects errors of a file.  Printed as
 *   configs/a.yaml:14:5: error: unknown key 'quantiser' in step 'quantize'
 *      14 |     quantiser: gptq
 *         |     ^~~~~~~~~ did you mean 'quantizer'?                          */
struct tsr_diag;
tsr_status tsr_config_diag_create(struct tsr_diag **d, struct tsr_err *err);
void       tsr_config_diag_destroy(struct tsr_diag *d);
/* What the caller could not allocate, for tsr_config_diag_status(). */
void tsr_config_diag_nomem(struct tsr_diag *d);
/* hint may be NULL.  Running out of memory is remembered and reported by tsr_config_diag_status(). */
void tsr_config_diag_error(struct tsr_diag *d, const struct tsr_config_mark *at, const char *hint,
                           const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void tsr_config_diag_warning(struct tsr_diag *d, const struct tsr_config_mark *at, const char *hint,
                             const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The error of a function that failed, with its object. */
void     tsr_config_diag_failure(struct tsr_diag *d, const struct tsr_config_mark *at,
                                 const struct tsr_err *why);
uint64_t tsr_config_diag_errors(const struct tsr_diag *d);
/* In file order, colour on request. */
void tsr_config_diag_print(struct tsr_diag *d, FILE *to, bool colour);
/* TSR_OK without errors, else TSR_E_INPUT or TSR_E_NOMEM.  The sentence has place, text and hint of every
 * error that fits into 800 bytes, "; and " between them, and "; and N more errors" after them: it says all when d
 * is destroyed unprinted.  Its object and position are the first error's. */
tsr_status tsr_config_diag_status(const struct tsr_diag *d, struct tsr_err *err);

/* One of them, in the order of printing; false past the end.  Strings live as long as d. */
struct tsr_config_diag_item {
    const char *file, *text, *hint; /* hint may be NULL */
    const char *object;             /* what the text is about, as in struct tsr_err, or NULL */
    const char *line_text;          /* the source line, or NULL */
    uint32_t    line, column, length;
    bool        warning, argument; /* argument: file is "--set a.b=c", without line */
};
bool tsr_config_diag_at(struct tsr_diag *d, uint64_t i, struct tsr_config_diag_item *item);

/* ---- loading ----------------------------------------------------------- */

/* Parses a file: at most 1 MB, 100,000 nodes, depth 32, 1,000 alias expansions; tags, merge
 * keys, duplicate keys and several documents are errors.  On success root is a map. */
tsr_status tsr_config_doc_load(struct tsr_config_doc **doc, const char *path, struct tsr_diag *d,
                               struct tsr_err *err);
/* Parses from memory; name is the file name in messages. */
tsr_status tsr_config_doc_parse(struct tsr_config_doc **doc, const char *name, const char *text,
                                uint64_t len, struct tsr_diag *d, struct tsr_err *err);
void       tsr_config_doc_destroy(struct tsr_config_doc *doc);
const struct tsr_config_node *tsr_config_doc_root(const struct tsr_config_doc *doc);
const char                   *tsr_config_doc_path(const struct tsr_config_doc *doc);

/* Applies "a.b=c" (rulings 3): the first part is a head key or the only pipeline step of that
 * name, `step[2].key` picks the second of several (from 1).  The value is parsed as YAML.
 * Its nodes get the origin "--set a.b=c". */
tsr_status tsr_config_doc_set(struct tsr_config_doc *doc, const char *assignment,
                              struct tsr_diag *d, struct tsr_err *err);
/* The same with a name of the caller's for the origin: "--bits 3". */
tsr_status tsr_config_doc_set_as(struct tsr_config_doc *doc, const char *origin,
                                 const char *assignment, struct tsr_diag *d, struct tsr_err *err);
/* As above, but the value is a literal string, whatever YAML would read in it. */
tsr_status tsr_config_doc_set_text(struct tsr_config_doc *doc, const char *origin,
                                   const char *assignment, struct tsr_diag *d, struct tsr_err *err);
/* Puts the defaults of the tables' absent keys into a map of doc, with the origin "default", so
 * that show and manifest hold every option.  After tsr_config_options_fill(). */
struct tsr_config_optset;
tsr_status tsr_config_doc_complete(struct tsr_config_doc *doc, const struct tsr_config_node *map,
                                   const struct tsr_config_optset *sets, uint64_t n_sets,
                                   struct tsr_err *err);
/* Deep copy of a node into doc (arms as overrides of a base job). */
struct tsr_config_node *tsr_config_doc_copy(struct tsr_config_doc        *doc,
                                            const struct tsr_config_node *n);

/* Value of a key of a map, or NULL. */
const struct tsr_config_node *tsr_config_node_get(const struct tsr_config_node *map,
                                                  const char                   *key);
/* Writes YAML that parses to the same tree; with origin, a comment after each scalar. */
void tsr_config_node_print(const struct tsr_config_node *n, FILE *to, bool origin);
/* Converts plain scalars to null, booleans, integers and numbers if they read as such.  New
 * reference, NULL if out of memory. */
struct json_t;
struct json_t *tsr_config_node_json(const struct tsr_config_node *n);
/* "configs/a.yaml:14" or "--set a.b=c" or "default". */
void tsr_config_mark_text(const struct tsr_config_mark *m, char *buf, size_t cap);

/* ---- options ----------------------------------------------------------- */

/* The core's own option types, beyond plugin.h's five: a subtree handed through. */
#define TSR_OPT_NODE 100u /* const struct tsr_config_node *, NULL when absent */
#define TSR_OPTION_NODE(S, f, h)                                                                   \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_NODE,                                               \
        .offset = TSR_FIELD(S, f, const struct tsr_config_node *)                                  \
    }

/* A string that names something on the file system; word is what --help shows for its value: FILE, FOLDER,
 * MODEL, or several as FILE|FOLDER. */
#define TSR_OPTION_PATH(S, f, d, word, h)                                                          \
    {                                                                                              \
        .name = #f, .help = h, .unit = word, .type = TSR_OPT_STRING,                               \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = d                                                                                 \
        }                                                                                          \
    }

/* A flag of the core: an option that is not put into the doc unless it was given.  In a step it then has the
 * value of the head's option of that name, if there is one. */
#define TSR_OPT_UNSAID 0x10000u

/* A flag of the core: a string of items by commas, "3,4,8".  A job may write [3, 4, 8] as well. */
#define TSR_OPT_LIST 0x20000u
#define TSR_OPTION_LIST(S, f, d, h)                                                                \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_LIST,                      \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = d                                                                                 \
        }                                                                                          \
    }

/* One table and the zeroed struct that it fills. */
struct tsr_config_optset {
    const struct tsr_option *options;
    uint64_t                 n;
    uint64_t                 stride; /* sizeof(struct tsr_option) as its owner compiled it */
    void                    *into;
};

/* Fills every set from one map (NULL: all defaults).  A key must be in exactly one set, or in
 * `also` (NULL-terminated names handled by the caller, may be NULL).  what names the place in
 * messages: "step 'quantize'".  Strings point into the doc.  Errors go to d. */
void tsr_config_options_fill(const struct tsr_config_optset *sets, uint64_t n_sets,
                             const char *const *also, const struct tsr_config_node *map,
                             const char *what, struct tsr_diag *d);

/* One value given as text (a command-line argument), checked by the same rules; the sentence
 * starts with the option's name. */
tsr_status tsr_config_option_set(const struct tsr_option *o, void *into, const char *text,
                                 struct tsr_err *err);
/* Defaults of a table. */
void tsr_config_options_defaults(const struct tsr_config_optset *set);

/* "int 2..8, default 4 bits" */
void tsr_config_option_describe(const struct tsr_option *o, char *buf, size_t cap);

/* The nearest of n names within Damerau-Levenshtein distance 2 (1 for names of up to 3
 * letters), or NULL. */
const char *tsr_config_nearest(const char *word, const char *const *names, uint64_t n);

/* "0-3,7" or, in percent of the depth and rounded to whole layers, "0%-33%" -> flags of n layers;
 * TSR_E_INPUT naming the part that is wrong. */
tsr_status tsr_config_parse_ranges(const char *text, uint64_t n, bool *in, struct tsr_err *err);
/* The same for n of something else than layers: "expert". */
tsr_status tsr_config_parse_ranges_of(const char *text, const char *what, uint64_t n, bool *in,
                                      struct tsr_err *err);

#endif
