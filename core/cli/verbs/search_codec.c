/* tessera search-codec: the codec with the fewest bits whose perplexity increase is below a limit, chosen
 * on one text and confirmed on another; or chosen from a table of measurements. */
#include "cli/cli.h"

#include "base/mem.h"
#include "eval/codec_search.h"
#include "pipeline/codecs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search_options {
    const char                   *choose, *confirm, *table;
    struct tsr_cli_strings        codec;
    struct tsr_pipeline_eval_keys eval;
    int64_t                       simulate_tp, algorithm, act;
    double                        limit;
};

#define S struct search_options
static const struct tsr_option options[] = {
    TSR_OPTION_PATH(S, choose, "", "FILE", "Text to choose on."),
    TSR_OPTION_PATH(S, confirm, "", "FILE", "Text to confirm the choice on."),
    TSR_OPTION_PATH(S, table, "", "FILE",
                    "Choose from this file of measured increases; no model runs."),
    TSR_OPTION_REPEAT(S, codec, "SPEC",
                      "A candidate; may be repeated.  Default: FP3, FP4 and FP5 in blocks of 8, 16 "
                      "and 32 with E5M0 scales."),
    TSR_OPTION_INT(S, simulate_tp, 2, 2, TSR_ENGINE_SPLIT_MAX, "ranks", "Ranks to simulate."),
    TSR_OPTION_ENUM(S, algorithm, TSR_COMM_ALL_GATHER, tsr_algorithm_choices,
                    "How the ranks add their partial sums."),
    TSR_OPTION_REAL(S, limit, TSR_CODEC_LIMIT, 0.0, 1000.0, "percent",
                    "Perplexity may rise by less than this."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, tsr_act_choices, "How activations enter packed weights."),
    { .name = "protocol",
      .help = "How perplexity is taken.",
      .type = TSR_OPT_ENUM,
      .offset = TSR_FIELD(S, eval.protocol, int64_t),
      .def = { .i = TSR_EVAL_PPL_GPTQ_2048 },
      .choices = tsr_protocol_choices,
      .n_choices = 3 },
    { .name = "window",
      .help = "Tokens in a window; 0: the protocol's, at most the model's.",
      .unit = "tokens",
      .type = TSR_OPT_INT,
      .offset = TSR_FIELD(S, eval.window, int64_t),
      .min = { .i = 0 },
      .max = { .i = 1 << 30 } },
    { .name = "max_windows",
      .help = "Stop after this many windows of a text; 0: all.",
      .unit = "windows",
      .type = TSR_OPT_INT,
      .offset = TSR_FIELD(S, eval.max_windows, int64_t),
      .min = { .i = 0 },
      .max = { .i = 1 << 30 } },
};
#undef S

#define GRID 9u
#define SPEC 64u

struct search {
    const struct search_options  *o;
    struct tsr_registry          *registry;
    struct tsr_model             *model;
    struct tsr_tokenizer         *tokenizer;
    char                          grid[GRID][SPEC];
    const char                  **spec; /* [n] */
    struct tsr_eval_candidate    *of;
    uint64_t                      n, chosen;
    double                        base, confirmed_base, confirmed;
    struct tsr_pipeline_eval_keys eval;
};

static tsr_status list_candidates(struct search *s, struct tsr_err *err)
{
    static const char *const elements[] = { "fp3_e1m1", "fp4_e2m1", "fp5_e2m2" };
    s->n = s->o->codec.n ? s->o->codec.n : GRID;
    s->spec = tsr_new(s->n, sizeof *s->spec);
    s->of = tsr_new(s->n, sizeof *s->of);
    if (!s->spec || !s->of)
        return tsr_fail_nomem(err, s->n * sizeof *s->of, "candidates");
    for (uint64_t i = 0; i < GRID; i++)
        (void)snprintf(s->grid[i], SPEC, "mx:element=%s,block=%d,scale_bits=5,rounding=nearest",
                       elements[i / 3], 8 << i % 3);
    for (uint64_t i = 0; i < s->n; i++)
        s->spec[i] = s->o->codec.n ? s->o->codec.v[i] : s->grid[i];
    return TSR_OK;
}

