/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What probes are told of the host, and what stands there for them to reach: a file, three sockets
 * that accept, a process. All of it is for this selftest alone, is reached by the controls, and goes
 * with it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "nsbox/util.h"
#include "selftest/selftest.h"

void facts_add(struct facts *f, const char *name, const char *fmt, ...)
{
	char value[256], *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	if (f->n < FACTS_MAX - 1 && asprintf(&text, "%s=%s", name, value) >= 0)
		f->list[f->n++] = text;
}

const char *facts_get(const struct facts *f, const char *name)
{
	size_t n = strlen(name);

	for (unsigned i = f->n; i-- > 0;)
		if (!strncmp(f->list[i], name, n) && f->list[i][n] == '=')
			return f->list[i] + n + 1;
	return "";
}

/* Of the host every file is there: one that nobody listed. */
void facts_unlisted(const struct facts *f, bool process, char *buf, int size)
{
	nsbox_format(buf, size, "unlisted=%s",
		     process ? facts_get(f, "canary") : "/.nsbox/witness");
}

const char **probe_argv(const char *program, const struct probe_row *row, const struct facts *f,
			const char *const *more)
{
	const char **argv = calloc(f->n + 8, sizeof(*argv));
	unsigned n = 0;

	if (!argv)
		return NULL;
	argv[n++] = program;
	if (row->file)
		return argv;
	argv[n++] = row->name;
	for (; *more && n < 6; more++)
		argv[n++] = *more; /* the first of a name counts */
	for (unsigned i = f->n; i-- > 0;)
		argv[n++] = f->list[i];
	return argv;
}

/* ------------------------------------------------------------------ decoys */

static int listen_at(const struct sockaddr *sa, socklen_t len, struct nsbox_error *err)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, sa, len) < 0 || listen(fd, 64) < 0) {
		nsbox_fail(err, NSBOX_E_IO, errno, "make a socket for the selftest");
		close_fd(&fd);
	}
	return fd;
}

static int listen_unix(const char *name, bool abstract, struct nsbox_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t n = strlen(name);

	memcpy(sa.sun_path + abstract, name, n);
	return listen_at((struct sockaddr *)&sa,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1), err);
}

static int open_sockets(struct facts *f, struct nsbox_error *err)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	char name[100];

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->listeners[0] = listen_at((struct sockaddr *)&sa, sizeof(sa), err);
	if (f->listeners[0] < 0 || getsockname(f->listeners[0], (struct sockaddr *)&sa, &len) < 0)
		return -EIO;
	facts_add(f, "port", "%u", ntohs(sa.sin_port));
	nsbox_format(name, sizeof(name), "nsbox-selftest-%d", (int)getpid());
	f->listeners[1] = listen_unix(name, true, err);
	facts_add(f, "abstract", "%s", name);
	nsbox_format(name, sizeof(name), "%s/socket", f->dir);
	f->listeners[2] = listen_unix(name, false, err);
	facts_add(f, "pathname", "%s", name);
	return f->listeners[1] < 0 || f->listeners[2] < 0 || chmod(name, 0777) < 0 ? -EIO : 0;
}

static void start_decoy(struct facts *f)
{
	f->decoy = fork();
	if (f->decoy == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	facts_add(f, "decoy", "%d", (int)f->decoy);
}

bool facts_check_decoy(struct facts *f)
{
	if (f->decoy > 0 && waitpid(f->decoy, NULL, WNOHANG) == 0)
		return false;
	for (unsigned i = 0; i < f->n; i++)
		if (!strncmp(f->list[i], "decoy=", 6)) {
			free(f->list[i]);
			f->list[i] = f->list[--f->n];
		}
	start_decoy(f);
	return true;
}

/* A file that anyone may read, in a place that anyone may enter. */
static int make_canary(struct facts *f, struct nsbox_error *err)
{
	const char *tmp = secure_getenv("TMPDIR");
	char path[100];
	int fd;

	if (!tmp || *tmp != '/' || strlen(tmp) >= 40)
		tmp = access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
	nsbox_format(f->dir, sizeof(f->dir), "%s/selftest.XXXXXX", tmp);
	if (!mkdtemp(f->dir)) {
		f->dir[0] = '\0';
		return nsbox_fail(err, NSBOX_E_IO, errno, "make a directory for the selftest");
	}
	nsbox_format(path, sizeof(path), "%s/canary", f->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (chmod(f->dir, 0755) < 0 || fd < 0 || write_full(fd, "canary\n", 7) < 0 ||
	    fchmod(fd, 0644) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make '%s'", path);
	close(fd);
	facts_add(f, "dir", "%s", f->dir);
	facts_add(f, "canary", "%s", path);
	return 0;
}

static void add_namespaces(struct facts *f)
{
	static const char *const names[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[64], name[24], text[64];
		ssize_t n;

		nsbox_format(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		n = readlink(path, text, sizeof(text) - 1);
		if (n < 0)
			continue;
		text[n] = '\0';
		nsbox_format(name, sizeof(name), "ns.%s", names[i]);
		facts_add(f, name, "%s", text);
	}
}

/* The host's root in the mount table, by the number that no other mount has meanwhile. */
static void add_mount(struct facts *f)
{
	auto_close int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	char line[64] = "";

	if (fd >= 0 && read(fd, line, sizeof(line) - 1) > 0)
		facts_add(f, "mount", "%.*s", (int)strcspn(line, " "), line);
}

int facts_init(struct facts *f, const struct nsbox_host *host, const char *daemon,
	       struct nsbox_error *err)
{
	struct stat st;
	int r;

	*f = (struct facts){ .listeners = { -1, -1, -1 }, .decoy = -1 };
	r = make_canary(f, err);
	if (r == 0)
		r = open_sockets(f, err);
	if (r < 0)
		return r;
	add_namespaces(f);
	add_mount(f);
	facts_add(f, "ids", "%s", host->ids_kind == NSBOX_IDS_PRIVILEGED ? "range" : "single");
	facts_add(f, "owner_uid", "%u", (unsigned)geteuid());
	facts_add(f, "owner_gid", "%u", (unsigned)getegid());
	if (stat("/dev/pts", &st) == 0)
		facts_add(f, "devpts", "%lu", (unsigned long)st.st_dev);
	if (daemon)
		facts_add(f, "daemon", "%s", daemon);
	facts_add(f, "memory", "%u", SMALL_MEMORY);
	facts_add(f, "disk", "%u", SMALL_DISK);
	facts_add(f, "pids", "%u", SMALL_PIDS);
	facts_add(f, "cpu", "%u", SMALL_CPU);
	facts_add(f, "seconds", "%u", 1);
	start_decoy(f);
	return 0;
}

void facts_done(struct facts *f)
{
	char path[100];

	for (size_t i = 0; i < ARRAY_SIZE(f->listeners); i++)
		close_fd(&f->listeners[i]);
	if (f->decoy > 0) {
		kill(f->decoy, SIGKILL);
		waitpid(f->decoy, NULL, 0);
	}
	if (f->dir[0]) {
		nsbox_format(path, sizeof(path), "%s/canary", f->dir);
		unlink(path);
		nsbox_format(path, sizeof(path), "%s/socket", f->dir);
		unlink(path);
		rmdir(f->dir);
	}
	for (unsigned i = 0; i < f->n; i++)
		free(f->list[i]);
}
