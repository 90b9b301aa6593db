/* faults/campaign/trial.c - one trial: a command under faults, and the same command after them. */
#include "judge.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define VICTIM "victim\n"

/* The command without faults on the input as it is now, in a folder of its own. */
static void take_changed(struct scene *s, struct outcome *end)
{
    struct place w = *s->w;
    struct ended e;
    char         from[600], to[600], why[200];
    struct stat  st;
    (void)snprintf(w.folder, sizeof w.folder, "%.190s", s->w->folder);
    w.folder[strlen(w.folder) - 1] = 'x';
    place_prepare(&w, s->c);
    (void)snprintf(from, sizeof from, "%s/%s", s->w->folder, s->changed);
    (void)snprintf(to, sizeof to, "%s/%s", w.folder, s->changed);
    remove_tree(to);
    if (stat(from, &st) == 0)
        copy_tree(from, to);
    (void)snprintf(w.say, sizeof w.say, "%.190s/x", s->w->say);
    (void)mkdir(w.say, 0755);
    run_commands(&w, s->c, NULL, NULL, false, &e);
    if (!WIFEXITED(e.status[0]) || !outcome_take(end, w.folder, s->c, why))
        return;
    (void)snprintf(from, sizeof from, "%s/0.out", w.say);
    s->may[s->n_may++] =
        (struct whole){ end, digest_of(from, "-", w.folder, s->c), WEXITSTATUS(e.status[0]) != 0 };
    remove_tree(w.folder);
}

static void make_place(struct scene *s)
{
    char        path[700], target[600];
    uint64_t    rng = s->p->rng ^ 0x7654321u;
    const char *name = s->c->final.at[draw(&rng) % (uint64_t)s->c->final.n];
    FILE       *f;
    (void)snprintf(s->placed, sizeof s->placed, "%s%s", name, s->p->place_part ? ".part" : "");
    (void)snprintf(path, sizeof path, "%s/%s", s->w->folder, s->placed);
    (void)snprintf(target, sizeof target, "%s/victim", s->w->say);
    (void)unlink(target);
    int rc = -1;
    switch (s->p->place) {
    case 1:
        rc = mkfifo(path, 0644);
        break;
    case 2:
        if ((f = fopen(target, "w")) != NULL && fputs(VICTIM, f) >= 0 && fclose(f) == 0)
            rc = symlink(target, path);
        break;
    case 3:
        rc = symlink("nothing", path);
        break;
    default:
        rc = mkdir(path, 0755);
    }
    if (rc != 0)
        wrong(s, "the campaign itself: %s", path);
}

static void remove_place(struct scene *s)
{
    char        path[700], target[600], text[20] = "";
    struct stat st;
    FILE       *f;
    (void)snprintf(path, sizeof path, "%s/%s", s->w->folder, s->placed);
    (void)snprintf(target, sizeof target, "%s/victim", s->w->say);
    if (s->p->place == 2) {
        if ((f = fopen(target, "r")) != NULL) {
            (void)!fgets(text, sizeof text, f);
            (void)fclose(f);
        }
        if (strcmp(text, VICTIM) != 0)
            wrong(s, "writes through the link %s", s->placed);
    }
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        if (!S_ISDIR(st.st_mode))
            (void)unlink(path);
        else
            (void)rmdir(path); /* stays where the command filled it */
    }
    s->placed[0] = '\0';
}

/* A disk of so many bytes under `out`; 0: as large as it wants. */
static bool disk(const struct scene *s, uint64_t bytes, bool again)
{
    char path[600], room[64];
    (void)snprintf(path, sizeof path, "%s/out", s->w->folder);
    (void)snprintf(room, sizeof room, "size=%luk",
                   (unsigned long)(bytes ? (bytes + 4095) / 4096 * 4 : 65536));
    return mount("none", path, "tmpfs", again ? MS_REMOUNT : 0, room) == 0;
}

