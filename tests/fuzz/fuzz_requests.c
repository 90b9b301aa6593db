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

static void one(const struct tsr_batch_records *r, uint64_t i)
{
    static const struct tsr_batch_answer_ids ids = { "xxh3:0", "model" };
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
        uint32_t                  tokens[3] = { 1, 2, 3 };
        struct tsr_engine_logprob l[3 + 3 * TSR_ENGINE_MAX_LOGPROBS] = { { 0 } };
        struct tsr_engine_served  s = { .finish = TSR_ENGINE_FINISH_LENGTH,
                                        .tokens = tokens,
                                        .n_prompt = q.ids.n,
                                        .n_tokens = 3,
                                        .top = q.q.top };
        must(q.custom_id && q.ids.n > 0 && q.q.n_stop <= TSR_MAX_STOPS);
        must(q.ids.n + (q.q.max_tokens ? q.q.max_tokens - 1 : 0) <= d.context);
        if (q.q.logprobs) {
            s.logprobs = l;
            s.tops = l + 3;
        }
        must(tsr_batch_answer_line(&ids, i, &q, &s, NULL, &out, &e.err) == TSR_OK);
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
