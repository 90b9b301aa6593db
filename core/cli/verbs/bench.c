/* tessera bench: kernels and whole models compared with the machine's measured peaks. */
#include "cli/bench/bench.h"
#include "cli/bench/comm.h"
#include "cli/bench/diff.h"
#include "cli/bench/plan.h"

#include <string.h>

static const struct tsr_choice acts[] = {
    { "auto", "a8 for packed weights, f32 for others", BENCH_ACT_AUTO },
    TSR_ACT_CHOICES,
};
static const struct tsr_choice outputs[] = {
    { "md", "a Markdown table", BENCH_MD },
    { "csv", "comma-separated", BENCH_CSV },
    { "json", "a list of objects, as with --json", BENCH_JSON },
};

#define S struct bench_options
static const struct tsr_option options[] = {
    TSR_OPTION_STRING(
        S, formats, "",
        "Weight formats, separated by commas: f32, f16, bf16, int2 to int8. With zero points, as "
        "GPTQ and AWQ have them: int2z to int8z. With minimums, as GGUF's K types: affine2 to "
        "affine8. Others: lut2 to lut8 (lut4o: with outliers), llm8, "
        "fp4_e2m1 and other MX elements, mxint2 to mxint8. Under a table: nf4, iq4_nl, iq4_xs, "
        "q3_k, q6_k, tq2_0, nvfp4. If empty "
        "f32,f16,bf16,int8,int4; for dec int3,int4, which can be compensated."),
    TSR_OPTION_STRING(S, bits, "", "packed formats by their bits, as in 4,8; instead of --formats"),
    TSR_OPTION_INT(S, group, 128, 0, 1 << 30, "columns",
                   "columns that share a scale below 8 bits; 0: the row"),
    TSR_OPTION_ENUM(S, act, BENCH_ACT_AUTO, acts, "how activations enter packed weights"),
    TSR_OPTION_INT(S, rows, 4096, 1, 1 << 24, NULL, "output features"),
    TSR_OPTION_INT(S, cols, 14336, 1, 1 << 24, NULL, "input features"),
    TSR_OPTION_INT(
        S, segment, 0, 0, 1 << 24, "columns",
        "gemv, gemm: columns whose products form one chain of sums, a multiple of 32. 0: "
        "32 per 256 columns, as in a model. Shows the cost of another order of sums."),
    TSR_OPTION_STRING(
        S, m, "",
        "tokens at once; if empty 1 for gemv, 512 for gemm, 2048 for syrk; gemv and gemm "
        "measure several, as in 1,4, in turn in each round; attention: sequences, if empty 1,16"),
    TSR_OPTION_STRING(S, positions, "4096,16384",
                      "attention: positions that a token attends to, separated by commas"),
    TSR_OPTION_INT(S, repeats, 7, 1, 10000, NULL,
                   "rounds of peak, kernel, peak; the median is printed; plan: solves of a file"),
    TSR_OPTION_INT(S, mib, 640, 1, 1 << 20, "MiB",
                   "weights in rotation, and memory in which the read peak is measured"),
    TSR_OPTION_INT(S, prompt, 512, 1, 1 << 20, "tokens",
                   "e2e, dec: tokens of the prompt; batch: of the longest"),
    TSR_OPTION_INT(S, tokens, 32, 1, 1 << 20, "tokens", "e2e, batch, dec: decode steps"),
    TSR_OPTION_INT(S, slots, 64, 1, 4096, NULL, "batch: sequences that decode together"),
    TSR_OPTION_ENUM(S, kv, TSR_F32, tsr_kv_choices, "e2e, batch, dec: type of the KV cache"),
    TSR_OPTION_STRING(
        S, shape, "",
        "e2e, batch, dec: a random model of a known shape instead of MODEL: tiny, 1b, 8b"),
    TSR_OPTION_INT(S, used, 8, 1, BENCH_MOST_USED, NULL, "experts: how many a token takes"),
    TSR_OPTION_INT(S, head_dim, 64, 1, 1024, NULL, "attention: numbers of a head"),
    TSR_OPTION_INT(S, hidden, 0, 0, 1 << 20, NULL,
                   "e2e, batch, dec: hidden size of a random model; experts: of a layer, 0: 2048"),
    TSR_OPTION_INT(S, layers, 0, 0, 4096, NULL, "e2e, batch, dec: its layers"),
    TSR_OPTION_INT(S, ffn, 0, 0, 1 << 22, NULL,
                   "e2e, batch, dec: its feed-forward size; experts: of one, 0: 768"),
    TSR_OPTION_INT(S, heads, 0, 0, 4096, NULL, "e2e, batch, dec: its heads; attention: 0: 32"),
    TSR_OPTION_INT(S, kv_heads, 0, 0, 4096, NULL, "e2e, batch, dec: its KV heads; attention: 0: 8"),
    TSR_OPTION_INT(S, vocab, 0, 0, 1 << 24, NULL, "e2e, batch, dec: its vocabulary"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL, "e2e, batch, dec: seed of a random model"),
    TSR_OPTION_PATH(S, checkpoint, "", "FOLDER",
                    "e2e, batch, dec: write the random model into this folder and keep it"),
    TSR_OPTION_STRING(
        S, quantizer, "",
        "e2e, batch, dec: pack the linears with this plugin, as in rtn:bits=4,group=64"),
    TSR_OPTION_STRING(S, head, "",
                      "e2e, batch, dec: pack the head with this plugin; without it, it stays"),
    TSR_OPTION_ENUM(S, numerics, TSR_NUMERICS_AUTO, tsr_numerics_choices,
                    "fast: BF16 weights times BF16 activations"),
    TSR_OPTION_STRING(S, backend, "cpu", "backend to measure"),
    TSR_OPTION_STRING(S, channels, "8,16,32,64,128",
                      "dec: channels of 1024 that are compensated, separated by commas"),
    TSR_OPTION_INT(S, residual, 4, 2, 16, "bits", "dec: bits of a residual: 2, 4, 8 or 16"),
    TSR_OPTION_STRING(S, solver, "exact", "plan: solver, with its options as NAME:key=value,..."),
    TSR_OPTION_REAL(S, gap, 1e-4, 0.0, 1.0, NULL, "plan: relative gap"),
    TSR_OPTION_REAL(S, time_limit, 60.0, 0.0, 1e6, "s", "plan: for each problem; 0: no limit"),
    TSR_OPTION_STRING(S, transport, "local",
                      "comm: transport, with its options as NAME:key=value,...; "
                      "local:bandwidth=125,latency=50 is a wire of 1 Gbit/s"),
    TSR_OPTION_STRING(S, codecs, "plain;plain:dtype=bf16;mx",
                      "comm: codecs, separated by semicolons, with their options"),
    TSR_OPTION_STRING(S, sizes, "1,16,128,512", "comm: tokens of a message, separated by commas"),
    TSR_OPTION_STRING(
        S, link, "",
        "comm: latency in us and rate in MB/s of a link, as in 4,370000: what auto would "
        "take over it, predicted from the speeds of the codecs here"),
    TSR_OPTION_INT(S, ranks, 4, 2, 64, NULL, "comm: ranks, each a thread"),
    TSR_OPTION_REAL(S, tolerance, 0.03, 0.0, 1.0, NULL,
                    "diff: share of a change that does not count"),
    TSR_OPTION_ENUM(S, output, BENCH_MD, outputs, "form of the table"),
    TSR_OPTION_PATH(S, chart, "", "FILE",
                    "gemv, gemm, suite: write the shares of the formats as an SVG file too"),
};
#undef S

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct bench_options *o = opts;
    if (strcmp(args[0], "plan") == 0) {
        struct bench_plan_options p = {
            .solver = o->solver,
            .only = n_args > 1 ? args[1] : "",
            .gap = o->gap,
            .time_limit = o->time_limit,
            .repeats = (uint64_t)o->repeats,
        };
        size_t n = strlen(p.only);
        return n > 5 && strcmp(p.only + n - 5, ".json") == 0 ? bench_solve(c, &p, err)
                                                             : bench_plan(c, &p, err);
    }
    if (strcmp(args[0], "comm") == 0) {
        struct bench_comm_options p = { .transport = o->transport,
                                        .codecs = o->codecs,
                                        .link = o->link,
                                        .rows = o->sizes,
                                        .ranks = o->ranks,
                                        .cols = o->hidden ? o->hidden : 4096,
                                        .repeats = o->repeats };
        if (n_args > 1)
            return tsr_fail(err, TSR_E_INPUT, "bench comm takes no MODEL");
        return bench_comm(c, &p, err);
    }
    if (strcmp(args[0], "diff") == 0)
        return n_args == 3
                   ? bench_diff(args[1], args[2], o->tolerance, c->json || o->output == BENCH_JSON,
                                err)
                   : tsr_fail(err, TSR_E_INPUT,
                              "bench diff takes two files that `tessera bench --json` printed");
    if (n_args > 2)
        return tsr_fail(err, TSR_E_INPUT, "bench %s takes no '%s'", args[0], args[2]);
    static const char *const whats[] = { "gemv",   "gemm",    "syrk",      "cholesky",
                                         "encode", "experts", "attention", "dec",
                                         "e2e",    "batch",   "load",      "suite" };
    uint64_t                 what = 0, n = sizeof whats / sizeof whats[0];
    while (what < n && strcmp(args[0], whats[what]) != 0)
        what++;
    if (what == n)
        return tsr_fail(err, TSR_E_INPUT,
                        "bench: '%s' is not one of gemv, gemm, syrk, cholesky, encode, experts, "
                        "attention, dec, "
                        "e2e, batch, load, suite, plan, comm, diff",
                        args[0]);
    if (n_args > 1 && what < 7)
        return tsr_fail(err, TSR_E_INPUT,
                        "bench %s takes no MODEL; only dec, e2e, batch, load and suite do",
                        args[0]);
    if (*o->chart && what > 1 && what != n - 1)
        return tsr_fail(err, TSR_E_INPUT, "--chart: bench %s draws none; gemv, gemm and suite do",
                        args[0]);
    struct bench b;
    tsr_status   st = bench_open(&b, c, o, err);
    if (st == TSR_OK)
        st = what == 0    ? bench_gemv(&b, err)
             : what == 1  ? bench_gemm(&b, err)
             : what <= 3  ? bench_linalg(&b, what == 3, err)
             : what == 4  ? bench_encode(&b, err)
             : what == 5  ? bench_experts(&b, err)
             : what == 6  ? bench_attention(&b, err)
             : what == 7  ? bench_dec(&b, n_args > 1 ? args[1] : NULL, err)
             : what == 8  ? bench_e2e(&b, n_args > 1 ? args[1] : NULL, err)
             : what == 9  ? bench_batch(&b, n_args > 1 ? args[1] : NULL, err)
             : what == 10 ? bench_load(&b, n_args > 1 ? args[1] : NULL, err)
                          : bench_suite(&b, n_args > 1 ? args[1] : NULL, err);
    if (st == TSR_OK && *o->chart)
        st = bench_chart(&b, err);
    if (st == TSR_OK)
        st = bench_print(&b, err);
    bench_close(&b);
    return st;
}

