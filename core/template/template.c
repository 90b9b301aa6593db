/* The interface: compiling a template, and rendering it. */
#include "template/parse.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- compiling ---------------------------------------------------------- */

static tsr_status compile(struct tsr_template *t, const char *text, uint64_t bytes,
                          struct tsr_err *err)
{
    struct tpl_ctx    c = { .arena = &t->arena,
                            .err = err,
                            .name = t->name,
                            .names = t,
                            .line = 1,
                            .column = 1,
                            .filter = tpl_filter,
                            .test = tpl_test };
    struct tpl_parser p = { .c = &c, .expression = tpl_parse_expression, .tuple = tpl_parse_tuple };
    if (bytes > TPL_MAX_SOURCE)
        return tpl_fail(&c, "the template has more than %u bytes", TPL_MAX_SOURCE);
    if (!tpl_valid(text, bytes))
        return tpl_fail(&c, "the template is not UTF-8 text");
    TSR_TRY(tpl_lex(&c, text, bytes, &p.t));
    return tpl_parse_body(&p, &t->body);
}

tsr_status tsr_template_compile(struct tsr_template **out, const char *name, const char *text,
                                uint64_t bytes, struct tsr_err *err)
{
    struct tsr_template *t = tsr_new(1, sizeof *t);
    *out = NULL;
    if (t)
        t->name = tsr_strdup(name);
    if (!t || !t->name) {
        tsr_template_destroy(t);
        return tsr_fail_nomem(err, bytes, "a chat template");
    }
    tsr_status st = compile(t, text, bytes, err);
    if (st != TSR_OK)
        tsr_template_destroy(t);
    else
        *out = t;
    return st;
}

void tsr_template_destroy(struct tsr_template *t)
{
    if (!t)
        return;
    tpl_arena_free(&t->arena);
    free(t->name);
    free(t);
}

/* ---- rendering ---------------------------------------------------------- */

/* Variables that the template names. */
static tsr_status set_values(struct tpl_ctx *c, struct tpl_scope *s, const json_t *values,
                             enum tpl_from from)
{
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)values, key, v) {
        struct tpl_text        name = { .s = key, .n = strlen(key) };
        const struct tpl_text *own = tpl_known_name(c, &name);
        struct tpl_value       value;
        if (!own)
            continue;
        TSR_TRY(tpl_from_json(c, v, from, &value));
        TSR_TRY(tpl_set_var(c, s, own, &value));
    }
    return TSR_OK;
}

static uint64_t count_spans(const struct tpl_build *b, struct tsr_template_span *spans)
{
    uint64_t n = 0;
    for (uint64_t i = 0; b->mask && i < b->n;) {
        uint64_t from = i;
        while (i < b->n && b->mask[i] == b->mask[from])
            i++;
        if (!b->mask[from])
            continue;
        if (spans)
            spans[n] = (struct tsr_template_span){ from, i };
        n++;
    }
    return n;
}

static tsr_status copy_out(const struct tpl_build *b, struct tsr_template_text *out,
                           struct tsr_err *err)
{
    out->n_spans = count_spans(b, NULL);
    out->s = malloc(b->n + 1);
    out->spans = tsr_new(out->n_spans, sizeof *out->spans);
    if (!out->s || !out->spans) {
        tsr_template_text_free(out);
        return tsr_fail_nomem(err, b->n, "a conversation");
    }
    if (b->n)
        memcpy(out->s, b->s, b->n);
    out->s[b->n] = '\0';
    out->n = b->n;
    (void)count_spans(b, out->spans);
    return TSR_OK;
}

/* What the template said is the status of the rendering already. */
static void copy_raised(const struct tpl_text *t, struct tsr_template_text *out)
{
    uint64_t n = t->n < 800 ? t->n : 800;
    while (n < t->n && n && ((unsigned char)t->s[n] & 0xc0) == 0x80)
        n--; /* not inside of a character */
    out->raised = malloc(n + 1);
    if (!out->raised)
        return;
    memcpy(out->raised, t->s, n);
    out->raised[n] = '\0';
    out->n_raised = n;
}

tsr_status tsr_template_render(const struct tsr_template *t, const struct tsr_template_values *v,
                               struct tsr_template_text *out, struct tsr_err *err)
{
    static const struct tpl_text loop = { .s = "loop", .n = 4 };
    struct tpl_arena             arena = { 0 };
    struct tpl_build             b = { 0 };
    struct tpl_scope             root = { 0 };
    struct tpl_ctx               c = { .arena = &arena,
                                       .err = err,
                                       .name = t->name,
                                       .out = &b,
                                       .of = t,
                                       .date = v->date,
                                       .strict = v->strict,
                                       .filter = tpl_filter,
                                       .test = tpl_test,
                                       .line = 1,
                                       .column = 1 };
    *out = (struct tsr_template_text){ 0 };
    c.loop_name = tpl_known_name(&c, &loop);
    tsr_status st = set_values(&c, &root, v->own, TPL_OWN);
    if (st == TSR_OK)
        st = set_values(&c, &root, v->input, TPL_INPUT);
    if (st == TSR_OK)
        st = tpl_exec(&c, &root, t->body);
    if (st == TSR_OK)
        st = copy_out(&b, out, err);
    if (st == TSR_E_INPUT && c.raised)
        copy_raised(c.raised, out);
    tpl_arena_free(&arena);
    return st;
}

void tsr_template_text_free(struct tsr_template_text *out)
{
    free(out->s);
    free(out->spans);
    free(out->raised);
    *out = (struct tsr_template_text){ 0 };
}
