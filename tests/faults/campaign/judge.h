/* faults/campaign/judge.h - what a command may leave, and how it may end. */
#ifndef FAULTS_JUDGE_H
#define FAULTS_JUDGE_H

#include "campaign.h"

/* What a run without faults leaves and says. */
struct whole {
    const struct outcome *end;
    uint64_t              say;
    bool                  refused; /* on an input that was changed: what it left is not all */
};

/* What is looked at, and what it may be. */
struct scene {
    const struct place         *w;
    const struct campaign_case *c;
    const struct reference     *r;
    const struct plan          *p;
    struct verdict             *v;
    struct whole                may[3];
    int                         n_may;
    char                        changed[200]; /* input that a fault changed */
    char                        placed[400];  /* what a fault put, relative */
    bool                        cut;          /* a process was killed: what it left may lie there */
};

/* Notes what is wrong, if it is the first. */
__attribute__((format(printf, 2, 3))) void wrong(struct scene *s, const char *format, ...);
/* Which of the runs without faults this is, or -1: why[300] says what differs from each.  complete: all that it
 * published is there; tidy: and nothing else. */
int matches(const struct scene *s, bool complete, bool tidy, char *why);
/* The last line on stderr of the i-th command; whether there is a sentence. */
void last_line(const struct place *w, int i, char *to, size_t room, bool *sentence);
/* How the commands ended; true: one of them says that all went well. */
bool look_at_ends(struct scene *s, const struct ended *e, bool faults);
/* Digest of the standard output of the first command. */
uint64_t said(const struct scene *s);

#endif