/* Perplexity of the model on the windows, its sums through a codec (NULL: whole). */
static tsr_status measure(struct search *s, const struct tsr_eval_windows *w, const char *codec,
                          double *perplexity, double *bits, struct tsr_err *err)
{
    struct tsr_engine         *e = NULL;
    struct tsr_tp             *t = NULL;
    struct tsr_eval_result     r;
    struct tsr_eval_tp_options to = { .ranks = (uint32_t)s->o->simulate_tp,
                                      .codec = codec,
                                      .algorithm = (enum tsr_comm_algorithm)s->o->algorithm };
    struct tsr_engine_options  eo = {
         .act = (uint32_t)s->o->act, .kv_dtype = TSR_F32, .slots = 1, .context = w->window
    };
    if (codec)
        TSR_TRY(tsr_eval_tp_open(&t, s->registry, &to, err));
    tsr_status st = TSR_OK;
    if (t && tsr_eval_tp_needs(t))
        st = tsr_fail(
            err, TSR_E_INPUT,
            "codec '%s' has to be calibrated; a comparison with `calibrate` in front takes "
            "such ones",
            codec);
    eo.split = t ? tsr_eval_tp_split(t) : NULL;
    if (st == TSR_OK)
        st = tsr_engine_create(&e, s->registry, s->model, NULL, &eo, err);
    if (st == TSR_OK)
        st = tsr_eval_run(e, NULL, tsr_plugin_registry_pool(s->registry), w, &r, err);
    if (st == TSR_OK) {
        *perplexity = r.perplexity;
        if (t && bits)
            *bits = tsr_eval_tp_bits(t, w->window, s->model->hp.hidden);
    }
    tsr_engine_destroy(e);
    tsr_eval_tp_close(t);
    return st == TSR_OK || !codec ? st : tsr_err_prefix(err, st, "codec '%s'", codec);
}

static tsr_status choose(struct search *s, struct tsr_err *err)
{
    struct tsr_eval_windows *w = NULL;
    double                   p = NAN;
    TSR_TRY(
        tsr_pipeline_eval_keys_windows(&s->eval, s->o->choose, s->tokenizer, s->model, &w, err));
    tsr_status st = measure(s, w, NULL, &s->base, NULL, err);
    for (uint64_t i = 0; st == TSR_OK && i < s->n; i++) {
        st = measure(s, w, s->spec[i], &p, &s->of[i].bits, err);
        s->of[i].increase = 100 * (p / s->base - 1);
    }
    tsr_eval_windows_destroy(w);
    s->chosen = st == TSR_OK ? tsr_eval_codec_choose(s->of, s->n, s->o->limit) : s->n;
    return st;
}

static tsr_status confirm(struct search *s, struct tsr_err *err)
{
    struct tsr_eval_windows *w = NULL;
    s->confirmed = s->confirmed_base = NAN;
    if (!*s->o->confirm || s->chosen == s->n)
        return TSR_OK;
    TSR_TRY(
        tsr_pipeline_eval_keys_windows(&s->eval, s->o->confirm, s->tokenizer, s->model, &w, err));
    tsr_status st = measure(s, w, NULL, &s->confirmed_base, NULL, err);
    if (st == TSR_OK)
        st = measure(s, w, s->spec[s->chosen], &s->confirmed, NULL, err);
    tsr_eval_windows_destroy(w);
    return st;
}

/* ---- output ---------------------------------------------------------------------- */

static tsr_status print(const struct search *s, struct tsr_err *err)
{
    (void)printf("%-62s %8s %10s\n", "codec", "bits", "perplexity");
    for (uint64_t i = 0; i < s->n; i++)
        (void)printf("%-62s %8.4g %+9.2f %%%s\n", s->spec[i], s->of[i].bits, s->of[i].increase,
                     i == s->chosen ? "  chosen" : "");
    (void)printf("whole sums: perplexity %.6g on %s\n", s->base, s->o->choose);
    if (s->chosen == s->n)
        (void)printf("none stays below %+.4g %%\n", s->o->limit);
    else if (*s->o->confirm)
        (void)printf("%s on %s: perplexity %.6g to %.6g, %+.2f %%, %s the limit of %.4g %%\n",
                     s->spec[s->chosen], s->o->confirm, s->confirmed_base, s->confirmed,
                     100 * (s->confirmed / s->confirmed_base - 1),
                     100 * (s->confirmed / s->confirmed_base - 1) < s->o->limit ? "below" : "above",
                     s->o->limit);
    return tsr_cli_flush(err);
}

