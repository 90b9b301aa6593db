/* Perplexity: the arithmetic against hand-computed cases, windows token by token, rows and
 * documents, and a run over the demo model against logits scored here. */
#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/tokenizer.h"
#include "eval/eval.h"
#include "eval/text.h"
#include "eval/wikitext.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DEMO TSR_SOURCE_ROOT "/configs/demo"

static struct tsr_model     *model;
static struct tsr_tokenizer *tokenizer;
static struct tsr_registry  *registry;
static struct tsr_pool      *pool;

static int setup(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    if (tsr_pool_create(&pool, 2, &e.err) != TSR_OK ||
        tsr_plugin_registry_create(&registry, pool, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_model_load(&model, DEMO, false, &e.err) != TSR_OK ||
        tsr_checkpoint_tokenizer_load(&tokenizer, DEMO, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_tokenizer_destroy(tokenizer);
    tsr_model_destroy(model);
    tsr_plugin_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return 0;
}

/* A scratch file with this content; the path is good until the next call. */
static const char *file_with(const char *text)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/tessera-eval-%ld", (long)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return path;
}

/* ---- arithmetic --------------------------------------------------------------- */

static void test_metrics(void **state)
{
    (void)state;
    const float p[3] = { 0.0f, logf(2.0f), logf(5.0f) };        /* 1/8, 2/8, 5/8 */
    const float q[3] = { 100.0f, 100.0f, 100.0f + logf(2.0f) }; /* 1/4, 1/4, 1/2 */
    double      lp, lq;
    /* F32 logits: 1e-7 relative of values around 1, around 100 for q */
    assert_true(fabs(tsr_eval_nll(p, 3, 0, &lp) - log(8.0)) < 1e-6);
    assert_true(fabs(tsr_eval_nll(p, 3, 2, &lp) - log(8.0 / 5.0)) < 1e-6);
    assert_true(fabs(tsr_eval_nll(q, 3, 1, &lq) - log(4.0)) < 2e-5);
    double want = 1.0 / 8 * log(0.5) + 2.0 / 8 * log(1.0) + 5.0 / 8 * log(1.25);
    assert_true(fabs(tsr_eval_kl(p, lp, q, lq, 3) - want) < 2e-5);
    assert_true(tsr_eval_kl(p, lp, p, lp, 3) == 0.0);
    const float far[2] = { -3e38f, 3e38f }; /* no overflow on the way */
    assert_true(tsr_eval_nll(far, 2, 1, &lp) == 0.0);
    const float bad[2] = { NAN, 0.0f };
    assert_true(isnan(tsr_eval_nll(bad, 2, 1, &lp)));
    assert_int_equal(tsr_eval_argmax(p, 3), 2);
    const float tie[4] = { 1, 3, 3, 2 };
    assert_int_equal(tsr_eval_argmax(tie, 4), 1);
}

/* Outputs of Python's re by the rules of lm-evaluation-harness's task `wikitext`. */
static const struct {
    const char *page, *detokenized;
    uint64_t    words;
} pages[] = {
    { " = Robert <unk> = \012 \012 Robert <unk> is an English film , television and theatre actor "
      ". He had a guest @-@ starring role on the television series The Bill in 2000 . \012",
      " = Robert <unk> =\012\012Robert <unk> is an English film, television and theatre actor. He "
      "had a guest-starring role on the television series The Bill in 2000.\012",
      34 },
    { " The boys ' club paid 1 @,@ 000 @.@ 5 pounds ( about $ 2 ; or so ) : it 's \" very good \" "
      ", isn 't it \077 Yes ! \012",
      " The boys'club paid 1,000.5 pounds (about $ 2; or so): it's \"very good\", isn 't it\077 "
      "Yes!\012",
      35 },
    { "a ' b ' c ( d\012 e ) [ f ] { g } { } ( ) [ unclosed",
      "a 'b' c (d\012e) [f] {g} {} () [ unclosed", 21 },
    { "/' 7/ x /'7/ N N 20 \302\260 C \302\260 \012\012 = = Head = = \012 = = = = Four = = = = = "
      "\012",
      "/'[0-9]/ x /'7/ 1 N 20\302\260C\302\260\012\012== Head ==\012==== Four =====\012", 26 },
    { "\302\240( \342\200\203wide\343\200\200 ) \034\" \037sep \036\" \341\240\216( "
      "\341\240\216x\341\240\216 ) \303\251\344\270\255\360\237\230\200 '\302\205 ' ",
      "\302\240(wide) \034\"sep\" \341\240\216(\341\240\216x\341\240\216) "
      "\303\251\344\270\255\360\237\230\200 '' ",
      14 },
    { "", "", 1 },
    { " ", " ", 2 },
    { "no spaces", "no spaces", 2 },
    { "  lead and trail  \012", "  lead and trail \012", 5 },
    { "quote \" one and \" two \" three", "quote \"one and\" two \" three", 8 },
    { "((( nested ) ) )", "((( nested) ) )", 5 },
    { "' '' ' ' x", "'''' ' x", 5 },
    { "s ' s '\012 s '", "s's'\012s'", 6 },
};

static void test_wikitext(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct tsr_tokenizer_text t = { 0 };
        uint64_t                  n = strlen(pages[i].page);
        if (tsr_eval_wikitext_detokenize(pages[i].page, n, &t, &e.err) != TSR_OK)
            fail_msg("page %zu: %s", i, e.text);
        assert_string_equal(t.v ? t.v : "", pages[i].detokenized);
        assert_int_equal(tsr_eval_count_words(pages[i].page, n), pages[i].words);
        tsr_tokenizer_text_free(&t);
    }
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_text t = { 0 };
    assert_int_equal(tsr_eval_wikitext_detokenize("ab\xff( c )", 8, &t, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "", "0xfe 0xff"));
    tsr_tokenizer_text_free(&t);
}

/* ---- windows -------------------------------------------------------------------- */

static struct tsr_eval_windows *windows(const char *path, struct tsr_eval_options o)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_eval_windows *w = NULL;
    if (tsr_eval_windows_create(&w, tokenizer, model, path, &o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return w;
}

static void test_side_by_side(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    char                    *text;
    uint64_t                 n;
    assert_int_equal(tsr_file_slurp(DEMO "/held-out.txt", 1 << 20, &text, &n, &e.err), TSR_OK);
    assert_int_equal(tsr_tokenize(tokenizer, text, n, TSR_TOKENIZER_SPECIAL, &ids, &e.err), TSR_OK);
    struct tsr_eval_windows *w =
        windows(DEMO "/held-out.txt",
                (struct tsr_eval_options){ .protocol = TSR_EVAL_PPL_GPTQ_2048 });
    assert_string_equal(w->protocol_name, "gptq-2048");
    assert_string_equal(w->bos, "once");
    assert_int_equal(w->window, 1024); /* 2048, but the model has 1024 positions */
    assert_int_equal(w->n, 38);
    assert_int_equal(w->tokens, 38912);
    assert_int_equal(w->scored, 38 * 1023);
    assert_int_equal(w->ids[0], model->hp.bos);
    assert_memory_equal(w->ids, ids.v, 38912 * sizeof *ids.v);
    for (uint64_t i = 0; i < w->n; i++) {
        assert_int_equal(w->start[i], i * 1024);
        assert_int_equal(w->score_from[i], 1);
        assert_true(w->weight[i] == 1024.0);
    }
    tsr_eval_windows_destroy(w);
    w = windows(DEMO "/held-out.txt",
                (struct tsr_eval_options){ .protocol = TSR_EVAL_PPL_LLAMACPP_512 });
    assert_string_equal(w->bos, "per window");
    assert_int_equal(w->tokens, 19635);
    assert_int_equal(w->n, 77);
    for (uint64_t i = 0; i < w->n; i++) {
        assert_int_equal(w->ids[i * 512], model->hp.bos);
        assert_memory_equal(w->ids + i * 512 + 1, ids.v + i * 512 + 1, 511 * sizeof *ids.v);
        assert_int_equal(w->score_from[i], 257); /* position 256 predicts token 257 */
        assert_true(w->weight[i] == 255.0);
    }
    tsr_eval_windows_destroy(w);
    w = windows(DEMO "/held-out.txt", (struct tsr_eval_options){ .window = 100, .max_windows = 3 });
    assert_int_equal(w->n, 3);
    assert_int_equal(w->tokens, 300);
    tsr_eval_windows_destroy(w);
    tsr_tokenizer_ids_free(&ids);
    free(text);
}

/* Every token of a document is scored once, with the input that the windows must have. */
static void check_rolling(const struct tsr_eval_windows *w, const struct tsr_tokenizer_ids *ids,
                          uint64_t max)
{
    uint64_t next = 0; /* token of the document that is scored next */
    for (uint64_t i = 0; i < w->n; i++) {
        const uint32_t *v = w->ids + w->start[i];
        uint64_t        n = w->start[i + 1] - w->start[i], from = w->score_from[i];
        assert_true(n - 1 <= max && from >= 1 && from < n);
        for (uint64_t k = 0; k < n; k++) {
            int64_t at = (int64_t)next + (int64_t)k - (int64_t)from; /* -1: the prefix */
            assert_true(at >= -1);
            assert_int_equal(v[k], at < 0 ? (uint32_t)model->hp.bos : ids->v[at]);
        }
        if (i + 1 < w->n || w->n == 1)
            assert_int_equal(from, 1); /* one token of context, but for the last */
        else
            assert_int_equal(n - 1, max); /* the last reaches back to be full */
        next += n - from;
    }
    assert_int_equal(next, ids->n);
}

static void test_rolling(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              text[3000] = "";
    for (int i = 0; i < 200; i++)
        strcat(text, i % 3 ? "She said so. " : "He went home ");
    struct tsr_tokenizer_ids ids = { 0 };
    /* the BOS of the document is scored as well */
    assert_int_equal(tsr_tokenize(tokenizer, text, strlen(text), TSR_TOKENIZER_SPECIAL, &ids,
                                  &e.err),
                     TSR_OK);
    assert_int_equal(ids.v[0], model->hp.bos);
    for (uint64_t max = ids.n - 2; max >= 7; max = max > 200 ? max - 131 : max / 2) {
        struct tsr_eval_windows *w =
            windows(file_with(text),
                    (struct tsr_eval_options){ .protocol = TSR_EVAL_PPL_LM_EVAL_WIKITEXT,
                                               .window = max < 1024 ? max : 1024 });
        check_rolling(w, &ids, w->window);
        assert_int_equal(w->scored, ids.n);
        assert_int_equal(w->words, tsr_eval_count_words(text, strlen(text)));
        assert_int_equal(w->tokens, w->words);
        assert_int_equal(w->bytes, strlen(text));
        tsr_eval_windows_destroy(w);
    }
    /* two documents: two prefixes */
    struct tsr_eval_windows *w = windows(
        file_with(
            "{\"text\": \"One here.\"}\n\n{\"text\": \"\"}\n{\"id\": 2, \"text\": \"Two .\"}\n"),
        (struct tsr_eval_options){ .protocol = TSR_EVAL_PPL_LM_EVAL_WIKITEXT,
                                   .rows = TSR_EVAL_ROWS_JSONL,
                                   .no_bos = true });
    assert_int_equal(w->n, 2); /* the empty document scores nothing */
    assert_int_equal(w->words, 2 + 1 + 2);
    assert_int_equal(w->bytes, 9 + 0 + 5);
    assert_int_equal(w->ids[w->start[1]], model->hp.bos);
    tsr_eval_windows_destroy(w);
    tsr_tokenizer_ids_free(&ids);
}

/* The joined text of rows, seen through its tokens. */
static void check_rows(const char *file, enum tsr_engine_rows rows, const char *join,
                       const char *joined)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    assert_int_equal(tsr_tokenize(tokenizer, joined, strlen(joined), TSR_TOKENIZER_SPECIAL, &ids,
                                  &e.err),
                     TSR_OK);
    struct tsr_eval_windows *w =
        windows(file_with(file),
                (struct tsr_eval_options){ .rows = rows, .join = join, .window = ids.n });
    assert_int_equal(w->n, 1);
    assert_memory_equal(w->ids, ids.v, ids.n * sizeof *ids.v);
    tsr_eval_windows_destroy(w);
    tsr_tokenizer_ids_free(&ids);
}

static void test_rows(void **state)
{
    (void)state;
    const char *text = " one two \n \n\nthree four\nfive";
    check_rows(text, TSR_EVAL_ROWS_FILE, NULL, text);
    check_rows(text, TSR_EVAL_ROWS_LINES, NULL, " one two \n\n\n\n\n\n\nthree four\n\n\nfive");
    check_rows(text, TSR_EVAL_ROWS_LINES, " ", " one two    three four five");
    check_rows("{\"text\":\"a b\\n\"}\n{\"text\":\"c d\"}", TSR_EVAL_ROWS_JSONL, "--",
               "a b\n--c d");
}

/* Refused, with an error about this part of the file; NULL: about none. */
static void refused(const char *file, struct tsr_eval_options o, const char *part,
                    const char *facts)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_eval_windows *w = NULL;
    assert_int_equal(tsr_eval_windows_create(&w, tokenizer, model, file, &o, &e.err), TSR_E_INPUT);
    assert_null(w);
    char about[200] = "";
    if (part)
        (void)snprintf(about, sizeof about, "%s%s", file, part);
    assert_true(error_is(&e.err, about, facts));
}

