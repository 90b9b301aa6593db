/* tessera profile: measures decoder layers on this machine and writes a device profile. */
#include "cli/profile/profile.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/random_model.h"
#include "cli/jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S struct profile_options
static const struct tsr_option options[] = {
    TSR_OPTION_PATH(S, output, "", "FILE", "file to write, tessera.device/1"),
    TSR_OPTION_PATH(S, of, "", "FILE",
                    "profile that --check or --fits takes instead of measuring one"),
    TSR_OPTION_PATH(S, times, "", "FILE",
                    "write every repeat and every probe there, one JSON object per line"),
    TSR_OPTION_REPEAT(S, model, "MODEL",
                      "whose layers are measured; none: random ones of a 1B Llama's widths"),
    TSR_OPTION_REPEAT(
        S, scheme, "PLUGIN[:key=value,...]",
        "how layers are packed, or 'original'; none: original, rtn at 8, 4 and 3 bits "
        "and LLM.int8"),
    TSR_OPTION_REPEAT(
        S, codec, "PLUGIN[:key=value,...]",
        "codec of links and sums whose speed is measured, too; none: plain, plain:dtype=bf16, mx "
        "and int4_channel"),
    TSR_OPTION_BOOL(S, links, 0,
                    "measure latency and bandwidth of every pair of ranks instead; -o writes a "
                    "cluster file"),
    TSR_OPTION_STRING(S, transport, "local", "--links: transport, with its options"),
    TSR_OPTION_INT(S, ranks, 2, 2, 64, NULL,
                   "--links: threads; under mpirun the processes are the ranks"),
    TSR_OPTION_STRING(S, name, "this-machine", "name of the device"),
    TSR_OPTION_STRING(S, backend, "cpu", "backend that runs"),
    TSR_OPTION_INT(S, repeats, 7, 1, 63, NULL, "of a time, whose median counts"),
    TSR_OPTION_INT(S, rounds, 2, 1, PROFILE_ROUNDS, NULL,
                   "over everything, --check too, minutes apart; their geometric mean counts"),
    TSR_OPTION_INT(S, positions, 1024, 32, 1 << 20, "tokens", "longest sequence"),
    TSR_OPTION_INT(S, sequences, 32, 1, 256, NULL, "most sequences at once"),
    TSR_OPTION_BOOL(S, quick, 0, "a third of the points"),
    TSR_OPTION_BOOL(S, fits, 0, "--of: print the regressions over its points, measure nothing"),
    TSR_OPTION_INT(
        S, check, 0, 0, 10000, "workloads",
        "predict so many workloads of each scheme that were not measured, and measure them"),
    TSR_OPTION_INT(S, seed, 1, 0, INT64_MAX, NULL,
                   "of the workloads of --check, and of the order of points"),
};
#undef S

static const char *const default_schemes[] = { "original", "rtn:bits=8", "rtn:bits=4", "rtn:bits=3",
                                               "int8:mode=llm,clip=false" };

/* A model of random weights whose layers are as wide as a 1B Llama's. */
static tsr_status random_model(struct profile *p, struct tsr_model **m, struct tsr_err *err)
{
    const struct tsr_checkpoint_random_shape s = { .vocab = 32000,
                                                   .hidden = 2048,
                                                   .layers = 4,
                                                   .ffn = 5632,
                                                   .heads = 32,
                                                   .kv_heads = 4,
                                                   .max_positions = 4096,
                                                   .dtype = TSR_BF16,
                                                   .tied = true,
                                                   .seed = 1 };
    char                                    *folder;
    TSR_TRY(tsr_temp_folder(&folder, "profile", err));
    tsr_status st =
        tsr_checkpoint_random_model_write(folder, &s, tsr_plugin_registry_pool(p->r), err);
    if (st == TSR_OK)
        st = tsr_model_load(m, folder, false, err);
    tsr_temp_folder_remove(folder);
    return st;
}

/* An entry for each form of the model's layers. */
static tsr_status add_forms(struct profile *p, const struct profile_model *first,
                            struct tsr_err *err)
{
    for (uint64_t c = 0; c < first->shape->classes; c++) {
        bool seen = false;
        for (uint64_t k = 0; k < c; k++)
            seen = seen || profile_same_form(&first->shape->layer[k], &first->shape->layer[c]);
        if (seen)
            continue;
        struct profile_model *m = &p->models[p->n_models];
        *m = *first;
        m->cls = c;
        m->again = c > 0;
        m->schemes = tsr_new(p->n_schemes, sizeof *m->schemes);
        p->n_models++;
        if (!m->schemes)
            return tsr_fail_nomem(err, p->n_schemes * sizeof *m->schemes, "points");
    }
    return TSR_OK;
}

static tsr_status open_model(struct profile *p, uint64_t i, struct profile_model *m,
                             struct tsr_err *err)
{
    m->path = p->o->model.n ? p->o->model.v[i] : "random weights";
    if (p->o->model.n)
        TSR_TRY(tsr_model_load_streamed(&m->m, m->path, err));
    else
        TSR_TRY(random_model(p, &m->m, err));
    TSR_TRY(tsr_plan_shape_of(&m->shape, m->m, err));
    return tsr_plan_candidates_open(&m->candidates, p->r, m->shape, p->texts, p->n_schemes, err);
}

