/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `make bench`: what a policy costs, reported and not judged.
 *
 *   compile   parse, resolve and compile a manifest in this process; the service's worker and cache
 *   filter    calls per second before and after a plan's filters are installed, in one process
 *   start     /bin/true: by posix_spawn, by nsbox_run() with plan and root at hand, by the nsbox
 *             command, by bubblewrap where it is installed; rounds are interleaved, medians compared;
 *             and what of it the witness takes
 *   image     a sandbox in an image of 10 MB and in one of 1 GB, until it is ready (bench_image.c)
 *
 * bench [--json] NSBOX_DIRECTORY; --serve and --calls: bench_modes.c; --rate: bench_sustain.c
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
#include "tests/bench/bench.h"

#define CACHE_LOOKUPS 20000
#define CALLS	      2000000

static const char manifest[] = "{\"manifestVersion\":1,\"name\":\"bench\",\"profile\":\"standard\","
			       "\"filesystem\":{\"write\":[\"/data\"],\"mask\":[\"/etc/ssl\"]},"
			       "\"resources\":{\"memory\":\"512Mi\",\"cpu\":\"1\",\"pids\":64}}";
struct nsbox_host bench_host;
const char *bench_dir;

double bench_now_us(void)
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

double bench_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

_Noreturn void bench_die(const char *what, const struct nsbox_error *err)
{
	fprintf(stderr, "bench: %s: %s\n", what, err ? err->msg : strerror(errno));
	exit(1);
}

void bench_put(struct json_object *o, const char *key, double v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", v);
	report_put(o, key, json_object_new_double_s(v, text));
}

/* ------------------------------------------------------------------ compile */

static int compile_once(void)
{
	const struct nsbox_resolve_options opt = { .host = &bench_host };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	int fd = -1;

	if (nsbox_manifest_parse(manifest, strlen(manifest), &m, &err) < 0 ||
	    nsbox_policy_resolve(m, &opt, &p, &err) < 0 || nsbox_policy_compile(p, &fd, &err) < 0)
		bench_die("compile", &err);
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
		bench_die("the compile worker", &reply->error);
	w->done++;
	loop_stop(w->loop);
}

static void ask_compiler(struct compiler *c, struct waiting *w, bool cached)
{
	struct compile_request q;
	struct compile_ticket *ticket = NULL;
	struct nsbox_error err = { 0 };

	memset(&q, 0, sizeof(q));
	q.host = bench_host;
	if (compiler_start(c, &q, manifest, strlen(manifest), on_done, w, &ticket, &err) < 0)
		bench_die("compiler", &err);
	if (!ticket)
		return;
	if (cached || loop_run(w->loop, &err) < 0)
		bench_die("compiler", &err);
}

static void bench_compile(struct json_object *o)
{
	double v[BENCH_ROUNDS], began;
	struct waiting w = { .loop = NULL };
	struct compiler *c = NULL;
	struct nsbox_error err = { 0 };
	char worker[4096];

	for (int i = 0; i < BENCH_ROUNDS; i++) {
		began = bench_now_us();
		close(compile_once());
		v[i] = bench_now_us() - began;
	}
	bench_put(o, "coldMs", bench_median(v, BENCH_ROUNDS) / 1000);
	snprintf(worker, sizeof(worker), "%s/nsbox-compile", bench_dir);
	for (int i = 0; i < BENCH_ROUNDS; i++) {
		/* A loop that was stopped stays so. */
		compiler_free(c);
		if (w.loop)
			loop_free(w.loop);
		if (loop_new(&w.loop, &err) < 0 || compiler_new(w.loop, worker, &c, &err) < 0)
			bench_die("compiler", &err);
		began = bench_now_us();
		ask_compiler(c, &w, false);
		v[i] = bench_now_us() - began;
	}
	bench_put(o, "workerMs", bench_median(v, BENCH_ROUNDS) / 1000);
	began = bench_now_us();
	for (int i = 0; i < CACHE_LOOKUPS; i++)
		ask_compiler(c, &w, true);
	bench_put(o, "cachedUs", (bench_now_us() - began) / CACHE_LOOKUPS);
	compiler_free(c);
	loop_free(w.loop);
	if (w.done != BENCH_ROUNDS + CACHE_LOOKUPS)
		bench_die("compiler", &err);
}

/* ------------------------------------------------------------------ filter */

/* ns per call */
static double loop_call(long nr, long a, long b)
{
	double began = bench_now_us();

	for (int i = 0; i < CALLS; i++)
		syscall(nr, a, b, 0, 0);
	return (bench_now_us() - began) * 1000 / CALLS;
}

static void install(const struct blob *b, enum blob_section sec)
{
	struct sock_fprog prog;
	size_t n;

	prog.filter = (struct sock_filter *)(uintptr_t)blob_get(b, sec, sizeof(*prog.filter), &n);
	prog.len = (unsigned short)n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		bench_die("install a filter", NULL);
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
		bench_die("plan", &err);
	if (pipe2(p, O_CLOEXEC) < 0)
		bench_die("pipe", NULL);
	pid = fork();
	if (pid == 0)
		measure_calls(&b, p[1]);
	close(p[1]);
	if (pid < 0 || read_full(p[0], v, sizeof(v)) < 0)
		bench_die("measure calls", NULL);
	close(p[0]);
	waitpid(pid, NULL, 0);
	blob_unmap(&b);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct json_object *c = report_put(o, calls[i].name, json_object_new_object());

		bench_put(c, "withoutNs", v[i]);
		bench_put(c, "withNs", v[ARRAY_SIZE(calls) + i]);
		bench_put(c, "ratio", v[ARRAY_SIZE(calls) + i] / v[i]);
	}
}

