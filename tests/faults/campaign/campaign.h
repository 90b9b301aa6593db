/* A campaign of faults: any verb of the program under one or two faults, and what it leaves compared with the run
 * that met none.  cases.txt says what the verbs are. */
#ifndef FAULTS_CAMPAIGN_H
#define FAULTS_CAMPAIGN_H

#include "inject.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MOST_WORDS 48
#define MOST_FILES 160
#define MOST_CASES 64

/* ---- a case: a command, its inputs, what it publishes (cases.c) */

struct words {
    int         n;
    const char *at[MOST_WORDS + 1]; /* ends with NULL */
};

struct drop { /* members of a JSON file that differ from run to run, such as seconds */
    const char *file;
    int         n;
    const char *key[MOST_WORDS];
};

struct campaign_case {
    const char  *name;
    struct words inputs; /* files and folders that are copied into the trial's folder */
    struct words run;    /* arguments of the program */
    struct words other;  /* another command with the same output, for races */
    struct words final;  /* names at the top of what is published */
    struct words whole;  /* folders that appear under their name at once */
    struct words
        grows; /* files that are replaced while the command runs: compared when it has ended well */
    struct words
        keyed;         /* patterns of files that say of which input they are, and are made again for
                             another: until the command has ended well, of any of them */
    struct words work; /* patterns of files that a resume reads; not compared */
    struct words scratch; /* patterns of files that are there until the command has ended well */
    struct words numbers; /* texts whose numbers are times */
    struct words skip;    /* faults that do not apply, with a reason in the table */
    struct drop  drop[8];
    int          n_drop;
    const char  *input;    /* stdin */
    bool         refuses;  /* what is complete is not written again: exit 2 */
    bool         silent;   /* stdout is not compared */
    bool         children; /* the command starts processes */
};

/* Reads the table; exits with a sentence where it is wrong.  The strings live as long as the program. */
int  cases_read(const char *path, struct campaign_case *to, int most);
bool words_have(const struct words *w, const char *text);
/* One of them is a pattern (fnmatch) of the text. */
bool words_match(const struct words *w, const char *text);

/* ---- what lies in a folder (outcome.c) */

struct seen_file {
    char     path[200]; /* relative */
    uint64_t digest;    /* of the bytes without what a case says differs */
    char     kind;      /* f file, l link, p other */
};

struct outcome {
    int              n;
    struct seen_file file[MOST_FILES];
};

/* What lies below the folder; false, with a sentence in why[200], where it cannot be read. */
bool outcome_take(struct outcome *o, const char *folder, const struct campaign_case *c, char *why);
const struct seen_file *outcome_find(const struct outcome *o, const char *path);
/* Digest of a file as the case compares it; 0: it is not there. */
uint64_t digest_of(const char *path, const char *name, const char *folder,
                   const struct campaign_case *c);

/* ---- faults of a trial (plan.c) */

enum fault {
    FAULT_KILL,        /* SIGKILL to the command at some time */
    FAULT_KILL_CALL,   /* SIGKILL at a system call */
    FAULT_KILL_CHILD,  /* SIGKILL to a process that the command started */
    FAULT_FREEZE,      /* SIGSTOP, and SIGCONT after a while */
    FAULT_STOP,        /* SIGTERM, SIGINT or SIGHUP */
    FAULT_RACE,        /* the same command two or three times */
    FAULT_RACE_OTHER,  /* another command with the same output */
    FAULT_INPUT,       /* an input is changed, cut, renamed or replaced meanwhile */
    FAULT_INPUT_AGAIN, /* SIGKILL, and the input is changed before the command runs again */
    FAULT_FULL,        /* from a call on no room on the disk */
    FAULT_DISK,        /* a small disk, as root */
    FAULT_CALL,        /* a system call fails, alone or with all after it */
    FAULT_MEMORY,      /* an allocation fails, alone or with all after it */
    FAULT_PLACE,       /* a FIFO, link or folder where the output or its part belongs */
    FAULT_STDOUT,      /* standard output is full */
    FAULTS
};

