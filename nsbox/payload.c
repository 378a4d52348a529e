/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payload's process, from init's fork to execve.
 *
 * The order is the point: session and control group before anything can be started; descriptors
 * before ids, ids before capabilities, the filter last so that it need not allow any of this; then
 * the witness, which tries what must fail; then the program. Init has already given up the bounding
 * set, locked the secure bits, set no_new_privs and entered the Landlock domain: all of that is
 * inherited and read back here.
 */
#include "nsbox/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "nsbox/observe.h"
#include "nsbox/sys.h"
#include "nsbox/template.h"
#include "nsbox/util.h"
#include "nsbox/weaken.h"

#define FD_FLOOR 16 /* what came from the owner is moved here, out of 0-4 */
#define ENV_MAX	 (3 * BLOB_ENV_MAX + 1)
/* Tier "process": how many of a thread's stack count as data, so that eight fit into 256 MB. */
#define SMALL_STACK (2u << 20)

/* ------------------------------------------------------------------ credentials */

static int check_empty(const char *what, unsigned v, struct nsbox_error *err)
{
	if (!v)
		return 0;
	return nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SANDBOX, EPERM,
			     "the %s set is not empty", what);
}

int payload_drop_capabilities(struct nsbox_error *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	int r = 0;

	if (left_out(CAPABILITIES))
		return 0;
	if (syscall(SYS_capset, &head, data) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SETUP, errno,
				     "drop the last capabilities");
	/* Read back: capset succeeding is not the same as being without. */
	memset(data, 0xff, sizeof(data));
	if (syscall(SYS_capget, &head, data) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SETUP, errno,
				     "read the capabilities back");
	for (int i = 0; r == 0 && i < 2; i++) {
		r = check_empty("effective", data[i].effective, err);
		if (r == 0)
			r = check_empty("permitted", data[i].permitted, err);
		if (r == 0)
			r = check_empty("inheritable", data[i].inheritable, err);
	}
	return r;
}

int payload_credentials(const struct child *c, struct nsbox_error *err)
{
	const struct ids_payload *p = &c->ids;
	uid_t r, e, s;

	if (!c->single_id) {
		if (syscall(SYS_setgroups, 0, NULL) < 0 ||
		    syscall(SYS_setresgid, p->gid, p->gid, p->gid) < 0 ||
		    syscall(SYS_setresuid, p->uid, p->uid, p->uid) < 0)
			return nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SETUP, errno,
					     "take the ids %u:%u", p->uid, p->gid);
	}
	getresuid(&r, &e, &s);
	if (r != p->uid || e != p->uid || s != p->uid)
		return nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SANDBOX, EPERM,
				     "the user id inside is %u, not %u", r, p->uid);
	return payload_drop_capabilities(err);
}

/* ------------------------------------------------------------------ descriptors */

static int move_up(int *fd)
{
	int up;

	if (*fd < 0)
		return 0;
	up = fcntl(*fd, F_DUPFD_CLOEXEC, FD_FLOOR);
	if (up < 0)
		return -errno;
	close(*fd);
	*fd = up;
	return 0;
}

static int place(int from, int to)
{
	return from >= 0 && dup2(from, to) < 0 ? -errno : 0;
}

static int stdio(struct payload_fds *fds, struct nsbox_error *err)
{
	int keep[4], r = move_up(&fds->channel);

	for (int i = 0; r == 0 && i < 3; i++)
		r = move_up(&fds->std[i]);
	if (r == 0)
		r = move_up(&fds->request);
	if (r == 0)
		r = move_up(&fds->result);
	for (int i = 0; r == 0 && i < 3; i++)
		r = place(fds->std[i], i);
	if (r == 0)
		r = place(fds->request, 3);
	if (r == 0)
		r = place(fds->result, 4);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_STDIO, NSBOX_E_NOMEM, r,
				     "put the descriptors in place");
	keep[0] = fds->channel;
	keep[1] = fds->request >= 0 ? 3 : -1;
	keep[2] = fds->result >= 0 ? 4 : -1;
	r = child_close_others(3, keep, 3);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_STDIO, NSBOX_E_SETUP, r,
				     "close all other descriptors");
	return 0;
}

