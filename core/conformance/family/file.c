/* The YAML file under check, read as a family. */
#include "conformance/family/family.h"

const struct tsr_model_family *tsr_family_under_check(struct tsr_conformance_case *c)
{
    const struct tsr_model_family *f = NULL;
    struct tsr_diag               *d = NULL;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    tsr_status                     st = tsr_config_diag_create(&d, &e.err);
    if (st == TSR_OK)
        st = tsr_model_family_add(c->path, d, &e.err);
    if (st == TSR_OK)
        st = tsr_model_family_at(tsr_model_family_added() - 1, &f, &e.err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%s", e.text);
    return f;
}
