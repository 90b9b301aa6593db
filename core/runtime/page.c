/* The memory that ranks share. */
#include "runtime/page.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

tsr_status tsr_runtime_page_create(struct tsr_runtime_page **out, uint32_t ranks, uint32_t stages,
                                   uint64_t spans, uint64_t epoch, struct tsr_err *err)
{
    uint64_t head, each, bytes, choices;
    if (!tsr_mul(ranks, sizeof(struct tsr_runtime_page_rank), &head) ||
        !tsr_add(head, sizeof(struct tsr_runtime_page), &head) ||
        !tsr_mul(stages, 2 * sizeof(struct tsr_runtime_page_choice), &choices) ||
        !tsr_mul(spans, 2 * sizeof(struct tsr_runtime_span), &each) ||
        !tsr_mul(each, ranks, &bytes) || !tsr_add(bytes, head, &bytes) ||
        !tsr_add(bytes, choices, &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "a page for %u ranks is too large", ranks);
    struct tsr_runtime_page *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return tsr_fail_errno(err, errno, "memory shared by ranks", "map it");
    p->ranks = ranks;
    p->stages = stages;
    p->bytes = bytes;
    p->choice = (struct tsr_runtime_page_choice *)(void *)((char *)p + (bytes - choices));
    struct tsr_runtime_span *v = (struct tsr_runtime_span *)(void *)((char *)p + head);
    for (uint32_t i = 0; i < ranks; i++) {
        struct tsr_runtime_page_rank *r = &p->rank[i];
        atomic_store(&r->progress.epoch, epoch);
        r->work.cap = r->link.cap = spans;
        r->work.v = v + 2 * spans * i;
        r->link.v = r->work.v + spans;
    }
    *out = p;
    return TSR_OK;
}

void tsr_runtime_page_destroy(struct tsr_runtime_page *p)
{
    if (p)
        (void)munmap(p, p->bytes);
}

void tsr_runtime_page_fail(struct tsr_runtime_page *p, uint32_t rank,
                           const struct tsr_err_sent *why)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&p->failure, &none, 1))
        return;
    p->failed_rank = rank;
    p->why = *why;
    atomic_store(&p->failure, 2);
}

void tsr_runtime_page_fail_by(struct tsr_runtime_page *p, uint32_t rank, tsr_status st,
                              const struct tsr_err *err)
{
    struct tsr_err_sent why;
    tsr_err_send(&why, st, err);
    tsr_runtime_page_fail(p, rank, &why);
}

bool tsr_runtime_page_failed(const struct tsr_runtime_page *p)
{
    return atomic_load(&p->failure) == 2;
}

tsr_status tsr_runtime_page_failure(const struct tsr_runtime_page *p, struct tsr_err *err)
{
    if (!tsr_runtime_page_failed(p))
        return TSR_OK;
    char where[TSR_COMM_HOST + 32];
    (void)snprintf(where, sizeof where, "rank %u%s%s: ", p->failed_rank, p->host ? " on " : "",
                   p->host ? p->host[p->failed_rank] : "");
    return tsr_err_arrive(err, &p->why, where);
}

void tsr_runtime_spans_add(struct tsr_runtime_spans *s, const struct tsr_runtime_span *one)
{
    uint64_t n = atomic_load_explicit(&s->n, memory_order_relaxed);
    if (n < s->cap)
        s->v[n] = *one;
    atomic_store_explicit(&s->n, n + 1, memory_order_release);
}
