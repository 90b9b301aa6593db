/* faults/campaign/cases.c - reads the table of cases: a line for each fact, `case NAME` begins one. */
#include "campaign.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool words_have(const struct words *w, const char *text)
{
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->at[i], text) == 0)
            return true;
    return false;
}

bool words_match(const struct words *w, const char *text)
{
    for (int i = 0; i < w->n; i++)
        if (fnmatch(w->at[i], text, 0) == 0)
            return true;
    return false;
}

static char *keep(const char *s)
{
    char *copy = strdup(s);
    if (!copy)
        abort();
    return copy;
}

static void split(struct words *to, char *text)
{
    char *rest = NULL;
    for (char *w = strtok_r(text, " \t\n", &rest); w; w = strtok_r(NULL, " \t\n", &rest)) {
        if (to->n == MOST_WORDS)
            abort();
        to->at[to->n++] = keep(w);
        to->at[to->n] = NULL;
    }
}

static void take_drop(struct campaign_case *c, char *text)
{
    struct words w = { 0 };
    split(&w, text);
    if (w.n < 2 || c->n_drop == (int)(sizeof c->drop / sizeof c->drop[0]))
        abort();
    struct drop *d = &c->drop[c->n_drop++];
    d->file = w.at[0];
    for (int i = 1; i < w.n; i++)
        d->key[d->n++] = w.at[i];
}

/* False: no such fact. */
static bool take_fact(struct campaign_case *c, const char *name, char *text)
{
    const struct {
        const char   *name;
        struct words *to;
    } lists[] = { { "inputs", &c->inputs },   { "run", &c->run },     { "other", &c->other },
                  { "final", &c->final },     { "whole", &c->whole }, { "grows", &c->grows },
                  { "work", &c->work },       { "skip", &c->skip },   { "numbers", &c->numbers },
                  { "scratch", &c->scratch }, { "keyed", &c->keyed } };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (strcmp(lists[i].name, name) == 0) {
            split(lists[i].to, text);
            return true;
        }
    if (strcmp(name, "drop") == 0)
        take_drop(c, text);
    else if (strcmp(name, "refuses") == 0)
        c->refuses = true;
    else if (strcmp(name, "silent") == 0)
        c->silent = true;
    else if (strcmp(name, "children") == 0)
        c->children = true;
    else if (strcmp(name, "stdin") == 0) {
        struct words w = { 0 };
        split(&w, text);
        c->input = w.at[0];
    } else
        return false;
    return true;
}

int cases_read(const char *path, struct campaign_case *to, int most)
{
    FILE *f = fopen(path, "r");
    char  line[1000], name[64];
    int   n = 0, number = 0, used;
    if (!f) {
        (void)fprintf(stderr, "campaign: %s: cannot be read\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, f)) {
        char *comment = strstr(line, "# ");
        number++;
        if (comment)
            *comment = '\0';
        if (sscanf(line, "%63s%n", name, &used) != 1)
            continue;
        if (strcmp(name, "case") == 0 && n < most) {
            struct words w = { 0 };
            split(&w, line + used);
            to[n++] = (struct campaign_case){ .name = w.at[0] };
        } else if (n == 0 || !take_fact(&to[n - 1], name, line + used)) {
            (void)fprintf(stderr, "campaign: %s:%d: unknown word \"%s\"\n", path, number, name);
            exit(2);
        }
    }
    (void)fclose(f);
    return n;
}
