#include "batch/prompt.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static tsr_status reserve(struct tsr_batch_prompts *p, size_t n, struct tsr_err *err)
{
    if (n > TSR_BATCH_CHOICES_MOST)
        return tsr_fail(err, TSR_E_INPUT, "\"prompt\" has %zu prompts, more than %u", n,
                        TSR_BATCH_CHOICES_MOST);
    p->start = tsr_new(n + 1, sizeof *p->start);
    return p->start ? TSR_OK : tsr_fail_nomem(err, n * sizeof *p->start, "prompts");
}

tsr_status tsr_batch_prompts_one(struct tsr_batch_prompts *p, struct tsr_err *err)
{
    return reserve(p, 1, err);
}

void tsr_batch_prompts_end(struct tsr_batch_prompts *p)
{
    p->start[++p->n] = p->ids.n;
}

void tsr_batch_prompts_free(struct tsr_batch_prompts *p)
{
    tsr_tokenizer_ids_free(&p->ids);
    free(p->start);
    memset(p, 0, sizeof *p);
}

static tsr_status take_text(struct tsr_batch_prompts *p, const json_t *text,
                            const struct tsr_tokenizer *t, unsigned flags, struct tsr_err *err)
{
    if (!t)
        return tsr_fail(err, TSR_E_INPUT,
                        "the model has no tokenizer; give the prompt as a list of token ids");
    TSR_TRY(
        tsr_tokenize(t, json_string_value(text), json_string_length(text), flags, &p->ids, err));
    tsr_batch_prompts_end(p);
    return TSR_OK;
}

static tsr_status take_ids(struct tsr_batch_prompts *p, const json_t *list, struct tsr_err *err)
{
    const json_t *id;
    size_t        i;
    char          where[40] = "\"prompt\"";
    if (p->listed)
        (void)snprintf(where, sizeof where, "prompt %u", p->n + 1);
    json_array_foreach ((json_t *)(uintptr_t)list, i, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > UINT32_MAX)
            return tsr_fail(err, TSR_E_INPUT, "item %zu of %s is not a token id", i + 1, where);
        TSR_TRY(tsr_tokenizer_ids_push(&p->ids, (uint32_t)json_integer_value(id), err));
    }
    tsr_batch_prompts_end(p);
    return TSR_OK;
}

static tsr_status take_list(struct tsr_batch_prompts *p, const json_t *list, bool texts,
                            const struct tsr_tokenizer *t, unsigned flags, struct tsr_err *err)
{
    const json_t *one;
    size_t        i;
    p->listed = true;
    TSR_TRY(reserve(p, json_array_size(list), err));
    json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
        if (texts ? !json_is_string(one) : !json_is_array(one))
            return tsr_fail(err, TSR_E_INPUT, "item %zu of \"prompt\" is not a %s, as the first is",
                            i + 1, texts ? "text" : "list of token ids");
        TSR_TRY(texts ? take_text(p, one, t, flags, err) : take_ids(p, one, err));
        if (p->start[i + 1] == p->start[i])
            return tsr_fail(err, TSR_E_INPUT, "prompt %zu is empty; give it at least one token",
                            i + 1);
    }
    return TSR_OK;
}

tsr_status tsr_batch_prompts_read(struct tsr_batch_prompts *p, const json_t *value,
                                  const struct tsr_tokenizer *t, unsigned flags,
                                  struct tsr_err *err)
{
    const json_t *first = json_array_get(value, 0);
    if (json_is_string(value)) {
        TSR_TRY(reserve(p, 1, err));
        return take_text(p, value, t, flags, err);
    }
    if (json_is_string(first) || json_is_array(first))
        return take_list(p, value, json_is_string(first), t, flags, err);
    if (!first)
        return tsr_fail(err, TSR_E_INPUT,
                        "\"prompt\" must be a text, a list of token ids, or a list of either, that "
                        "is not empty");
    TSR_TRY(reserve(p, 1, err));
    return take_ids(p, value, err);
}

uint32_t tsr_batch_prompts_choices(const json_t *line)
{
    const json_t *body = json_object_get(line, "body");
    const json_t *prompt = json_object_get(body, "prompt"), *first = json_array_get(prompt, 0);
    json_int_t    n = json_integer_value(json_object_get(body, "n"));
    size_t prompts = json_is_string(first) || json_is_array(first) ? json_array_size(prompt) : 1;
    n = n < 1 ? 1 : n > TSR_BATCH_N_MOST ? TSR_BATCH_N_MOST : n;
    return prompts < TSR_BATCH_CHOICES_MOST / (size_t)n ? (uint32_t)(prompts * (size_t)n)
                                                        : TSR_BATCH_CHOICES_MOST;
}
