/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on layers, done by a process that is their owner and nothing else.
 *
 * Where the caller may set ids, the process is root of a user namespace that maps the image block
 * and no other id: it can give files to any user of an image, and to the host it is nobody. Where
 * not, it is the caller. In both cases Landlock, where the kernel has it, leaves it the store's
 * layers alone; with the ids of a caller that is a second wall behind the checks of paths.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "nsbox/ids.h"
#include "nsbox/sys.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"

static int write_map(int proc, const char *name)
{
	char map[64];

	nsbox_format(map, sizeof(map), "0 %u 65536\n", IDS_IMAGE_BASE);
	return write_small_file(proc, name, map);
}

static int map_block(pid_t pid)
{
	char path[32];
	auto_close int proc = -1;
	int r;

	nsbox_format(path, sizeof(path), "/proc/%d", (int)pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return -errno;
	r = write_map(proc, "gid_map");
	return r < 0 ? r : write_map(proc, "uid_map");
}

/* ------------------------------------------------------------------ in the child */

static int become_owner(int go, struct nsbox_error *err)
{
	char byte;

	if (go < 0)
		return 0;
	if (read(go, &byte, 1) != 1)
		return nsbox_fail(err, NSBOX_E_SETUP, EPERM, "wait for the ids of images");
	close(go);
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
	    syscall(SYS_setresuid, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "take the ids of images");
	return 0;
}

static int keep_to_layers(int layers_fd, struct nsbox_error *err)
{
	struct nsbox_landlock_ruleset_attr attr = { .handled_access_fs = (1ULL << 13) - 1 };
	struct landlock_path_beneath_attr rule = { .parent_fd = layers_fd };
	int abi =
		(int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	auto_close int fd = -1;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "set no_new_privs");
	if (abi < 2) /* without REFER no file could be linked into another directory */
		return 0;
	attr.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
	rule.allowed_access = attr.handled_access_fs;
	fd = sys_landlock_create_ruleset(&attr, 8, 0);
	if (fd < 0 || sys_landlock_add_rule(fd, LANDLOCK_RULE_PATH_BENEATH, &rule) < 0 ||
	    sys_landlock_restrict_self(fd) < 0)
		return nsbox_fail(err, NSBOX_E_SETUP, errno, "keep to the store's layers");
	return 0;
}

static bool is_kept(int fd, const int *keep, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (keep[i] == fd)
			return true;
	return false;
}

static void close_rest(const int *keep, unsigned n)
{
	int top = 3;

	for (unsigned i = 0; i < n; i++)
		top = MAX(top, keep[i] + 1);
	for (int fd = 3; fd < top; fd++)
		if (!is_kept(fd, keep, n))
			close(fd);
	close_range((unsigned)top, ~0U, 0);
}

#define KEEP_MAX 8

struct task {
	const struct store *s;
	owner_fn *fn;
	void *ctx;
	int keep[KEEP_MAX + 3];
	unsigned n;
	int go, report;
};

static _Noreturn void task_main(const struct task *t)
{
	struct nsbox_error err = { 0 };
	int r;

	close_rest(t->keep, t->n);
	/* As every process of ours it ends with who asked for it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	r = become_owner(t->go, &err);
	if (r == 0) /* setting ids clears it */
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (r == 0)
		r = keep_to_layers(t->s->layers_fd, &err);
	if (r == 0)
		r = t->fn(t->ctx, &err);
	if (r < 0) {
		if (!err.code)
			nsbox_fail(&err, NSBOX_E_IO, r, "work on a layer");
		write_full(t->report, &err, sizeof(err));
	}
	_exit(r < 0);
}

/* ------------------------------------------------------------------ in the caller */

static int start_mapped(struct task *t, int go[2], struct nsbox_error *err)
{
	struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	pid_t pid;
	int r;

	if (pipe2(go, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	t->go = go[0];
	t->keep[t->n++] = go[0];
	pid = sys_clone3(&args, sizeof(args));
	if (pid == 0)
		task_main(t);
	if (pid < 0)
		return nsbox_fail(
			err, NSBOX_E_UNSUPPORTED, errno,
			"make a user namespace with the ids of images (see `nsbox doctor`)");
	r = map_block(pid);
	if (r == 0 && write_full(go[1], "", 1) < 0)
		r = -EPIPE;
	if (r < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return nsbox_fail(err, NSBOX_E_SETUP, r, "map the ids of images");
	}
	return pid;
}

int owner_start(const struct store *s, owner_fn *fn, void *ctx, const int *keep, unsigned n,
		struct owner_task *ret, struct nsbox_error *err)
{
	struct task t = { .s = s, .fn = fn, .ctx = ctx, .go = -1 };
	int report[2], go[2] = { -1, -1 };
	pid_t pid;

	if (n > KEEP_MAX)
		return nsbox_fail(err, NSBOX_E_INVALID, E2BIG, "work on a layer");
	if (pipe2(report, O_CLOEXEC) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a pipe");
	if (n)
		memcpy(t.keep, keep, n * sizeof(*keep));
	t.n = n;
	t.keep[t.n++] = s->layers_fd;
	t.keep[t.n++] = t.report = report[1];
	if (s->own_ids) {
		pid = start_mapped(&t, go, err);
	} else {
		pid = fork();
		if (pid == 0)
			task_main(&t);
		if (pid < 0)
			pid = nsbox_fail(err, NSBOX_E_NOMEM, errno, "fork to work on a layer");
	}
	close_fd(&go[0]);
	close_fd(&go[1]);
	close_fd(&report[1]);
	if (pid < 0) {
		close_fd(&report[0]);
		return pid;
	}
	*ret = (struct owner_task){ pid, report[0] };
	return 0;
}

int owner_wait(struct owner_task *t, struct nsbox_error *err)
{
	struct nsbox_error why = { 0 };
	int status = 0, r = read_full(t->report, &why, sizeof(why));

	close_fd(&t->report);
	while (waitpid(t->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r == 0) {
		why.msg[NSBOX_ERROR_MSG_MAX - 1] = '\0';
		if (err)
			*err = why;
		return why.errnum ? -why.errnum : -EINVAL;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return nsbox_fail(err, NSBOX_E_IO, EIO, "the writer of layers ended early (0x%x)",
				  (unsigned)status);
	return 0;
}

int owner_run(const struct store *s, owner_fn *fn, void *ctx, struct nsbox_error *err)
{
	struct owner_task t;
	int r = owner_start(s, fn, ctx, NULL, 0, &t, err);

	return r < 0 ? r : owner_wait(&t, err);
}

struct removal {
	const struct store *s;
	const char *name;
};

static int remove_layer(void *ctx, struct nsbox_error *err)
{
	const struct removal *m = ctx;
	int r = state_remove_tree(m->s->layers_fd, m->name);

	return r < 0 ? nsbox_fail(err, NSBOX_E_IO, r, "remove the layer '%.20s'", m->name) : 0;
}

int owner_remove_layer(const struct store *s, const char *name, struct nsbox_error *err)
{
	struct removal m = { s, name };

	return owner_run(s, remove_layer, &m, err);
}
