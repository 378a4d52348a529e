/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `make bench`: what a policy costs, reported and not judged.
 *
 *   compile   parse, resolve and compile a manifest in this process; the service's worker and cache
 *   filter    calls per second before and after a plan's filters are installed, in one process
 *   start     /bin/true: by posix_spawn, by nsbox_run() with plan and root at hand, by the nsbox
 *             command, by bubblewrap where it is installed; rounds are interleaved, medians compared;
 *             and what of it the witness takes
 *
 * bench [--json] NSBOX_DIRECTORY
 */
#include <fcntl.h>
#include <linux/seccomp.h>
#include <nsbox/image.h>
#include <nsbox/policy.h>
#include <nsbox/sandbox.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "daemon/front/compiler.h"
#include "daemon/front/loop.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/report.h"

#define ROUNDS	      41
#define CACHE_LOOKUPS 20000
#define CALLS	      2000000

static const char manifest[] = "{\"manifestVersion\":1,\"name\":\"bench\",\"profile\":\"standard\","
			       "\"filesystem\":{\"write\":[\"/data\"],\"mask\":[\"/etc/ssl\"]},"
			       "\"resources\":{\"memory\":\"512Mi\",\"cpu\":\"1\",\"pids\":64}}";
static struct nsbox_host host;
static const char *dir; /* of the programs */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static void die(const char *what, const struct nsbox_error *err)
{
	fprintf(stderr, "bench: %s: %s\n", what, err ? err->msg : strerror(errno));
	exit(1);
}

static void put(struct json_object *o, const char *key, double v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", v);
	report_put(o, key, json_object_new_double_s(v, text));
}

/* ------------------------------------------------------------------ compile */

static int compile_once(void)
{
	const struct nsbox_resolve_options opt = { .host = &host };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	int fd = -1;

	if (nsbox_manifest_parse(manifest, strlen(manifest), &m, &err) < 0 ||
	    nsbox_policy_resolve(m, &opt, &p, &err) < 0 || nsbox_policy_compile(p, &fd, &err) < 0)
		die("compile", &err);
	nsbox_policy_free(p);
	nsbox_manifest_free(m);
	return fd;
}

struct waiting {
	struct loop *loop;
	unsigned done;
};

static void on_done(void *ctx, const struct compile_reply *reply, int plan_fd)
{
	struct waiting *w = ctx;

	if (plan_fd < 0)
		die("the compile worker", &reply->error);
	w->done++;
	loop_stop(w->loop);
}

static void ask_compiler(struct compiler *c, struct waiting *w, bool cached)
{
	struct compile_request q;
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };

	memset(&q, 0, sizeof(q));
	q.host = host;
	if (compiler_start(c, &q, manifest, strlen(manifest), on_done, w, &ticket, &err) < 0)
		die("compiler", &err);
	if (!ticket)
		return;
	if (cached || loop_run(w->loop, &err) < 0)
		die("compiler", &err);
}

static void bench_compile(struct json_object *o)
{
	double v[ROUNDS], began;
	struct waiting w = { .loop = NULL };
	struct compiler *c = NULL;
	struct nsbox_error err = { 0 };
	char worker[4096];

	for (int i = 0; i < ROUNDS; i++) {
		began = now_us();
		close(compile_once());
		v[i] = now_us() - began;
	}
	put(o, "coldMs", median(v, ROUNDS) / 1000);
	snprintf(worker, sizeof(worker), "%s/nsbox-compile", dir);
	for (int i = 0; i < ROUNDS; i++) {
		/* A loop that was stopped stays so. */
		compiler_free(c);
		if (w.loop)
			loop_free(w.loop);
		if (loop_new(&w.loop, &err) < 0 || compiler_new(w.loop, worker, &c, &err) < 0)
			die("compiler", &err);
		began = now_us();
		ask_compiler(c, &w, false);
		v[i] = now_us() - began;
	}
	put(o, "workerMs", median(v, ROUNDS) / 1000);
	began = now_us();
	for (int i = 0; i < CACHE_LOOKUPS; i++)
		ask_compiler(c, &w, true);
	put(o, "cachedUs", (now_us() - began) / CACHE_LOOKUPS);
	compiler_free(c);
	loop_free(w.loop);
	if (w.done != ROUNDS + CACHE_LOOKUPS)
		die("compiler", &err);
}

/* ------------------------------------------------------------------ filter */

/* ns per call */
static double loop_call(long nr, long a, long b)
{
	double began = now_us();

	for (int i = 0; i < CALLS; i++)
		syscall(nr, a, b, 0, 0);
	return (now_us() - began) * 1000 / CALLS;
}

static void install(const struct blob *b, enum blob_section sec)
{
	struct sock_fprog prog;
	size_t n;

	prog.filter = (struct sock_filter *)(uintptr_t)blob_get(b, sec, sizeof(*prog.filter), &n);
	prog.len = (unsigned short)n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		die("install a filter", NULL);
}

/* One that the kernel answers from its bitmap, one whose argument is looked at. */
static const struct {
	const char *name;
	long nr, a, b;
} calls[] = { { "getpid", SYS_getpid, 0, 0 }, { "ioctl", SYS_ioctl, -1, 0x5401 } };

static void measure_calls(const struct blob *b, int out)
{
	double v[2 * ARRAY_SIZE(calls)];

	loop_call(SYS_getpid, 0, 0); /* the processor wakes up */
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		v[i] = loop_call(calls[i].nr, calls[i].a, calls[i].b);
	install(b, SEC_BPF_INIT);
	install(b, SEC_BPF);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		v[ARRAY_SIZE(calls) + i] = loop_call(calls[i].nr, calls[i].a, calls[i].b);
	_exit(write_full(out, v, sizeof(v)) < 0);
}

