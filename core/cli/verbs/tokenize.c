/* tessera tokenize: text to ids and back, and conversations to text and ids, line by line. */
#include "cli/cli.h"

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/tokenizer.h"
#include "model/model.h"
#include "pipeline/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE (16u << 20)

struct tokenize_options {
    int32_t                       jsonl, special;
    const char                   *text;
    struct tsr_pipeline_chat_keys talk;
};

/* What answers a line.  The chat template is loaded for --template or for the first conversation. */
struct answering {
    const struct tsr_tokenizer    *tokenizer;
    struct tsr_chat               *chat;
    const struct tokenize_options *o;
    const char                    *path; /* of the model */
};

#define S struct tokenize_options
static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(S, jsonl, 0, "one JSON object per line of standard input, one per line out"),
    TSR_OPTION_STRING(S, text, "", "a text; prints its ids as 1,5,9"),
    TSR_OPTION_BOOL(S, special, 0, "with --text: add BOS and EOS as the template says"),
    TSR_PIPELINE_CHAT_OPTIONS(S, talk),
};
#undef S

/* ---- lines ------------------------------------------------------------- */

/* One line without its newline.  Of a longer line than MAX_LINE the rest is read and dropped. */
static tsr_status read_line(FILE *in, struct tsr_tokenizer_text *line, bool *got, bool *too_long,
                            struct tsr_err *err)
{
    line->n = 0;
    *got = *too_long = false;
    errno = 0;
    for (;;) {
        char     part[65536];
        uint64_t n = 0;
        int      c = EOF;
        while (n < sizeof part && (c = getc_unlocked(in)) != EOF && c != '\n')
            part[n++] = (char)c;
        if (n || c == '\n')
            *got = true;
        if (n > MAX_LINE - line->n)
            *too_long = true;
        if (!*too_long)
            TSR_TRY(tsr_tokenizer_text_append(line, part, n, err));
        if (c == '\n' || (c == EOF && n < sizeof part))
            break;
    }
    return ferror(in) ? tsr_fail(err, TSR_E_IO, "standard input: cannot read: %s", strerror(errno))
                      : TSR_OK;
}

static tsr_status known_keys(const json_t *j, const char *name, struct tsr_err *err)
{
    static const char *const keys[] = { "text", "special", "ids", "skip_special" };
    const char              *key;
    json_t                  *v;
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: not a JSON object", name);
    json_object_foreach ((json_t *)j, key, v) {
        bool known = false;
        for (unsigned i = 0; i < 4; i++)
            known = known || strcmp(key, keys[i]) == 0;
        if (!known)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: unknown key \"%.40s\"; text, special, ids and "
                            "skip_special are known, and messages with what a template reads",
                            name, key);
    }
    if (!json_object_get(j, "text") == !json_object_get(j, "ids"))
        return tsr_fail(err, TSR_E_INPUT, "%s: give either \"text\" or \"ids\"", name);
    return TSR_OK;
}

