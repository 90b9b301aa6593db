/* The sampler `grammar`.  The oracle of which texts are valid is Python's jsonschema (grammar/texts.jsonl, written by
 * grammar/record.py).  Texts that are drawn under random logits are parsed by Jansson and checked by a validator of this
 * file, which is checked against the same recorded texts first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/sampler.h"
#include "plugin_open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/sampler.h"

/* ---- a vocabulary: every byte, words of JSON, an end ---------------------------------- */

#define VOCAB 300u
#define END   299u

static char                      bytes[2048];
static uint64_t                  begins[VOCAB + 1];
static uint8_t                   ends[VOCAB];
static struct tsr_sampler_tokens tokens;

static void make_tokens(void)
{
    static const char *const words[] = { "true", "false", "null", "\":",   "\",\"", "{\"", "\"}",
                                         "12",   "0.5",   "é",    "\":\"", "[1",    "],",  "a\",",
                                         " the", "日",    "\\\"", "\\u00", "e+2",   "}]" };
    uint64_t                 n = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        begins[i] = n;
        const char *w = i >= 256 && i < 256 + sizeof words / sizeof *words ? words[i - 256] : "";
        if (i < 256)
            bytes[n++] = (char)i;
        memcpy(bytes + n, w, strlen(w));
        n += strlen(w);
        ends[i] = i == END;
    }
    begins[VOCAB] = n;
    tokens = (struct tsr_sampler_tokens){
        .struct_size = sizeof tokens, .vocab = VOCAB, .bytes = bytes, .start = begins, .ends = ends
    };
}

/* ---- one text --------------------------------------------------------------------- */

struct one {
    struct tsr_plugin_spec       spec;
    const struct tsr_sampler_v1 *t;
    void                        *self, *state, *scratch;
    uint64_t                     state_bytes;
    float                        logits[VOCAB];
};

static struct tsr_registry *registry;

static tsr_status open_schema(struct one *o, const char *schema, struct tsr_err *err)
{
    struct tsr_sampler_sizes z = { .struct_size = sizeof z };
    memset(o, 0, sizeof *o);
    tsr_status st =
        tsr_plugin_spec_one(&o->spec, registry, TSR_KIND_SAMPLER, "grammar", "schema", schema, err);
    o->t = o->spec.found.iface;
    if (st == TSR_OK)
        st = o->t->create(o->spec.found.host, o->spec.options, &o->self, err);
    if (st == TSR_OK)
        st = o->t->tokens(o->self, &tokens, err);
    if (st == TSR_OK)
        st = o->t->sizes(o->self, VOCAB, &z, err);
    if (st != TSR_OK)
        return st;
    o->state_bytes = z.state_bytes;
    o->state = malloc(z.state_bytes);
    o->scratch = malloc(z.scratch_bytes);
    assert_true(o->state && o->scratch);
    const struct tsr_sampler_request request = { .struct_size = sizeof request, .vocab = VOCAB };
    return o->t->start(o->self, &request, o->state, err);
}

static void close_schema(struct one *o)
{
    if (o->self)
        o->t->destroy(o->self);
    tsr_plugin_spec_close(&o->spec);
    free(o->state);
    free(o->scratch);
}

static tsr_status mask(struct one *o, uint32_t *token)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_sampler_job j = { .struct_size = sizeof j,
                                 .vocab = VOCAB,
                                 .logits = o->logits,
                                 .state = o->state,
                                 .scratch = o->scratch };
    *token = TSR_SAMPLER_NONE;
    return o->t->sample(o->self, &j, token, &e.err);
}

/* Whether every byte of the text can follow and the end can, as the masks say. */
static bool accepts(const char *schema, const char *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct one        o;
    uint32_t          token;
    bool              ok = true;
    if (open_schema(&o, schema, &e.err) != TSR_OK)
        fail_msg("%s: %s", schema, e.text);
    for (const char *c = text; ok && *c; c++) {
        memset(o.logits, 0, sizeof o.logits);
        assert_int_equal(mask(&o, &token), TSR_OK);
        ok = o.logits[(unsigned char)*c] > -INFINITY;
        if (ok && o.t->accept(o.self, o.state, (unsigned char)*c, &e.err) != TSR_OK)
            fail_msg("%s: a token that the mask left was refused: %s", schema, e.text);
    }
    memset(o.logits, 0, sizeof o.logits);
    if (ok) {
        assert_int_equal(mask(&o, &token), TSR_OK);
        ok = o.logits[END] > -INFINITY;
    }
    close_schema(&o);
    return ok;
}

/* ---- a validator of its own ---------------------------------------------------------- */