/* A terminal of the sandbox's own devpts; the owner gets the master, so that no byte typed at the
 * caller's terminal can be faked from inside (TIOCSTI reaches this one alone). */
static int terminal(struct payload_fds *fds, const struct exec_fixed *x, struct nsbox_error *err)
{
	struct winsize size = { .ws_row = x->tty_rows, .ws_col = x->tty_cols };
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_TERMINAL };
	int unlock = 0, master, slave, r;

	master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_TERMINAL, NSBOX_E_SETUP, errno,
				     "make a terminal");
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_TERMINAL, NSBOX_E_SETUP, errno,
				     "take the terminal");
	if (size.ws_row)
		ioctl(master, TIOCSWINSZ, &size);
	r = ctl_send(fds->channel, &rep, sizeof(rep), &master, 1);
	for (int i = 0; r == 0 && i < 3; i++)
		r = place(slave, i);
	close(master);
	close(slave);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_TERMINAL, NSBOX_E_SETUP, r,
				     "pass the terminal on");
	return 0;
}

/* ------------------------------------------------------------------ limits */

static int limit(int resource, uint64_t soft, uint64_t hard)
{
	struct rlimit now, want;

	/* Never above what we have: raising a hard limit takes CAP_SYS_RESOURCE outside. */
	if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
		return -errno;
	want.rlim_max = MIN(hard, now.rlim_max);
	want.rlim_cur = MIN(soft, want.rlim_max);
	return setrlimit((__rlimit_resource_t)resource, &want) < 0 ? -errno : 0;
}

/* CPUs to show: as many as the limit, rounded up, starting at a place that differs by run so that
 * small runs do not all share the first CPU. */
static int affinity(uint32_t cpu_milli)
{
	cpu_set_t have, want;
	int n = (int)((cpu_milli + 999) / 1000), total, skip;

	if (sched_getaffinity(0, sizeof(have), &have) < 0)
		return -errno;
	total = CPU_COUNT(&have);
	if (n >= total)
		return 0;
	skip = (int)(monotonic_us() / 64 % (uint64_t)total);
	CPU_ZERO(&want);
	for (int cpu = 0, seen = 0; n > 0 && seen < 2 * total; cpu = (cpu + 1) % CPU_SETSIZE) {
		if (!CPU_ISSET(cpu, &have))
			continue;
		if (seen++ < skip || CPU_ISSET(cpu, &want))
			continue;
		CPU_SET(cpu, &want);
		n--;
	}
	return sched_setaffinity(0, sizeof(want), &want) < 0 ? -errno : 0;
}

/* The lower of two limits, of which 0 is none. */
static uint64_t lower(uint64_t a, uint64_t b)
{
	return a && b ? MIN(a, b) : a ? a : b;
}

static int resource_limits(const struct child *c, const struct exec_narrow *narrow)
{
	const struct plan_limits *l = &child_fixed(c)->limits;
	const uint64_t cpu_ms = lower(l->cpu_ms, narrow->cpu_ms);
	const uint64_t cpu = cpu_ms ? (cpu_ms + 999) / 1000 : RLIM_INFINITY;
	const uint64_t cpu_end = cpu_ms ? cpu + 1 : RLIM_INFINITY; /* kills who catches XCPU */
	const uint64_t file = lower(l->file_size, narrow->file_size) ?: RLIM_INFINITY;
	/* The kernel counts per id and user namespace; a single id is init's and a leader's as well.
	 * One more where there is a control group, so that it is the group that refuses, and
	 * counts. */
	const bool led = c->parent_pid != c->init_pid;
	const bool own = c->process && !c->process->own_ids; /* all of the caller's would count */
	const uint64_t pids = own ? RLIM_INFINITY
				  : (uint64_t)l->pids + (c->single_id ? 1U + led : 0U) + c->cgroup;
	const uint64_t stack = c->process ? SMALL_STACK : 8u << 20;
	const uint64_t data = c->process ? l->memory : RLIM_INFINITY;
	const struct {
		int resource;
		uint64_t soft, hard;
	} rows[] = {
		/* 1, not 0: a core_pattern that pipes into a program of the host ignores 0. */
		{ RLIMIT_CORE, 1, 1 },
		{ RLIMIT_FSIZE, file, file },
		{ RLIMIT_MEMLOCK, 65536, 65536 },
		{ RLIMIT_SIGPENDING, 1024, 1024 },
		{ RLIMIT_NICE, 0, 0 },
		{ RLIMIT_RTPRIO, 0, 0 },
		{ RLIMIT_STACK, stack, RLIM_INFINITY },
		{ RLIMIT_DATA, data, data },
		{ RLIMIT_NPROC, pids, pids },
		{ RLIMIT_CPU, cpu, cpu_end },
	};
	int r = 0;

	for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(rows); i++)
		r = limit(rows[i].resource, rows[i].soft, rows[i].hard);
	return r;
}