static void bench_filter(struct json_object *o)
{
	auto_close int fd = compile_once();
	double v[2 * ARRAY_SIZE(calls)];
	struct nsbox_error err = { 0 };
	struct blob b;
	int p[2];
	pid_t pid;

	if (blob_map(fd, PLAN_MAGIC, &b, &err) < 0)
		die("plan", &err);
	if (pipe2(p, O_CLOEXEC) < 0)
		die("pipe", NULL);
	pid = fork();
	if (pid == 0)
		measure_calls(&b, p[1]);
	close(p[1]);
	if (pid < 0 || read_full(p[0], v, sizeof(v)) < 0)
		die("measure calls", NULL);
	close(p[0]);
	waitpid(pid, NULL, 0);
	blob_unmap(&b);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct json_object *c = report_put(o, calls[i].name, json_object_new_object());

		put(c, "withoutNs", v[i]);
		put(c, "withNs", v[ARRAY_SIZE(calls) + i]);
		put(c, "ratio", v[ARRAY_SIZE(calls) + i] / v[i]);
	}
}

/* ------------------------------------------------------------------ start */

static double spawn_us(const char *const *argv)
{
	double began = now_us();
	pid_t pid;
	int status;

	if (posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		die(argv[0], NULL);
	return now_us() - began;
}

static double run_us(const struct nsbox_plan *plan, const struct nsbox_root *root,
		     double *ret_witness)
{
	const char *const argv[] = { "/bin/true", NULL };
	const struct nsbox_sandbox_options so = { .layers = nsbox_host_layers(&host),
						  .files_fd = -1 };
	const struct nsbox_exec ex = { .argv = argv };
	const struct nsbox_io io = { -1, -1, -1, -1, -1 };
	struct nsbox_error err = { 0 };
	struct nsbox_result res;
	double began = now_us();

	if (nsbox_run(plan, root, &so, &ex, &io, &res, &err) < 0)
		die("nsbox_run", &err);
	if (res.exit_status != 0)
		die("nsbox_run", &res.error);
	*ret_witness = res.witness_us;
	return now_us() - began;
}

static void bench_start(struct json_object *o)
{
	static const char *const bare[] = { "/bin/true", NULL };
	static const char *const bwrap[] = {
		"/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/",  "/",	   "--proc",
		"/proc",	  "--dev",	   "/dev",	"--", "/bin/true", NULL
	};
	char program[4096];
	const char *const nsbox[] = { program, "run", "--no-tty", "--", "/bin/true", NULL };
	bool has_bwrap = access(bwrap[0], X_OK) == 0;
	double v[4][ROUNDS], witness[ROUNDS], base;
	struct nsbox_plan *plan = NULL;
	struct nsbox_root *root = NULL;
	struct nsbox_error err = { 0 };
	auto_close int fd = compile_once();

	snprintf(program, sizeof(program), "%s/nsbox", dir);
	if (nsbox_plan_open(fd, &plan, &err) < 0 || nsbox_root_prepare(NULL, NULL, &root, &err) < 0)
		die("prepare", &err);
	for (int i = 0; i < ROUNDS; i++) {
		v[0][i] = spawn_us(bare);
		v[1][i] = run_us(plan, root, &witness[i]);
		v[2][i] = spawn_us(nsbox);
		if (has_bwrap)
			v[3][i] = spawn_us(bwrap);
	}
	nsbox_plan_close(plan);
	nsbox_root_free(root);
	base = median(v[0], ROUNDS);
	put(o, "spawnMs", base / 1000);
	put(o, "libraryMs", median(v[1], ROUNDS) / 1000);
	put(o, "libraryRatio", median(v[1], ROUNDS) / base);
	put(o, "witnessUs", median(witness, ROUNDS));
	put(o, "commandMs", median(v[2], ROUNDS) / 1000);
	put(o, "commandRatio", median(v[2], ROUNDS) / base);
	if (has_bwrap) {
		put(o, "bubblewrapMs", median(v[3], ROUNDS) / 1000);
		put(o, "bubblewrapRatio", median(v[3], ROUNDS) / base);
	}
}

/* ------------------------------------------------------------------ report */

static void print_table(struct json_object *o, FILE *to)
{
	json_object_object_foreach (o, part, values) {
		fprintf(to, "%s\n", part);
		json_object_object_foreach (values, key, value) {
			if (json_object_is_type(value, json_type_object))
				fprintf(to, "  %-16s %10s ns without, %s ns with, ratio %s\n", key,
					report_get(value, "withoutNs"), report_get(value, "withNs"),
					report_get(value, "ratio"));
			else
				fprintf(to, "  %-16s %10s\n", key, json_object_get_string(value));
		}
	}
}

int main(int argc, char **argv)
{
	bool json = argc > 1 && !strcmp(argv[1], "--json");
	struct json_object *o = json_object_new_object();
	struct nsbox_error err = { 0 };
	char *text;

	if (argc != 2 + json) {
		fprintf(stderr, "usage: bench [--json] DIRECTORY\n");
		return 2;
	}
	dir = argv[1 + json];
	if (nsbox_host_probe(&host, &err) < 0)
		die("probe", &err);
	bench_compile(report_put(o, "compile", json_object_new_object()));
	bench_filter(report_put(o, "filter", json_object_new_object()));
	bench_start(report_put(o, "start", json_object_new_object()));
	if (report_finish(o, json ? NSBOX_REPORT_JSON : NSBOX_REPORT_TEXT, print_table, &text,
			  &err) < 0)
		die("report", &err);
	fputs(text, stdout);
	free(text);
	return 0;
}
