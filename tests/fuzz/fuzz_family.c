/* A family file: read, or refused with an error at a place in it. */
#include "model/family.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_family *f = NULL;
    struct tsr_diag         *d;
    const char              *text = size ? (const char *)data : "";
    if (tsr_config_diag_create(&d, &e.err) != TSR_OK)
        return 0;
    tsr_status st = tsr_model_family_read(&f, "input", text, size, d, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    must(st != TSR_OK || tsr_config_diag_errors(d) == 0);
    if (st == TSR_OK) { /* what readers of config.json and of tensors rely on */
        must(*f->name && f->architectures[0] && f->model_types[0] && f->prefixes[0]);
        must(f->n_roles > 0 && f->n_roles <= TSR_FAMILY_ROLES);
        must(f->roles[0].part == TSR_MODEL_PART_EMBED);
        must(f->n_flags <= TSR_FAMILY_FLAGS);
        must(f->norms_if < (int)f->n_flags && f->qk_norm_if < (int)f->n_flags);
        must(f->affine < (int)f->n_flags && f->window.when < (int)f->n_flags);
        for (uint32_t i = 0; i < f->n_roles; i++)
            must(strlen(f->roles[i].name) <= TSR_FAMILY_NAME);
        tsr_model_family_destroy(f);
    }
    tsr_config_diag_destroy(d);
    return 0;
}