static void close_model(struct profile_model *m)
{
    tsr_plan_candidates_close(&m->candidates);
    tsr_plan_shape_destroy(m->shape);
    tsr_model_destroy(m->m);
}

static void close_all(struct profile *p)
{
    for (uint64_t i = 0; p->models && i < p->n_models; i++) {
        struct profile_model *m = &p->models[i];
        for (uint64_t k = 0; m->schemes && k < p->n_schemes; k++)
            free(m->schemes[k].points);
        free(m->schemes);
        free(m->ends);
        if (!m->again)
            close_model(m);
    }
    tsr_writer_abort(&p->times);
    free(p->models);
    free(p->codecs);
    free(p->probes);
    bench_close(&p->bench);
}

/* Best of a few, because an interrupted probe does not measure the instruction. */
static tsr_status probe(struct profile *p, enum bench_probe which, double *rate,
                        struct tsr_err *err)
{
    double one[3];
    *rate = 0;
    for (int i = 0; i < 3; i++) {
        TSR_TRY(bench_measure(&p->bench, which, &one[i], err));
        *rate = fmax(*rate, one[i]);
    }
    return profile_times_peak(p, which == BENCH_FMA ? "fma" : "int8", one, 3, err);
}

static uint64_t models_of(const struct profile *p)
{
    return p->o->model.n ? p->o->model.n : 1;
}

static tsr_status prepare(struct profile *p, struct tsr_err *err)
{
    TSR_TRY(bench_prepare_read(&p->bench, err));
    if (!p->bench.probe)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "backend '%s' has no probes, so that its times could not be compared",
                        p->o->backend);
    for (uint64_t i = 0; i < models_of(p); i++) {
        struct profile_model m = { 0 };
        tsr_status           st = open_model(p, i, &m, err);
        if (st != TSR_OK) {
            close_model(&m);
            return st;
        }
        TSR_TRY(add_forms(p, &m, err)); /* the first entry has it now */
    }
    return TSR_OK;
}

/* All rounds over the points of every scheme: the grid's, unless dev has its own, and --check's. */
static tsr_status measure(struct profile *p, const struct tsr_plan_profile *dev,
                          struct tsr_err *err)
{
    for (uint64_t i = 0; i < p->n_models; i++)
        for (uint64_t k = 0; k < p->n_schemes; k++) {
            struct profile_scheme *s = &p->models[i].schemes[k];
            TSR_TRY(profile_begin(p, &p->models[i], k, dev == NULL, err));
            if (dev && !tsr_plan_profile_runs(dev, s->kernel))
                return tsr_fail(err, TSR_E_INPUT,
                                "%s has neither points nor a roofline for kernel %s, which scheme "
                                "%s runs as; leave the scheme out",
                                dev->path, s->kernel, s->text);
            profile_choose(p, &p->models[i], s, dev);
        }
    for (int64_t round = 0; round < p->o->rounds; round++)
        for (uint64_t i = 0; i < p->n_models; i++)
            for (uint64_t k = 0; k < p->n_schemes; k++) {
                tsr_logf(TSR_LOG_INFO, "round %lld: measuring %s of %s", (long long)round + 1,
                         p->texts[k], p->models[i].path);
                TSR_TRY(profile_measure(p, &p->models[i], k, err));
            }
    if (dev) {
        p->bandwidth = dev->bandwidth;
    } else {
        double *sorted = tsr_new(p->n_probes, sizeof *sorted);
        if (!sorted)
            return tsr_fail_nomem(err, p->n_probes * sizeof *sorted, "probes");
        memcpy(sorted, p->probes, p->n_probes * sizeof *sorted);
        p->bandwidth = bench_median(sorted, p->n_probes);
        free(sorted);
    }
    for (uint64_t i = 0; i < p->n_models; i++)
        for (uint64_t k = 0; k < p->n_schemes; k++)
            profile_average(p, &p->models[i].schemes[k]);
    return TSR_OK;
}

/* Measures, writes the file, and returns its content. */
static tsr_status write_one(struct profile *p, struct tsr_plan_profile **dev, struct tsr_diag *d,
                            struct tsr_err *err)
{
    char             *text = NULL;
    size_t            len = 0;
    struct tsr_writer w;
    TSR_TRY(tsr_writer_open(&w, p->o->output, err)); /* before minutes of measuring */
    tsr_status st = prepare(p, err);
    if (st == TSR_OK)
        st = profile_codecs(p, err);
    if (st == TSR_OK)
        st = probe(p, BENCH_FMA, &p->fma, err);
    if (st == TSR_OK)
        st = probe(p, BENCH_DOT, &p->dot, err);
    if (st == TSR_OK)
        st = measure(p, NULL, err);
    if (st == TSR_OK)
        st = profile_text(p, &text, &len, err);
    if (st == TSR_OK) {
        tsr_writer_put(&w, text, len);
        st = tsr_writer_commit(&w, err);
    } else {
        tsr_writer_abort(&w);
    }
    if (st == TSR_OK && !p->bench.cli->json && !p->bench.cli->quiet)
        (void)printf("%s: %llu models, %llu schemes, memory read at %.1f GB/s\n", p->o->output,
                     (unsigned long long)models_of(p), (unsigned long long)p->n_schemes,
                     p->bandwidth * 1e-9);
    if (st == TSR_OK)
        st = tsr_plan_profile_parse(dev, p->o->output, text, len, d, err);
    free(text);
    return st;
}

