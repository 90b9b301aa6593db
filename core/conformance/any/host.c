/* The host table that a plugin receives, and the tables that it returns. */
#include "conformance/any/any.h"

#include "conformance/guard.h"

#include <stdatomic.h>
#include <string.h>

/* Where the table of minor 0 ends. */
#define HOST_MINOR_0 (offsetof(struct tsr_host, service) + sizeof(void *))

void tsr_any_destroy_null(struct tsr_conformance_case *c)
{
    c->kind->unmake(c, NULL);
}

/* What the plugin answers to the host of today, for comparison. */
static tsr_status usual(struct tsr_conformance_case *c)
{
    tsr_status st = c->kind->exercise(c, false, NULL);
    tsr_conformance_test_host_init(c->host, 1);
    return st;
}

static void compare(struct tsr_conformance_case *c, tsr_status before, const char *host)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = c->kind->exercise(c, false, &e.err);
    if (st != before)
        tsr_conformance_rule_fail(c, "with %s it answers %s instead of %s: %s", host,
                                  tsr_conformance_status_name(st),
                                  tsr_conformance_status_name(before), e.text);
}

void tsr_any_host_older(struct tsr_conformance_case *c)
{
    tsr_status       before = usual(c);
    struct tsr_host *h = tsr_conformance_guarded("the host table of minor 0", HOST_MINOR_0, 0);
    memcpy(h, &c->host->table, HOST_MINOR_0);
    h->struct_size = HOST_MINOR_0;
    h->abi_minor = 0;
    tsr_conformance_guarded_protect(h, true);
    c->host->give = h;
    compare(c, before, "a host of minor 0");
}

void tsr_any_host_newer(struct tsr_conformance_case *c)
{
    enum { MORE = 192 };
    tsr_status       before = usual(c);
    uint64_t         bytes = sizeof(struct tsr_host) + MORE;
    struct tsr_host *h = tsr_conformance_guarded("the host table of a later minor", bytes, 0xFF);
    memcpy(h, &c->host->table, sizeof *h);
    h->struct_size = (uint32_t)bytes;
    h->abi_minor = TSR_ABI_MINOR + 7;
    tsr_conformance_guarded_protect(h, true);
    c->host->give = h;
    compare(c, before, "a host of a later minor");
}

void tsr_any_no_services(struct tsr_conformance_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    c->host->no_services = true;
    tsr_status st = c->kind->exercise(c, false, &e.err);
    if (st == TSR_E_INVAL)
        tsr_conformance_rule_fail(
            c,
            "without any service it answers TSR_E_INVAL, which says that the host broke "
            "the contract: %s",
            e.text);
}

void tsr_any_extension_unknown(struct tsr_conformance_case *c)
{
    static const char *const ids[] = { "org.example.nothing/1", "", "tessera.quantizer.block/999",
                                       "tessera" };
    void                    *self = NULL;
    tsr_status               st = c->kind->make(c, &self, NULL);
    if (st != TSR_OK)
        tsr_conformance_rule_skip(c, "create() answers %s", tsr_conformance_status_name(st));
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (c->kind->extension(c, self, ids[i]))
            tsr_conformance_rule_fail(c, "extension(\"%s\") is not NULL", ids[i]);
    c->kind->unmake(c, self);
}

void tsr_any_log_lines(struct tsr_conformance_case *c)
{
    (void)c->kind->exercise(c, false, NULL);
    if (*c->host->misuse[TSR_CONFORMANCE_MISUSE_LOG])
        tsr_conformance_rule_fail(c, "%s", c->host->misuse[TSR_CONFORMANCE_MISUSE_LOG]);
}

/* ---- cancel ------------------------------------------------------------------------------ */

/* Counted in processor time, so that other programs on the machine do not count; the rule's own limit
 * catches a plugin that sleeps. */
#define CANCEL_AFTER_MS 50u
#define CANCEL_LIMIT_MS 200.0

void tsr_any_cancel(struct tsr_conformance_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    c->host->cancel_after_ms = CANCEL_AFTER_MS;
    tsr_status st = c->kind->exercise(c, true, &e.err);
    double     late = tsr_conformance_test_host_late_ms(c->host);
    if (!(late <= CANCEL_LIMIT_MS))
        tsr_conformance_rule_fail(
            c,
            "it went on for %.0f ms of processor time (asked host->cancelled() %llu times "
            "in all) and answered %s",
            late, (unsigned long long)atomic_load(&c->host->asked),
            tsr_conformance_status_name(st));
    if (late > 0.0 && st < 0 && st >= TSR_E_CANCELLED && st != TSR_E_CANCELLED)
        tsr_conformance_rule_fail(
            c, "when it was stopped it answered %s instead of TSR_E_CANCELLED: %s",
            tsr_conformance_status_name(st), e.text);
}
