/* tessera bench: kernels and whole models beside what the machine can do. */
#include "cli/bench.h"
#include "cli/bench_comm.h"
#include "cli/bench_plan.h"

#include <string.h>

static const struct tsr_choice acts[] = {
    { "auto", "a8 for packed weights, f32 for others", BENCH_ACT_AUTO },
    { "f32", "activations as they are", TSR_ACT_F32 },
    { "a16", "rounded to BF16", TSR_ACT_A16 },
    { "a8", "int8 with a scale per block of columns", TSR_ACT_A8 },
};
static const struct tsr_choice outputs[] = {
    { "md", "a Markdown table", BENCH_MD },
    { "csv", "comma-separated", BENCH_CSV },
    { "json", "a list of objects, as with --json", BENCH_JSON },
};
static const struct tsr_choice kvs[] = {
    { "f32", "F32 cache", TSR_F32 },
    { "f16", "F16 cache", TSR_F16 },
    { "int8", "int8 cache, a scale per head and token", TSR_I8 },
};

#define S struct bench_options
static const struct tsr_option options[] = {
    TSR_OPTION_STRING(
        S, formats, "",
        "weight formats, separated by commas; if empty f32,f16,bf16,int8,int4, for dec int3,int4, "
        "which compensation is for: f32, f16, bf16, int2 to int8, lut2 to lut8 (lut4o: "
        "with outliers), llm8, fp4_e2m1 and other MX elements, mxint2 to mxint8"),
    TSR_OPTION_STRING(S, bits, "", "packed formats by their bits, as in 4,8; instead of --formats"),
    TSR_OPTION_INT(S, group, 128, 0, 1 << 30, "columns",
                   "columns that share a scale below 8 bits; 0: the row"),
    TSR_OPTION_ENUM(S, act, BENCH_ACT_AUTO, acts, "how activations enter packed weights"),
    TSR_OPTION_INT(S, rows, 4096, 1, 1 << 24, NULL, "output features"),
    TSR_OPTION_INT(S, cols, 14336, 1, 1 << 24, NULL, "input features"),
    TSR_OPTION_INT(S, segment, 0, 0, 1 << 24, "columns",
                   "gemv, gemm: columns whose products are one chain of sums, a multiple of 32; 0: "
                   "32 for every 256, as in a model; all: what another order of sums would cost"),
    TSR_OPTION_STRING(
        S, m, "",
        "tokens at once; if empty 1 for gemv, 512 for gemm, 2048 for syrk; gemv and gemm "
        "measure several, as in 1,4, in turn in each round"),
    TSR_OPTION_INT(S, repeats, 7, 1, 10000, NULL,
                   "rounds of probe, kernel, probe; the median is printed; plan: solves of a file"),
    TSR_OPTION_INT(S, mib, 640, 1, 1 << 20, "MiB",
                   "weights in rotation, and memory of the read probe"),
    TSR_OPTION_INT(S, prompt, 512, 1, 1 << 20, "tokens", "e2e, dec: tokens of the prompt"),
    TSR_OPTION_INT(S, tokens, 32, 1, 1 << 20, "tokens", "e2e, dec: decode steps"),
    TSR_OPTION_ENUM(S, kv, TSR_F32, kvs, "e2e, dec: type of the KV cache"),
    TSR_OPTION_STRING(S, shape, "",
                      "e2e, dec: a random model of a known shape instead of MODEL: tiny, 1b, 8b"),
    TSR_OPTION_INT(S, hidden, 0, 0, 1 << 20, NULL, "e2e, dec: hidden size of a random model"),
    TSR_OPTION_INT(S, layers, 0, 0, 4096, NULL, "e2e, dec: its layers"),
    TSR_OPTION_INT(S, ffn, 0, 0, 1 << 22, NULL, "e2e, dec: its feed-forward size"),
    TSR_OPTION_INT(S, heads, 0, 0, 4096, NULL, "e2e, dec: its heads"),
    TSR_OPTION_INT(S, kv_heads, 0, 0, 4096, NULL, "e2e, dec: its KV heads"),
    TSR_OPTION_INT(S, vocab, 0, 0, 1 << 24, NULL, "e2e, dec: its vocabulary"),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL, "e2e, dec: seed of a random model"),
    TSR_OPTION_STRING(S, checkpoint, "",
                      "e2e, dec: write the random model into this folder and keep it"),
    TSR_OPTION_STRING(S, quantizer, "",
                      "e2e, dec: pack the linears with this plugin, as in rtn:bits=4,group=64"),
    TSR_OPTION_STRING(S, head, "",
                      "e2e, dec: pack the head with this plugin; without it, it stays"),
    TSR_OPTION_ENUM(S, numerics, TSR_NUMERICS_EXACT, tsr_numerics_choices,
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
    TSR_OPTION_ENUM(S, output, BENCH_MD, outputs, "form of the table"),
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
    static const char *const whats[] = { "gemv",   "gemm", "syrk", "cholesky",
                                         "encode", "dec",  "e2e",  "load" };
    uint64_t                 what = 0, n = sizeof whats / sizeof whats[0];
    while (what < n && strcmp(args[0], whats[what]) != 0)
        what++;
    if (what == n)
        return tsr_fail(
            err, TSR_E_INPUT,
            "bench: '%s' is none of gemv, gemm, syrk, cholesky, encode, dec, e2e, load, plan, comm",
            args[0]);
    if (n_args > 1 && what < 5)
        return tsr_fail(err, TSR_E_INPUT, "bench %s takes no MODEL; only dec, e2e and load do",
                        args[0]);
    struct bench b;
    tsr_status   st = bench_open(&b, c, o, err);
    if (st == TSR_OK)
        st = what == 0   ? bench_gemv(&b, err)
             : what == 1 ? bench_gemm(&b, err)
             : what <= 3 ? bench_linalg(&b, what == 3, err)
             : what == 4 ? bench_encode(&b, err)
             : what == 5 ? bench_dec(&b, n_args > 1 ? args[1] : NULL, err)
             : what == 6 ? bench_e2e(&b, n_args > 1 ? args[1] : NULL, err)
                         : bench_load(&b, n_args > 1 ? args[1] : NULL, err);
    if (st == TSR_OK)
        st = bench_print(&b, err);
    bench_close(&b);
    return st;
}

