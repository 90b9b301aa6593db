/* template/internal.h - what the files of the template interpreter share; names start with tpl_.
 *
 * Source text becomes tokens (lex.c), a tree (parse*.c), and is executed on the tree (eval.c, exec.c).  All memory
 * of a template, and all of a rendering, is in one arena that is freed as a whole.
 */
#ifndef TSR_TEMPLATE_INTERNAL_H
#define TSR_TEMPLATE_INTERNAL_H

#include "template/template.h"
#include "template/tree.h"
#include "template/value.h"

#include <stddef.h>

#define TPL_MAX_SOURCE (1u << 20)
#define TPL_MAX_MEMORY (UINT64_C(512) << 20)
#define TPL_MAX_OUTPUT (UINT64_C(64) << 20)
#define TPL_MAX_STEPS  20000000 /* a node, or 64 bytes of a text */
#define TPL_MAX_DEPTH  400      /* nested nodes, calls or values */
#define TPL_MAX_RANGE  100000   /* numbers in a range(), as in Jinja's sandbox */

/* ---- arena.c ------------------------------------------------------------ */

struct tpl_block;
struct tpl_arena {
    struct tpl_block *last;
    uint64_t          used; /* bytes of all blocks */
};

struct tsr_template {
    struct tpl_arena        arena;
    struct tpl_node        *body;
    const struct tpl_text **names; /* interned, a hash table */
    uint64_t                n_names, cap_names;
    char                   *name;
};

/* ---- a rendering, or a compilation -------------------------------------- */

struct tpl_scope {
    struct tpl_scope *up;
    struct tpl_var   *vars;
};
struct tpl_var {
    const struct tpl_text *name;
    struct tpl_value       value;
    struct tpl_var        *next;
};
struct tpl_macro {
    const struct tpl_node *node;
    struct tpl_scope      *scope; /* where it was defined */
    tsr_status (*run)(struct tpl_ctx *c, const struct tpl_macro *m, const struct tpl_args *args,
                      struct tpl_value *out);
};

/* A text that grows. */
struct tpl_build {
    char          *s;
    unsigned char *mask; /* NULL: all from the template */
    uint64_t       n, cap;
};

struct tpl_ctx {
    struct tpl_arena *arena;
    struct tsr_err   *err;
    tsr_status        status; /* of the last failed allocation */
    const char       *name;
    uint32_t          line, column; /* of what is executed or parsed */
    uint64_t          steps;
    unsigned          depth;
    struct tpl_build *out;
    int64_t           date;
    bool              strict;
    const struct tpl_function *(*filter)(const char *s, uint64_t n);
    const struct tpl_function *(*test)(const char *s, uint64_t n);
    struct tsr_template       *names; /* while compiling */
    const struct tsr_template *of;    /* while rendering */
    const struct tpl_text     *loop_name;
    struct tpl_value           block; /* the text for a filter of a block */
    const struct tpl_text     *raised;
};

/* Why the last allocation failed. */
static inline tsr_status tpl_failed(const struct tpl_ctx *c)
{
    return c->status != TSR_OK ? c->status : TSR_E_BUG;
}