static bool is_type(const json_t *v, const char *t)
{
    return (strcmp(t, "string") == 0 && json_is_string(v)) ||
           (strcmp(t, "number") == 0 && json_is_number(v)) ||
           (strcmp(t, "integer") == 0 && json_is_integer(v)) ||
           (strcmp(t, "boolean") == 0 && json_is_boolean(v)) ||
           (strcmp(t, "null") == 0 && json_is_null(v)) ||
           (strcmp(t, "array") == 0 && json_is_array(v)) ||
           (strcmp(t, "object") == 0 && json_is_object(v));
}

static bool type_fits(const json_t *s, const json_t *v)
{
    const json_t *t = json_object_get(s, "type"), *one;
    size_t        i;
    if (json_is_string(t))
        return is_type(v, json_string_value(t));
    json_array_foreach ((json_t *)(uintptr_t)t, i, one)
        if (is_type(v, json_string_value(one)))
            return true;
    return t == NULL;
}

static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static bool within(const json_t *s, const char *least, const char *most, size_t n)
{
    const json_t *lo = json_object_get(s, least), *hi = json_object_get(s, most);
    return (!lo || n >= (size_t)json_integer_value(lo)) &&
           (!hi || n <= (size_t)json_integer_value(hi));
}

static bool valid(const json_t *s, const json_t *v)
{
    const json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const");
    const json_t *all = json_object_get(s, "properties"), *items = json_object_get(s, "items");
    json_t       *x;
    const char   *key;
    size_t        i;
    bool          ok =
        type_fits(s, v) && (!one || json_equal((json_t *)(uintptr_t)one, (json_t *)(uintptr_t)v));
    bool in = list == NULL;
    json_array_foreach ((json_t *)(uintptr_t)list, i, x)
        in = in || json_equal(x, (json_t *)(uintptr_t)v);
    if (json_is_string(v))
        ok = ok && within(s, "minLength", "maxLength", characters(json_string_value(v)));
    if (json_is_array(v))
        ok = ok && within(s, "minItems", "maxItems", json_array_size(v));
    json_array_foreach ((json_t *)(uintptr_t)v, i, x)
        ok = ok && (!items || valid(items, x));
    json_object_foreach ((json_t *)(uintptr_t)v, key, x)
        ok = ok && (!all || (json_object_get(all, key) && valid(json_object_get(all, key), x)));
    if (json_is_object(v))
        json_array_foreach (json_object_get(s, "required"), i, x)
            ok = ok && json_object_get(v, json_string_value(x));
    return ok && in;
}

static bool parses_and_validates(const json_t *schema, const char *text, size_t n)
{
    json_t *v =
        json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    bool ok = v && valid(schema, v);
    json_decref(v);
    return ok;
}

/* ---- the recorded texts ----------------------------------------------------------------- */

static json_t *cases;

static void look_at(const char *list, bool wanted)
{
    size_t  i, k, n = 0;
    json_t *one, *text;
    json_array_foreach (cases, i, one) {
        json_t *schema = json_object_get(one, "schema");
        char   *s = json_dumps(schema, JSON_COMPACT | JSON_REAL_PRECISION(15));
        json_array_foreach (json_object_get(one, list), k, text) {
            const char *t = json_string_value(text);
            if (accepts(s, t) != wanted)
                fail_msg("schema %s: the text %s is %s by jsonschema", s, t, list);
            if (parses_and_validates(schema, t, strlen(t)) != wanted)
                fail_msg("schema %s: this test's validator is wrong about %s", s, t);
            n++;
        }
        free(s);
    }
    assert_true(n > 300);
}

static void test_accepted(void **state)
{
    (void)state;
    look_at("accept", true);
}

static void test_refused(void **state)
{
    (void)state;
    look_at("refuse", false);
}

/* ---- texts under random logits ------------------------------------------------------------ */

/* Closing bytes are likelier, so that texts end. */
static void random_logits(float *l, uint64_t seed, uint64_t text, uint64_t at)
{
    for (uint32_t i = 0; i < VOCAB; i++)
        l[i] = (float)(4 * tsr_uniform(seed, text, at * VOCAB + i));
    l['"'] += 3;
    l[']'] += 2;
    l['}'] += 2;
    l[END] += 3;
}

static void draw(const json_t *schema, const char *s, uint64_t seed, uint64_t text, uint32_t *ended)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct one        o;
    char              out[4096];
    size_t            n = 0;
    if (open_schema(&o, s, &e.err) != TSR_OK)
        fail_msg("%s: %s", s, e.text);
    for (uint64_t at = 0; n < sizeof out - 16; at++) {
        uint32_t token, best = 0;
        random_logits(o.logits, seed, text, at);
        assert_int_equal(mask(&o, &token), TSR_OK);
        for (uint32_t i = 1; i < VOCAB; i++)
            best = o.logits[i] > o.logits[best] ? i : best;
        assert_true(o.logits[best] > -INFINITY);
        if (best == END) {
            (*ended)++;
            if (!parses_and_validates(schema, out, n))
                fail_msg("schema %s, seed %llu: the text %.*s is not valid", s,
                         (unsigned long long)seed, (int)n, out);
            break;
        }
        memcpy(out + n, bytes + begins[best], begins[best + 1] - begins[best]);
        n += begins[best + 1] - begins[best];
        assert_int_equal(o.t->accept(o.self, o.state, best, &e.err), TSR_OK);
    }
    close_schema(&o);
}