/* Reads an existing profile. */
static tsr_status read_one(struct profile *p, struct tsr_plan_profile **dev, struct tsr_diag *d,
                           struct tsr_err *err)
{
    tsr_status st = tsr_plan_profile_load(dev, p->o->of, d, err);
    if (st != TSR_OK || !*dev)
        return st;
    TSR_TRY(prepare(p, err));
    return measure(p, *dev, err);
}

static tsr_status print_fits(struct tsr_cli *c, const struct profile *p, struct tsr_err *err)
{
    struct tsr_diag         *d = NULL;
    struct tsr_plan_profile *dev = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_plan_profile_load(&dev, p->o->of, d, err);
    if (st == TSR_OK && tsr_config_diag_errors(d))
        st = tsr_cli_diag(c, d, p->o->of, err);
    if (st == TSR_OK && dev)
        st = profile_fits(c, dev, err);
    tsr_plan_profile_destroy(dev);
    tsr_config_diag_destroy(d);
    return st;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct profile           p = { .o = opts };
    struct tsr_diag         *d = NULL;
    struct tsr_plan_profile *dev = NULL;
    (void)args;
    (void)n_args;
    if (*p.o->times && (p.o->links || p.o->fits))
        return tsr_fail(err, TSR_E_CONFIG, "--times: %s times no layers; leave one of the two out",
                        p.o->links ? "--links" : "--fits");
    if (p.o->links) {
        TSR_TRY(tsr_cli_registry(c, &p.r, err));
        return profile_links(c, p.r, p.o, err);
    }
    if (!*p.o->output == !*p.o->of)
        return tsr_fail(err, TSR_E_CONFIG,
                        "-o FILE names the profile to write, --of FILE one to check: give one of "
                        "them");
    if (p.o->fits && (!*p.o->of || p.o->check))
        return tsr_fail(err, TSR_E_CONFIG,
                        "--fits measures nothing: give --of FILE, and neither -o nor --check");
    if (p.o->fits)
        return print_fits(c, &p, err);
    if (*p.o->of && !p.o->check)
        return tsr_fail(err, TSR_E_CONFIG, "--of %s: how many workloads? add --check 50", p.o->of);
    p.texts = p.o->scheme.n ? p.o->scheme.v : default_schemes;
    p.n_schemes = p.o->scheme.n ? p.o->scheme.n : sizeof default_schemes / sizeof *default_schemes;
    p.bench_options = (struct bench_options){ .backend = p.o->backend, .mib = 256 };
    TSR_TRY(tsr_cli_registry(c, &p.r, err));
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = bench_open(&p.bench, c, &p.bench_options, err);
    p.models = tsr_new(models_of(&p), PROFILE_FORMS * sizeof *p.models);
    if (st == TSR_OK && !p.models)
        st = tsr_fail_nomem(err, models_of(&p) * PROFILE_FORMS * sizeof *p.models, "models");
    if (st == TSR_OK)
        st = profile_times_open(&p, err);
    if (st == TSR_OK)
        st = *p.o->of ? read_one(&p, &dev, d, err) : write_one(&p, &dev, d, err);
    if (st == TSR_OK && p.times.file)
        st = tsr_writer_commit(&p.times, err);
    if (st == TSR_OK && tsr_config_diag_errors(d))
        st = tsr_cli_diag(c, d, *p.o->of ? p.o->of : p.o->output, err);
    if (st == TSR_OK && p.o->check)
        st = profile_check(&p, dev, err);
    tsr_plan_profile_destroy(dev);
    tsr_config_diag_destroy(d);
    close_all(&p);
    return st;
}

const struct tsr_verb tsr_verb_profile;
const struct tsr_verb tsr_verb_profile = {
    .name = "profile",
    .summary = "measures decoder layers on this machine, for the planner",
    .args = "",
    .min_args = 0,
    .max_args = 0,
    .details =
        "Runs single decoder layers through the engine: prompts and decode steps of many "
        "sizes, packed by each scheme. Writes a device profile (docs/formats/device.md) for "
        "cluster files. Every time is the median of the repeats after a warm-up; repeats that "
        "the system interrupted are measured again. Layers are used in turn, so that no cache "
        "holds their weights. The read peak is measured next to each time. --times keeps "
        "what the file's figures are computed from.\n"
        "\n"
        "--check draws further workloads that are not in the file and measures them in the "
        "same rounds. It predicts them from the file and prints mean errors: of times "
        "normalised by the read peak, of raw times, and of latency: table. With --of FILE "
        "--check it checks an earlier profile; the errors then include changes of the machine "
        "since. The machine should be idle.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct profile_options),
    .run = run,
};
