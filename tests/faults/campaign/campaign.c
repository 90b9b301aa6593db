/* faults/campaign/campaign.c - the campaign: trials by seed, several at a time, and the table of what they found.
 *
 *   campaign --tessera FILE --inject FILE --inputs FOLDER --cases FILE [--trials N] [--seed N] [--trial N] [--case NAME]
 *            [--fault NAME] [--sample N] [--jobs N] [--slow X] [--no-memory] [--keep FOLDER]
 *
 * A trial's faults are a function of seed and number: --trial N repeats one.  --sample N takes so many of the cases.
 * --keep FOLDER, with --trial: what is wrong is copied there.
 * Exit 1: something is wrong; 2: the campaign itself cannot run.
 */
#include "campaign.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct cell {
    atomic_uint trials, hits, wrong;
};

struct shared { /* by all processes of the campaign */
    struct cell      cell[MOST_CASES][FAULTS];
    atomic_uint      code[400]; /* 128 + exit code or -signal */
    atomic_ulong     next, failed;
    struct reference reference[MOST_CASES];
};

struct campaign {
    const char          *tessera, *inject, *inputs, *only_case, *only_fault, *keep;
    uint64_t             seed, first, trials, sample;
    int                  jobs, n;
    double               slow;
    bool                 no_memory, disks, taken[MOST_CASES];
    struct campaign_case c[MOST_CASES];
    char                 work[100];
    struct shared       *shared;
};

static void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "campaign: %s: %s\n", name, what);
    exit(2);
}

static void read_options(struct campaign *k, int argc, char **argv)
{
    const char *cases = NULL;
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        char       *end = NULL;
        double      x = strtod(v, &end);
        bool        number = *v && *end == '\0' && x >= 0;
        if (strcmp(o, "--no-memory") == 0) {
            k->no_memory = true;
            continue;
        }
        i++;
        if (strcmp(o, "--tessera") == 0)
            k->tessera = v;
        else if (strcmp(o, "--inject") == 0)
            k->inject = v;
        else if (strcmp(o, "--inputs") == 0)
            k->inputs = v;
        else if (strcmp(o, "--cases") == 0)
            cases = v;
        else if (strcmp(o, "--case") == 0)
            k->only_case = v;
        else if (strcmp(o, "--fault") == 0)
            k->only_fault = v;
        else if (strcmp(o, "--keep") == 0)
            k->keep = v;
        else if (!number)
            die("unknown option, or no number", o);
        else if (strcmp(o, "--trials") == 0)
            k->trials = (uint64_t)x;
        else if (strcmp(o, "--seed") == 0)
            k->seed = (uint64_t)x;
        else if (strcmp(o, "--sample") == 0)
            k->sample = (uint64_t)x;
        else if (strcmp(o, "--jobs") == 0)
            k->jobs = (int)x;
        else if (strcmp(o, "--slow") == 0)
            k->slow = x;
        else if (strcmp(o, "--trial") == 0) {
            k->first = (uint64_t)x;
            k->trials = 1;
        } else
            die("unknown option", o);
    }
    if (!k->tessera || !k->inject || !k->inputs || !cases || k->jobs < 1 || k->trials < 1)
        die("needs --tessera, --inject, --inputs and --cases", argv[0]);
    k->n = cases_read(cases, k->c, MOST_CASES);
}

/* Which case and fault a trial has; false: none is left after the options. */
static bool choose(const struct campaign *k, uint64_t trial, int *c, enum fault *f)
{
    uint64_t   rng = k->seed * 0x9e3779b97f4a7c15u ^ trial << 20;
    int        some[MOST_CASES], n = 0, m = 0;
    enum fault may[FAULTS];
    for (int i = 0; i < k->n; i++)
        if (k->taken[i])
            some[n++] = i;
    if (n == 0)
        return false;
    *c = some[draw(&rng) % (uint64_t)n];
    for (int i = 0; i < FAULTS; i++)
        if (fault_applies((enum fault)i, &k->c[*c]) && !(i == FAULT_MEMORY && k->no_memory) &&
            !(i == FAULT_DISK && !k->disks) &&
            (!k->only_fault || strcmp(k->only_fault, fault_name[i]) == 0))
            may[m++] = (enum fault)i;
    if (m == 0)
        return false;
    *f = may[draw(&rng) % (uint64_t)m];
    return true;
}