const struct tsr_verb tsr_verb_bench = {
    .name = "bench",
    .summary = "benchmarks kernels or a model against measured hardware peaks",
    .args =
        "gemv|gemm|syrk|cholesky|encode|experts|attention|dec|e2e|batch|load|suite|plan|comm|diff "
        "[MODEL|FILE "
        "FILE]",
    .min_args = 1,
    .max_args = 3,
    .details =
        "All but plan, comm and diff compare with a peak that is measured in the same round.\n"
        "\n"
        "gemv       one token through weights that do not fit in a cache, against the read "
        "rate of memory. With --m 1,4 every round measures one token and four tokens in turn. "
        "tokens_over_first is the tokens per second of a size over those of the first size, "
        "the median of the rounds.\n"
        "gemm       many tokens, against the multiply-add rate of the instruction set.\n"
        "syrk       X^T X of --m rows (2048) and --rows columns, against the FMA peak.\n"
        "cholesky   the factor of that, against the FMA peak.\n"
        "encode     F32 in the L1 cache to wire formats, on one core, against its clock. The "
        "share is elements per cycle.\n"
        "experts    one token through the experts that it takes, --used of width --ffn over "
        "--hidden columns, as the forward pass runs them. Experts are as many as --mib holds; the "
        "next token "
        "takes others. The first row is gemv of a matrix of equal size, the second a dense "
        "feed-forward of equal size, in the same rounds; tokens_over_first compares with gemv. "
        "`apart` is one product after the other.\n"
        "attention  one new token of each of --m sequences (1,16) against the keys and values of "
        "--positions, against the read rate of memory. --formats are types of the cache "
        "(f16,int8,fp8,int4). In the table rows is positions, cols the numbers of a key, m the "
        "sequences and group the query heads of a KV head.\n"
        "dec        gemv of each of --formats (int3 and int4), without and with error "
        "compensation of --channels of 1024 input channels. 'slower' is the extra time in "
        "percent; the extra bytes stand next to it. 'select' is microseconds for 4096 "
        "channels on one thread. With MODEL or --shape, packed by --quantizer (rtn:bits=3): "
        "whole decode steps without and with compensation, in turn, with residuals of random "
        "codes.\n"
        "e2e        a prompt and a few decode steps of MODEL (a Hugging Face folder or @demo), "
        "or of random weights of any shape.\n"
        "batch      --slots sequences of MODEL or of random weights, with prompts of 8 to --prompt "
        "tokens, that decode together and are drawn at temperature 1. The peak is as many tokens "
        "of "
        "one prompt with all logits: the same products of matrices without draws and long caches.\n"
        "load       a prepacked file from its name to the logits of one token, with the file "
        "in the page cache and the program already running. The first row compares with reading "
        "the needed bytes once, by "
        "read() or a map, whichever is faster. The second row has processor time of all "
        "threads, the third that of hashing the file, the fourth the read peak. 1 / share is "
        "how many times as long the load takes.\n"
        "suite      gemv and gemm of all formats (with --group 128 and 32; or of --formats), syrk, "
        "cholesky, encode, "
        "and e2e of MODEL or --shape if one is given. --json prints what diff reads, --chart draws "
        "it.\n"
        "diff       two results with --json, row by row: the ratio of their shares of the peak, or "
        "of their values where "
        "there is no peak, with a 95 % interval from the rounds (Mann-Whitney). A row is slower or "
        "faster if the whole interval "
        "is outside of --tolerance. A slower row makes the exit code 1.\n"
        "plan       processor time of a solver on the clusters of LLM-PQ and SplitQuant, or of "
        "those whose name contains MODEL. Also on 96 layers and 8 devices of 4 kinds, and on "
        "1,000 devices. All of these have made-up omegas. If MODEL is a .json file, on that "
        "problem, --repeats times in this process.\n"
        "comm       the sum of --ranks threads over --transport, for messages of --sizes "
        "tokens of --hidden features (4096). Each codec and algorithm is compared with a ring "
        "of BF16, with the prediction of the link model, and with the choice of auto. Also "
        "the size from which a codec is faster than plain.\n"
        "\n"
        "Every round measures peak, kernel, peak. `share` is the median of kernel over peak. "
        "An arithmetic peak counts only if it reached 97 % of its instruction's rate at "
        "the measured clock, and `busy` is at least 90 %. Otherwise the share is void, because "
        "another process uses "
        "the cores. For e2e, rows is the hidden size and cols the number of layers.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct bench_options),
    .run = run,
};
