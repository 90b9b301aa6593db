/* What every function of the host for a plugin's step begins with, and memory that lives as long as the call. */
#include "pipeline/steps/external_step.h"

#include "base/mem.h"

#include <stdlib.h>

tsr_status external_enter(const struct external_call *c, const char *function, bool running,
                          struct tsr_err *err)
{
    if (!c->open || !pthread_equal(c->thread, pthread_self()))
        return tsr_fail(err, TSR_E_INVAL,
                        "%s of step '%s' was called outside of check() and run(), or on another "
                        "thread",
                        function, c->name);
    if (running && c->d)
        return tsr_fail(err, TSR_E_INVAL, "%s of step '%s' was called in check(); it is for run()",
                        function, c->name);
    return TSR_OK;
}

tsr_status external_keep(struct external_call *c, void *p, struct tsr_err *err)
{
    void **v = tsr_renew(c->memory, c->n_memory + 1, sizeof *v);
    if (!v) {
        free(p);
        return tsr_fail_nomem(err, (c->n_memory + 1) * sizeof *v, "memory of a step");
    }
    c->memory = v;
    c->memory[c->n_memory++] = p;
    return TSR_OK;
}