static json_t *candidates_json(const char *const *spec, const struct tsr_eval_candidate *of,
                               uint64_t n)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t i = 0; ok && i < n; i++) {
        json_t *one = json_object();
        ok = tsr_pipeline_json_put_text(one, "codec", spec[i]) &&
             tsr_pipeline_json_put_real(one, "bits", of[i].bits) &&
             tsr_pipeline_json_put_real(one, "increase", of[i].increase);
        ok = json_array_append_new(list, one) == 0 && ok;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static tsr_status print_json(const struct search *s, struct tsr_err *err)
{
    json_t *j = json_object();
    bool    found = s->chosen < s->n;
    bool    ok = tsr_pipeline_json_put_int(j, "ranks", (uint64_t)s->o->simulate_tp) &&
              tsr_pipeline_json_put_real(j, "limit", s->o->limit) &&
              tsr_pipeline_json_put_text(j, "choose", s->o->choose) &&
              tsr_pipeline_json_put_real(j, "perplexity", s->base) &&
              tsr_pipeline_json_put(j, "candidates", candidates_json(s->spec, s->of, s->n)) &&
              tsr_pipeline_json_put_text(j, "chosen", found ? s->spec[s->chosen] : NULL);
    if (ok && found && *s->o->confirm)
        ok = tsr_pipeline_json_put_text(j, "confirm", s->o->confirm) &&
             tsr_pipeline_json_put_real(j, "confirmed_perplexity", s->confirmed) &&
             tsr_pipeline_json_put_real(j, "confirmed_base", s->confirmed_base) &&
             tsr_pipeline_json_put_real(j, "confirmed_increase",
                                        100 * (s->confirmed / s->confirmed_base - 1));
    if (!ok) {
        json_decref(j);
        j = NULL;
    }
    return tsr_cli_print_json(j, err);
}

/* The choice for each model of a table. */
static tsr_status from_table(const struct tsr_cli *cli, const struct search_options *o,
                             struct tsr_err *err)
{
    struct tsr_eval_codec_table t;
    TSR_TRY(tsr_eval_codec_table_load(&t, o->table, err));
    json_t *j = json_object();
    bool    ok = j != NULL;
    for (uint64_t m = 0; m < t.models; m++) {
        const struct tsr_eval_candidate *c = t.cell + m * t.rows;
        uint64_t                         at = tsr_eval_codec_choose(c, t.rows, o->limit);
        const char                      *codec = at < t.rows ? t.codec[at] : NULL;
        if (cli->json) {
            json_t *one = json_object();
            ok = tsr_pipeline_json_put_text(one, "codec", codec) &&
                 tsr_pipeline_json_put_real(one, "bits", codec ? c[at].bits : NAN) &&
                 tsr_pipeline_json_put_real(one, "increase", codec ? c[at].increase : NAN) && ok;
            ok = tsr_pipeline_json_put(j, t.model[m], one) && ok;
        } else if (codec) {
            (void)printf("%-16s %-62s %8.4g %+9.2f %%\n", t.model[m], codec, c[at].bits,
                         c[at].increase);
        } else {
            (void)printf("%-16s none stays below %+.4g %%\n", t.model[m], o->limit);
        }
    }
    tsr_eval_codec_table_free(&t);
    if (cli->json && ok)
        return tsr_cli_print_json(j, err);
    json_decref(j);
    return ok ? tsr_cli_flush(err) : tsr_fail_nomem(err, 256, "a table of codecs");
}

static tsr_status run(struct tsr_cli *cli, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct search s = { .o = opts };
    s.eval = s.o->eval;
    s.eval.join = "\\n\\n";
    s.eval.rows = TSR_EVAL_ROWS_FILE;
    if (*s.o->table && n_args)
        return tsr_fail(err, TSR_E_INPUT, "--table is about what was measured; leave MODEL out");
    if (*s.o->table)
        return from_table(cli, s.o, err);
    if (n_args == 0 || !*s.o->choose)
        return tsr_fail(err, TSR_E_INPUT, "give MODEL and --choose FILE, or --table FILE");
    tsr_status st = tsr_cli_registry(cli, &s.registry, err);
    if (st == TSR_OK)
        st = list_candidates(&s, err);
    if (st == TSR_OK)
        st = tsr_model_load(&s.model, args[0], false, err);
    if (st == TSR_OK)
        st = tsr_pipeline_job_load_tokenizer(&s.tokenizer, args[0], err);
    if (st == TSR_OK && !s.tokenizer)
        st = tsr_fail(err, TSR_E_INPUT, "%s has no tokenizer; perplexity needs one", args[0]);
    if (st == TSR_OK)
        st = choose(&s, err);
    if (st == TSR_OK)
        st = confirm(&s, err);
    if (st == TSR_OK)
        st = tsr_pipeline_mapped_unchanged(s.model, NULL, err);
    if (st == TSR_OK)
        st = cli->json ? print_json(&s, err) : print(&s, err);
    tsr_tokenizer_destroy(s.tokenizer);
    tsr_model_destroy(s.model);
    free(s.spec);
    free(s.of);
    return st;
}

const struct tsr_verb tsr_verb_search_codec = {
    .name = "search-codec",
    .summary = "finds the codec with the fewest bits that costs little",
    .args = "[MODEL]",
    .min_args = 0,
    .max_args = 1,
    .details =
        "Measures perplexity on --choose with whole sums, and with the partial sums of "
        "simulated ranks through each candidate. Of the candidates that raise it by less than "
        "--limit, it chooses the one with the fewest bits and measures it again on --confirm. "
        "--table FILE applies the rule to increases measured elsewhere, a JSON file like "
        "configs/papers/mx-table1.json.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct search_options),
    .run = run,
};