const struct tsr_verb tsr_verb_bench = {
    .name = "bench",
    .summary = "measures kernels or a model beside what the machine can do",
    .args = "gemv|gemm|syrk|cholesky|encode|dec|e2e|load|plan|comm [MODEL]",
    .min_args = 1,
    .max_args = 2,
    .details =
        "gemv: one token through weights that no cache holds, beside the rate at which the "
        "memory can be read; with --m 1,4 every round has probe, one token, probe, then probe, "
        "four tokens, probe, and tokens_over_first is the tokens a second of each size over "
        "those of the first, the median of the rounds. gemm: many tokens, beside the "
        "multiply-adds that the "
        "instruction set can do. syrk and cholesky: X^T X of --m rows (2048), and the factor, of "
        "--rows columns, beside the FMA probe. encode: F32 in the first cache to wire formats, on "
        "one core, beside its clock, so that share is elements a cycle. dec: gemv of each of "
        "--formats (int3 and int4), then with the compensation of --channels of 1024 input "
        "channels behind it "
        "(selection and residuals); 'slower' is the extra time in percent, beside the extra bytes; "
        "'select' is microseconds for 4096 channels on one thread; of MODEL or --shape, packed by "
        "--quantizer (rtn:bits=3), whole decode steps with and without, in turn, with residuals of "
        "random codes. e2e: a prompt and a few "
        "decode steps of MODEL (a Hugging "
        "Face folder or @demo), or of random weights of any shape. load: a prepacked file from its "
        "name to the logits of one token, with its bytes in the page cache and this program "
        "running, "
        "beside reading the bytes that the token needs once (the faster of read() and a map; "
        "the second "
        "row has processor time of all threads, the third that of hashing the file, as a batch "
        "does at its "
        "start, the fourth stands beside the read probe); 1 / share "
        "is how many times as long it takes. plan: processor time of a solver on the clusters of "
        "LLM-PQ and SplitQuant (or of those whose name contains MODEL), on 96 layers and 8 devices "
        "of 4 kinds, and on 1,000 devices; omegas are made up; on the problem in MODEL if that is "
        "a "
        ".json file, --repeats times in this process. comm: the sum of --ranks ranks, "
        "threads "
        "over --transport, for messages of --sizes tokens of --hidden features (4096): each codec "
        "by each algorithm beside a ring of BF16, what the model of the link predicts, what auto "
        "takes, and from which size on a codec beats plain.\n"
        "Every round measures probe, kernel, probe within the same second; `share` is the "
        "median over the rounds of kernel over probe. An arithmetic probe counts only if "
        "it reached 97 % of its instruction's rate at the clock measured beside it, and `busy` is "
        "at "
        "least 90 %; else the share is void: another process is using the cores. For e2e, rows is "
        "the hidden size and cols the number of layers.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct bench_options),
    .run = run,
};