/*
 * Who hands a descriptor over may have as many in flight, with all of his user's, as he may have open.
 * The place of an observer is handed over behind the filter: the program's own limit, which is
 * lower, comes after that, unless the filter refuses to set it.
 */
static bool files_limit_waits(const struct child *c, const struct blob *own)
{
	const struct seccomp_data set = { .nr = SYS_prlimit64,
					  .arch = NATIVE_AUDIT_ARCH,
					  .args = { 0, RLIMIT_NOFILE, 1, 0 } };
	struct nsbox_denied_call denied;
	const struct sock_filter *filter;
	size_t n;

	if (!c->observe)
		return false;
	filter = blob_get(own ? own : c->plan, SEC_BPF, sizeof(*filter), &n);
	return observe_judge(filter, n, &set, &denied) == 0;
}

static int files_limit(const struct child *c, const struct exec_narrow *own,
		       struct nsbox_error *err)
{
	const uint64_t files = lower(child_fixed(c)->limits.open_files, own->open_files);
	int r = limit(RLIMIT_NOFILE, files, files);

	return r < 0 ? nsbox_fail_at(err, NSBOX_STAGE_LIMITS, NSBOX_E_SETUP, r,
				     "limit the files it may have open")
		     : 0;
}

static int limits(const struct child *c, const struct blob *exec, struct nsbox_error *err)
{
	const struct exec_narrow *own = &blob_fixed(exec, struct exec_fixed)->narrow;
	int r = resource_limits(c, own);

	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_LIMITS, NSBOX_E_SETUP, r,
				     "set the resource limits");
	if (!files_limit_waits(c, exec_own(exec))) {
		r = files_limit(c, own, err);
		if (r < 0)
			return r;
	}
	/* An owner that was given precedence does not pass it on. */
	if (getpriority(PRIO_PROCESS, 0) < 0)
		setpriority(PRIO_PROCESS, 0, 0);
	umask(022);
	r = affinity(child_fixed(c)->limits.cpu_milli);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_LIMITS, NSBOX_E_SETUP, r,
				     "set the CPUs the program may use");
	return 0;
}

/* ------------------------------------------------------------------ control group */

int payload_hello(int channel, struct nsbox_error *err)
{
	struct ctl_report rep;
	unsigned none = 0;
	int r = ctl_send_hello(channel);

	if (r == 0)
		r = ctl_recv(channel, &rep, sizeof(rep), NULL, &none, 0);
	if (r < 0 || rep.magic != CTL_MAGIC || rep.kind != CTL_PROCEED)
		return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, r ? r : -EBADMSG,
				     "wait for the owner");
	return 0;
}

/* Before anything of the run exists. Where we cannot move ourselves the owner, outside, moves us, and we wait. */
static int join_cgroup(const struct child *c, const struct payload_fds *fds,
		       struct nsbox_error *err)
{
	if (!c->cgroup || !fds->joins)
		return c->cgroup ? payload_hello(fds->channel, err) : 0;
	for (int i = 0; i < CG_CONTROLLERS; i++)
		if (write(fds->join[i], "0", 1) != 1)
			return nsbox_fail_at(err, NSBOX_STAGE_CGROUP, NSBOX_E_SETUP, errno,
					     "join the control groups of the run");
	return 0;
}