static void test_refusals(void **state)
{
    (void)state;
    struct tsr_eval_options jsonl = { .rows = TSR_EVAL_ROWS_JSONL };
    struct tsr_eval_options lm = { .protocol = TSR_EVAL_PPL_LM_EVAL_WIKITEXT };
    refused("/nowhere/at/all", (struct tsr_eval_options){ 0 }, "", NULL);
    refused(file_with("short"), (struct tsr_eval_options){ 0 }, "", "1024");
    refused(file_with("short"), (struct tsr_eval_options){ .window = 2000 }, "", "2000");
    refused(file_with("short"), (struct tsr_eval_options){ .window = 3 }, NULL, "4");
    refused(file_with("{\"text\": \"a\"}\n{\"page\": \"b\"}\n"), jsonl, ":2", "text");
    refused(file_with("{\"text\": \"a\"}\n{\"text\": 3}\n"), jsonl, ":2", "text");
    refused(file_with("{\"text\": \"a\"}\n{\"text\": \n"), jsonl, ":2:2", NULL);
    refused(file_with(""), (struct tsr_eval_options){ 0 }, "", "1 1024");
    refused(file_with(""), lm, "", NULL);
    refused(file_with("\xff\xfe"), lm, "", "0");
}

/* ---- runs --------------------------------------------------------------------------- */