/* ---- arena.c ---- */
void *tpl_new(struct tpl_ctx *c, uint64_t n, uint64_t size); /* zeroed; NULL: c->status */
void *tpl_grow(struct tpl_ctx *c, void *p, uint64_t old, uint64_t n, uint64_t size);
void  tpl_arena_free(struct tpl_arena *a);
/* "NAME:1:2: ..." into the error; tpl_fail() is TSR_E_INPUT, where a reader and the analyzer see it. */
void tpl_say(struct tpl_ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define tpl_fail(c, ...) (tpl_say(c, __VA_ARGS__), TSR_E_INPUT)
tsr_status tpl_charge(struct tpl_ctx *c, uint64_t bytes); /* steps for work on that many bytes */
tsr_status tpl_enter(struct tpl_ctx *c); /* a level deeper; leave with c->depth-- */

/* ---- utf8.c ---- */
uint32_t tpl_char(const char *s, uint64_t n, unsigned *len);
unsigned tpl_put_char(char out[4], uint32_t ch);
bool     tpl_valid(const char *s, uint64_t n);
uint64_t tpl_count(const char *s, uint64_t n);              /* characters */
uint64_t tpl_offset(const char *s, uint64_t n, uint64_t i); /* bytes of the first i characters */
bool     tpl_is_space(uint32_t ch);
bool     tpl_is_line_end(uint32_t ch);
bool     tpl_is_printable(uint32_t ch);

/* ---- text.c ---- */
tsr_status tpl_add(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t, uint64_t at,
                   uint64_t n);
tsr_status tpl_add_text(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t);
tsr_status tpl_add_own(struct tpl_ctx *c, struct tpl_build *b, const char *s, uint64_t n);
tsr_status tpl_add_word(struct tpl_ctx *c, struct tpl_build *b, const char *s);
/* A character that came from where byte `at` of t did. */
tsr_status tpl_add_char(struct tpl_ctx *c, struct tpl_build *b, uint32_t ch,
                        const struct tpl_text *t, uint64_t at);
tsr_status tpl_finish(struct tpl_ctx *c, const struct tpl_build *b, struct tpl_value *out);
tsr_status tpl_sub(struct tpl_ctx *c, const struct tpl_text *t, uint64_t at, uint64_t n,
                   struct tpl_value *out);
tsr_status tpl_own(struct tpl_ctx *c, const char *s, uint64_t n, struct tpl_value *out);
/* n times; where: -1 the text is left, 0 in the middle, 1 right. */
tsr_status tpl_repeat(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_text *t, int64_t n);
tsr_status tpl_pad(struct tpl_ctx *c, const struct tpl_text *t, int64_t width, int where,
                   const struct tpl_text *fill, struct tpl_value *out);
bool       tpl_text_is(const struct tpl_text *t, const char *s);
bool       tpl_same(const struct tpl_text *a, const struct tpl_text *b);

/* ---- value.c ---- */
const char      *tpl_type_name(const struct tpl_value *v);
bool             tpl_truth(const struct tpl_value *v);
bool             tpl_is_int(const struct tpl_value *v, int64_t *i); /* int or bool */
bool             tpl_is_number(const struct tpl_value *v, double *f);
struct tpl_value tpl_bool(bool b);
struct tpl_value tpl_int(int64_t i);
struct tpl_value tpl_float(double f);
struct tpl_value tpl_none(void);
struct tpl_value tpl_undefined(enum tpl_kind of, const struct tpl_text *name);
tsr_status       tpl_fail_undefined(struct tpl_ctx *c, const struct tpl_value *v);
bool             tpl_is_list(const struct tpl_value *v); /* list, tuple, range, view */
tsr_status tpl_list(struct tpl_ctx *c, enum tpl_kind kind, uint64_t cap, struct tpl_value *out);
tsr_status tpl_push(struct tpl_ctx *c, struct tpl_list *l, const struct tpl_value *v);
tsr_status tpl_pair(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                    struct tpl_value *out); /* a tuple */
tsr_status tpl_dict(struct tpl_ctx *c, enum tpl_kind kind, uint64_t cap, struct tpl_value *out);
/* Appends a key that is not there. */
tsr_status tpl_dict_add(struct tpl_ctx *c, struct tpl_dict *d, const struct tpl_value *key,
                        const struct tpl_value *value);
/* The items of what a loop may go over; a generator is used up. */
tsr_status tpl_items(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_list **l);
tsr_status tpl_from_json(struct tpl_ctx *c, const json_t *j, enum tpl_from from,
                         struct tpl_value *out);

/* ---- compare.c ---- */
tsr_status tpl_equal(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                     bool *yes);
tsr_status tpl_compare(struct tpl_ctx *c, enum tpl_op op, const struct tpl_value *a,
                       const struct tpl_value *b, bool *yes);
tsr_status tpl_dict_find(struct tpl_ctx *c, const struct tpl_dict *d, const struct tpl_value *key,
                         struct tpl_value **value);
struct tpl_value *tpl_dict_word(const struct tpl_dict *d, const struct tpl_text *key);
tsr_status        tpl_dict_put(struct tpl_ctx *c, struct tpl_dict *d, const struct tpl_value *key,
                               const struct tpl_value *value);
/* Sorts values by keys, stable; order[i] is the index of the i-th. */
tsr_status tpl_sort(struct tpl_ctx *c, const struct tpl_value *keys, uint64_t n, bool reverse,
                    uint64_t **order);

/* ---- print.c, format.c, tojson.c ---- */
void       tpl_float_text(double f, char out[40]);
tsr_status tpl_repr(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_value *v);
tsr_status tpl_str(struct tpl_ctx *c, struct tpl_build *b, const struct tpl_value *v);
tsr_status tpl_string(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_text **t);
tsr_status tpl_percent(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_value *args,
                       struct tpl_value *out);
tsr_status tpl_format(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_args *args,
                      struct tpl_value *out);
tsr_status tpl_tojson(struct tpl_ctx *c, const struct tpl_value *self, const struct tpl_args *args,
                      const struct tpl_value *a, struct tpl_value *out);

/* ---- arith.c ---- */
tsr_status tpl_binary(struct tpl_ctx *c, enum tpl_op op, const struct tpl_value *a,
                      const struct tpl_value *b, struct tpl_value *out);
tsr_status tpl_sign(struct tpl_ctx *c, bool negate, const struct tpl_value *a,
                    struct tpl_value *out);

/* ---- args.c ---- */
tsr_status tpl_run(struct tpl_ctx *c, const struct tpl_function *f, const struct tpl_value *self,
                   const struct tpl_args *args, struct tpl_value *out);
const struct tpl_function *tpl_find(const struct tpl_function *table, uint64_t n, const char *s,
                                    uint64_t len);
tsr_status tpl_want_text(struct tpl_ctx *c, const struct tpl_value *v, const char *what,
                         const struct tpl_text **t);
/* def if it is missing */
tsr_status tpl_want_int(struct tpl_ctx *c, const struct tpl_value *v, const char *what, int64_t def,
                        int64_t *i);

/* ---- strings*.c ---- */
const struct tpl_function *tpl_string_method(const char *s, uint64_t n);
const struct tpl_function *tpl_string_question(const char *s, uint64_t n);
const struct tpl_function *tpl_string_part(const char *s, uint64_t n);
enum tpl_case { TPL_UPPER, TPL_LOWER, TPL_CAPITALIZE, TPL_TITLE, TPL_SWAPCASE, TPL_FILTER_TITLE };
tsr_status tpl_change_case(struct tpl_ctx *c, const struct tpl_text *t, enum tpl_case how,
                           struct tpl_value *out);
bool       tpl_is_case(const struct tpl_text *t, bool upper);
tsr_status tpl_strip(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_text *chars,
                     bool left, bool right, struct tpl_value *out);
tsr_status tpl_replace(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_text *old,
                       const struct tpl_text *new, int64_t most, struct tpl_value *out);
tsr_status tpl_split_lines(struct tpl_ctx *c, const struct tpl_text *t, bool keep,
                           struct tpl_value *out);
tsr_status tpl_join(struct tpl_ctx *c, const struct tpl_text *t, const struct tpl_list *l,
                    bool convert, struct tpl_value *out);

/* ---- access.c, methods.c ---- */
const struct tpl_function *tpl_method(const struct tpl_value *v, const struct tpl_text *name);
tsr_status tpl_attribute(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_text *name,
                         struct tpl_value *out);
tsr_status tpl_item(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_value *key,
                    struct tpl_value *out);

/* ---- filters*.c, tests.c, functions.c ---- */
const struct tpl_function *tpl_filter(const char *s, uint64_t n);
const struct tpl_function *tpl_filter_text(const char *s, uint64_t n);
const struct tpl_function *tpl_filter_list(const char *s, uint64_t n);
const struct tpl_function *tpl_filter_sorted(const char *s, uint64_t n);
const struct tpl_function *tpl_test(const char *s, uint64_t n);
const struct tpl_function *tpl_global(const char *s, uint64_t n);
/* The member that "a.b.0" or 0 names; def instead of an undefined one, unless NULL. */
tsr_status tpl_path(struct tpl_ctx *c, const struct tpl_value *v, const struct tpl_value *path,
                    const struct tpl_value *def, struct tpl_value *out);

/* ---- names.c ---- */
/* The one text of a name, so that names are compared by their addresses; NULL: c->status. */
const struct tpl_text *tpl_intern(struct tpl_ctx *c, const struct tpl_text *name);
/* The same while rendering; NULL: the template does not have it. */
const struct tpl_text *tpl_known_name(const struct tpl_ctx *c, const struct tpl_text *name);

/* ---- eval.c, exec.c ---- */
tsr_status tpl_eval(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                    struct tpl_value *out);
tsr_status tpl_eval_args(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *n,
                         struct tpl_args *args);
tsr_status tpl_call_value(struct tpl_ctx *c, const struct tpl_value *f, const struct tpl_args *args,
                          struct tpl_value *out);
tsr_status tpl_set_var(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_text *name,
                       const struct tpl_value *v);
tsr_status tpl_exec(struct tpl_ctx *c, struct tpl_scope *s, const struct tpl_node *body);

#endif
