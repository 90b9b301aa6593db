/* faults/campaign/judge.c - what a command left, compared with runs that met no fault, and how it ended. */
#include "judge.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

void wrong(struct scene *s, const char *format, ...)
{
    va_list a;
    if (s->v->wrong[0])
        return; /* the first says most */
    va_start(a, format);
    (void)vsnprintf(s->v->wrong, sizeof s->v->wrong, format, a);
    va_end(a);
}

/* A file that says of which input it is may be of any of them, where the command was not through. */
static bool is_of_one(const struct scene *s, const struct seen_file *f)
{
    bool one = false;
    for (int i = 0; i < s->n_may && !one && words_match(&s->c->keyed, f->path); i++) {
        const struct seen_file *of = outcome_find(s->may[i].end, f->path);
        one = of && of->kind == f->kind && of->digest == f->digest;
    }
    return one;
}

/* Compares with one run without faults; complete: everything must be there.  False: what differs is in why[300]. */
static bool equals(const struct scene *s, const struct outcome *now, const struct outcome *end,
                   bool complete, bool tidy, char *why)
{
    char top[300];
    for (int i = 0; i < now->n; i++) {
        const struct seen_file *f = &now->file[i], *was = outcome_find(&s->r->start, f->path),
                               *should = outcome_find(end, f->path);
        if (strcmp(f->path, s->changed) == 0 || words_match(&s->c->work, f->path) ||
            (strcmp(f->path, s->placed) == 0 && (!complete || s->p->place_part)) ||
            (!complete && words_match(&s->c->scratch, f->path)))
            continue;
        if (was && f->digest == was->digest)
            continue;
        if (!complete && (words_match(&s->c->grows, f->path) || is_of_one(s, f)))
            continue;
        if (should && (f->kind != should->kind || f->digest != should->digest)) {
            (void)snprintf(why, 300, "%s differs", f->path);
            return false;
        }
        if (!should && tidy) {
            (void)snprintf(why, 300, "%s is left", f->path);
            return false;
        }
    }
    for (int i = 0; i < end->n; i++) {
        const struct seen_file *f = &end->file[i];
        if (outcome_find(now, f->path) || outcome_find(&s->r->start, f->path) ||
            words_match(&s->c->work, f->path))
            continue;
        bool must = complete;
        for (int k = 0; k < s->c->whole.n && !must; k++) {
            struct stat st;
            size_t      n = strlen(s->c->whole.at[k]);
            (void)snprintf(top, sizeof top, "%.150s/%.140s", s->w->folder, s->c->whole.at[k]);
            must = strncmp(f->path, s->c->whole.at[k], n) == 0 &&
                   strcmp(s->c->whole.at[k], s->placed) != 0 && lstat(top, &st) == 0;
        }
        if (must) {
            (void)snprintf(why, 300, "%s is missing", f->path);
            return false;
        }
    }
    return true;
}

int matches(const struct scene *s, bool complete, bool tidy, char *why)
{
    static struct outcome now; /* of this process alone */
    char                  each[300];
    size_t                n = 0;
    why[0] = '\0';
    if (!outcome_take(&now, s->w->folder, s->c, why))
        return -1;
    for (int i = 0; i < s->n_may; i++) {
        if (complete && s->may[i].refused)
            continue;
        if (equals(s, &now, s->may[i].end, complete, tidy, each))
            return i;
        (void)snprintf(why + n, 300 - n, "%s%.90s", n ? ", or " : "", each);
        n = strlen(why);
    }
    return -1;
}

void last_line(const struct place *w, int i, char *to, size_t room, bool *sentence)
{
    char  path[600], line[1000];
    FILE *f;
    (void)snprintf(path, sizeof path, "%s/%d.err", w->say, i);
    to[0] = '\0';
    *sentence = false;
    if (!(f = fopen(path, "r")))
        return;
    while (fgets(line, sizeof line, f)) {
        *sentence |= strstr(line, "error: ") != NULL || strstr(line, "tessera: ") == line ||
                     strstr(line, "{\"format\":\"tessera.error/1\"") == line;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(to, room, "%s", line);
    }
    (void)fclose(f);
}

bool look_at_ends(struct scene *s, const struct ended *e, bool faults)
{
    bool well = false;
    char say[200];
    bool sentence;
    for (int i = 0; i < e->n; i++) {
        int st = e->status[i], code = WIFSIGNALED(st) ? -WTERMSIG(st) : WEXITSTATUS(st);
        if (faults) {
            s->v->codes[i] = code;
            s->v->n = e->n;
        }
        last_line(s->w, i, say, sizeof say, &sentence);
        if (e->hangs || e->left)
            wrong(s, "%s: %s", e->hangs ? "hangs" : "leaves a process behind", say);
        if (code < 0) {
            bool sent = e->sent && -code == s->p->signal;
            bool call = atomic_load(&s->w->live->hits) > 0 && s->p->error == INJECT_KILL &&
                        code == -SIGKILL;
            if (!faults || (!sent && !call))
                wrong(s, "signal %d: %s", -code, say);
            s->cut = true;
        } else if (code != 0 && code != 130) {
            if (code > 6 && code != 75)
                wrong(s, "exit %d: %s", code, say);
            else if (!sentence)
                wrong(s, "exit %d without a sentence", code);
        }
        well |= code == 0;
    }
    s->cut |= e->sent && s->p->signal != SIGSTOP;
    s->cut |= faults && s->p->error == INJECT_KILL && s->p->call_at;
    return well;
}

uint64_t said(const struct scene *s)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/0.out", s->w->say);
    return digest_of(path, "-", s->w->folder, s->c);
}
