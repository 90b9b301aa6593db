#include "cli/ranked.h"

#include "cli/supervise.h"

#include "base/log.h"
#include "runtime/peers.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

bool tsr_cli_launched(void)
{
    uint32_t rank, ranks;
    return tsr_comm_launched(&rank, &ranks) && ranks > 1;
}

/* The job, on a rank that has joined. */
static tsr_status work(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_runtime_peers *m,
                       struct tsr_err *err)
{
    bool done;
    job->peers = m;
    tsr_status st = tsr_runtime_peers_rank(m) == 0 ? tsr_cli_run_job(c, job, err)
                                                   : tsr_pipeline_job_run(job, &done, err);
    job->peers = NULL;
    /* rank 0 found that all ranks are done: mpirun treats an exit without MPI_Finalize as a failure */
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (st == TSR_E_CANCELLED && !tsr_plugin_cancelled() && tsr_runtime_peers_over(m) &&
        tsr_runtime_peers_failure(m, 0, &e.err) == TSR_OK)
        st = TSR_OK;
    return st;
}

tsr_status tsr_cli_ranked(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_diag *d,
                          const char *what, tsr_status st, struct tsr_err *err)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_registry      *r;
    struct tsr_runtime_peers *m = NULL;
    uint32_t                  rank = 0, ranks = 1;
    bool                      said = false;
    (void)tsr_comm_launched(&rank, &ranks);
    if (rank == 0)
        tsr_cli_watched();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);                       /* mpirun's end is ours */
    if (rank == 0 && (st != TSR_OK || tsr_config_diag_errors(d))) /* mpirun ends the others */
        return st != TSR_OK && !tsr_config_diag_errors(d) ? st : tsr_cli_diag(c, d, what, err);
    if (st == TSR_OK && tsr_config_diag_errors(d))
        st = tsr_config_diag_status(d, err); /* for rank 0 to print */
    TSR_TRY(tsr_cli_registry(c, &r, &e.err) == TSR_OK ? TSR_OK
                                                      : tsr_err_copy(err, TSR_E_INPUT, &e.err));
    tsr_status joined = tsr_runtime_peers_join(&m, r, rank, ranks, 0, st == TSR_OK ? err : &e.err);
    if (joined != TSR_OK)
        return st == TSR_OK ? joined : st;
    if (st == TSR_OK)
        st = work(c, job, m, err);
    tsr_runtime_peers_leave(m, st, err, &said);
    if (said) {
        c->ended = true;
        c->code = tsr_exit_code(tsr_runtime_peers_failure(m, 0, &e.err));
    }
    c->hard = !tsr_runtime_peers_destroy(m) || st != TSR_OK;
    return said ? TSR_OK : st;
}
