/* faults/campaign/files.c - the inputs of a trial: copied, changed and restored. */
#include "campaign.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(bool holds, const char *what, const char *path)
{
    if (holds)
        return;
    (void)fprintf(stderr, "campaign: %s: cannot %s: %s\n", path, what, strerror(errno));
    exit(1);
}

void remove_tree(const char *path)
{
    struct stat st;
    char        below[600];
    if (lstat(path, &st) != 0)
        return;
    if (S_ISDIR(st.st_mode)) {
        DIR *d = opendir(path);
        must(d != NULL, "open", path);
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            (void)snprintf(below, sizeof below, "%s/%s", path, e->d_name);
            remove_tree(below);
        }
        (void)closedir(d);
        must(rmdir(path) == 0, "remove", path);
    } else
        must(unlink(path) == 0, "remove", path);
}

static void copy_file(const char *from, const char *to)
{
    char    part[65536];
    ssize_t n;
    int     a = open(from, O_RDONLY | O_CLOEXEC),
        b = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(a >= 0, "open", from);
    must(b >= 0, "create", to);
    while ((n = read(a, part, sizeof part)) > 0)
        must(write(b, part, (size_t)n) == n, "write", to);
    (void)close(a);
    must(close(b) == 0, "write", to);
}

void copy_tree(const char *from, const char *to)
{
    struct stat st;
    char        a[600], b[600];
    must(lstat(from, &st) == 0, "find", from);
    if (!S_ISDIR(st.st_mode)) {
        if (S_ISREG(st.st_mode))
            copy_file(from, to);
        return;
    }
    DIR *d = opendir(from);
    must(d && mkdir(to, 0755) == 0, "copy", from);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        (void)snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        (void)snprintf(b, sizeof b, "%s/%s", to, e->d_name);
        copy_tree(a, b);
    }
    (void)closedir(d);
}

void place_prepare(const struct place *w, const struct campaign_case *c)
{
    char from[600], to[600];
    remove_tree(w->folder);
    must(mkdir(w->folder, 0755) == 0, "make", w->folder);
    for (int i = 0; i < c->inputs.n; i++) {
        (void)snprintf(from, sizeof from, "%s/%s", w->inputs, c->inputs.at[i]);
        (void)snprintf(to, sizeof to, "%s/%s", w->folder, c->inputs.at[i]);
        copy_tree(from, to);
    }
    (void)snprintf(to, sizeof to, "%s/out", w->folder);
    must(mkdir(to, 0755) == 0, "make", to);
}

bool input_change(const struct place *w, const struct outcome *start, const struct plan *p,
                  char *file)
{
    char        path[600], other[600];
    struct stat st;
    uint64_t    rng = p->rng ^ 0x1234567u;
    if (start->n == 0)
        return false;
    /* between two runs a job that ends early is another job: what only the first one makes stays, and is no fault */
    do
        (void)snprintf(file, 200, "%s", start->file[draw(&rng) % (uint64_t)start->n].path);
    while (p->change_between && p->change == CHANGE_CUT && fnmatch("*.yaml", file, 0) == 0);
    (void)snprintf(path, sizeof path, "%s/%s", w->folder, file);
    (void)snprintf(other, sizeof other, "%s/changed", w->say);
    if (stat(path, &st) != 0)
        return false;
    if (p->change == CHANGE_RENAME)
        return rename(path, other) == 0;
    uint64_t at = draw(&rng) % (uint64_t)(st.st_size ? st.st_size : 1);
    if (p->change == CHANGE_CUT)
        return truncate(path, (off_t)at) == 0;
    if (p->change == CHANGE_REPLACE)
        copy_file(path, other);
    int           fd = open(p->change == CHANGE_REPLACE ? other : path, O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    if (fd < 0)
        return false;
    bool good = pread(fd, &byte, 1, (off_t)at) == 1;
    byte ^= (unsigned char)(1 + draw(&rng) % 255);
    good = good && pwrite(fd, &byte, 1, (off_t)at) == 1;
    (void)close(fd);
    return good && (p->change != CHANGE_REPLACE || rename(other, path) == 0);
}

void input_restore(const struct place *w, const char *file)
{
    char from[600], to[600];
    (void)snprintf(from, sizeof from, "%s/%s", w->inputs, file);
    (void)snprintf(to, sizeof to, "%s/%s", w->folder, file);
    copy_file(from, to);
}
