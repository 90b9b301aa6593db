/* Output of `bench comm`. */
#include "cli/bench/comm.h"

#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static bool is_plain(const struct bench_comm_way *w)
{
    return strncmp(w->codec, "plain", 5) == 0;
}

/* The faster of the ring and BF16 two-step. */
static double plain_us(const struct bench_comm *b, const struct bench_comm_size *s)
{
    double us = s->result[0].us;
    for (uint32_t i = 1; i < b->n_ways; i++)
        if (b->way[i].coder.algorithm == TSR_COMM_TWO_STEP &&
            strcmp(b->way[i].codec, "plain:dtype=bf16") == 0)
            us = fmin(us, s->result[i].us);
    return us;
}

/* The fastest that `auto` could have taken. */
static uint32_t best_of(const struct bench_comm *b, const struct bench_comm_size *s)
{
    uint32_t best = 1;
    for (uint32_t i = 1; i < b->n_ways; i++)
        if (!b->way[i].calibrated && s->result[i].us < s->result[best].us)
            best = i;
    return best;
}

/* Over the link that was given: the way that auto would take, and the fastest other one. */
static uint32_t best_there(const struct bench_comm *b, const struct bench_comm_size *s, bool plain)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < b->n_ways; i++)
        if (!b->way[i].calibrated && is_plain(&b->way[i]) == plain &&
            (best == 0 || s->result[i].there_us < s->result[best].there_us))
            best = i;
    return best;
}

static void print_there(const struct bench_comm *b, const struct bench_comm_size *s)
{
    uint32_t plain = best_there(b, s, true), codec = best_there(b, s, false);
    bool takes_plain = plain && (!codec || s->result[plain].there_us <= s->result[codec].there_us);
    uint32_t best = takes_plain ? plain : codec, other = takes_plain ? codec : plain;
    printf("%llu tokens over %.6g us and %.6g MB/s, predicted: auto takes %s by %s, %.1f us",
           (unsigned long long)s->rows, b->there.alpha * 1e6, b->there.rate * 1e-6,
           b->way[best].codec, b->way[best].algorithm, s->result[best].there_us);
    if (other)
        printf("; %s by %s %.1f us", b->way[other].codec, b->way[other].algorithm,
               s->result[other].there_us);
    puts("");
}

/* The smallest size from which on some codec that is not plain beats plain; 0: none does. */
static uint64_t cross_over(const struct bench_comm *b)
{
    uint64_t from = 0;
    for (uint32_t k = b->n_sizes; k-- > 0;) {
        const struct bench_comm_size *s = &b->size[k];
        bool                          wins = false;
        for (uint32_t i = 1; i < b->n_ways; i++)
            wins = wins || (!is_plain(&b->way[i]) && s->result[i].us < plain_us(b, s));
        if (!wins)
            break;
        from = s->rows * b->cols * 2;
    }
    return from;
}

static json_t *way_json(const struct bench_comm *b, const struct bench_comm_size *s, uint32_t i)
{
    const struct bench_comm_way    *w = &b->way[i];
    const struct bench_comm_result *r = &s->result[i];
    bool                            there = b->there.rate > 0 && !w->ring;
    json_t *way = json_pack("{s:s, s:s, s:f, s:o, s:f, s:I, s:b, s:b}", "codec", w->codec,
                            "algorithm", w->algorithm, "us", r->us, "predicted_us",
                            w->ring ? json_null() : json_real(r->predicted_us), "of_plain",
                            r->us / plain_us(b, s), "sent_bytes", (json_int_t)r->bytes, "auto",
                            i == s->chosen, "best", i == best_of(b, s));
    if (there)
        tsr_json_set(&way, "over_link_us", json_real(r->there_us));
    return way;
}

static json_t *size_json(const struct bench_comm *b, const struct bench_comm_size *s)
{
    json_t *ways = json_array();
    for (uint32_t i = 0; i < b->n_ways; i++)
        tsr_json_add(&ways, way_json(b, s, i));
    double   chosen = s->result[s->chosen].us;
    uint64_t bytes = s->rows * b->cols * 2;
    return json_pack("{s:I, s:I, s:{s:f, s:f}, s:f, s:f, s:o}", "tokens", (json_int_t)s->rows,
                     "bf16_bytes", (json_int_t)bytes, "link", "alpha_us", s->path.alpha * 1e6,
                     "mb_per_s", s->path.rate * 1e-6, "auto_of_best",
                     chosen / s->result[best_of(b, s)].us, "auto_of_plain", chosen / plain_us(b, s),
                     "ways", ways);
}

static tsr_status print_json(const struct bench_comm *b, struct tsr_err *err)
{
    json_t *sizes = json_array();
    for (uint32_t i = 0; i < b->n_sizes; i++)
        tsr_json_add(&sizes, size_json(b, &b->size[i]));
    return tsr_cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:o}", "transport", b->o->transport,
                                        "ranks", (json_int_t)b->ranks, "features",
                                        (json_int_t)b->cols, "cross_over_bytes",
                                        (json_int_t)cross_over(b), "sizes", sizes),
                              err);
}

tsr_status bench_comm_print(const struct bench_comm *b, struct tsr_err *err)
{
    if (b->cli->json)
        return print_json(b, err);
    puts("| tokens | KiB of BF16 | codec | algorithm | us | predicted | of plain | KiB sent | |\n"
         "|---:|---:|---|---|---:|---:|---:|---:|---|");
    for (uint32_t k = 0; k < b->n_sizes; k++) {
        const struct bench_comm_size *s = &b->size[k];
        double                        kib = (double)(s->rows * b->cols) * 2 / 1024;
        for (uint32_t i = 0; i < b->n_ways; i++) {
            const struct bench_comm_result *r = &s->result[i];
            char                            guess[32] = "-";
            if (!b->way[i].ring)
                (void)snprintf(guess, sizeof guess, "%.1f", r->predicted_us);
            printf("| %llu | %.1f | %s | %s | %.1f | %s | %.2f | %.1f | %s%s%s |\n",
                   (unsigned long long)s->rows, kib, b->way[i].codec, b->way[i].algorithm, r->us,
                   guess, r->us / plain_us(b, s), (double)r->bytes / 1024,
                   i == s->chosen ? "auto" : "", i == s->chosen && i == best_of(b, s) ? ", " : "",
                   i == best_of(b, s) ? "best" : "");
        }
    }
    puts("");
    for (uint32_t k = 0; k < b->n_sizes; k++) {
        const struct bench_comm_size *s = &b->size[k];
        double                        us = s->result[s->chosen].us;
        printf(
            "%llu tokens: the link has %.1f us and %.1f MB/s; auto takes %.2f times the best, %.2f "
            "times plain\n",
            (unsigned long long)s->rows, s->path.alpha * 1e6, s->path.rate * 1e-6,
            us / s->result[best_of(b, s)].us, us / plain_us(b, s));
    }
    for (uint32_t k = 0; b->there.rate > 0 && k < b->n_sizes; k++)
        print_there(b, &b->size[k]);
    uint64_t from = cross_over(b);
    if (from)
        printf("A codec beats plain from %.1f KiB of BF16 on (plain: the faster of the ring and "
               "two-step).\n",
               (double)from / 1024);
    else
        puts("No codec beats plain at the largest size (plain: the faster of the ring and "
             "two-step).");
    return tsr_cli_flush(err);
}
