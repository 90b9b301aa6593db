/* grammar - lets only those tokens follow that continue a JSON text of a schema, and the end only where it is complete.
 *
 * The tokens are sorted once, so that a beginning that cannot follow rules out all tokens that have it.  A token of
 * characters that any string takes is not looked at byte by byte. */
#include "grammar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *schema;
};

struct token {
    const char *s;
    uint32_t    n, id;
    uint32_t    same;  /* bytes that it begins with as the one before */
    uint32_t    plain; /* characters, of which a string takes all; 0: it has others */
};

struct grammar {
    const struct tsr_host           *host;
    struct grammar_schema            schema;
    void                            *room;
    uint64_t                         room_bytes;
    const struct tsr_sampler_tokens *tokens;
    struct token                    *sorted; /* those with a text */
    uint64_t                         n_sorted;
};

/* ---- life ------------------------------------------------------------------------ */

static void destroy(void *self)
{
    struct grammar *g = self;
    if (!g)
        return;
    g->host->release(g->host->ctx, g->room, g->room_bytes);
    if (g->sorted)
        g->host->release(g->host->ctx, g->sorted, g->tokens->vocab * sizeof *g->sorted);
    g->host->release(g->host->ctx, g, sizeof *g);
}

static tsr_status read_schema(struct grammar *g, const char *text, uint64_t length,
                              struct tsr_err *err)
{
    uint64_t           bytes = (length + 1) * (sizeof(struct json) + 1);
    void              *tree = g->host->alloc(g->host->ctx, bytes, 16);
    struct json_reader r = { .text = text, .value = tree, .err = err };
    g->room_bytes = grammar_schema_bytes(length);
    g->room = g->host->alloc(g->host->ctx, g->room_bytes, 16);
    tsr_status st = TSR_OK;
    if (!tree || !g->room) {
        st = tsr_fail(err, TSR_E_NOMEM, "grammar: out of memory: %llu bytes for the schema",
                      (unsigned long long)(bytes + g->room_bytes));
    } else {
        r.bytes = (char *)(r.value + length + 1);
        const struct json *root = json_read(&r);
        st = root ? grammar_compile(&g->schema, root, g->room, length, err) : r.st;
    }
    g->host->release(g->host->ctx, tree, bytes);
    return st;
}

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct options *o = opts;
    uint64_t              length = strlen(o->schema);
    if (length > GRAMMAR_MAX_SCHEMA)
        return tsr_fail(err, TSR_E_CONFIG, "schema: %llu bytes, more than %u",
                        (unsigned long long)length, GRAMMAR_MAX_SCHEMA);
    struct grammar *g = host->alloc(host->ctx, sizeof *g, 16);
    if (!g)
        return tsr_fail(err, TSR_E_NOMEM, "grammar: out of memory: %zu bytes", sizeof *g);
    *g = (struct grammar){ .host = host };
    tsr_status st = read_schema(g, o->schema, length, err);
    if (st == TSR_OK)
        *self = g;
    else
        destroy(g);
    return st;
}

/* ---- tokens ----------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    uint32_t            n = x->n < y->n ? x->n : y->n;
    int                 d = memcmp(x->s, y->s, n);
    if (d || x->n != y->n)
        return d ? d : x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Characters of a token, all whole, none of which ends or escapes in a string; else 0. */
static uint32_t plain_of(const struct token *t)
{
    static const struct grammar_node   string = { .types = GRAMMAR_STRING,
                                                  .max_length = GRAMMAR_NO_LIMIT };
    static const struct grammar_schema any = { .node = (struct grammar_node *)(uintptr_t)&string,
                                               .n_nodes = 1 };
    struct grammar_text                x;
    grammar_text_start(&any, &x);
    if (!grammar_text_step(&any, &x, '"'))
        return 0;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->s[i] == '"' || t->s[i] == '\\' ||
            !grammar_text_step(&any, &x, (unsigned char)t->s[i]))
            return 0;
    return x.utf8 ? 0 : x.count;
}

static tsr_status tokens(void *self, const struct tsr_sampler_tokens *t, struct tsr_err *err)
{
    struct grammar *g = self;
    struct token   *v = g->host->alloc(g->host->ctx, t->vocab * sizeof *v, 16);
    if (!v)
        return tsr_fail(err, TSR_E_NOMEM, "grammar: out of memory: %llu bytes for the tokens",
                        (unsigned long long)(t->vocab * sizeof *v));
    g->tokens = t;
    g->sorted = v;
    for (uint64_t i = 0; i < t->vocab; i++)
        if (!t->ends[i] && t->start[i + 1] > t->start[i])
            v[g->n_sorted++] = (struct token){ .s = t->bytes + t->start[i],
                                               .n = (uint32_t)(t->start[i + 1] - t->start[i]),
                                               .id = (uint32_t)i };
    if (g->n_sorted)
        qsort(v, g->n_sorted, sizeof *v, by_text);
    for (uint64_t i = 0; i < g->n_sorted; i++) {
        while (i && v[i].same < v[i].n && v[i].same < v[i - 1].n &&
               v[i].s[v[i].same] == v[i - 1].s[v[i].same])
            v[i].same++;
        v[i].plain = plain_of(&v[i]);
    }
    return TSR_OK;
}

