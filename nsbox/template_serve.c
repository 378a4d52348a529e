/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a template, and in its forks (template.h). The way of one: clone3 here; child_main(), in
 * memory that is the interpreter's, as in that of any other owner; init; its fork, which is locked
 * down and whose witness is heard as ever; and from there back, by a jump over all of that, to whoever
 * called nsbox_template_serve(). What execve would have taken away is taken away before: descriptors,
 * the plan's and the request's memory. (Signals are init's first concern, ids and capabilities the
 * payload's own.)
 */
#include "nsbox/template.h"

#include <setjmp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

/* The one command that forks may become; what follows is theirs. */
static const char *const command[] = { "python3", "-I", "/opt/nsbox/runner.py" };
/* What an interpreter reads of its variables while it starts: these are the template's own, or another
 * interpreter has to be started. */
static const char *const at_start[] = { "PATH=",   "LANG",    "LC_",	 "TZ",
					"LD_",	   "MALLOC_", "GLIBC_",	 "GCONV_PATH",
					"LOCPATH", "NLSPATH", "OPENSSL_" };

static struct {
	jmp_buf back;
	struct child child; /* in a fork */
	struct blob plan, root;
	struct share no_share;
	char **argv, **env; /* of a payload */
} self;

/* ------------------------------------------------------------------ in a payload */

static bool same_command(char *const *argv)
{
	for (unsigned i = 0; i < ARRAY_SIZE(command); i++)
		if (!argv[i] || strcmp(argv[i], command[i]) != 0)
			return false;
	return true;
}

static bool has(char *const *list, const char *entry)
{
	for (; *list; list++)
		if (strcmp(*list, entry) == 0)
			return true;
	return false;
}

static bool read_at_start(const char *entry)
{
	for (unsigned i = 0; i < ARRAY_SIZE(at_start); i++)
		if (strncmp(entry, at_start[i], strlen(at_start[i])) == 0)
			return true;
	return false;
}

static bool same_start(char *const *env)
{
	for (char *const *e = environ; *e; e++)
		if (!has(env, *e))
			return false;
	for (char *const *e = env; *e; e++)
		if (read_at_start(*e) && !has(environ, *e))
			return false;
	return true;
}

/* Out of the blobs, which are about to go. */
static char **copy(char *const *list)
{
	size_t n = 0, bytes = 0;
	char **to, *text;

	for (; list[n]; n++)
		bytes += strlen(list[n]) + 1;
	to = mmap(NULL, (n + 1) * sizeof(char *) + bytes, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return NULL;
	text = (char *)(to + n + 1);
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(list[i]) + 1;

		to[i] = memcpy(text, list[i], len);
		text += len;
	}
	to[n] = NULL;
	return to;
}

void template_enter(struct child *c, const struct blob *exec, int channel, char *const *argv,
		    char *const *env)
{
	struct blob request = *exec;

	if (!same_command(argv) || !same_start(env))
		return;
	self.argv = copy(argv);
	self.env = copy(env);
	if (!self.argv || !self.env)
		return;
	blob_unmap(&request);
	blob_unmap(&self.plan);
	blob_unmap(&self.root);
	memset(c, 0, sizeof(*c));
	prctl(PR_SET_NAME, "python3");
	/* All others were closed before (stdio() of payload.c). With this the owner takes it for started. */
	close(channel);
	template_populate();
	_longjmp(self.back, 1);
}

char **nsbox_template_argv(void)
{
	return self.argv;
}

char **nsbox_template_env(void)
{
	return self.env;
}

/* ------------------------------------------------------------------ in init */

int template_fork(void)
{
	return (int)_Fork();
}

static _Noreturn void begin(const struct template_request *q, const int *fds)
{
	struct child *c = &self.child;

	*c = q->child;
	c->control = fds[TEMPLATE_CONTROL];
	c->files_fd = c->upper_from = c->disk = -1;
	c->share = &self.no_share;
	c->process = NULL;
	c->forked = true;
	prctl(PR_SET_NAME, "nsbox-init");
	/* The owner hears of it by our end. */
	if (blob_map(fds[TEMPLATE_PLAN], PLAN_MAGIC, &self.plan, NULL) < 0 ||
	    blob_map(fds[TEMPLATE_ROOT], ROOT_MAGIC, &self.root, NULL) < 0)
		_exit(1);
	c->plan = &self.plan;
	c->root = &self.root;
	child_main(c);
}

/* ------------------------------------------------------------------ in the template */

static void fork_one(const struct template_request *q, const int *fds, unsigned n,
		     struct template_reply *rep)
{
	struct clone_args args = { .flags = q->flags | CLONE_PARENT };
	long pid;

	if (n > TEMPLATE_CGROUP) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)fds[TEMPLATE_CGROUP];
	}
	pid = sys_clone3(&args, sizeof(args));
	if (pid == 0)
		begin(q, fds);
	*rep = (struct template_reply){ .magic = TEMPLATE_MAGIC,
					.pid = (int32_t)pid,
					.errnum = pid < 0 ? errno : 0 };
}

static int serve(int sock)
{
	struct template_reply rep = { .magic = TEMPLATE_MAGIC, .pages = template_pages() };
	struct template_request q;
	int fds[TEMPLATE_FDS];

	for (;;) {
		unsigned n = ARRAY_SIZE(fds);
		int r = ctl_send(sock, &rep, sizeof(rep), NULL, 0);

		if (r == 0)
			r = ctl_recv(sock, &q, sizeof(q), fds, &n, 0);
		if (r < 0)
			return r;
		if (q.magic != TEMPLATE_MAGIC || n < TEMPLATE_CGROUP)
			return -EBADMSG;
		fork_one(&q, fds, n, &rep);
		for (unsigned i = 0; i < n; i++)
			close(fds[i]);
	}
}

int nsbox_template_serve(int sock)
{
	return _setjmp(self.back) ? 0 : serve(sock);
}
