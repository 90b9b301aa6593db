/* The codecs of a job: selection, calibration and storage. */
#include "pipeline/codecs.h"
#include "pipeline/job.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct tsr_choice tsr_algorithm_choices[2] = {
    { "all-gather", "every rank gets all partial sums", TSR_COMM_ALL_GATHER },
    { "two-step", "slices are summed by their owners, then handed to all", TSR_COMM_TWO_STEP },
};

#define NOT_CALIBRATED "codec '%.80s' has to be calibrated"
#define HOW_CALIBRATED "put `calibrate: {text: FILE}` in front, or give codec_state"
#define HOW_VERB       "give --codec-state FILE, which a job with `calibrate: {codecs: ...}` writes"

/* Checks a spec: it opens and has its requirements, or the error is at `at`. bare: it has no calibration. */
static void check_spec(struct tsr_pipeline_job *job, const char *text, bool bare,
                       const struct tsr_config_mark *at, struct tsr_diag *d)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plugin_spec s = { 0 };
    if (tsr_plugin_spec_open(&s, job->registry, TSR_KIND_CODEC, text, &e.err) != TSR_OK)
        tsr_config_diag_failure(d, at, &e.err);
    else if (bare && ((const struct tsr_codec_v1 *)s.found.iface)->observe)
        tsr_config_diag_error(d, at, job->verb ? HOW_VERB : HOW_CALIBRATED, NOT_CALIBRATED, text);
    tsr_plugin_spec_close(&s);
}

void tsr_pipeline_tp_keys_check(struct tsr_pipeline_job *job, const struct tsr_pipeline_tp_keys *k,
                                bool must, const struct tsr_config_node *map, struct tsr_diag *d)
{
    const struct tsr_config_node *codec = tsr_config_node_get(map, "codec");
    const struct tsr_config_node *state = tsr_config_node_get(map, "codec_state");
    const struct tsr_config_node *tp = tsr_config_node_get(map, "simulate_tp");
    if (k->simulate_tp == 1)
        tsr_config_diag_error(d, tp ? &tp->mark : &map->mark, NULL,
                              "one rank has nobody to send to; give 2 to %u, or 0",
                              TSR_ENGINE_SPLIT_MAX);
    if (k->simulate_tp == 0 && *k->codec)
        tsr_config_diag_error(d, codec ? &codec->mark : &map->mark,
                              job->verb ? "give --simulate-tp 2 or more" : "add simulate_tp: 8",
                              "'codec' is for simulated ranks");
    if (*k->codec)
        check_spec(job, k->codec, must && !*k->codec_state && !job->at->calibrated,
                   codec ? &codec->mark : &map->mark, d);
    if (state && *k->codec_state)
        tsr_pipeline_check_input(job, map, "codec_state", d);
}

/* ---- the file of a codec in a job folder -------------------------------------- */

/* "codecs/int4_bf16_bits_3-8-all-gather-1a2b3c4d.safetensors" */
tsr_status tsr_pipeline_codec_state_path(const struct tsr_pipeline_job   *job,
                                         const struct tsr_eval_codec_key *k, char **path,
                                         struct tsr_err *err)
{
    char name[160], hash[TSR_HASH_TEXT], text[48];
    snprintf(text, sizeof text, "%.40s", k->codec);
    for (char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '.' && *p != '-')
            *p = '_';
    tsr_hash_bytes(k->codec, strlen(k->codec), hash);
    const char *digest = strlen(hash) > 8 ? hash + strlen(hash) - 8 : hash;
    (void)snprintf(name, sizeof name, "codecs/%s-%u-%s-%s.safetensors", text, k->ranks,
                   tsr_comm_algorithm_name(k->algorithm), digest);
    return tsr_pipeline_job_output(job, name, path, err);
}

static tsr_status open_with(struct tsr_pipeline_job *job, const struct tsr_eval_tp_options *to,
                            const char *path, const struct tsr_eval_codec_key *key,
                            struct tsr_tp **t, struct tsr_err *err)
{
    struct tsr_eval_codec_file *f = NULL;
    struct tsr_eval_tp_options  with = *to;
    TSR_TRY(tsr_eval_codec_file_load(&f, path, key, err));
    with.states = f->states;
    with.n_states = f->n;
    tsr_status st = tsr_eval_tp_open(t, job->registry, &with, err);
    tsr_eval_codec_file_free(f);
    return st;
}