static void take_cases(struct campaign *k)
{
    uint64_t rng = k->seed ^ 0x5bd1e995u;
    int      left = 0;
    for (int i = 0; i < k->n; i++) {
        k->taken[i] = !k->only_case || strcmp(k->only_case, k->c[i].name) == 0;
        left += k->taken[i];
    }
    if (left == 0)
        die("no such case", k->only_case ? k->only_case : "cases");
    while (k->sample && (uint64_t)left > k->sample) {
        int i = (int)(draw(&rng) % (uint64_t)k->n);
        left -= k->taken[i];
        k->taken[i] = false;
    }
}

/* A file system of the campaign's own, in memory and gone with it; as root alone. */
static void make_work(struct campaign *k)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(k->work, sizeof k->work, "%.80s/faults-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(k->work))
        die(strerror(errno), k->work);
    k->disks = unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", k->work, "tmpfs", 0, "size=512m") == 0;
}

static void make_place(const struct campaign *k, struct place *w, int worker)
{
    *w = (struct place){ .tessera = k->tessera,
                         .inject = k->inject,
                         .inputs = k->inputs,
                         .keep = k->keep,
                         .patience = 30 * k->slow,
                         .slow = k->slow };
    (void)snprintf(w->folder, sizeof w->folder, "%s/%d-t", k->work, worker);
    (void)snprintf(w->say, sizeof w->say, "%s/say%d", k->work, worker);
    (void)snprintf(w->state, sizeof w->state, "%s/state%d", k->work, worker);
    int fd = open(w->state, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (mkdir(w->say, 0755) != 0 || fd < 0 || ftruncate(fd, sizeof *w->live) != 0)
        die(strerror(errno), w->say);
    w->live = mmap(NULL, sizeof *w->live, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (w->live == MAP_FAILED)
        die(strerror(errno), w->state);
    (void)close(fd);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) /* what a command leaves running is ours to find */
        die(strerror(errno), "prctl");
}

static int references(const struct campaign *k, int worker)
{
    struct place w;
    char         why[200];
    int          bad = 0;
    make_place(k, &w, worker);
    for (int i = worker; i < k->n; i += k->jobs)
        if (k->taken[i] && !reference_take(&k->shared->reference[i], &w, &k->c[i], why)) {
            (void)fprintf(stderr, "campaign: case %s: %s\n", k->c[i].name, why);
            bad = 1;
        }
    return bad;
}

static int trials(const struct campaign *k, int worker)
{
    struct place   w;
    struct verdict v;
    struct plan    p;
    char           says[300];
    uint64_t       t;
    make_place(k, &w, worker);
    while ((t = atomic_fetch_add(&k->shared->next, 1)) < k->trials) {
        int        c;
        enum fault f;
        t += k->first;
        if (!choose(k, t, &c, &f))
            continue;
        plan_make(&p, k->seed, t, &k->c[c], &k->shared->reference[c], f);
        trial_run(&v, &w, &k->c[c], &k->shared->reference[c], &p);
        struct cell *cell = &k->shared->cell[c][f];
        atomic_fetch_add(&cell->trials, 1);
        atomic_fetch_add(&cell->hits, v.hit);
        for (int i = 0; i < v.n; i++)
            atomic_fetch_add(&k->shared->code[128 + v.codes[i]], 1);
        if (!v.wrong[0])
            continue;
        atomic_fetch_add(&cell->wrong, 1);
        atomic_fetch_add(&k->shared->failed, 1);
        plan_say(&p, says, sizeof says);
        printf(
            "WRONG: %s: %s\n    under %s\n    tools/faults --seed %lu --trial %lu --case %s%s%s\n",
            k->c[c].name, v.wrong, says, (unsigned long)k->seed, (unsigned long)t, k->c[c].name,
            k->only_fault ? " --fault " : "", k->only_fault ? k->only_fault : "");
        (void)fflush(stdout);
    }
    return 0;
}

/* The work in so many processes, each with its own place; false: one of them could not do it. */
static bool in_processes(const struct campaign *k, int first,
                         int (*work)(const struct campaign *, int))
{
    bool good = true;
    int  status;
    (void)fflush(stdout);
    for (int i = 0; i < k->jobs; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die(strerror(errno), "fork");
        if (pid == 0)
            exit(work(k, first + i));
    }
    while (wait(&status) > 0)
        good = good && status == 0;
    return good;
}

static void print_table(const struct campaign *k)
{
    printf("%-16s", "trials/hit/wrong");
    for (int f = 0; f < FAULTS; f++)
        printf(" %12s", fault_name[f]);
    printf("\n");
    unsigned sum[FAULTS][3] = { { 0 } };
    for (int c = 0; c < k->n; c++) {
        if (!k->taken[c])
            continue;
        printf("%-16s", k->c[c].name);
        for (int f = 0; f < FAULTS; f++) {
            const struct cell *x = &k->shared->cell[c][f];
            unsigned           n = atomic_load(&x->trials), h = atomic_load(&x->hits),
                     w = atomic_load(&x->wrong);
            char text[40] = "-";
            if (n)
                (void)snprintf(text, sizeof text, "%u/%u/%u", n, h, w);
            printf(" %12s", text);
            sum[f][0] += n;
            sum[f][1] += h;
            sum[f][2] += w;
        }
        printf("\n");
    }
    printf("%-16s", "all");
    for (int f = 0; f < FAULTS; f++) {
        char text[40];
        (void)snprintf(text, sizeof text, "%u/%u/%u", sum[f][0], sum[f][1], sum[f][2]);
        printf(" %12s", text);
    }
    printf("\nexit codes:");
    for (int i = 0; i < 400; i++)
        if (atomic_load(&k->shared->code[i]))
            printf(i < 128 ? " signal %d x%u" : " %d x%u", i < 128 ? 128 - i : i - 128,
                   atomic_load(&k->shared->code[i]));
    printf("\n");
}

int main(int argc, char **argv)
{
    struct campaign *k = calloc(1, sizeof *k);
    if (!k)
        return 2;
    k->seed = 1;
    k->trials = 100;
    k->jobs = 2;
    k->slow = 1;
    read_options(k, argc, argv);
    take_cases(k);
    k->shared =
        mmap(NULL, sizeof *k->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k->shared == MAP_FAILED)
        die(strerror(errno), "mmap");
    make_work(k);
    int        c;
    enum fault f;
    if (!choose(k, k->first, &c, &f))
        die("no such fault here", k->only_fault ? k->only_fault : "faults");
    if (k->trials == 1) { /* no other case is looked at */
        memset(k->taken, 0, sizeof k->taken);
        k->taken[c] = true;
        k->only_case = k->c[c].name;
    }
    printf("seed %lu, %lu trials%s\n", (unsigned long)k->seed, (unsigned long)k->trials,
           k->disks ? "" : ", no small disks: not root");
    bool good = in_processes(k, 0, references);
    if (good) {
        good = in_processes(k, k->jobs, trials);
        print_table(k);
        printf("%lu trials, %lu wrong\n", (unsigned long)k->trials,
               (unsigned long)atomic_load(&k->shared->failed));
    } else
        good = false;
    if (k->disks) {
        (void)umount2(k->work, MNT_DETACH);
        (void)rmdir(k->work);
    } else
        remove_tree(k->work);
    return !good ? 2 : atomic_load(&k->shared->failed) ? 1 : 0;
}
