/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox run`: libnsbox without the daemon. Policy, plan, root, files, sandbox, exec, outputs,
 * report, in this order; each step fills the context that the next one uses.
 */
#include "nsbox/cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/magic.h>
#include <nsbox/files.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "daemon/common/denials.h"
#include "daemon/common/pycall.h"
#include "nsbox/cli/cli.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"
#include "policy/json_strict.h"
#include "policy/skill/skill.h"

/* ------------------------------------------------------------------ policy */

static int load_manifest(struct run *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;
	auto_free char *text = NULL;
	char path[4096];
	const char *file = o->manifest;
	size_t len;
	int r;

	if (o->skill) {
		struct stat st = { 0 };

		errno = 0;

		if (stat(o->skill, &st) < 0 || !S_ISDIR(st.st_mode))
			return nsbox_fail(err, NSBOX_E_INVALID, errno ? errno : ENOTDIR,
					  "open the skill directory '%s'", o->skill);
		/* The skill is a stranger's: a link could make us read what only we may. */
		nsbox_format(path, sizeof(path), "%s/skill.json", o->skill);
		file = lstat(path, &st) == 0 || errno != ENOENT ? path : NULL;
		if (file && S_ISLNK(st.st_mode))
			return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' is a symbolic link", file);
	}
	c->is_default = !file;
	if (!file)
		return nsbox_manifest_default(&c->manifest, err);
	r = cli_read_file(file, 256u << 10, &text, &len, err);
	if (r < 0)
		return r;
	r = nsbox_manifest_parse(text, len, &c->manifest, err);
	if (r < 0)
		nsbox_error_prefix(err, "%s", file);
	c->manifest_text = take_ptr(&text);
	return r;
}

/* Only harmless characters. */
void run_name_skill(const struct nsbox_manifest *m, const char *dir, char *buf, int size)
{
	char real[4096];
	const char *name = nsbox_manifest_name(m);
	int n = nsbox_format(buf, size, "/skills/");

	if (!*name && realpath(dir, real))
		name = strrchr(real, '/') + 1;
	for (; *name && n < size - 1; name++) {
		bool ok = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
			  (*name >= '0' && *name <= '9') || *name == '-' || *name == '_';

		buf[n++] = ok ? *name : '_';
	}
	buf[n] = '\0';
}

static int load_ceiling(const char *path, struct nsbox_ceiling *ret, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t len = 0;
	int r = cli_read_file(path, 256u << 10, &text, &len, err);

	if (r < 0)
		return r;
	r = nsbox_ceiling_parse(text, len, ret, err);
	if (r < 0)
		nsbox_error_prefix(err, "%s", path);
	return r;
}

static int add_certificates(const char *path, struct nsbox_ceiling *ret, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	size_t len = 0;
	int r = cli_read_file(path, sizeof(ret->certificates) - 1, &text, &len, err);

	if (r == 0)
		r = nsbox_ceiling_trust(ret, text, err);
	if (r < 0)
		nsbox_error_prefix(err, "--ca-certificates %s", path);
	return r;
}

/* That of --ceiling, else the built-in one, and the operator's options on top. */
static int make_ceiling(const struct run_options *o, struct nsbox_ceiling *ret,
			struct nsbox_error *err)
{
	char host[65] = "";
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	if (o->ceiling)
		r = load_ceiling(o->ceiling, ret, err);
	if (r == 0 && o->ca_certificates)
		r = add_certificates(o->ca_certificates, ret, err);
	if (r < 0)
		return r;
	for (unsigned i = 0; r == 0 && i < o->opens; i++)
		r = nsbox_ceiling_open(ret, o->egress_open[i], err);
	if (r < 0)
		nsbox_error_prefix(err, "--egress-allow-private");
	if (r < 0 || !o->egress_banned)
		return r;
	gethostname(host, sizeof(host) - 1);
	r = nsbox_ceiling_ban(ret, o->egress_banned, host, err);
	if (r < 0)
		nsbox_error_prefix(err, "--egress-ban");
	return r;
}

/* The caller's word goes before the manifest's. NULL: neither has one. */
const char *run_image(const struct run *c)
{
	return c->opt->image ? c->opt->image : nsbox_policy_image(c->policy);
}

static int make_policy(struct run *c, struct nsbox_error *err)
{
	struct nsbox_ceiling ceiling;
	struct nsbox_resolve_options ro = {
		.host = &c->host,
		.python_function = c->opt->python,
		.as_operator = true,
		.tier = c->opt->tier,
		.ceiling = &ceiling,
	};
	int fd, r = nsbox_host_probe(&c->host, err);

	if (r == 0)
		r = make_ceiling(c->opt, &ceiling, err);
	if (r == 0)
		r = load_manifest(c, err);
	if (r < 0)
		return r;
	if (c->opt->skill) {
		run_name_skill(c->manifest, c->opt->skill, c->skill_dir, sizeof(c->skill_dir));
		ro.skill_dir = c->skill_dir;
	}
	r = nsbox_policy_resolve(c->manifest, &ro, &c->policy, err);
	if (r == 0)
		r = nsbox_policy_digest(c->policy, c->digest, err);
	if (r == 0)
		r = nsbox_policy_compile(c->policy, &fd, err);
	if (r < 0)
		return r;
	nsbox_policy_limits(c->policy, &c->limits);
	r = nsbox_plan_open(fd, &c->plan, err);
	close(fd);
	if (r == 0)
		r = nsbox_root_prepare(NULL, run_image(c), &c->root, err);
	return r;
}

/* ------------------------------------------------------------------ what is to run */

static const char **joined(const char *const *a, char *const *b)
{
	size_t n = 0, m = 0;
	const char **v;

	while (a[n])
		n++;
	while (b[m])
		m++;
	v = calloc(n + m + 1, sizeof(*v));
	if (!v)
		return NULL;
	memcpy(v, a, n * sizeof(*v));
	memcpy(v + n, b, m * sizeof(*v));
	return v;
}

/* As paths of a manifest are meant: relative ones are below the working directory. */
static int set_cwd(struct run *c, const char *path, struct nsbox_error *err)
{
	char *full;
	int r = nsbox_policy_path(c->policy, path, &full, err);

	if (r < 0)
		return r;
	free(c->cwd);
	c->cwd = full;
	return 0;
}

static int choose_entry(struct run *c, struct nsbox_error *err)
{
	struct nsbox_entrypoint e;
	int r = nsbox_manifest_entrypoint(c->manifest, c->opt->entry, &e, err);

	if (r < 0)
		return r;
	c->argv = joined(e.command, c->opt->argv);
	if (!c->argv)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "join the arguments");
	r = e.cwd ? set_cwd(c, e.cwd, err) : 0;
	if (r < 0) {
		nsbox_error_prefix(err, "/entrypoints/%s/cwd", e.id);
		return r;
	}
	if (e.timeout_ms)
		c->wall_ms = e.timeout_ms;
	c->no_stdin = e.no_stdin;
	return 0;
}

static int load_params(struct run *c, struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = 64u << 20,
					 .max_depth = JSON_DEPTH_MAX,
					 .code = NSBOX_E_INVALID };
	const char *text = c->opt->params ? c->opt->params : "{}";
	auto_free char *file = NULL;
	size_t len = strlen(text);
	int r;

	if (*text == '@') {
		r = cli_read_file(text + 1, lim.max_size, &file, &len, err);
		if (r < 0)
			return r;
		text = file;
	}
	r = json_strict_parse(text, len, &lim, &c->params, err);
	if (r < 0) {
		nsbox_error_prefix(err, "--params");
		return r;
	}
	if (!json_object_is_type(c->params, json_type_object))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "--params: must be a JSON object");
	return 0;
}

/* Secrets and parameters: what the manifest asks for, from the command line. */
static int settle_inputs(struct run *c, struct nsbox_error *err)
{
	const struct cli_inputs *in = &c->opt->inputs;
	const struct inputs_given given = { .secrets = (struct input *)in->secrets,
					    .n_secrets = in->n_secrets,
					    .config = in->config,
					    .config_is_text = true,
					    .at_secrets = "--secret ",
					    .at_config = "--config " };
	auto_free char *described = NULL;
	int r = nsbox_manifest_inputs(c->manifest, &described, err);

	return r == 0 ? inputs_settle(described, &given, &c->inputs, err) : r;
}

/* They are keyword arguments that --params need not repeat. */
static int add_parameters(struct run *c, struct nsbox_error *err)
{
	json_object_object_foreach (c->inputs.config, id, value) {
		if (!json_object_object_get_ex(c->params, id, NULL) &&
		    json_object_object_add(c->params, id, json_object_get(value)) < 0)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "pass on parameters");
	}
	return 0;
}

static int make_call(struct run *c, struct nsbox_error *err)
{
	size_t len;
	int r = cli_read_file(c->opt->python, 64u << 20, &c->code, &len, err);

	if (r == 0)
		r = load_params(c, err);
	if (r == 0)
		r = add_parameters(c, err);
	if (r < 0)
		return r;
	if (strlen(c->code) != len)
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "'%s' contains a NUL byte",
				  c->opt->python);
	c->call = (struct pycall){
		.code = c->code,
		.function = c->opt->function,
		.params = c->params,
		.memory = c->limits.memory,
		.wall_ms = c->wall_ms ? c->wall_ms : c->limits.wall_ms,
	};
	c->call.noexec = nsbox_policy_noexec_filter(c->policy, &c->call.noexec_len);
	c->argv = pycall_argv;
	return pycall_encode(&c->call, &c->request, err);
}

/* No program was given: what the image says its program is, in the directory that it says. */
static int choose_image_program(struct run *c, struct nsbox_error *err)
{
	const char *image = run_image(c);
	struct image_index x = { 0 };
	size_t n = 0;
	int r;

	if (!image || !strcmp(image, "host"))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "what is to be run? See --help");
	r = image_read(NULL, image, &x, err);
	if (r < 0)
		return r;
	c->image_argv = calloc(x.entrypoint.count + x.cmd.count + 1, sizeof(*c->image_argv));
	for (size_t i = 0; c->image_argv && i < x.entrypoint.count; i++)
		c->image_argv[n++] = take_ptr(&x.entrypoint.item[i]);
	for (size_t i = 0; c->image_argv && i < x.cmd.count; i++)
		c->image_argv[n++] = take_ptr(&x.cmd.item[i]);
	c->argv = (const char *const *)c->image_argv;
	if (!c->image_argv)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "name the image's program");
	else if (!n)
		r = nsbox_fail(err, NSBOX_E_INVALID, 0,
			       "the image '%s' names no program of its own: give one", image);
	if (r == 0 && x.workdir && *x.workdir && !c->opt->cwd)
		r = set_cwd(c, x.workdir, err);
	index_done(&x);
	return r;
}

static int choose_program(struct run *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;

	c->wall_ms = o->timeout_ms;
	if (o->skill) {
		c->cwd = strdup(c->skill_dir);
		if (!c->cwd)
			return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "name the skill's directory");
	}
	if (o->python)
		return make_call(c, err);
	if (o->skill && (o->entry || c->choose_entry || !*o->argv)) {
		int r = choose_entry(c, err);

		if (r < 0)
			return r;
	} else if (*o->argv) {
		c->argv = (const char *const *)o->argv;
	} else {
		int r = choose_image_program(c, err);

		if (r < 0)
			return r;
	}
	if (o->timeout_ms)
		c->wall_ms = o->timeout_ms;
	return o->cwd ? set_cwd(c, o->cwd, err) : 0;
}

/* ------------------------------------------------------------------ run */

/*
 * Standard input is handed over as it is only where it is an anonymous pipe: whoever holds a
 * descriptor of a file, however it was opened, may change its mode, times and attributes, or lock
 * it against the host. Everything else is relayed.
 */
static bool plain_input(void)
{
	int flags = fcntl(STDIN_FILENO, F_GETFL);
	struct statfs fs;

	return flags >= 0 && (flags & O_ACCMODE) == O_RDONLY && fstatfs(STDIN_FILENO, &fs) == 0 &&
	       fs.f_type == PIPEFS_MAGIC;
}

static int make_pipe(int ours_and_theirs[2], int ours, struct nsbox_error *err)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	ours_and_theirs[0] = p[ours];
	ours_and_theirs[1] = p[!ours];
	return 0;
}

struct theirs {
	int in, out, err, result;
};

static int connect_stdio(struct run *c, struct theirs *t, struct nsbox_error *err)
{
	struct relay *r = &c->relay;
	bool closed = fcntl(STDIN_FILENO, F_GETFL) < 0;
	int p[2] = { -1, -1 }, n = 0;

	if (r->tty)
		return 0;
	if (c->capture && c->input) {
		r->from = -1;
		t->in = make_memfd("nsbox-stdin", c->input, strlen(c->input), false);
	} else if (c->capture || c->opt->python || c->no_stdin || closed) {
		r->from = -1;
	} else if (plain_input()) {
		r->from = -1;
		t->in = dup(STDIN_FILENO);
	} else {
		n = make_pipe(p, 1, err);
		if (n == 0) {
			r->in = p[0];
			t->in = p[1];
		}
	}
	if (n == 0)
		n = make_pipe(p, 0, err);
	if (n == 0) {
		r->out = p[0];
		t->out = p[1];
		n = make_pipe(p, 0, err);
	}
	if (n == 0) {
		r->err = p[0];
		t->err = p[1];
	}
	if (n == 0 && c->opt->python) {
		n = make_pipe(p, 0, err);
		if (n == 0) {
			r->result = p[0];
			t->result = p[1];
		}
	}
	return n;
}

static void set_limits(struct run *c)
{
	struct relay *r = &c->relay;
	bool limited = c->opt->manifest || c->opt->skill || c->opt->python;

	/* Without a manifest there is nobody's limit to keep: output is the caller's own. */
	r->out_left = limited ? c->limits.stdout_max : UINT64_MAX;
	r->err_left = limited ? c->limits.stderr_max : UINT64_MAX;
	if (c->opt->python) {
		r->kept_out.max = c->limits.stdout_max;
		r->kept_err.max = c->limits.stderr_max;
		r->kept_result.max = c->limits.result_max;
		r->to_out = STDERR_FILENO; /* standard output is for the value */
	}
	if (c->capture) {
		r->kept_out.max = c->limits.stdout_max;
		r->kept_err.max = c->limits.stderr_max;
		r->to_out = r->to_err = -1;
	}
}

static int start(struct run *c, struct theirs *t, struct nsbox_error *err)
{
	struct nsbox_sandbox_options so = {
		.layers = nsbox_host_layers(&c->host),
		.plain_tmpfs = c->host.plain_tmpfs,
		.files_fd = c->files,
		.egress = true,
		.observe = true,
		.process_tier = c->opt->tier == NSBOX_TIER_PROCESS,
		.track = c->opt->changes || c->opt->commit || c->opt->save,
		.upper_from = c->restore,
	};
	char share[4096];
	struct nsbox_exec ex = {
		.argv = c->argv, .cwd = c->cwd, .wall_ms = c->wall_ms, .tty = c->relay.tty
	};
	auto_free const char **all = NULL;
	struct nsbox_io io;
	int r = connect_stdio(c, t, err);

	/* The caller's own word: links on the way are the caller's, and none may be there later. */
	if (r == 0 && c->opt->share && !(so.shared = realpath(c->opt->share, share)))
		r = nsbox_fail(err, NSBOX_E_INVALID, errno, "--share '%s'", c->opt->share);
	if (r == 0 && c->opt->trace)
		r = trace_file_open(&c->trace, err);
	if (r == 0)
		r = run_egress_start(&c->egress, c->plan, c->opt->egress_servers,
				     c->opt->egress_proxy, err);
	c->marks.sandbox = monotonic_us();
	if (r == 0)
		r = nsbox_sandbox_new(c->plan, c->root, &so, &c->sb, err);
	if (r < 0)
		return r;
	c->env = run_env(c->policy, c->opt->env);
	if (!c->env)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make the environment");
	all = joined((const char *const *)c->inputs.env, c->env);
	if (!all)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make the environment");
	ex.env = all;
	c->relay.sb = c->sb;
	c->relay.egress = &c->egress;
	io = (struct nsbox_io){ t->in, t->out, t->err, c->request, t->result, c->trace.fd };
	return nsbox_sandbox_exec(c->sb, &ex, &io, NULL, err);
}

static int run_it(struct run *c, struct nsbox_error *err)
{
	struct theirs t = { -1, -1, -1, -1 };
	int r;

	c->relay = (struct relay){ .in = -1,
				   .out = -1,
				   .err = -1,
				   .result = -1,
				   .master = -1,
				   .from = STDIN_FILENO,
				   .to_out = STDOUT_FILENO,
				   .to_err = STDERR_FILENO };
	c->relay.tty = c->opt->tty > 0 || (c->opt->tty < 0 && !c->opt->python && !c->no_stdin &&
					   isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
	set_limits(c);
	r = start(c, &t, err);
	close_fd(&t.in);
	close_fd(&t.out);
	close_fd(&t.err);
	close_fd(&t.result);
	if (r == 0)
		r = relay_run(&c->relay, &c->result, err);
	run_egress_finish(&c->egress);
	c->egress.log.refused_at_once = c->result.refused;
	return r;
}

/* ------------------------------------------------------------------ the end */

static int judge_call(struct run *c, struct nsbox_error *err)
{
	const struct relay *r = &c->relay;

	return pycall_judge(&c->call, &c->result, r->kept_result.data, r->kept_result.len,
			    r->kept_result.truncated, r->kept_out.data ? r->kept_out.data : "",
			    r->kept_out.len, r->kept_err.data ? r->kept_err.data : "",
			    r->kept_err.len, &c->outcome, err);
}

static void print_value(const struct run *c)
{
	const char *text = json_object_to_json_string_ext(
		c->outcome.data, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

	if (c->outcome.code == 200)
		printf("%s\n", text ? text : "null");
	else
		fprintf(stderr, "nsbox: %s\n", c->outcome.msg);
}

/* What a program that ended with 127 may have said to explain itself. */
static void take_note(struct run *c)
{
	const struct relay *r = &c->relay;

	if (c->result.cause == NSBOX_CAUSE_EXIT && c->result.exit_status == 127)
		skill_missing_library(r->tail, r->tail_len, c->note, sizeof(c->note));
}

/* One line about an end that the program itself did not choose. */
static void tell(const struct run *c)
{
	const struct nsbox_result *r = &c->result;

	if (c->relay.out_truncated || c->relay.err_truncated)
		fprintf(stderr, "nsbox: output was cut at the policy's limit\n");
	if (r->error.code)
		cli_error(&r->error);
	else if (c->note[0])
		fprintf(stderr, "nsbox: %s\n", c->note);
	else if (r->cause == NSBOX_CAUSE_WALL_TIME)
		fprintf(stderr, "nsbox: ended by the time limit, after %.1f s\n",
			(double)r->wall_us / 1000000.0);
	else if (r->cause == NSBOX_CAUSE_MEMORY)
		fprintf(stderr, "nsbox: ended by the memory limit of %llu MiB\n",
			(unsigned long long)r->memory_limit >> 20);
	else if (r->cause == NSBOX_CAUSE_CPU_TIME)
		fprintf(stderr, "nsbox: ended by the cpu time limit\n");
	else if (r->cause == NSBOX_CAUSE_DISK)
		fprintf(stderr, "nsbox: it failed, and left its disk full (resources.disk)\n");
	if (c->egress.log.lost)
		fprintf(stderr, "nsbox: nsbox-egress ended before the run, which had no network "
				"from then on\n");
	if (r->pids_limit_hits)
		fprintf(stderr,
			"nsbox: the limit of %u processes and threads was met (resources.pids)\n",
			c->limits.pids);
}

static int report(struct run *c, struct nsbox_error *err)
{
	struct report rep = {
		.result = &c->result,
		.host = &c->host,
		.policy = c->policy,
		.limits = &c->limits,
		.wall_ms = c->wall_ms ? c->wall_ms : c->limits.wall_ms,
		.out_truncated = c->relay.out_truncated,
		.err_truncated = c->relay.err_truncated,
		.is_python = c->opt->python,
		.python_ok = c->outcome.code == 200,
		.value = c->outcome.data,
		.msg = c->outcome.msg,
		.policy_digest = c->digest,
		.profile_manifest = c->is_default      ? "default"
				    : c->opt->manifest ? c->opt->manifest
						       : c->opt->skill,
		.outputs = c->outputs,
		.changes = c->changes,
		.note = c->note[0] ? c->note : NULL,
		.egress = &c->egress.log,
		.marks = c->opt->timings ? &c->marks : NULL,
	};
	int r = 0;

	rep.denials = denials_json(&c->egress.log, &c->result, &c->trace);
	run_explain_denials(c, rep.denials);
	if (c->opt->verbose)
		report_print(&rep);
	if (c->opt->timings)
		timings_print(&c->marks, &c->result);
	if (c->opt->result)
		r = report_write(&rep, c->opt->result, err);
	json_object_put(rep.denials);
	return r;
}

static int exit_status(const struct run *c)
{
	if (c->result.cause == NSBOX_CAUSE_SANDBOX)
		return EXIT_NSBOX;
	if (c->opt->python && c->result.exit_status == 0)
		return c->outcome.code == 200 ? 0 : 1;
	return c->result.exit_status;
}

void run_done(struct run *c)
{
	nsbox_sandbox_free(c->sb);
	if (c->result.cgroup_kind != NSBOX_CGROUP_NONE)
		nsbox_sweep();
	run_egress_done(&c->egress);
	trace_file_close(&c->trace);
	relay_done(&c->relay);
	pycall_outcome_done(&c->outcome);
	json_object_put(c->params);
	json_object_put(c->outputs);
	json_object_put(c->changes);
	free(c->code);
	free(c->manifest_text);
	free(c->cwd);
	run_env_free(c->env);
	inputs_done(&c->inputs);
	close_fd(&c->files);
	close_fd(&c->request);
	close_fd(&c->restore);
	nsbox_root_free(c->root);
	nsbox_plan_close(c->plan);
	nsbox_policy_free(c->policy);
	nsbox_manifest_free(c->manifest);
	if (c->argv == (const char *const *)c->image_argv)
		c->argv = NULL;
	for (char **a = c->image_argv; a && *a; a++)
		free(*a);
	free(c->image_argv);
	if (c->argv != pycall_argv && c->argv != (const char *const *)c->opt->argv)
		free((void *)c->argv);
}

void run_init(struct run *c, const struct run_options *opt)
{
	*c = (struct run){ .opt = opt, .files = -1, .request = -1, .restore = -1 };
	c->relay = (struct relay){ .in = -1, .out = -1, .err = -1, .result = -1, .master = -1 };
	run_egress_init(&c->egress);
}

static int check_digests(struct run *c, struct nsbox_error *err)
{
	auto_free char *described = NULL;
	int r = nsbox_manifest_inputs(c->manifest, &described, err);

	return r == 0 ? digests_check(described, c->files, c->skill_dir, err) : r;
}

int run_execute(struct run *c, struct nsbox_error *err)
{
	int r = make_policy(c, err);

	c->marks.policy = monotonic_us();
	if (r == 0)
		r = settle_inputs(c, err);
	if (r == 0)
		r = choose_program(c, err);
	if (r == 0)
		r = run_make_files(c, err);
	if (r == 0)
		r = check_digests(c, err);
	if (r == 0)
		r = inputs_put_files(&c->inputs, &c->files, err);
	if (r == 0)
		r = run_open_restore(c, err);
	if (r == 0)
		r = run_it(c, err);
	c->marks.ended = monotonic_us();
	if (r == 0)
		take_note(c);
	return r;
}

static int steps(struct run *c, struct nsbox_error *err)
{
	int r = run_execute(c, err);

	if (r == 0)
		r = run_collect(c, err);
	if (r == 0)
		r = run_upper(c, err);
	if (r == 0 && c->opt->python)
		r = judge_call(c, err);
	if (r < 0)
		return r;
	if (c->opt->python && c->opt->result == NULL)
		print_value(c);
	else
		tell(c);
	r = report(c, err);
	if (r == 0 && (fflush(stdout) || ferror(stdout)))
		r = nsbox_fail(err, NSBOX_E_IO, errno, "write to standard output");
	if (r == 0 && c->relay.write_error)
		r = nsbox_fail(err, NSBOX_E_IO, c->relay.write_error, "write the run's output");
	return r;
}

int run_main(const struct run_options *opt, bool choose_entry)
{
	struct nsbox_error err = { 0 };
	struct run c;
	int r;

	run_init(&c, opt);
	c.marks.began = monotonic_us();
	c.choose_entry = choose_entry;
	r = steps(&c, &err);
	r = r < 0 ? cli_error(&err) : exit_status(&c);
	run_done(&c);
	return r;
}

static int run_parsed(struct run_options *opt, int parsed)
{
	int r = parsed < 0 ? run_main(opt, false) : parsed;

	cli_inputs_done(&opt->inputs);
	return r;
}

int cmd_run(int argc, char **argv)
{
	struct run_options opt;

	return run_parsed(&opt, run_parse(argc, argv, &opt));
}

int cmd_shell(int argc, char **argv)
{
	struct run_options opt;

	return run_parsed(&opt, run_parse_shell(argc, argv, &opt));
}