/* A codec that must be calibrated and has no state yet. */
static tsr_status find_state(struct tsr_pipeline_job *job, const struct tsr_eval_tp_options *to,
                             const struct tsr_eval_codec_key *key, const struct tsr_model *m,
                             const struct tsr_model_overlay *o, struct tsr_tp **t,
                             struct tsr_err *err)
{
    struct tsr_engine_options eo = { .on = job->on, .act = key->act, .kv_dtype = TSR_F32 };
    const struct tsr_quant_calibration *c = job->calibration;
    char                               *path = NULL;
    TSR_TRY(tsr_pipeline_codec_state_path(job, key, &path, err));
    bool there = tsr_path_exists(path);
    if (there) {
        tsr_eval_tp_close(*t);
        *t = NULL;
    }
    tsr_status st = there ? open_with(job, to, path, key, t, err) : TSR_OK;
    free(path);
    if (there)
        return st;
    if (!c || !c->ids)
        return tsr_fail(err, TSR_E_INPUT, NOT_CALIBRATED "; " HOW_CALIBRATED, to->codec);
    return tsr_eval_tp_calibrate(*t, job->registry, m, o, &eo, c->ids, c->sequences, c->seqlen,
                                 err);
}

tsr_status tsr_pipeline_tp_keys_open(struct tsr_pipeline_job           *job,
                                     const struct tsr_pipeline_tp_keys *k,
                                     const struct tsr_model *m, const struct tsr_model_overlay *o,
                                     uint32_t act, struct tsr_tp **t, struct tsr_err *err)
{
    *t = NULL;
    if (k->simulate_tp == 0)
        return TSR_OK;
    struct tsr_eval_codec_key  key = { .codec = *k->codec ? k->codec : "plain",
                                       .algorithm = (enum tsr_comm_algorithm)k->algorithm,
                                       .ranks = (uint32_t)k->simulate_tp,
                                       .act = act };
    struct tsr_eval_tp_options to = { .ranks = key.ranks,
                                      .codec = key.codec,
                                      .algorithm = key.algorithm };
    TSR_TRY(tsr_eval_codec_key_model(&key, m, o, err));
    if (*k->codec_state) {
        char *path = tsr_pipeline_job_input(job, k->codec_state);
        if (!path)
            return tsr_fail_nomem(err, 0, "a path");
        tsr_status st = open_with(job, &to, path, &key, t, err);
        free(path);
        return st;
    }
    TSR_TRY(tsr_eval_tp_open(t, job->registry, &to, err));
    tsr_status st = tsr_eval_tp_needs(*t) ? find_state(job, &to, &key, m, o, t, err) : TSR_OK;
    if (st != TSR_OK) {
        tsr_eval_tp_close(*t);
        *t = NULL;
    }
    return st;
}

json_t *tsr_pipeline_tp_json(const struct tsr_tp *t, const struct tsr_model *m)
{
    json_t *j = json_object();
    if (tsr_pipeline_json_put_int(j, "ranks", tsr_eval_tp_ranks(t)) &&
        tsr_pipeline_json_put_text(j, "codec", tsr_eval_tp_codec(t)) &&
        tsr_pipeline_json_put_text(j, "algorithm", tsr_eval_tp_algorithm(t)) &&
        tsr_pipeline_json_put_real(j, "bits", tsr_eval_tp_bits(t, 512, m->hp.hidden)) &&
        (!tsr_eval_tp_state_bytes(t) ||
         tsr_pipeline_json_put_int(j, "state_bytes", tsr_eval_tp_state_bytes(t))) &&
        tsr_pipeline_json_put(j, "exact", json_boolean(tsr_eval_tp_exact(t))))
        return j;
    json_decref(j);
    return NULL;
}

/* ---- calibrate: {codecs: ...} --------------------------------------------------- */

struct codecs {
    const struct tsr_config_node *use;
    int64_t                       tp, algorithm, act;
};

#define S struct codecs
static const struct tsr_option options[] = {
    TSR_OPTION_NODE(S, use, "Codecs with their options: [int4_bf16, \"int4_bf16:bits=3\"]."),
    { .name = "tp",
      .help = "Ranks that share a layer.",
      .unit = "ranks",
      .type = TSR_OPT_INT,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, tp, int64_t),
      .min = { .i = 2 },
      .max = { .i = TSR_ENGINE_SPLIT_MAX } },
    TSR_OPTION_ENUM(S, algorithm, TSR_COMM_ALL_GATHER, tsr_algorithm_choices,
                    "How the ranks add their partial sums."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, tsr_act_choices, "How activations enter packed weights."),
};
#undef S

static void fill(const struct tsr_config_node *map, struct codecs *c, struct tsr_diag *d)
{
    struct tsr_config_optset set = { options, sizeof options / sizeof *options, sizeof *options,
                                     c };
    *c = (struct codecs){ 0 };
    tsr_config_options_fill(&set, 1, NULL, map, "'codecs'", d);
}