/* ------------------------------------------------------------------ argv, env, cwd */

struct vectors {
	char **argv, **env;
};

static void *map_vector(size_t n)
{
	void *p = mmap(NULL, n * sizeof(char *), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return strcspn(b, "=") == n && !memcmp(a, b, n);
}

/*
 * The image's variables, then the plan's, then the exec's; a later one of the same name replaces an
 * earlier. But the PATH that every plan has gives way to an image's, which knows its own programs.
 */
static size_t add_env(char **env, size_t count, const struct blob *b)
{
	size_t n;
	const str_off *off = blob_get(b, SEC_ENV, sizeof(*off), &n);

	for (size_t i = 0; i < n; i++) {
		char *v = (char *)blob_get_str(b, off[i]);
		size_t at = 0;

		while (at < count && !same_name(env[at], v))
			at++;
		if (at == count || strcmp(v, "PATH=" PLAN_DEFAULT_PATH) != 0)
			env[at] = v;
		count += at == count;
	}
	return count;
}

static int vectors(const struct child *c, const struct blob *exec, struct vectors *ret,
		   struct nsbox_error *err)
{
	size_t argc, n;
	const str_off *off = blob_get(exec, SEC_ARGV, sizeof(*off), &argc);

	ret->argv = map_vector(argc + 1);
	ret->env = map_vector(ENV_MAX + 1);
	if (!ret->argv || !ret->env)
		return nsbox_fail_at(err, NSBOX_STAGE_EXECVE, NSBOX_E_NOMEM, ENOMEM,
				     "make room for the arguments");
	for (size_t i = 0; i < argc; i++)
		ret->argv[i] = (char *)blob_get_str(exec, off[i]);
	n = add_env(ret->env, 0, c->root);
	if (!exec_own(exec))
		n = add_env(ret->env, n, c->plan);
	n = add_env(ret->env, n, exec);
	if (c->process)
		ret->env[n++] = (char *)c->process->variable;
	ret->env[n] = NULL;
	return c->process ? process_view_vectors(c, ret->argv, ret->env, err) : 0;
}

static int enter_cwd(const struct child *c, const struct blob *exec, struct nsbox_error *err)
{
	const char *cwd = blob_get_str(exec, blob_fixed(exec, struct exec_fixed)->cwd);
	char now[4096];

	if (!*cwd)
		cwd = blob_get_str(c->plan, child_fixed(c)->workdir);
	if (c->process && process_view(c, cwd, now, sizeof(now)))
		cwd = now;
	if (chdir(cwd) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_CWD, NSBOX_E_INVALID, errno,
				     "enter the working directory '%s'", cwd);
	/* A directory that is not below our root shows as "(unreachable)". */
	if (syscall(SYS_getcwd, now, sizeof(now)) < 0 || now[0] != '/')
		return nsbox_fail_at(err, NSBOX_STAGE_CWD, NSBOX_E_SANDBOX, EPERM,
				     "the working directory '%s' is outside the root", cwd);
	return 0;
}

/* ------------------------------------------------------------------ execve */

static const char *env_value(char *const *env, const char *name)
{
	for (; *env; env++)
		if (same_name(*env, name))
			return strchr(*env, '=') + 1;
	return NULL;
}

static int not_found(const char *name, const char *path, struct nsbox_error *err)
{
	return nsbox_fail_at(err, NSBOX_STAGE_EXECVE, NSBOX_E_EXEC, ENOENT,
			     "find the program '%s' in PATH=%s", name, path);
}

/* execvpe's search without its heap, and without its habit of handing ENOEXEC to a shell: a file
 * for another machine is not a script. */
static int search_path(const struct vectors *v, struct nsbox_error *err)
{
	const char *name = v->argv[0], *path = env_value(v->env, "PATH");
	char file[4096];
	int denied = 0;

	if (!path)
		path = "/usr/local/bin:/usr/bin:/bin";
	for (const char *p = path;; p++) {
		int len = (int)strcspn(p, ":");

		if (len + strlen(name) + 2 < sizeof(file)) {
			nsbox_format(file, sizeof(file), "%.*s%s%s", len, p, len ? "/" : "", name);
			execve(file, v->argv, v->env);
			if (errno == EACCES)
				denied = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				return diagnose_exec(file, errno, err);
			else if (errno == ENOENT && access(file, F_OK) == 0)
				return diagnose_exec(file, ENOENT, err); /* its interpreter */
		}
		p += len;
		if (!*p)
			break;
	}
	if (denied)
		return nsbox_fail_at(err, NSBOX_STAGE_EXECVE, NSBOX_E_EXEC, EACCES,
				     "run '%s' of PATH=%s", name, path);
	return not_found(name, path, err);
}

static int run_program(const struct vectors *v, struct nsbox_error *err)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a checked request has an argv */
	const char *name = v->argv[0];

	if (!*name)
		return nsbox_fail_at(err, NSBOX_STAGE_EXECVE, NSBOX_E_EXEC, ENOENT,
				     "the program's name is empty");
	if (!strchr(name, '/'))
		return search_path(v, err);
	execve(name, v->argv, v->env);
	return diagnose_exec(name, errno, err);
}