static void test_drawn(void **state)
{
    const char *given = getenv("TSR_TEST_SEED");
    uint64_t    seed = given ? strtoull(given, NULL, 10) : 1;
    uint32_t    ended = 0, all = 0;
    size_t      i;
    json_t     *one;
    (void)state;
    json_array_foreach (cases, i, one) {
        char *s =
            json_dumps(json_object_get(one, "schema"), JSON_COMPACT | JSON_REAL_PRECISION(15));
        for (uint64_t k = 0; k < 4; k++, all++)
            draw(json_object_get(one, "schema"), s, seed, 4 * i + k, &ended);
        free(s);
    }
    assert_true(ended > all * 9 / 10);
}

/* A state that was copied goes on as the one that it was copied from, at every byte. */
static void test_states(void **state)
{
    static const char text[] = "{\"a\": [1, \"x\\u00e9\", null], \"b\": {\"c\": -1.5e3}}";
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct one        o, p;
    (void)state;
    assert_int_equal(open_schema(&o, "{}", &e.err), TSR_OK);
    for (const char *c = text; *c; c++) {
        uint32_t token;
        assert_int_equal(open_schema(&p, "{}", &e.err), TSR_OK);
        assert_int_equal(o.state_bytes, p.state_bytes);
        memcpy(p.state, o.state, o.state_bytes);
        memset(o.logits, 0, sizeof o.logits);
        memset(p.logits, 0, sizeof p.logits);
        assert_int_equal(mask(&o, &token), TSR_OK);
        assert_int_equal(mask(&p, &token), TSR_OK);
        assert_memory_equal(o.logits, p.logits, sizeof o.logits);
        close_schema(&o);
        o = p;
        assert_int_equal(o.t->accept(o.self, o.state, (unsigned char)*c, &e.err), TSR_OK);
    }
    close_schema(&o);
}

/* ---- schemas that are refused ------------------------------------------------------------- */

static void test_schemas(void **state)
{
    static const char *const bad[][2] = {
        { "", "expected a value" },
        { "{", "expected a key" },
        { "[]", "a schema is an object or true" },
        { "{} x", "text after the value" },
        { "{\"type\": \"text\"}", "'type' is not one of" },
        { "{\"type\": []}", "empty list" },
        { "{\"pattern\": \"a\"}", "'pattern' is not supported" },
        { "{\"properties\": {\"a\": {\"anyOf\": []}}}", "/properties/a: the keyword 'anyOf'" },
        { "{\"type\": \"string\", \"type\": \"null\"}", "given twice" },
        { "{\"required\": [\"a\"]}", "'properties' lacks" },
        { "{\"additionalProperties\": true}", "can only be false" },
        { "{\"enum\": []}", "no value is left" },
        { "{\"enum\": [1], \"type\": \"string\"}", "no value is left" },
        { "{\"minItems\": 2, \"maxItems\": 1}", "'minItems' is more" },
        { "{\"minLength\": -1}", "no whole number" },
        { "{\"title\": \"\\ud800\"}", "four hex digits" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct one        o;
        tsr_status        st = open_schema(&o, bad[i][0], &e.err);
        if (st != TSR_E_CONFIG || !strstr(e.text, bad[i][1]))
            fail_msg("schema %s: %s", bad[i][0], e.text);
        close_schema(&o);
    }
}

static int setup(void **state)
{
    struct tsr_plugin_found f;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    char                   *text = NULL, *next;
    uint64_t                n = 0;
    (void)state;
    registry = open_plugin(TSR_KIND_SAMPLER, "grammar", &f);
    make_tokens();
    cases = json_array();
    if (tsr_file_slurp(TSR_TEST_TEXTS, 1 << 24, &text, &n, &e.err) != TSR_OK)
        return 1;
    for (char *line = strchr(text, '\n') + 1; *line; line = next) {
        next = strchr(line, '\n') + 1;
        json_t *one = json_loadb(line, (size_t)(next - line), 0, NULL);
        if (!one || json_array_append_new(cases, one) != 0)
            return 1;
    }
    free(text);
    return json_array_size(cases) < 100;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(cases);
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_drawn),    cmocka_unit_test(test_states),
        cmocka_unit_test(test_schemas),
    };
    return cmocka_run_group_tests_name("the sampler grammar", tests, setup, teardown);
}