void tsr_pipeline_codecs_check(struct tsr_pipeline_job *job, const struct tsr_config_node *map,
                               struct tsr_diag *d)
{
    struct codecs c;
    uint64_t      before = tsr_config_diag_errors(d);
    if (map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &map->mark, "write codecs: {use: [int4_bf16], tp: 8}",
                              "'codecs' must be a map");
        return;
    }
    fill(map, &c, d);
    if (!c.use || c.use->kind != TSR_CONFIG_NODE_LIST || c.use->n == 0)
        tsr_config_diag_error(d, c.use ? &c.use->mark : &map->mark, "write use: [int4_bf16]",
                              "'use' must be a list of codecs");
    else
        tsr_pipeline_check_strings(c.use, "use", d);
    for (uint64_t i = 0; c.use && tsr_config_diag_errors(d) == before && i < c.use->n; i++)
        check_spec(job, c.use->items[i]->text, false, &c.use->items[i]->mark, d);
}

static tsr_status calibrate_one(struct tsr_pipeline_job *job, const struct tsr_model *m,
                                const struct codecs *c, const char *codec,
                                const struct tsr_quant_calibration *text, json_t *list,
                                struct tsr_err *err)
{
    struct tsr_eval_codec_key  key = { .codec = codec,
                                       .algorithm = (enum tsr_comm_algorithm)c->algorithm,
                                       .ranks = (uint32_t)c->tp,
                                       .act = (uint32_t)c->act };
    struct tsr_eval_tp_options to = { .ranks = key.ranks,
                                      .codec = codec,
                                      .algorithm = key.algorithm };
    struct tsr_engine_options  eo = { .on = job->on, .act = key.act, .kv_dtype = TSR_F32 };
    struct tsr_comm_state     *states = NULL;
    struct tsr_tp             *t = NULL;
    uint64_t                   n = 0;
    char                      *path = NULL;
    TSR_TRY(tsr_eval_tp_open(&t, job->registry, &to, err));
    tsr_status st = tsr_eval_codec_key_model(&key, m, job->overlay, err);
    if (st == TSR_OK)
        st = tsr_eval_tp_calibrate(t, job->registry, m, job->overlay, &eo, text->ids,
                                   text->sequences, text->seqlen, err);
    if (st == TSR_OK)
        st = tsr_pipeline_codec_state_path(job, &key, &path, err);
    if (st == TSR_OK)
        st = tsr_eval_tp_save(t, &states, &n, err);
    if (st == TSR_OK)
        st = tsr_eval_codec_file_write(path, &key, text->hash, states, n, err);
    if (st == TSR_OK) {
        json_t *one = json_object();
        bool    ok = tsr_pipeline_json_put_text(one, "codec", codec) &&
                  tsr_pipeline_json_put_text(one, "file", path) &&
                  tsr_pipeline_json_put_int(one, "ranks", key.ranks);
        ok = json_array_append_new(list, one) == 0 && ok;
        st = ok ? TSR_OK : tsr_fail_nomem(err, 64, "the results");
        tsr_logf(TSR_LOG_INFO, "codec '%s' for %u ranks: %s", codec, key.ranks, path);
    }
    tsr_eval_tp_states_free(states, n);
    tsr_eval_tp_close(t);
    free(path);
    return st;
}

tsr_status tsr_pipeline_codecs_calibrate(struct tsr_pipeline_job            *job,
                                         const struct tsr_config_node       *map,
                                         struct tsr_quant_calibrate_options *co, json_t **result,
                                         struct tsr_err *err)
{
    struct codecs                 c;
    struct tsr_diag              *d = NULL;
    struct tsr_quant_calibration *text = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    fill(map, &c, d);
    tsr_status st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    co->need = 0;
    co->folder = NULL;
    co->defer = true; /* the sequences alone */
    if (st == TSR_OK)
        st = tsr_quant_calibrate(&text, job->registry, job->model, job->tokenizer, co, err);
    if (st != TSR_OK)
        return st;
    json_t           *list = json_array();
    struct tsr_model *packed = NULL; /* a streaming job runs the model that it left on disk */
    if (job->packed && !job->overlay)
        st = tsr_model_load_streamed(&packed, job->packed, err);
    for (uint64_t i = 0; st == TSR_OK && i < c.use->n; i++)
        st = calibrate_one(job, packed ? packed : job->model, &c, c.use->items[i]->text, text, list,
                           err);
    *result = json_object();
    if (st == TSR_OK && !(tsr_pipeline_json_put_int(*result, "samples", text->sequences) &&
                          tsr_pipeline_json_put_int(*result, "tokens", text->tokens) &&
                          tsr_pipeline_json_put_text(*result, "hash", text->hash) &&
                          tsr_pipeline_json_put(*result, "codecs", json_incref(list))))
        st = tsr_fail_nomem(err, 256, "the results");
    json_decref(list);
    tsr_model_destroy(packed);
    tsr_quant_calibration_destroy(text);
    if (st != TSR_OK) {
        json_decref(*result);
        *result = NULL;
    }
    return st;
}