/* After the faults: the same command, in peace. */
static void run_again(struct scene *s, bool complete, bool changed, bool other)
{
    struct ended e;
    struct plan peace = { .racers = 1, .signal_at = -1, .change_at = -1, .disk = -1, .threads = 1 };
    char        why[300], say[200];
    bool        sentence;
    run_commands(s->w, s->c, &s->r->start, &peace, false, &e);
    s->cut = false;
    const struct plan *p = s->p;
    s->p = &peace;
    bool well = look_at_ends(s, &e, false);
    s->p = p;
    /* a lock inside of a folder that is whole by now stays, where it could not be removed */
    bool tidy = !(p->call_at && p->call_class == INJECT_UNLINK && p->error != INJECT_KILL);
    last_line(s->w, 0, say, sizeof say, &sentence);
    int code = WIFEXITED(e.status[0]) ? WEXITSTATUS(e.status[0]) : -1;
    if (well) {
        if (matches(s, true, tidy, why) < 0)
            wrong(s, "again: %s", why);
        return;
    }
    s->cut = true; /* what the first run left is still there */
    if (matches(s, false, false, why) < 0)
        wrong(s, "again, exit %d: %s", code, why);
    if ((complete && s->c->refuses && code == 2) || changed || (other && code == 2))
        return;
    wrong(s, "again: exit %d: %s", code, say);
}

static bool was_hit(const struct scene *s, const struct ended *e)
{
    switch (s->p->fault) {
    case FAULT_KILL:
    case FAULT_KILL_CHILD:
    case FAULT_FREEZE:
    case FAULT_STOP:
    case FAULT_INPUT_AGAIN:
        return e->sent;
    case FAULT_INPUT:
        return e->changed;
    case FAULT_KILL_CALL:
    case FAULT_FULL:
    case FAULT_CALL:
    case FAULT_MEMORY:
        return atomic_load(&s->w->live->hits) > 0;
    case FAULT_DISK:
        return e->status[0] != 0;
    default:
        return true;
    }
}

void trial_run(struct verdict *v, const struct place *w, const struct campaign_case *c,
               const struct reference *r, const struct plan *p)
{
    static struct outcome changed_end;
    struct scene          s = { .w = w, .c = c, .r = r, .p = p, .v = v };
    struct ended          e;
    char                  why[300], out[600];
    bool                  mounted = false;
    memset(v, 0, sizeof *v);
    s.may[s.n_may++] = (struct whole){ &r->end, r->say, false };
    if (p->other)
        s.may[s.n_may++] = (struct whole){ &r->other_end, 0, false };
    place_prepare(w, c);
    if (p->place)
        make_place(&s);
    if (p->disk >= 0)
        mounted = disk(&s, (uint64_t)(p->disk * (double)r->bytes) + 4096, false);
    run_commands(w, c, &r->start, p, false, &e);
    v->hit = was_hit(&s, &e);
    const uint64_t say = said(&s);
    bool           well = look_at_ends(&s, &e, true);
    if (e.changed) {
        (void)snprintf(s.changed, sizeof s.changed, "%s", e.changed_file);
        take_changed(&s, &changed_end);
    }
    /* what stays where removing, or opening the folder to be removed, fails for ever is not the command's fault */
    bool tidy = !s.cut && !(p->call_at && (p->call_class == INJECT_UNLINK ||
                                           (p->call_class == INJECT_OPEN && p->call_from)));
    int  k = matches(&s, well, tidy, why);
    if (k < 0)
        wrong(&s, "%s%s", well ? "exit 0: " : "", why);
    if (well && p->racers == 1 && !c->silent && !p->stdout_full && k >= 0 && say != s.may[k].say) {
        bool known = false;
        for (int i = 0; i < s.n_may; i++)
            known |= s.may[i].say == say;
        if (!known)
            wrong(&s, "exit 0: another standard output");
    }
    if (well && p->stdout_full && r->said && p->racers == 1)
        wrong(&s, "exit 0 with a standard output that is full");
    if (p->place)
        remove_place(&s);
    if (mounted)
        (void)disk(&s, 0, true);
    if (c->final.n > 0 && !v->wrong[0]) {
        bool complete = matches(&s, true, false, why) >= 0;
        if (p->change_between) {
            s.cut = true;
            e.changed = input_change(w, &r->start, p, s.changed);
            if (e.changed)
                take_changed(&s, &changed_end);
        } else if (e.changed) {
            input_restore(w, s.changed);
            s.changed[0] = '\0';
        }
        run_again(&s, complete, e.changed, p->other);
    }
    if (w->keep && v->wrong[0] && (mkdir(w->keep, 0755) == 0 || errno == EEXIST)) {
        (void)snprintf(out, sizeof out, "%s/folder", w->keep);
        copy_tree(w->folder, out);
        (void)snprintf(out, sizeof out, "%s/say", w->keep);
        copy_tree(w->say, out);
    }
    (void)snprintf(out, sizeof out, "%s/out", w->folder);
    if (mounted)
        (void)umount2(out, MNT_DETACH);
}