static json_t *ids_object(const struct tsr_tokenizer_ids *ids)
{
    json_t *list = json_array();
    for (uint64_t i = 0; list && i < ids->n; i++) {
        if (json_array_append_new(list, json_integer((json_int_t)ids->v[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    json_t *o = json_object();
    if (!o || !list || json_object_set(o, "ids", list) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_decref(list);
    return o;
}

static tsr_status encode(const struct tsr_tokenizer *t, const json_t *j, const char *name,
                         struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    const json_t *text = json_object_get(j, "text");
    bool          special = false;
    if (!json_is_string(text))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"text\" is not a string", name);
    TSR_TRY(tsr_json_bool(j, name, "special", false, &special, err));
    return tsr_tokenize(t, json_string_value(text), json_string_length(text),
                        special ? TSR_TOKENIZER_SPECIAL : 0, ids, err);
}

static tsr_status decode(const struct tsr_tokenizer *t, const json_t *j, const char *name,
                         struct tsr_tokenizer_ids *ids, struct tsr_tokenizer_text *text,
                         struct tsr_err *err)
{
    json_t *list;
    bool    skip = false;
    TSR_TRY(tsr_json_sub(j, name, "ids", true, JSON_ARRAY, &list, err));
    TSR_TRY(tsr_json_bool(j, name, "skip_special", false, &skip, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t    id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > UINT32_MAX)
            return tsr_fail(err, TSR_E_INPUT, "%s: item %zu of \"ids\" is not a token id", name, i);
        TSR_TRY(tsr_tokenizer_ids_push(ids, (uint32_t)id, err));
    }
    return tsr_detokenize(t, ids->v, ids->n, skip, text, err);
}

/* ---- conversations ------------------------------------------------------ */

static tsr_status load_chat(struct answering *a, struct tsr_err *err)
{
    const char                *name = *a->o->talk.template ? a->o->talk.template : NULL;
    struct tsr_checkpoint_chat how = { .name = name, .file = name };
    if (!tsr_tokenizer_chat_date(a->o->talk.date, &how.date))
        return tsr_fail(err, TSR_E_INPUT, "--date: '%.40s' is not a date like 2024-07-26",
                        a->o->talk.date);
    return tsr_checkpoint_chat_load(&a->chat, a->path, &how, a->tokenizer, err);
}

/* {"messages": [...], ...}: all keys are variables of the template, which decides what a message is. */
static tsr_status converse(struct answering *a, const json_t *j, const char *name, json_t **out,
                           struct tsr_err *err)
{
    struct tsr_tokenizer_ids  ids = { 0 };
    struct tsr_tokenizer_text text = { 0 };
    bool                      raised = false;
    if (!json_is_array(json_object_get(j, "messages")))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"messages\" is not a list", name);
    tsr_status st = a->chat ? TSR_OK : load_chat(a, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_chat_write(a->chat, j, &text, &raised, &ids, err);
    if (st == TSR_OK) {
        json_t *list = ids_object(&ids);
        *out = list ? json_pack("{s:s%, s:O}", "text", text.v ? text.v : "", (size_t)text.n, "ids",
                                json_object_get(list, "ids"))
                    : NULL;
        json_decref(list);
    } else if (raised) {
        *out = json_pack("{s:s%}", "error", text.v ? text.v : "", (size_t)text.n);
    }
    if ((st == TSR_OK || raised) && !*out)
        st = tsr_fail_nomem(err, text.n, "an answer");
    tsr_tokenizer_ids_free(&ids);
    tsr_tokenizer_text_free(&text);
    return st;
}

/* The answer to one line.  A bad line gets a separate error; *out is its answer where a template has its own. */
static tsr_status answer(struct answering *a, const struct tsr_tokenizer_text *line,
                         const char *name, json_t **out, struct tsr_err *err)
{
    const struct tsr_tokenizer *t = a->tokenizer;
    json_t                     *j = NULL;
    struct tsr_tokenizer_ids    ids = { 0 };
    struct tsr_tokenizer_text   text = { 0 };
    bool                        to_text = false;
    tsr_status st = tsr_json_parse(&j, name, line->v ? line->v : "", line->n, 64, err);
    if (st == TSR_OK && json_object_get(j, "messages")) {
        st = converse(a, j, name, out, err);
        json_decref(j);
        return st;
    }
    if (st == TSR_OK)
        st = known_keys(j, name, err);
    if (st == TSR_OK) {
        to_text = json_object_get(j, "ids") != NULL;
        st = to_text ? decode(t, j, name, &ids, &text, err) : encode(t, j, name, &ids, err);
    }
    if (st == TSR_OK) {
        *out = to_text ? json_pack("{s:s%}", "text", text.v ? text.v : "", (size_t)text.n)
                       : ids_object(&ids);
        if (!*out)
            st = tsr_fail_nomem(err, ids.n, "an answer");
    }
    json_decref(j);
    tsr_tokenizer_ids_free(&ids);
    tsr_tokenizer_text_free(&text);
    return st;
}

static tsr_status run_lines(struct answering *a, struct tsr_err *err)
{
    struct tsr_tokenizer_text line = { 0 };
    uint64_t                  n = 0, bad = 0;
    tsr_status                st = TSR_OK;
    while (st == TSR_OK) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        char              name[40];
        bool              got, too_long;
        json_t           *out = NULL;
        st = read_line(stdin, &line, &got, &too_long, err);
        if (st != TSR_OK || !got)
            break;
        (void)snprintf(name, sizeof name, "line %llu", (unsigned long long)++n);
        tsr_status one = too_long ? tsr_fail(&e.err, TSR_E_INPUT, "%s: longer than 16 MiB", name)
                                  : answer(a, &line, name, &out, &e.err);
        if (one == TSR_E_NOMEM || one == TSR_E_BUG) {
            st = tsr_err_copy(err, one, &e.err);
            break;
        }
        if (one != TSR_OK) {
            bad++;
            if (!out)
                out = json_pack("{s:s}", "error", e.text);
            for (char *p = e.text; !out && *p; p++) /* a quotation cut inside a character */
                *p = *p & 0x80 ? '?' : *p;
            if (!out)
                out = json_pack("{s:s}", "error", e.text);
        }
        st = tsr_cli_print_json(out, err);
    }
    tsr_tokenizer_text_free(&line);
    if (st == TSR_OK && bad)
        st = tsr_fail(err, TSR_E_INPUT,
                      "standard input: %llu of %llu lines could not be used; "
                      "their answers say why",
                      (unsigned long long)bad, (unsigned long long)n);
    return st;
}

/* ---- one text ---------------------------------------------------------- */

static tsr_status run_text(struct tsr_cli *c, const struct tsr_tokenizer *t,
                           const struct tokenize_options *o, struct tsr_err *err)
{
    struct tsr_tokenizer_ids ids = { 0 };
    tsr_status               st = tsr_tokenize(t, o->text, strlen(o->text),
                                 o->special ? TSR_TOKENIZER_SPECIAL : 0, &ids, err);
    if (st == TSR_OK && c->json) {
        st = tsr_cli_print_json(ids_object(&ids), err);
    } else if (st == TSR_OK) {
        for (uint64_t i = 0; i < ids.n; i++)
            (void)printf("%s%u", i ? "," : "", ids.v[i]);
        (void)putchar('\n');
        st = tsr_cli_flush(err);
    }
    tsr_tokenizer_ids_free(&ids);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct tokenize_options *o = opts;
    struct tsr_tokenizer          *t = NULL;
    (void)n_args;
    if (!o->jsonl == !*o->text)
        return tsr_fail(err, TSR_E_INPUT, "tokenize: give either --jsonl or --text TEXT");
    if (*o->talk.template && !o->jsonl)
        return tsr_fail(err, TSR_E_INPUT,
                        "tokenize: --template goes with --jsonl, whose lines may be conversations");
    if (o->jsonl && o->special)
        return tsr_fail(err, TSR_E_INPUT,
                        "tokenize: --special goes with --text; a line has its own \"special\"");
    char *path = NULL;
    TSR_TRY(tsr_model_resolve(args[0], &path, err));
    tsr_status       st = tsr_checkpoint_tokenizer_load(&t, path, err);
    struct answering a = { .tokenizer = t, .o = o, .path = path };
    if (st == TSR_OK && *o->talk.template)
        st = load_chat(&a, err);
    if (st == TSR_OK)
        st = o->jsonl ? run_lines(&a, err) : run_text(c, t, o, err);
    tsr_tokenizer_chat_destroy(a.chat);
    tsr_tokenizer_destroy(t);
    free(path);
    return st;
}

const struct tsr_verb tsr_verb_tokenize = {
    .name = "tokenize",
    .summary = "turns text into token ids and back",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details = "MODEL is a folder with tokenizer.json, a GGUF file or @demo.\n"
               "\n"
               "With --jsonl each line of standard input, of at most 16 MiB, is a JSON object. "
               "Each gives one line on standard output, in the same order:\n"
               "  {\"text\": \"...\", \"special\": true} gives {\"ids\": [...]}\n"
               "  {\"ids\": [...], \"skip_special\": false} gives {\"text\": \"...\"}\n"
               "  {\"messages\": [...], \"tools\": [...]} gives {\"text\": \"...\", "
               "\"ids\": [...]}\n"
               "Both flags default to false. \"special\" adds BOS and EOS as the tokenizer's "
               "template says. Special strings inside a text are always recognised. Ids without "
               "a token give no text. A line that cannot be used, such as one with a lone "
               "surrogate (\\ud800), gives {\"error\": \"...\"}, and the exit code is 2 at the "
               "end.\n"
               "\n"
               "A conversation becomes text by the model's chat template or by --template. All "
               "its keys are variables of the template, such as add_generation_prompt (false if "
               "absent), bos_token or enable_thinking. What the template raises is the error.",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tokenize_options),
    .run = run,
};
