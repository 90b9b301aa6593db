#include "cli/cli.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "cli/args.h"
#include "cli/help.h"
#include "cli/supervise.h"
#include "plugin/guard.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tsr_status tsr_cli_registry_bare(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err)
{
    if (!c->pool)
        TSR_TRY(tsr_pool_create(&c->pool, c->threads, err));
    if (!c->registry)
        TSR_TRY(tsr_registry_create(&c->registry, c->pool, err));
    *r = c->registry;
    return TSR_OK;
}

tsr_status tsr_cli_registry(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err)
{
    TSR_TRY(tsr_cli_registry_bare(c, r, err));
    for (uint64_t i = 0; !c->paths_added && i < c->n_plugin_paths; i++)
        TSR_TRY(tsr_registry_add_path(*r, c->plugin_paths[i], err));
    c->paths_added = true;
    return TSR_OK;
}

static bool wants_colour(enum tsr_color choice)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (choice != TSR_COLOR_AUTO)
        return choice == TSR_COLOR_ALWAYS;
    return !(no && *no) && !(term && strcmp(term, "dumb") == 0) && isatty(STDERR_FILENO);
}

static tsr_status set_log(const struct tsr_common *o, struct tsr_err *err)
{
    const char *env = getenv("TSR_LOG");
    int32_t     level = TSR_LOG_WARN;
    if (env && *env) {
        static const char *const names[] = { "debug", "info", "warn" };
        level = -1;
        for (int32_t i = 0; i < 3; i++)
            if (strcmp(env, names[i]) == 0)
                level = i;
        if (level < 0)
            return tsr_fail(err, TSR_E_INPUT, "TSR_LOG is '%s'; it must be debug, info or warn",
                            env);
    }
    if (o->verbose)
        level = o->verbose > 1 ? TSR_LOG_DEBUG : TSR_LOG_INFO;
    tsr_log_set_level(level);
    tsr_progress_quiet(o->quiet);
    return TSR_OK;
}

static tsr_status run(struct tsr_args *a, struct tsr_cli *c, struct tsr_err *err)
{
    const struct tsr_common *o = &a->common;
    TSR_TRY(set_log(o, err));
    if (o->version) {
        (void)printf("%s\n", tsr_version_line());
        return tsr_cli_flush(err);
    }
    if (o->help || o->help_all || !a->verb) {
        if (a->verb)
            tsr_help_verb(a->verb, o->help_all != 0, stdout);
        else
            tsr_help_program(stdout);
        return tsr_cli_flush(err);
    }
    c->json = o->json != 0;
    c->quiet = o->quiet != 0;
    c->colour = wants_colour((enum tsr_color)o->color);
    c->threads = (uint32_t)o->threads;
    c->plugin_paths = o->plugin_path.v;
    c->n_plugin_paths = o->plugin_path.n;
    c->sets = o->set.v;
    c->n_sets = o->set.n;
    c->verb = a->verb;
    TSR_TRY(a->verb->run(c, a->opts, a->args, a->n_args, err));
    return tsr_cli_flush(err);
}

int tsr_cli_main(int argc, char **argv)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_args   a;
    struct tsr_cli    c = { .argc = argc, .argv = argv };
    tsr_status        st = tsr_args_parse(&a, argc, argv, &e.err);
    if (st == TSR_OK)
        st = run(&a, &c, &e.err);
    tsr_registry_destroy(c.registry);
    tsr_pool_destroy(c.pool);
    if (st == TSR_OK && tsr_guard_fault())
        st = tsr_fail(&e.err, TSR_E_PLUGIN, "%s", tsr_guard_fault());
    bool colour = wants_colour((enum tsr_color)a.common.color);
    tsr_args_free(&a);
    if (st == TSR_E_CANCELLED)
        (void)fprintf(stderr, "tessera: interrupted%s%s; the same command goes on\n",
                      *e.text ? ": " : "", e.text);
    else if (st != TSR_OK && !tsr_cli_stdout_gone())
        (void)fprintf(stderr, "tessera: %serror:%s %s\n", colour ? "\033[1;31m" : "",
                      colour ? "\033[0m" : "",
                      *e.text ? e.text : "failed without a reason (a bug)");
    int code = st == TSR_OK && c.ended ? c.code : st == TSR_OK && c.no ? 1 : tsr_exit_code(st);
    if (code != 0)
        tsr_output_unmake();
    tsr_cli_tell_code(code);
    if (c.hard) {
        (void)fflush(NULL);
        _exit(code);
    }
    return code;
}