static struct tsr_engine *engine(const struct tsr_model_overlay *o, uint64_t chunk)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_engine        *g = NULL;
    struct tsr_engine_options eo = {
        .slots = 1, .kv_dtype = TSR_F32, .context = 64, .chunk = chunk
    };
    if (tsr_engine_create(&g, registry, model, o, &eo, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return g;
}

/* Loss of a window by the words of the protocol, from all its logits at once. */
static double window_mean(struct tsr_engine *g, const uint32_t *ids, uint64_t n, uint64_t from)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    uint64_t                 vocab = model->hp.vocab;
    struct tsr_engine_token *t = tsr_new(n, sizeof *t);
    float                   *logits = tsr_new(n * vocab, sizeof *logits);
    double                   sum = 0.0;
    assert_true(t && logits);
    for (uint64_t i = 0; i < n; i++)
        t[i] = (struct tsr_engine_token){ .id = ids[i], .logits = true };
    tsr_engine_reset(g, 0);
    if (tsr_engine_forward(g, t, n, logits, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (uint64_t i = from; i < n; i++) {
        const float *row = logits + (i - 1) * vocab;
        long double  z = 0;
        for (uint64_t k = 0; k < vocab; k++)
            z += expl((long double)row[k]);
        sum += (double)(logl(z) - (long double)row[ids[i]]);
    }
    free(t);
    free(logits);
    return sum / (double)(n - from);
}

static void test_run(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_engine     *a = engine(NULL, 0), *b = engine(NULL, 7);
    struct tsr_eval_result r, again;
    for (int p = 0; p < 2; p++) {
        struct tsr_eval_windows *w =
            windows(DEMO "/held-out.txt",
                    (struct tsr_eval_options){ .protocol = p ? TSR_EVAL_PPL_LLAMACPP_512
                                                             : TSR_EVAL_PPL_GPTQ_2048,
                                               .window = 64,
                                               .max_windows = 3 });
        if (tsr_eval_run(a, NULL, pool, w, &r, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        double total = 0.0;
        for (uint64_t i = 0; i < 3; i++)
            total += w->weight[i] * window_mean(a, w->ids + w->start[i], 64, w->score_from[i]);
        /* F32 logits on both sides are the same; double against long double */
        assert_true(fabs(log(r.perplexity) - total / (double)w->tokens) < 1e-10);
        assert_int_equal(r.tokens, p ? 3 * 31 : 192);
        assert_int_equal(r.scored, p ? 3 * 31 : 189);
        assert_true(isnan(r.kl_mean));
        /* the same engine arithmetic in other chunks, one thread, against itself */
        if (tsr_eval_run(b, a, NULL, w, &again, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        assert_true(again.perplexity == r.perplexity);
        assert_true(again.kl_mean == 0.0 && again.kl_max == 0.0 && again.top1 == 1.0);
        tsr_eval_windows_destroy(w);
    }
    tsr_engine_destroy(a);
    tsr_engine_destroy(b);
}

/* One arm that cannot go on leaves the others alone; its sentence names window and place. */
static tsr_status broken_tap(void *ctx, uint64_t layer, enum tsr_site site, const float *x,
                             uint64_t n, uint64_t cols, struct tsr_err *err)
{
    int *calls = ctx;
    (void)site;
    (void)x;
    (void)n;
    (void)cols;
    if (layer == 0 && ++*calls > 6)
        return tsr_fail(err, TSR_E_NUMERIC, "the logit at position 3 is not finite");
    return TSR_OK;
}

static void test_arms(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    int                      calls = 0;
    struct tsr_engine       *g[3] = { engine(NULL, 0), engine(NULL, 0), engine(NULL, 0) };
    struct tsr_eval_arm     *arms = tsr_new(3, sizeof *arms);
    struct tsr_eval_windows *w =
        windows(DEMO "/held-out.txt", (struct tsr_eval_options){ .window = 32, .max_windows = 3 });
    assert_non_null(arms);
    tsr_engine_set_tap(g[1], broken_tap, &calls);
    for (int i = 0; i < 3; i++)
        arms[i] = (struct tsr_eval_arm){ .name = i == 1 ? "bad" : "good", .engine = g[i] };
    if (tsr_eval_arms(arms, 3, 0, pool, w, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(arms[0].status, TSR_OK);
    assert_int_equal(arms[1].status, TSR_E_NUMERIC);
    assert_true(error_is(&arms[1].error.err, "bad: window 2 of 3", "3"));
    assert_true(error_is(&arms[1].error.err, "bad: window 2 of 3", "3"));
    assert_int_equal(arms[2].status, TSR_OK);
    assert_true(arms[2].result.kl_mean == 0.0);
    assert_true(arms[2].result.perplexity == arms[0].result.perplexity);
    assert_true(arms[2].at.n == w->scored && arms[1].at.n == 0);
    double sum = 0.0;
    for (uint64_t i = 0; i < w->scored; i++) {
        sum += (double)arms[2].at.nll[i];
        assert_true(arms[2].at.kl[i] == 0.0f && arms[2].at.top1[i] == arms[0].at.top1[i]);
    }
    /* each rounded to F32 */
    assert_true(fabs(sum / (double)w->scored - arms[2].result.mean_nll) < 1e-6);
    for (int i = 0; i < 3; i++)
        tsr_eval_trace_free(&arms[i].at);
    /* the reference's failure ends it */
    calls = 0;
    assert_int_equal(tsr_eval_arms(arms, 3, 1, pool, w, &e.err), TSR_E_NUMERIC);
    assert_true(error_is(&e.err, "bad: window 2 of 3", "3"));
    for (int i = 0; i < 3; i++)
        tsr_engine_destroy(g[i]);
    tsr_eval_windows_destroy(w);
    free(arms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),      cmocka_unit_test(test_wikitext),
        cmocka_unit_test(test_side_by_side), cmocka_unit_test(test_rolling),
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_run),          cmocka_unit_test(test_arms),
    };
    int  rc = cmocka_run_group_tests(tests, setup, teardown);
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/tessera-eval-%ld", (long)getpid());
    (void)unlink(path);
    return rc;
}
