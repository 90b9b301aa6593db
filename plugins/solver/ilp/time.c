/* SPDX-License-Identifier: GPL-3.0-or-later */
/* time FILE.lp SOLVES SECONDS - what tools/bench-ilp times GLPK with: the program is read once and solved
 * again and again in this process, as glpsol solves it (with the preprocessor), at a gap of 1e-4.  Prints
 * the first solve's processor seconds, the median of the others (of the first, where the SECONDS are
 * over before a second one), yes or no for proved, and the objective.  Not part of the plugin. */
#include <glpk.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One solve of a copy; false: not proved. */
static int solve(const glp_prob *p, double limit_s, double *took, double *objective)
{
    glp_prob *copy = glp_create_prob();
    glp_iocp  o;
    glp_copy_prob(copy, (glp_prob *)p, GLP_OFF);
    glp_init_iocp(&o);
    o.presolve = GLP_ON;
    o.mip_gap = 1e-4;
    o.tm_lim = (int)(limit_s * 1000);
    double start = cpu_s();
    int    rc = glp_intopt(copy, &o);
    *took = cpu_s() - start;
    /* GLP_EMIPGAP: the gap was reached before the end */
    int proved = rc == GLP_EMIPGAP || (rc == 0 && glp_mip_status(copy) == GLP_OPT);
    *objective = glp_mip_obj_val(copy);
    glp_delete_prob(copy);
    return proved;
}

int main(int argc, char **argv)
{
    int       n = argc == 4 ? atoi(argv[2]) : 0, done = 0, proved = 1;
    double    limit_s = argc == 4 ? atof(argv[3]) : 0, spent = 0, objective = 0;
    double   *took = n > 0 ? calloc((size_t)n, sizeof *took) : NULL;
    glp_prob *p = glp_create_prob();
    (void)glp_term_out(GLP_OFF);
    if (!took || !(limit_s > 0) || glp_read_lp(p, NULL, argv[1]) != 0) {
        (void)fprintf(stderr, "usage: time FILE.lp SOLVES SECONDS\n");
        return 2;
    }
    while (done < n && proved && (done == 0 || spent < limit_s)) {
        proved = solve(p, limit_s, &took[done], &objective);
        spent += took[done++];
    }
    double first = took[0], *rest = done > 1 ? took + 1 : took;
    int    left = done > 1 ? done - 1 : 1;
    qsort(rest, (size_t)left, sizeof *rest, ascending);
    double median = left % 2 ? rest[left / 2] : 0.5 * (rest[left / 2 - 1] + rest[left / 2]);
    (void)printf("%.9f %.9f %s %.12g\n", first, median, proved ? "yes" : "no", objective);
    glp_delete_prob(p);
    free(took);
    return 0;
}
