/* SPDX-License-Identifier: Apache-2.0 */
/* nsbox-probe: finds the probe, runs it, says how it went. See probe.h. */
#include "selftest/probe/probe.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	const char *name;
	void (*run)(const struct probe *);
} probes[] = {
#define X(name, id, attack, walls, control, flags, expected) { #name, probe_##name },
	SELFTEST_PROBES(X)
#undef X
};

/* ------------------------------------------------------------------ facts */

const char *fact_or(const struct probe *p, const char *name, const char *otherwise)
{
	size_t n = strlen(name);

	for (char **f = p->facts; *f; f++)
		if (!strncmp(*f, name, n) && (*f)[n] == '=')
			return *f + n + 1;
	return otherwise;
}

const char *fact(const struct probe *p, const char *name)
{
	const char *v = fact_or(p, name, NULL);

	if (!v)
		skip("nothing is known of the host's %s", name);
	return v;
}

long fact_number(const struct probe *p, const char *name)
{
	return strtol(fact(p, name), NULL, 10);
}

/* ------------------------------------------------------------------ verdicts */

static _Noreturn void say(int status, const char *verdict, const char *text)
{
	printf("%s: %s\n", verdict, text);
	fflush(stdout);
	_exit(status);
}

#define TEXT_OF(fmt)                                                                               \
	char text[600];                                                                            \
	va_list ap;                                                                                \
	va_start(ap, fmt);                                                                         \
	vsnprintf(text, sizeof(text), fmt, ap);                                                    \
	va_end(ap)

void held(const char *layer, const char *fmt, ...)
{
	char verdict[64];

	TEXT_OF(fmt);
	snprintf(verdict, sizeof(verdict), "HELD %s", layer);
	say(0, verdict, text);
}

void escaped(const char *fmt, ...)
{
	TEXT_OF(fmt);
	say(1, "ESCAPED", text);
}

void skip(const char *fmt, ...)
{
	TEXT_OF(fmt);
	say(2, "SKIP", text);
}

const char *errname(int errnum)
{
	const char *name = strerrorname_np(errnum);

	return name ? name : "an unknown error";
}

static bool among(int errnum, const int *list)
{
	for (; *list; list++)
		if (*list == errnum)
			return true;
	return false;
}

void judge(const char *layer, const char *what, long done, const int *refusals)
{
	if (done >= 0)
		escaped("%s: done", what);
	if (!among(errno, refusals))
		escaped("%s: %s, which only the act itself answers", what, errname(errno));
	held(layer, "%s: %s", what, errname(errno));
}

void judge_calls(const char *layer, const struct raw_call *calls, size_t n, const int *refusals)
{
	char reached[512] = "";
	size_t len = 0, count = 0;

	for (size_t i = 0; i < n; i++) {
		const long *a = calls[i].arg;
		long r;

		errno = 0;
		r = syscall(calls[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (r < 0 && among(errno, refusals))
			continue;
		count++;
		len += (size_t)snprintf(reached + len, sizeof(reached) - len, "%s%s (%s)",
					len ? ", " : "", calls[i].name,
					r < 0 ? errname(errno) : "done");
		if (len >= sizeof(reached) - 48)
			break;
	}
	if (count)
		escaped("%zu of %zu calls reach the kernel: %s", count, n, reached);
	held(layer, "%zu calls, each refused", n);
}

/* ------------------------------------------------------------------ the tier "process" */

bool in_process_tier(const struct probe *p)
{
	return !strcmp(fact_or(p, "tier", ""), "process");
}

const char *place(const char *path)
{
	static char real[4096];
	const char *root = getenv("NSBOX_ROOT");

	snprintf(real, sizeof(real), "%s%s", root && *path == '/' ? root : "", path);
	return real;
}

int init_of(const struct probe *p)
{
	return in_process_tier(p) ? getppid() : 1;
}

/* ------------------------------------------------------------------ helpers */

long slurp(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	long n = 0;

	if (fd < 0)
		return -1;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	buf[len] = '\0';
	return n < 0 && !len ? -1 : (long)len;
}

int reap(int pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "Usage: nsbox-probe NAME [FACT=VALUE...]\n");
		return 125;
	}
	for (size_t i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(probes[i].name, argv[1])) {
			struct probe p = { argv[1], argv + 2, false };

			p.control = fact_or(&p, "control", NULL) != NULL;
			probes[i].run(&p);
			return 125; /* without a verdict: broken */
		}
	fprintf(stderr, "nsbox-probe: there is no probe '%s'\n", argv[1]);
	return 125;
}
