/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nsbox run`: libnsbox without the daemon. Policy, plan, root, files, sandbox, exec, outputs,
 * report, in this order; each step fills the context that the next one uses.
 */
#include "nsbox/cli/run.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <nsbox/files.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/common/pycall.h"
#include "nsbox/cli/cli.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

#define FILES_MAX	 (256u << 20)
#define OUTPUT_MAX_BYTES (64u << 20)
#define OUTPUT_MAX_FILES 1000

struct context {
	const struct run_options *opt;
	struct nsbox_host host;
	struct nsbox_manifest *manifest;
	struct nsbox_policy *policy;
	struct nsbox_policy_limits limits;
	char digest[65];
	struct nsbox_plan *plan;
	struct nsbox_root *root;
	char skill_dir[128]; /* inside, "" without a skill */
	const char *cwd;     /* inside; NULL: the plan's */
	const char *const *argv;
	uint64_t wall_ms;
	int files;   /* memfd with the file stream, or -1 */
	int request; /* of the Python runner, or -1 */
	struct pycall call;
	char *code;
	struct json_object *params;
	struct nsbox_sandbox *sb;
	struct relay relay;
	struct nsbox_result result;
	struct pycall_outcome outcome;
	struct json_object *outputs;
};

/* ------------------------------------------------------------------ policy */

static int load_manifest(struct context *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;
	auto_free char *text = NULL;
	char path[4096];
	const char *file = o->manifest;
	size_t len;
	int r;

	if (o->skill) {
		nsbox_format(path, sizeof(path), "%s/skill.json", o->skill);
		file = access(path, F_OK) == 0 ? path : NULL;
	}
	if (!file)
		return nsbox_manifest_default(&c->manifest, err);
	r = cli_read_file(file, 256u << 10, &text, &len, err);
	if (r < 0)
		return r;
	r = nsbox_manifest_parse(text, len, &c->manifest, err);
	if (r < 0)
		nsbox_error_prefix(err, "%s", file);
	return r;
}

/* Inside name of the skill: the manifest's, else the directory's; only harmless characters. */
static void name_skill(struct context *c)
{
	char real[4096];
	const char *name = nsbox_manifest_name(c->manifest);
	int n = nsbox_format(c->skill_dir, sizeof(c->skill_dir), "/skills/");

	if (!*name && realpath(c->opt->skill, real))
		name = strrchr(real, '/') + 1;
	for (; *name && n < (int)sizeof(c->skill_dir) - 1; name++) {
		bool ok = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
			  (*name >= '0' && *name <= '9') || *name == '-' || *name == '_';

		c->skill_dir[n++] = ok ? *name : '_';
	}
	c->skill_dir[n] = '\0';
}

static int make_policy(struct context *c, struct nsbox_error *err)
{
	struct nsbox_resolve_options ro = {
		.host = &c->host,
		.python_function = c->opt->python,
		.operator= true,
	};
	int fd, r = nsbox_host_probe(&c->host, err);

	if (r == 0)
		r = load_manifest(c, err);
	if (r < 0)
		return r;
	if (c->opt->skill) {
		name_skill(c);
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
		r = nsbox_root_prepare(NULL, c->opt->image, &c->root, err);
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

static int choose_entry(struct context *c, struct nsbox_error *err)
{
	struct nsbox_entrypoint e;
	int r = nsbox_manifest_entrypoint(c->manifest, c->opt->entry, &e, err);

	if (r < 0)
		return r;
	c->argv = joined(e.command, c->opt->argv);
	if (!c->argv)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "join the arguments");
	if (e.cwd)
		c->cwd = e.cwd;
	if (e.timeout_ms)
		c->wall_ms = e.timeout_ms;
	return 0;
}

static int load_params(struct context *c, struct nsbox_error *err)
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

static int make_call(struct context *c, struct nsbox_error *err)
{
	size_t len;
	int r = cli_read_file(c->opt->python, 64u << 20, &c->code, &len, err);

	if (r == 0)
		r = load_params(c, err);
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

static int choose_program(struct context *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;

	c->wall_ms = o->timeout_ms;
	c->cwd = o->skill ? c->skill_dir : NULL;
	if (o->python)
		return make_call(c, err);
	if (o->skill && (o->entry || !*o->argv)) {
		int r = choose_entry(c, err);

		if (r < 0)
			return r;
	} else {
		c->argv = (const char *const *)o->argv;
	}
	if (o->timeout_ms)
		c->wall_ms = o->timeout_ms;
	if (o->cwd)
		c->cwd = o->cwd;
	return 0;
}

/* ------------------------------------------------------------------ files in */

static const char *work_dir(const struct context *c)
{
	const struct blob *b = plan_blob(c->plan);

	return c->cwd ? c->cwd : blob_get_str(b, blob_fixed(b, struct plan_fixed)->workdir);
}

static int send_dir(struct context *c, const char *dir, struct nsbox_error *err)
{
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory '%s'", dir);
	r = nsbox_files_send_dir(c->files, fd, &lim, err);
	if (r < 0)
		nsbox_error_prefix(err, "%s", dir);
	return r;
}

static int base_frame(struct context *c, const char *path, struct nsbox_error *err)
{
	return nsbox_files_put_frame(c->files, NSBOX_FRAME_BASE, path, 0, NULL, 0, err);
}

static int put_file(struct context *c, const char *src, const char *dst, struct nsbox_error *err)
{
	auto_free char *data = NULL;
	struct stat st;
	size_t len;
	int r = cli_read_file(src, FILES_MAX, &data, &len, err);

	if (r < 0)
		return r;
	if (stat(src, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at '%s'", src);
	r = nsbox_files_check_path(dst, strlen(dst), err);
	if (r < 0)
		return r;
	return nsbox_files_put_frame(c->files, NSBOX_FRAME_FILE, dst, st.st_mode & 0777, data, len,
				     err);
}

/* SRC[:DST]; the last colon divides, unless the whole names something that exists. */
static int put(struct context *c, const char *arg, struct nsbox_error *err)
{
	auto_free char *src = strdup(arg);
	char *colon = src ? strrchr(src, ':') : NULL, *slash;
	char base[4096];
	const char *dst;
	struct stat st;
	int r;

	if (!src)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "--put");
	if (colon && access(src, F_OK) < 0)
		*colon = '\0';
	else
		colon = NULL;
	while ((slash = strrchr(src, '/')) && slash != src && !slash[1])
		*slash = '\0';
	dst = colon ? colon + 1 : (slash = strrchr(src, '/')) ? slash + 1 : src;
	if (stat(src, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "--put '%s'", src);
	if (!S_ISDIR(st.st_mode)) {
		r = base_frame(c, work_dir(c), err);
		return r < 0 ? r : put_file(c, src, dst, err);
	}
	if (!strcmp(dst, ".") || !*dst)
		nsbox_format(base, sizeof(base), "%s", work_dir(c));
	else
		nsbox_format(base, sizeof(base), "%s/%s", work_dir(c), dst);
	r = base_frame(c, base, err);
	return r < 0 ? r : send_dir(c, src, err);
}

static int ignore_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
			struct nsbox_error *err)
{
	return 0;
}

static int ignore_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	return 0;
}

static int ignore_finish(void *ctx, struct nsbox_error *err)
{
	return 0;
}

/* The worker says what it refused in the END frame; read up to it. */
static int refusal(struct context *c, const char *archive, off_t from, struct nsbox_error *err)
{
	const struct nsbox_files_sink sink = { ignore_begin, ignore_data, ignore_finish };
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	struct nsbox_files_reader *reader;
	char buf[65536];
	ssize_t n;
	int r = nsbox_files_reader_new(&sink, NULL, &lim, &reader, err);

	if (r < 0)
		return r;
	while (r == 0 && (n = pread(c->files, buf, sizeof(buf), from)) > 0) {
		r = nsbox_files_feed(reader, buf, (size_t)n, err);
		from += n;
	}
	nsbox_files_reader_free(reader);
	if (r == 0)
		r = nsbox_fail(err, NSBOX_E_INVALID, 0, "the unpacking worker ended early");
	nsbox_error_prefix(err, "unpack '%s'", archive);
	return r;
}

/* The archive goes through the confined worker; its frames, END included, follow ours. */
static int unpack(struct context *c, const char *archive, struct nsbox_error *err)
{
	char path[4096];
	const char *worker = cli_libexec("nsbox-unpack", path, sizeof(path));
	auto_close int in = open(archive, O_RDONLY | O_CLOEXEC);
	int status;
	pid_t pid;
	int r = base_frame(c, work_dir(c), err);
	off_t from = lseek(c->files, 0, SEEK_CUR);

	if (r < 0)
		return r;
	if (in < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", archive);
	pid = fork();
	if (pid == 0) {
		dup2(in, 0);
		dup2(c->files, 1);
		execl(worker, "nsbox-unpack", (char *)NULL);
		_exit(127);
	}
	if (pid < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "fork '%s'", worker);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return nsbox_fail(err, NSBOX_E_IO, ENOENT, "run '%s'", worker);
	return status ? refusal(c, archive, from, err) : 0;
}

static int make_files(struct context *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;
	int r = 0;

	if (!o->skill && !o->puts && !o->unpack)
		return 0;
	c->files = memfd_create("nsbox-files", MFD_CLOEXEC);
	if (c->files < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a memfd for files");
	if (o->skill) {
		r = base_frame(c, c->skill_dir, err);
		if (r == 0)
			r = send_dir(c, o->skill, err);
	}
	for (unsigned i = 0; r == 0 && i < o->puts; i++)
		r = put(c, o->put[i], err);
	if (r == 0)
		r = o->unpack ? unpack(c, o->unpack, err) : nsbox_files_end(c->files, err);
	if (r == 0 && lseek(c->files, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "rewind the files");
	return r;
}

/* ------------------------------------------------------------------ run */

/* Standard input may be handed over as it is where nothing can be done with it but reading. */
static bool plain_input(void)
{
	int flags = fcntl(STDIN_FILENO, F_GETFL);
	struct stat st;

	return flags >= 0 && (flags & O_ACCMODE) == O_RDONLY && fstat(STDIN_FILENO, &st) == 0 &&
	       (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode));
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

static int connect_stdio(struct context *c, struct theirs *t, struct nsbox_error *err)
{
	struct relay *r = &c->relay;
	bool closed = fcntl(STDIN_FILENO, F_GETFL) < 0;
	int p[2] = { -1, -1 }, n = 0;

	if (r->tty)
		return 0;
	if (c->opt->python || closed) {
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

static void set_limits(struct context *c)
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
}

static int start(struct context *c, struct theirs *t, struct nsbox_error *err)
{
	struct nsbox_sandbox_options so = { .layers = nsbox_host_layers(&c->host),
					    .files_fd = c->files };
	struct nsbox_exec ex = { .argv = c->argv,
				 .env = c->opt->env,
				 .cwd = c->cwd,
				 .wall_ms = c->wall_ms,
				 .tty = c->relay.tty };
	struct nsbox_io io;
	int r = connect_stdio(c, t, err);

	if (r == 0)
		r = nsbox_sandbox_new(c->plan, c->root, &so, &c->sb, err);
	if (r < 0)
		return r;
	c->relay.sb = c->sb;
	io = (struct nsbox_io){ t->in, t->out, t->err, c->request, t->result };
	return nsbox_sandbox_exec(c->sb, &ex, &io, NULL, err);
}

static int run_it(struct context *c, struct nsbox_error *err)
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
	c->relay.tty = c->opt->tty > 0 || (c->opt->tty < 0 && !c->opt->python &&
					   isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
	set_limits(c);
	r = start(c, &t, err);
	close_fd(&t.in);
	close_fd(&t.out);
	close_fd(&t.err);
	close_fd(&t.result);
	if (r == 0)
		r = relay_run(&c->relay, &c->result, err);
	return r;
}

/* ------------------------------------------------------------------ outputs */

static void note_output(void *ctx, int kind, const char *path, uint64_t size, const char *note)
{
	struct json_object *list = ctx, *o = json_object_new_object();

	if (kind == NSBOX_FRAME_NOTE)
		fprintf(stderr, "nsbox: output '%s' was left out: %s\n", path, note);
	json_object_object_add(o, "path", json_object_new_string(path));
	json_object_object_add(o, "size", json_object_new_int64((int64_t)size));
	if (kind == NSBOX_FRAME_NOTE)
		json_object_object_add(o, "leftOut", json_object_new_string(note));
	if (kind == NSBOX_FRAME_FILE || kind == NSBOX_FRAME_NOTE)
		json_object_array_add(list, o);
	else
		json_object_put(o);
}

static unsigned output_rules(const struct context *c, struct nsbox_output *rules)
{
	const struct blob *b = plan_blob(c->plan);
	size_t n;
	const struct output_rule *r = blob_get(b, SEC_OUTPUTS, sizeof(*r), &n);
	unsigned count = 0;

	for (size_t i = 0; i < n && count < 16; i++)
		rules[count++] = (struct nsbox_output){ blob_get_str(b, r[i].glob), r[i].max_bytes,
							r[i].max_files };
	for (unsigned i = 0; i < c->opt->collects && count < 16; i++)
		rules[count++] = (struct nsbox_output){ c->opt->collect[i], OUTPUT_MAX_BYTES,
							OUTPUT_MAX_FILES };
	return count;
}

static int wait_collected(struct context *c, struct nsbox_error *err)
{
	struct nsbox_event ev;

	for (;;) {
		int r = nsbox_sandbox_next(c->sb, 60000, &ev, err);

		if (r < 0)
			return r;
		if (ev.kind == NSBOX_EVENT_COLLECTED && ev.error.code) {
			*err = ev.error;
			return -EIO;
		}
		if (ev.kind == NSBOX_EVENT_COLLECTED)
			return 0;
		if (ev.kind == NSBOX_EVENT_NONE || ev.kind == NSBOX_EVENT_GONE)
			return nsbox_fail_at(err, NSBOX_STAGE_COLLECT, NSBOX_E_PROTOCOL, 0,
					     "the sandbox did not hand out its files");
	}
}

static int collect(struct context *c, struct nsbox_error *err)
{
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	struct nsbox_output rules[16];
	unsigned n = output_rules(c, rules);
	auto_close int stream = -1, dir = -1;
	int r;

	if (!c->opt->output || !n || c->result.cause == NSBOX_CAUSE_SANDBOX ||
	    c->result.cause == NSBOX_CAUSE_INTERRUPTED)
		return 0;
	if (mkdir(c->opt->output, 0755) < 0 && errno != EEXIST)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make '%s'", c->opt->output);
	dir = open(c->opt->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stream = memfd_create("nsbox-outputs", MFD_CLOEXEC);
	if (dir < 0 || stream < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", c->opt->output);
	r = nsbox_sandbox_collect(c->sb, work_dir(c), rules, n, stream, err);
	if (r == 0)
		r = wait_collected(c, err);
	if (r < 0)
		return r;
	c->outputs = json_object_new_array();
	if (lseek(stream, 0, SEEK_SET) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "rewind the outputs");
	return nsbox_files_receive_dir(stream, dir, &lim, note_output, c->outputs, err);
}

/* ------------------------------------------------------------------ the end */

static int judge_call(struct context *c, struct nsbox_error *err)
{
	const struct relay *r = &c->relay;

	return pycall_judge(&c->call, &c->result, r->kept_result.data, r->kept_result.len,
			    r->kept_result.truncated, r->kept_out.data ? r->kept_out.data : "",
			    r->kept_out.len, r->kept_err.data ? r->kept_err.data : "",
			    r->kept_err.len, &c->outcome, err);
}

static void print_value(const struct context *c)
{
	const char *text = json_object_to_json_string_ext(
		c->outcome.data, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

	if (c->outcome.code == 200)
		printf("%s\n", text ? text : "null");
	else
		fprintf(stderr, "nsbox: %s\n", c->outcome.msg);
}

/* One line about an end that the program itself did not choose. */
static void tell(const struct context *c)
{
	const struct nsbox_result *r = &c->result;

	if (c->relay.out_truncated || c->relay.err_truncated)
		fprintf(stderr, "nsbox: output was cut at the policy's limit\n");
	if (r->error.code)
		cli_error(&r->error);
	else if (r->cause == NSBOX_CAUSE_WALL_TIME)
		fprintf(stderr, "nsbox: ended by the time limit\n");
	else if (r->cause == NSBOX_CAUSE_MEMORY)
		fprintf(stderr, "nsbox: ended by the memory limit of %llu MiB\n",
			(unsigned long long)r->memory_limit >> 20);
	else if (r->cause == NSBOX_CAUSE_CPU_TIME)
		fprintf(stderr, "nsbox: ended by the cpu time limit\n");
}

static int report(struct context *c, struct nsbox_error *err)
{
	struct report rep = {
		.result = &c->result,
		.host = &c->host,
		.limits = &c->limits,
		.out_truncated = c->relay.out_truncated,
		.err_truncated = c->relay.err_truncated,
		.is_python = c->opt->python,
		.python_ok = c->outcome.code == 200,
		.value = c->outcome.data,
		.msg = c->outcome.msg,
		.policy_digest = c->digest,
		.profile_manifest = c->opt->manifest ? c->opt->manifest
				    : c->opt->skill  ? c->opt->skill
						     : "default",
		.outputs = c->outputs,
	};

	if (c->opt->verbose)
		report_print(&rep);
	return c->opt->result ? report_write(&rep, c->opt->result, err) : 0;
}

static int exit_status(const struct context *c)
{
	if (c->result.cause == NSBOX_CAUSE_SANDBOX)
		return EXIT_NSBOX;
	if (c->opt->python && c->result.exit_status == 0)
		return c->outcome.code == 200 ? 0 : 1;
	return c->result.exit_status;
}

static void done(struct context *c)
{
	nsbox_sandbox_free(c->sb);
	relay_done(&c->relay);
	pycall_outcome_done(&c->outcome);
	json_object_put(c->params);
	json_object_put(c->outputs);
	free(c->code);
	close_fd(&c->files);
	close_fd(&c->request);
	nsbox_root_free(c->root);
	nsbox_plan_close(c->plan);
	nsbox_policy_free(c->policy);
	nsbox_manifest_free(c->manifest);
	if (c->argv != pycall_argv && c->argv != (const char *const *)c->opt->argv)
		free((void *)c->argv);
}

static int steps(struct context *c, struct nsbox_error *err)
{
	int r = make_policy(c, err);

	if (r == 0)
		r = choose_program(c, err);
	if (r == 0)
		r = make_files(c, err);
	if (r == 0)
		r = run_it(c, err);
	if (r == 0)
		r = collect(c, err);
	if (r == 0 && c->opt->python)
		r = judge_call(c, err);
	if (r < 0)
		return r;
	if (c->opt->python && c->opt->result == NULL)
		print_value(c);
	else
		tell(c);
	return report(c, err);
}

int cmd_run(int argc, char **argv)
{
	struct run_options opt;
	struct context c = { .opt = &opt, .files = -1, .request = -1 };
	struct nsbox_error err = { 0 };
	int r = run_parse(argc, argv, &opt);

	if (r >= 0)
		return r;
	c.relay = (struct relay){ .in = -1, .out = -1, .err = -1, .result = -1, .master = -1 };
	r = steps(&c, &err);
	r = r < 0 ? cli_error(&err) : exit_status(&c);
	done(&c);
	return r;
}