/* ---- one request ---------------------------------------------------------------------- */

static tsr_status sizes(const void *self, uint64_t vocab, struct tsr_sampler_sizes *s,
                        struct tsr_err *err)
{
    const struct grammar *g = self;
    if (!g->tokens || vocab != g->tokens->vocab)
        return tsr_fail(err, TSR_E_INVAL, "grammar: logits of %llu tokens, and texts of %llu",
                        (unsigned long long)vocab,
                        (unsigned long long)(g->tokens ? g->tokens->vocab : 0));
    s->state_bytes = s->scratch_bytes = grammar_text_bytes(&g->schema);
    return TSR_OK;
}

static tsr_status start(const void *self, const struct tsr_sampler_request *request, void *state,
                        struct tsr_err *err)
{
    (void)request;
    const struct grammar *g = self;
    (void)err;
    grammar_text_start(&g->schema, state);
    return TSR_OK;
}

/* Bytes of a token that can follow; all of them: the token can. */
static uint32_t fitting(const struct grammar_schema *s, const struct grammar_text *at,
                        struct grammar_text *copy, const struct token *t)
{
    uint32_t i = 0;
    memcpy(copy, at, sizeof *at + at->depth * sizeof *at->frame);
    while (i < t->n && grammar_text_step(s, copy, (unsigned char)t->s[i]))
        i++;
    return i;
}

static uint64_t mask(const struct grammar *g, const struct tsr_sampler_job *job, uint32_t room)
{
    uint32_t blocked = UINT32_MAX; /* the token before cannot follow with this byte */
    uint64_t left = 0;
    for (uint64_t i = 0; i < g->n_sorted; i++) {
        const struct token *t = &g->sorted[i];
        bool                fits = false;
        if (blocked == UINT32_MAX ||
            t->same <= blocked) { /* else it begins with what cannot follow */
            blocked = UINT32_MAX;
            fits = t->plain && t->plain <= room;
            if (!fits) {
                uint32_t n = fitting(&g->schema, job->state, job->scratch, t);
                fits = n == t->n;
                blocked = fits ? UINT32_MAX : n;
            }
        }
        if (!fits)
            job->logits[t->id] = -INFINITY;
        left += fits;
    }
    return left;
}

static tsr_status sample(const void *self, const struct tsr_sampler_job *job, uint32_t *token,
                         struct tsr_err *err)
{
    const struct grammar            *g = self;
    const struct tsr_sampler_tokens *t = g->tokens;
    bool                             complete = grammar_text_complete(&g->schema, job->state);
    uint64_t                         left = mask(g, job, grammar_text_room(&g->schema, job->state));
    for (uint64_t i = 0; i < job->vocab; i++) {
        if (!t->ends[i] && t->start[i + 1] > t->start[i])
            continue;
        if (t->ends[i] && complete)
            left++;
        else
            job->logits[i] = -INFINITY;
    }
    if (left == 0 && complete)
        *token = TSR_SAMPLER_END;
    else if (left == 0)
        return tsr_fail(err, TSR_E_NUMERIC,
                        "grammar: no token of the vocabulary continues the text");
    return TSR_OK;
}

static tsr_status accept(const void *self, void *state, uint32_t token, struct tsr_err *err)
{
    const struct grammar            *g = self;
    const struct tsr_sampler_tokens *t = g->tokens;
    if (token >= t->vocab)
        return tsr_fail(err, TSR_E_INVAL, "grammar: token %u, and the vocabulary has %llu", token,
                        (unsigned long long)t->vocab);
    for (uint64_t i = t->start[token]; !t->ends[token] && i < t->start[token + 1]; i++)
        if (!grammar_text_step(&g->schema, state, (unsigned char)t->bytes[i]))
            return tsr_fail(err, TSR_E_INVAL,
                            "grammar: token %u was taken, which the schema does not allow here",
                            token);
    return TSR_OK;
}

static const struct tsr_sampler_v1 table = {
    .struct_size = sizeof table,
    .needs = TSR_SAMPLER_TOKENS,
    .create = create,
    .destroy = destroy,
    .tokens = tokens,
    .sizes = sizes,
    .start = start,
    .sample = sample,
    .accept = accept,
};

static const struct tsr_option options[] = {
    TSR_OPTION_STRING(struct options, schema, "{}", "JSON schema of the text; {}: any JSON value."),
};

static const struct tsr_component grammar = {
    .struct_size = sizeof grammar,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SAMPLER,
    .name = "grammar",
    .summary = "Keeps the text within a JSON schema.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
static const struct tsr_component *const components[] = { &grammar };

TSR_PLUGIN_SYMBOL(grammar) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.grammar", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,    .n_components = 1,
};