/* ------------------------------------------------------------------ start */

double bench_spawn_us(const char *const *argv)
{
	double began = bench_now_us();
	pid_t pid;
	int status;

	if (posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		bench_die(argv[0], NULL);
	return bench_now_us() - began;
}

double bench_run_us(const struct nsbox_plan *plan, const struct nsbox_root *root,
		    double *ret_witness)
{
	const char *const argv[] = { "/bin/true", NULL };
	const struct nsbox_sandbox_options so = { .layers = nsbox_host_layers(&bench_host),
						  .files_fd = -1 };
	const struct nsbox_exec ex = { .argv = argv };
	const struct nsbox_io io = { -1, -1, -1, -1, -1 };
	struct nsbox_error err = { 0 };
	struct nsbox_result res;
	double began = bench_now_us();

	if (nsbox_run(plan, root, &so, &ex, &io, &res, &err) < 0)
		bench_die("nsbox_run", &err);
	if (res.exit_status != 0)
		bench_die("nsbox_run", &res.error);
	*ret_witness = res.witness_us;
	return bench_now_us() - began;
}

struct nsbox_sandbox *bench_ready(const struct nsbox_plan *plan, const struct nsbox_root *root)
{
	const struct nsbox_sandbox_options so = { .layers = nsbox_host_layers(&bench_host),
						  .files_fd = -1 };
	struct nsbox_error err = { 0 };
	struct nsbox_sandbox *sb = NULL;
	struct nsbox_event ev;

	if (nsbox_sandbox_new(plan, root, &so, &sb, &err) < 0)
		bench_die("nsbox_sandbox_new", &err);
	do {
		if (nsbox_sandbox_next(sb, 60000, &ev, &err) < 0)
			bench_die("nsbox_sandbox_next", &err);
		if (ev.kind == NSBOX_EVENT_FAILED || ev.kind == NSBOX_EVENT_NONE)
			bench_die("a sandbox", &ev.error);
	} while (ev.kind != NSBOX_EVENT_READY);
	return sb;
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
	double v[4][BENCH_ROUNDS], witness[BENCH_ROUNDS], base;
	struct nsbox_plan *plan = NULL;
	struct nsbox_root *root = NULL;
	struct nsbox_error err = { 0 };
	auto_close int fd = compile_once();

	snprintf(program, sizeof(program), "%s/nsbox", bench_dir);
	if (nsbox_plan_open(fd, &plan, &err) < 0 || nsbox_root_prepare(NULL, NULL, &root, &err) < 0)
		bench_die("prepare", &err);
	for (int i = 0; i < BENCH_ROUNDS; i++) {
		v[0][i] = bench_spawn_us(bare);
		v[1][i] = bench_run_us(plan, root, &witness[i]);
		v[2][i] = bench_spawn_us(nsbox);
		if (has_bwrap)
			v[3][i] = bench_spawn_us(bwrap);
	}
	nsbox_plan_close(plan);
	nsbox_root_free(root);
	base = bench_median(v[0], BENCH_ROUNDS);
	bench_put(o, "spawnMs", base / 1000);
	bench_put(o, "libraryMs", bench_median(v[1], BENCH_ROUNDS) / 1000);
	bench_put(o, "libraryRatio", bench_median(v[1], BENCH_ROUNDS) / base);
	bench_put(o, "witnessUs", bench_median(witness, BENCH_ROUNDS));
	bench_put(o, "commandMs", bench_median(v[2], BENCH_ROUNDS) / 1000);
	bench_put(o, "commandRatio", bench_median(v[2], BENCH_ROUNDS) / base);
	if (has_bwrap) {
		bench_put(o, "bubblewrapMs", bench_median(v[3], BENCH_ROUNDS) / 1000);
		bench_put(o, "bubblewrapRatio", bench_median(v[3], BENCH_ROUNDS) / base);
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
	bool serve = argc == 3 && !strcmp(argv[1], "--serve");
	bool rate = argc == 6 && !strcmp(argv[1], "--rate");
	struct json_object *o = json_object_new_object();
	struct nsbox_error err = { 0 };
	char *text;

	if (argc == 3 && !strcmp(argv[1], "--calls"))
		return bench_calls(argv[2]);
	if (!rate && argc != 2 + (json || serve)) {
		fprintf(stderr, "usage: bench [--json] DIRECTORY\n");
		return 2;
	}
	bench_dir = argv[argc - 1];
	if (nsbox_host_probe(&bench_host, &err) < 0)
		bench_die("probe", &err);
	if (serve)
		return bench_serve(compile_once());
	if (rate)
		return bench_rate(compile_once(), argv[2], atof(argv[3]), (unsigned)atoi(argv[4]));
	bench_compile(report_put(o, "compile", json_object_new_object()));
	bench_filter(report_put(o, "filter", json_object_new_object()));
	bench_start(report_put(o, "start", json_object_new_object()));
	bench_image(report_put(o, "image", json_object_new_object()), compile_once());
	if (report_finish(o, json ? NSBOX_REPORT_JSON : NSBOX_REPORT_TEXT, print_table, &text,
			  &err) < 0)
		bench_die("report", &err);
	fputs(text, stdout);
	free(text);
	return 0;
}
