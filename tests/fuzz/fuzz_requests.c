/* A file of requests: every line is read, becomes a request or an error, and gives an output line that
 * is JSON with its custom_id. */
#include "base/json.h"
#include "batch/records.h"
#include "batch/request.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void check_line(struct tsr_tokenizer_text *line, const char *custom_id)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    must(memchr(line->v, '\n', line->n) == NULL);
    must(tsr_json_parse(&j, "line", line->v, line->n, 16, &e.err) == TSR_OK);
    const char *id = json_string_value(json_object_get(j, "custom_id"));
    must(custom_id ? id && strcmp(id, custom_id) == 0 : id == NULL);
    must(json_is_null(json_object_get(j, "error")) != json_is_null(json_object_get(j, "response")));
    json_decref(j);
    line->n = 0;
}

/* Of a prompt of at most 64 tokens. */
static json_t *choice(const struct tsr_batch_request *q, uint32_t k, uint64_t context)
{
    enum { MOST = 64 + 3 };
    static struct tsr_engine_logprob l[MOST * (1 + TSR_ENGINE_MAX_LOGPROBS)];
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_engine_serve_request  c = tsr_batch_request_choice(q, k);
    uint32_t                         tokens[3] = { 1, 2, 3 };
    must(c.n_prompt > 0 && c.n_prompt + (c.max_tokens ? c.max_tokens - 1 : 0) <= context);
    struct tsr_engine_served s = { .finish = TSR_ENGINE_FINISH_LENGTH,
                                   .prompt = c.prompt,
                                   .tokens = tokens,
                                   .n_prompt = c.n_prompt,
                                   .n_tokens = 3,
                                   .top = c.top };
    if (c.logprobs) {
        s.logprobs = l;
        s.n_logprobs = 3 + (c.prompt_logprobs ? c.n_prompt - 1 : 0);
        s.tops = l + MOST;
    }
    json_t *j = tsr_batch_answer_choice(q, k, &s, NULL, &e.err);
    must(j != NULL);
    return j;
}

/* What is written is what a journal takes. */
static void check_answer(const struct tsr_tokenizer_text   *line,
                         const struct tsr_batch_answer_ids *ids, uint64_t number,
                         const struct tsr_batch_request *q, uint32_t choices)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    struct tsr_batch_answer_expect x = { ids, number, true, q->custom_id, choices };
    must(tsr_batch_prompts_choices(q->root) == choices);
    must(tsr_batch_answer_check(line->v, line->n, false, &x, &e.err) == TSR_OK);
    x.choices++; /* an answer that lacks one is not taken */
    must(tsr_batch_answer_check(line->v, line->n, false, &x, &e.err) == TSR_E_INPUT);
}

static void one(const struct tsr_batch_records *r, uint64_t i)
{
    static const struct tsr_batch_answer_ids ids = { .base = "xxh3:0", .model = "model" };
    struct tsr_batch_request_defaults        d = {
               .max_tokens = 16,
               .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
               .context = 64,
               .why_no_chat = "no template"
    };
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_batch_request  q;
    struct tsr_tokenizer_text out = { 0 };
    char                     *line;
    uint64_t                  len;
    tsr_status                st = tsr_batch_records_read(r, i, &line, &len, &e.err);
    if (st != TSR_OK) {
        must(st == TSR_E_INPUT);
        return;
    }
    st = tsr_batch_request_parse(&q, line, len, i, &d, &e.err);
    if (st == TSR_OK) {
        uint32_t n = tsr_batch_request_choices(&q);
        must(q.custom_id && q.q.n_stop <= TSR_MAX_STOPS && n >= 1 && n <= TSR_BATCH_CHOICES_MOST);
        json_t *choices = json_array();
        for (uint32_t k = 0; k < n; k++)
            must(json_array_append_new(choices, choice(&q, k, d.context)) == 0);
        must(tsr_batch_answer_line(&ids, i, &q, choices, 3 * n, &out, &e.err) == TSR_OK);
        check_answer(&out, &ids, i, &q, n);
    } else {
        must(q.code && *e.text);
        must(tsr_batch_answer_error(&ids, i, q.custom_id, q.code, e.text, &out, &e.err) == TSR_OK);
    }
    check_line(&out, q.custom_id);
    tsr_tokenizer_text_free(&out);
    tsr_batch_request_free(&q);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_batch_records r;
    char                     path[40];
    int                      fd = memfd_create("requests", MFD_CLOEXEC);
    must(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    tsr_status st = tsr_batch_records_open(&r, path, 0, 1 + size % 2, 2, &e.err);
    if (st == TSR_OK) {
        must(r.n <= r.lines && r.first + r.n <= r.lines);
        for (uint64_t i = 0; i < r.n && i < 64; i++)
            one(&r, i);
        tsr_batch_records_close(&r);
    } else {
        must(st == TSR_E_INPUT && *e.text);
    }
    (void)close(fd);
    return 0;
}
