/* What a comparison found, as JSON and as a table. */
#include "pipeline/compare.h"

#include <math.h>
#include <string.h>

static bool put_speed(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    json_t *s = json_object(), *prefill = json_array(), *decode = json_array();
    bool    ok =
        tsr_json_put_real(s, "prefill_tokens_per_s", a->prefill_median) &&
        tsr_json_put_real(s, "decode_tokens_per_s", a->decode_median) &&
        tsr_json_put_text(s, "act", a->overlay ? tsr_act_name((uint32_t)c->speed.act) : "f32");
    for (int64_t i = 0; ok && i < c->speed.repeats; i++)
        ok = json_array_append_new(prefill, json_real(a->prefill[i])) == 0 &&
             json_array_append_new(decode, json_real(a->decode[i])) == 0;
    ok = tsr_json_put(s, "prefill_runs", prefill) && ok;
    ok = tsr_json_put(s, "decode_runs", decode) && ok;
    return tsr_json_put(j, "speed", s) && ok;
}

static json_t *arm_json(const struct compare *c, const struct compare_arm *a)
{
    json_t *j = json_object();
    bool    ok = tsr_json_put_text(j, "name", a->name);
    if (a->status != TSR_OK)
        ok = ok && tsr_json_put_text(j, "failed", a->error.text);
    if (a->bytes)
        ok = ok && tsr_json_put_int(j, "bytes", a->bytes) &&
             tsr_json_put_real(j, "bits_per_weight", a->bits);
    if (a->has_eval)
        ok = ok && tsr_eval_result_put(j, c->windows, &a->eval);
    if (a->has_a8) {
        json_t *a8 = json_object();
        ok = tsr_eval_result_put(a8, c->windows, &a->a8) && ok;
        ok = tsr_json_put(j, "a8", a8) && ok;
    }
    if (a->has_speed)
        ok = ok && put_speed(j, c, a);
    if (a->texts && json_array_size(a->texts))
        ok = ok && json_object_set(j, "samples", a->texts) == 0;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static bool put_perplexity_of(json_t *j, const struct compare *c)
{
    json_t *o = tsr_windows_json(c->windows, c->eval.text, c->job->tokenizer);
    bool    ok = o && tsr_json_put_int(o, "tokens", c->windows->tokens) &&
              tsr_json_put_text(o, "counted", c->windows->words ? "words" : "tokens") &&
              tsr_json_put_text(o, "act", "f32") && tsr_json_put_text(o, "device", c->device) &&
              tsr_json_put(o, "kl", json_boolean(c->measure.kl)) &&
              tsr_json_put(o, "a8", json_boolean(c->measure.a8));
    return tsr_json_put(j, "perplexity_of", o) && ok;
}

static bool put_speed_of(json_t *j, const struct compare *c)
{
    json_t *o = json_object();
    bool    ok = tsr_json_put_int(o, "prompt", (uint64_t)c->speed.prompt) &&
              tsr_json_put_int(o, "generate", (uint64_t)c->speed.generate) &&
              tsr_json_put_int(o, "repeats", (uint64_t)c->speed.repeats) &&
              tsr_json_put_text(o, "act", tsr_act_name((uint32_t)c->speed.act)) &&
              tsr_json_put_text(o, "device", c->device) &&
              tsr_json_put_int(o, "threads", tsr_pool_threads(tsr_registry_pool(c->job->registry)));
    return tsr_json_put(j, "speed_of", o) && ok;
}

static bool put_samples_of(json_t *j, const struct compare *c)
{
    json_t *o = json_object();
    bool    ok = tsr_json_put_real(o, "temperature", c->sample.temperature) &&
              tsr_json_put_int(o, "seed", c->job->seed) &&
              tsr_json_put_text(o, "act", tsr_act_name((uint32_t)c->sample.act));
    return tsr_json_put(j, "samples_of", o) && ok;
}

json_t *compare_json(const struct compare *c)
{
    json_t *j = json_object(), *arms = json_array();
    bool    ok = tsr_json_put_int(j, "weights", c->weights);
    if (c->do_eval)
        ok = ok && put_perplexity_of(j, c);
    if (c->do_speed)
        ok = ok && put_speed_of(j, c);
    if (c->keys.samples)
        ok = ok && put_samples_of(j, c);
    for (uint64_t i = 0; ok && i < c->n; i++)
        ok = json_array_append_new(arms, arm_json(c, &c->arms[i])) == 0;
    ok = tsr_json_put(j, "arms", arms) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* ---- for people: printed from the result, so that a finished job prints the same -------- */

static double real_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static uint64_t int_of(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* 1234567 as "1,234,567". */
static void grouped(char out[32], uint64_t v)
{
    char     digits[24];
    int      n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    unsigned o = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            out[o++] = ',';
        out[o++] = digits[i];
    }
    out[o] = '\0';
}

/* "-" where there is no number. */
static void cell(FILE *to, int width, int digits, double v, const char *unit)
{
    char text[48] = "-";
    if (isfinite(v))
        (void)snprintf(text, sizeof text, "%.*f%s", digits, v, unit);
    (void)fprintf(to, "  %*s", width, text);
}

static bool has_a8(const json_t *r)
{
    return json_is_true(json_object_get(json_object_get(r, "perplexity_of"), "a8"));
}

static void print_arm(const json_t *r, const json_t *a, int name, FILE *to)
{
    char bytes[32];
    (void)fprintf(to, "%-*s", name, text_of(a, "name"));
    if (json_object_get(a, "failed")) {
        (void)fprintf(to, "  failed: %s\n", text_of(a, "failed"));
        return;
    }
    grouped(bytes, int_of(a, "bytes"));
    (void)fprintf(to, "  %10.2f  %12s", real_of(a, "bits_per_weight"), bytes);
    if (json_object_get(r, "perplexity_of")) {
        cell(to, 16, 4, real_of(a, "perplexity"), "");
        cell(to, 9, 6, real_of(json_object_get(a, "kl"), "mean"), "");
        cell(to, 9, 2, 100 * real_of(a, "top1"), " %");
        if (has_a8(r))
            cell(to, 10, 4, real_of(json_object_get(a, "a8"), "perplexity"), "");
    }
    if (json_object_get(r, "speed_of")) {
        const json_t *s = json_object_get(a, "speed");
        cell(to, 9, 0, real_of(s, "prefill_tokens_per_s"), "");
        cell(to, 9, 0, real_of(s, "decode_tokens_per_s"), "");
    }
    (void)fprintf(to, "\n");
}

static void print_head(const json_t *r, int name, FILE *to)
{
    const json_t *p = json_object_get(r, "perplexity_of"), *s = json_object_get(r, "speed_of");
    (void)fprintf(to, "%-*s  %10s  %12s", name, "", "bits per", "");
    if (p)
        (void)fprintf(to, "  %16s  %9s  %9s", "perplexity", "mean KL", "top-1");
    if (has_a8(r))
        (void)fprintf(to, "  %10s", "perplexity");
    if (s)
        (void)fprintf(to, "  %9s  %9s", "prefill", "decode");
    (void)fprintf(to, "\n%-*s  %10s  %12s", name, "arm", "weight", "bytes");
    if (p)
        (void)fprintf(to, "  %16s  %9s  %9s", text_of(p, "protocol"), "(nats)", "agreement");
    if (has_a8(r))
        (void)fprintf(to, "  %10s", "act a8");
    if (s)
        (void)fprintf(to, "  %9s  %9s", "tokens/s", "tokens/s");
    (void)fprintf(to, "\n");
}

static void print_notes(const json_t *r, FILE *to)
{
    const json_t *p = json_object_get(r, "perplexity_of"), *s = json_object_get(r, "speed_of");
    char          text[32];
    grouped(text, int_of(r, "weights"));
    (void)fprintf(to, "\nbits, bytes: the %s weights of the decoder's linears, with their scales\n",
                  text);
    if (p) {
        grouped(text, int_of(p, "tokens"));
        (void)fprintf(to, "perplexity:  %s on %s, %s %s, window %llu, BOS %s, act %s%s\n",
                      text_of(p, "protocol"), text_of(p, "text"), text, text_of(p, "counted"),
                      (unsigned long long)int_of(p, "window"), text_of(p, "bos"), text_of(p, "act"),
                      json_is_true(json_object_get(p, "kl")) ? "; KL and top-1 against 'original'"
                                                             : "");
    }
    if (s)
        (void)fprintf(to,
                      "speed:       one sequence, prompt %llu, generate %llu, median of %llu "
                      "interleaved runs, act %s on packed weights, %llu threads, %s\n",
                      (unsigned long long)int_of(s, "prompt"),
                      (unsigned long long)int_of(s, "generate"),
                      (unsigned long long)int_of(s, "repeats"), text_of(s, "act"),
                      (unsigned long long)int_of(s, "threads"), text_of(s, "device"));
}

static void print_samples(const json_t *r, FILE *to)
{
    const json_t *arms = json_object_get(r, "arms"), *of = json_object_get(r, "samples_of"), *a;
    size_t        n = json_array_size(json_object_get(json_array_get(arms, 0), "samples")), k;
    if (!of)
        return;
    (void)fprintf(to, "samples:     %s, act %s on packed weights\n",
                  real_of(of, "temperature") > 0 ? "drawn with the job's seed" : "greedy",
                  text_of(of, "act"));
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(to, "\n");
        json_array_foreach (arms, k, a) {
            const json_t *t = json_array_get(json_object_get(a, "samples"), i);
            if (t)
                (void)fprintf(to, "[%s] %s%s\n", text_of(a, "name"), text_of(t, "prompt"),
                              text_of(t, "text"));
        }
    }
}

void compare_print(const json_t *r, FILE *to)
{
    const json_t *arms = json_object_get(r, "arms"), *a;
    int           name = 8;
    size_t        i;
    json_array_foreach (arms, i, a) {
        int n = (int)strnlen(text_of(a, "name"), 60);
        name = n > name ? n : name;
    }
    print_head(r, name, to);
    json_array_foreach (arms, i, a)
        print_arm(r, a, name, to);
    print_notes(r, to);
    print_samples(r, to);
}