extern const char *const fault_name[FAULTS];

enum change { CHANGE_BYTE, CHANGE_CUT, CHANGE_RENAME, CHANGE_REPLACE, CHANGES };

struct plan {
    uint64_t    rng;       /* further draws: offsets in files, children */
    enum fault  fault;     /* the first, which the trial counts for */
    int         second;    /* another one, or -1 */
    double      signal_at; /* seconds; < 0: none */
    int         signal;
    bool        to_child, to_group;
    double      frozen;   /* seconds until SIGCONT */
    int         racers;   /* commands at once */
    double      delay[3]; /* their starts */
    bool        other;    /* the last one is the other command */
    double      change_at;
    enum change change;
    bool        change_between; /* after the command, before it runs again */
    uint32_t    call_class;
    uint64_t    call_at;
    bool        call_from;
    int32_t     error;
    int         place; /* 0 none, 1 FIFO, 2 link to a file, 3 link to nothing, 4 folder */
    bool        place_part;
    double      disk; /* of what the command writes; < 0: none */
    bool        stdout_full;
    int         threads;
};

/* What is known of a case when nothing goes wrong. */
struct reference {
    double         seconds;
    uint64_t       calls[INJECT_CLASSES];
    uint64_t       bytes; /* that it writes */
    uint64_t       say;   /* digest of stdout */
    bool           said;  /* stdout is not empty */
    struct outcome start, end, other_end;
};

uint64_t draw(uint64_t *rng);
double   draw_real(uint64_t *rng); /* [0, 1) */
/* The faults of a trial: a function of seed, trial, case and reference alone. */
void plan_make(struct plan *p, uint64_t seed, uint64_t trial, const struct campaign_case *c,
               const struct reference *r, enum fault fault);
bool fault_applies(enum fault f, const struct campaign_case *c);
void plan_say(const struct plan *p, char *to, size_t room);

/* ---- running commands (run.c) */

struct place {                        /* where a process of the campaign works */
    char                 folder[200]; /* the trial's folder */
    char                 say[200];    /* stdout and stderr of the commands */
    char                 state[200];  /* file of the injector */
    struct inject_state *live;        /* mapped */
    const char          *tessera, *inject, *inputs, *keep;
    double               patience; /* seconds until a command hangs */
    double               slow;     /* factor of all times: sanitizers */
};

struct ended {
    int  n, status[3]; /* of waitpid, for each command */
    bool hangs, left;  /* a process that none of the commands waited for */
    bool sent;         /* a signal was delivered */
    bool changed;      /* an input was changed */
    char changed_file[200];
};

/* Copies the inputs of the case into the trial's folder, emptied before. */
void place_prepare(const struct place *w, const struct campaign_case *c);
/* Runs the command (or the other one) with the faults of the plan; plan NULL: with none. */
void run_commands(const struct place *w, const struct campaign_case *c, const struct outcome *start,
                  const struct plan *p, bool other, struct ended *e);
/* Changes one of the inputs as the plan says; its name goes to file[200]. */
bool input_change(const struct place *w, const struct outcome *start, const struct plan *p,
                  char *file);
void input_restore(const struct place *w, const char *file);
void remove_tree(const char *path);
void copy_tree(const char *from, const char *to);

/* ---- one trial (trial.c) */

struct verdict {
    bool hit;         /* the fault happened */
    int  codes[3], n; /* exit codes; -signal */
    char wrong[400];  /* what is wrong, or "" */
};

/* Runs the case without faults, twice; false, with a sentence in why[200]: the campaign cannot judge it (reference.c) */
bool reference_take(struct reference *r, const struct place *w, const struct campaign_case *c,
                    char *why);
void trial_run(struct verdict *v, const struct place *w, const struct campaign_case *c,
               const struct reference *r, const struct plan *p);

#endif
