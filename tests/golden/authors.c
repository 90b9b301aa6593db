#include "authors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)

static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        fail_msg("a plan without \"%s\"", key);
    return v;
}

static uint64_t whole(const json_t *o, const char *key)
{
    const json_t *v = member(o, key);
    assert_true(json_is_integer(v) && json_integer_value(v) >= 0);
    return (uint64_t)json_integer_value(v);
}

static void text(const json_t *v, char *out, size_t cap)
{
    assert_true(json_is_string(v) && json_string_length(v) < cap);
    memcpy(out, json_string_value(v), json_string_length(v) + 1);
}

/* "8x4 16x1": four layers of 8 bits, then one of 16 */
static void read_bits(struct authors_plan *p, const char *s)
{
    static const unsigned long names[AUTHORS_BITS] = { 3, 4, 8, 16 };
    for (char *end; *s; s = end + (*end == ' ')) {
        unsigned long bits = strtoul(s, &end, 10), q = 0;
        assert_int_equal(*end, 'x');
        unsigned long n = strtoul(end + 1, &end, 10);
        while (q < AUTHORS_BITS && names[q] != bits)
            q++;
        assert_true(q < AUTHORS_BITS && n > 0 && p->layers + n <= AUTHORS_LAYERS);
        for (unsigned long i = 0; i < n; i++)
            p->bits[p->layers++] = (uint32_t)q;
    }
}

static void read_plan(struct authors_plan *p, const json_t *o)
{
    const json_t *devices = member(o, "devices"), *stages = member(o, "stages"),
                 *used = member(o, "used_mib"), *budget = member(o, "budget_mib");
    uint64_t layers = 0;
    text(member(o, "id"), p->id, sizeof p->id);
    text(member(o, "method"), p->method, sizeof p->method);
    text(member(o, "model"), p->model, sizeof p->model);
    p->cluster = (uint32_t)whole(o, "cluster");
    p->batch = whole(o, "batch");
    p->prompt = whole(o, "prompt");
    p->tokens = whole(o, "tokens");
    p->prefill_mb = whole(o, "prefill_mb");
    p->decode_mb = whole(o, "decode_mb");
    p->fits = json_is_true(member(o, "fits"));
    p->stages = json_array_size(devices);
    assert_true(p->stages >= 1 && p->stages <= AUTHORS_STAGES &&
                json_array_size(stages) == p->stages && json_array_size(used) == p->stages &&
                json_array_size(budget) == p->stages);
    for (uint64_t i = 0; i < p->stages; i++) {
        text(json_array_get(devices, i), p->device[i], sizeof p->device[i]);
        p->count[i] = (uint64_t)json_integer_value(json_array_get(stages, i));
        p->used_mib[i] = (uint64_t)json_integer_value(json_array_get(used, i));
        p->budget_mib[i] = json_number_value(json_array_get(budget, i));
        assert_true(p->count[i] > 0 && p->used_mib[i] > 0 && p->budget_mib[i] > 0);
        layers += p->count[i];
    }
    assert_true(json_is_string(member(o, "bits")));
    read_bits(p, json_string_value(member(o, "bits")));
    assert_int_equal(layers, p->layers);
}

struct authors_plan *authors_load(uint64_t *n)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *file = NULL;
    if (tsr_json_load(&file, TSR_SOURCE_ROOT "/tests/golden/planner/authors/plans.json", FILE_MAX,
                      8, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    const json_t *plans = member(file, "plans");
    *n = json_array_size(plans);
    struct authors_plan *p = calloc(*n, sizeof *p);
    assert_non_null(p);
    for (uint64_t i = 0; i < *n; i++)
        read_plan(&p[i], json_array_get(plans, i));
    json_decref(file);
    return p;
}