/* ------------------------------------------------------------------ the sequence */

static int lock_down(struct child *c, const struct blob *exec, struct payload_fds *fds,
		     struct vectors *v, struct nsbox_error *err)
{
	const struct exec_fixed *x = blob_fixed(exec, struct exec_fixed);
	const struct blob *own = exec_own(exec);
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_WITNESS };
	sigset_t none;
	int r;

	sigemptyset(&none);
	/* The program leads a session and a process group: that is how it is signalled. */
	if (setsid() < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_FORK, NSBOX_E_SETUP, errno,
				     "lead a session of its own");
	r = join_cgroup(c, fds, err);
	if (r == 0)
		r = stdio(fds, err);
	if (r == 0)
		r = limits(c, exec, err);
	if (r == 0)
		r = payload_credentials(c, err);
	/* As execve makes it, which a fork of a template goes without: what /proc shows of it is its own. */
	if (r == 0 && c->forked && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		r = nsbox_fail_at(err, NSBOX_STAGE_CREDENTIALS, NSBOX_E_SETUP, errno,
				  "make the process readable to itself");
	if (r == 0 && c->process)
		r = process_payload_bind(c, err);
	if (r == 0 && (x->flags & EXECF_TTY)) /* after the ids: who opens it owns it */
		r = terminal(fds, x, err);
	if (r == 0)
		r = vectors(c, exec, v, err);
	if (r == 0)
		r = enter_cwd(c, exec, err);
	if (r == 0 && own)
		r = payload_landlock(c, own, err);
	if (r == 0)
		r = c->observe || fds->traced
			    ? payload_filter_observed(c, own, fds->channel, fds->traced, err)
			    : payload_filter(c, own, err);
	if (r == 0 && files_limit_waits(c, own))
		r = files_limit(c, &x->narrow, err);
	if (r == 0 && !left_out(WITNESS))
		r = witness_run(c, &rep, err);
	if (r == 0)
		r = ctl_send(fds->channel, &rep, sizeof(rep), NULL, 0);
	if (r == 0)
		payload_observe_begin(c);
	return r;
}

_Noreturn void payload_main(struct child *c, const struct blob *exec, struct payload_fds *fds)
{
	struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_ERROR };
	struct vectors v = { 0 };
	int r = lock_down(c, exec, fds, &v, &rep.error);

	if (r == 0 && c->forked)
		template_enter(c, exec, fds->channel, v.argv, v.env);
	if (r == 0)
		r = run_program(&v, &rep.error);
	if (!rep.error.code)
		nsbox_fail_at(&rep.error, NSBOX_STAGE_EXECVE, NSBOX_E_EXEC, r, "start the program");
	ctl_send(fds->channel, &rep, sizeof(rep), NULL, 0);
	_exit(rep.error.errnum == ENOENT ? 127 : 126);
}
