/* conformance/solver/solver.h - shared by the files of solver rules: problems and their known properties. */
#ifndef TSR_CONFORMANCE_SOLVER_SOLVER_H
#define TSR_CONFORMANCE_SOLVER_SOLVER_H

#include "conformance/helpers.h"
#include "tessera/solver.h"

#define TSR_PROBLEM_LAYERS  48u
#define TSR_PROBLEM_BITS    4u
#define TSR_PROBLEM_KINDS   4u
#define TSR_PROBLEM_CLASSES 2u
#define TSR_PROBLEM_OPTIONS 2u
#define TSR_PROBLEM_DEVICES 16u
#define TSR_PROBLEM_LINKS   2u

/* A problem with its tables in one block, so that a copy of it is a copy of everything. */
struct tsr_conformance_problem {
    struct tsr_solver_instance in; /* pointers into this struct: tsr_conformance_problem_link() */
    struct tsr_solver_kind     kind[TSR_PROBLEM_KINDS];
    struct tsr_solver_option   option[TSR_PROBLEM_OPTIONS];

    const struct tsr_solver_kind   *kinds[TSR_PROBLEM_KINDS];
    const struct tsr_solver_option *options[TSR_PROBLEM_OPTIONS];

    const char *bit_names[TSR_PROBLEM_BITS];
    uint32_t    layer_class[TSR_PROBLEM_LAYERS], order[TSR_PROBLEM_DEVICES];
    uint64_t    layer_bytes[TSR_PROBLEM_CLASSES * TSR_PROBLEM_BITS];
    uint64_t host_bytes[TSR_PROBLEM_CLASSES * TSR_PROBLEM_BITS]; /* all 0: the part is not used */
    double   omega[TSR_PROBLEM_LAYERS * TSR_PROBLEM_BITS];
    double   kind_omega[TSR_PROBLEM_KINDS * TSR_PROBLEM_LAYERS]; /* all 0: likewise */
    double   link_omega[TSR_PROBLEM_LINKS * TSR_PROBLEM_LAYERS]; /* likewise        */
    uint64_t pool_devices[TSR_PROBLEM_KINDS];
    struct {
        double   pre[TSR_PROBLEM_KINDS * TSR_PROBLEM_CLASSES * TSR_PROBLEM_BITS];
        double   dec[TSR_PROBLEM_KINDS * TSR_PROBLEM_CLASSES * TSR_PROBLEM_BITS];
        double   embed_pre[TSR_PROBLEM_KINDS], embed_dec[TSR_PROBLEM_KINDS];
        double   head_pre[TSR_PROBLEM_KINDS], head_dec[TSR_PROBLEM_KINDS];
        double   comm_pre[TSR_PROBLEM_LINKS * TSR_PROBLEM_KINDS * TSR_PROBLEM_KINDS];
        double   comm_dec[TSR_PROBLEM_LINKS * TSR_PROBLEM_KINDS * TSR_PROBLEM_KINDS];
        uint64_t workspace[TSR_PROBLEM_KINDS];
    } tables[TSR_PROBLEM_OPTIONS];
    uint64_t devices;
    /* by brute force: */
    bool   feasible;
    double best;
};

/* Makes the pointers of p->in point into p. */
void tsr_conformance_problem_link(struct tsr_conformance_problem *p);

/* A random problem of at most 8 layers and 3 devices that uses some of the parts in `parts`, with
 * its optimum by brute force.  The same seed and index give the same problem. */
void tsr_conformance_problem_small(struct tsr_conformance_problem    *p,
                                   const struct tsr_conformance_case *c, uint64_t index,
                                   uint64_t parts);
/* Like it, but one that has a plan. */
void tsr_conformance_problem_feasible(struct tsr_conformance_problem *p,
                                      struct tsr_conformance_case *c, uint64_t index,
                                      uint64_t parts);
/* 48 layers, 16 devices of 4 kinds: more plans than anybody can look at. */
void tsr_conformance_problem_large(struct tsr_conformance_problem    *p,
                                   const struct tsr_conformance_case *c, uint64_t parts);
/* Everything fits on one device with every bit: there is a plan for everybody to find. */
void tsr_conformance_problem_easy(struct tsr_conformance_problem    *p,
                                  const struct tsr_conformance_case *c);
/* The least problem that uses one part (TSR_SOLVER_*) in a way that changes the answer. */
void tsr_conformance_problem_of_part(struct tsr_conformance_problem    *p,
                                     const struct tsr_conformance_case *c, uint64_t part);

/* A solution with its arrays. */
struct tsr_conformance_answer {
    struct tsr_solver_solution s;
    char                       reason[256];
};
/* guarded: an entry too far ends the rule. */
void tsr_conformance_answer_make(struct tsr_conformance_answer        *a,
                                 const struct tsr_conformance_problem *p, bool guarded);
void tsr_conformance_answer_free(struct tsr_conformance_answer *a);

/* The plugin gets a copy of the solution: pointers that it moves are its own. */
tsr_status tsr_solver_solve(const struct tsr_solver_v1 *t, void *self,
                            const struct tsr_conformance_problem *p,
                            struct tsr_conformance_answer *a, struct tsr_err *err);
/* A fresh instance of the solver at work on a copy of p; a refusal fails the rule. */
void tsr_solver_answer(struct tsr_conformance_case *c, const struct tsr_conformance_problem *p,
                       struct tsr_conformance_answer *a);
/* True for an answer with a plan that the host accepts; *objective is the host's number. */
bool tsr_solver_planned(const struct tsr_conformance_problem *p,
                        const struct tsr_conformance_answer *a, double *objective);

#define TSR_SOLVER_ROUNDS UINT64_C(24) /* problems per rule */
/* docs/formats/instance.md, validator item 6: sums in another order differ by this at most. */
double tsr_solver_band(double objective);

void tsr_solver_rule_finds_plan(struct tsr_conformance_case *c);
void tsr_solver_rule_unsupported(struct tsr_conformance_case *c);
void tsr_solver_rule_deadline(struct tsr_conformance_case *c);
void tsr_solver_rule_repeats(struct tsr_conformance_case *c);
void tsr_solver_rule_untouched(struct tsr_conformance_case *c);
void tsr_solver_rule_writes(struct tsr_conformance_case *c);

/* claims.c */
void tsr_solver_rule_status(struct tsr_conformance_case *c);
void tsr_solver_rule_constraints(struct tsr_conformance_case *c);
void tsr_solver_rule_objective(struct tsr_conformance_case *c);
void tsr_solver_rule_bound(struct tsr_conformance_case *c);
void tsr_solver_rule_optimal(struct tsr_conformance_case *c);
void tsr_solver_rule_infeasible(struct tsr_conformance_case *c);
void tsr_solver_rule_reason(struct tsr_conformance_case *c);
void tsr_solver_rule_feasible(struct tsr_conformance_case *c);
void tsr_solver_rule_cutoff(struct tsr_conformance_case *c);

#endif
