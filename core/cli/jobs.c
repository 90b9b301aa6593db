#include "cli/jobs.h"

tsr_status tsr_cli_check_job(struct tsr_cli *c, struct tsr_job *job, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct tsr_registry *r;
    TSR_TRY(tsr_cli_registry_bare(c, &r, err));
    TSR_TRY(tsr_job_plugins(job, r, d, err));
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_job_check(job, r, d, err));
    return TSR_OK;
}

tsr_status tsr_cli_diag(const struct tsr_cli *c, struct tsr_diag *d, const char *what,
                        struct tsr_err *err)
{
    uint64_t n = tsr_diag_errors(d);
    tsr_diag_print(d, stderr, c->colour);
    tsr_status st = tsr_diag_status(d, err);
    if (st == TSR_E_INPUT)
        (void)tsr_fail(err, st, "%s: %llu error%s", what, (unsigned long long)n, n == 1 ? "" : "s");
    return st;
}
