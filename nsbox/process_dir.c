/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tier "process", the owner's side: the directory of a run on the host, from before its init until after
 * its last process.
 *
 * It is <state>/process/<slot>. With ids of its own it belongs to the payload's user, and to init's group,
 * which may only pass through it; everything below is made by the payload's user and removed by it, too:
 * nothing privileged walks a tree that hostile code made.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "nsbox/child.h"
#include "nsbox/files_verbs.h"
#include "nsbox/process_tier.h"
#include "nsbox/util.h"

#define END_ROUNDS 500
#define END_NAP_NS 10000000

void process_init(struct process_box *b)
{
	*b = (struct process_box){ .parent = -1, .dir = -1 };
}

/* ------------------------------------------------------------------ ending */

static bool is_of(int proc, const char *pid, uid_t uid)
{
	char path[32], text[4096], want[32];
	const char *line;

	nsbox_format(path, sizeof(path), "%.16s/status", pid);
	nsbox_format(want, sizeof(want), "\nUid:\t%u\t", uid);
	if (read_small_file(proc, path, text, sizeof(text)) < 0)
		return false;
	line = strstr(text, want);
	/* What is dead and not yet collected does nothing any more. */
	return line && !strstr(text, "\nState:\tZ");
}

static bool any_lives(uid_t uid)
{
	DIR *d = opendir("/proc");
	bool found = false;

	for (struct dirent *e; d && !found && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			found = is_of(dirfd(d), e->d_name, uid);
	if (d)
		closedir(d);
	return found;
}

/* One kill reaches all; but what is being killed may still finish a call. */
static void end_processes(const struct process_box *b)
{
	const struct timespec nap = { .tv_nsec = END_NAP_NS };

	for (int i = 0; b->own_ids && i < END_ROUNDS && any_lives(b->payload.uid); i++) {
		process_signal_user(b, SIGKILL);
		nanosleep(&nap, NULL);
	}
}

/* What programs kept in shared memory, by name, would outlive them. */
static void remove_shared_memory(uid_t uid)
{
	DIR *d = opendir("/dev/shm");
	struct stat st;

	for (struct dirent *e; d && (e = readdir(d));)
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_uid == uid && !S_ISDIR(st.st_mode))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

static int empty_as_payload(const struct process_box *b, int dir)
{
	auto_close int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(dup(fd));
	int r = d ? 0 : -errno;

	for (struct dirent *e; d && (e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && r == 0)
			r = files_remove_tree(fd, e->d_name);
	if (d)
		closedir(d);
	if (b->own_ids)
		remove_shared_memory(b->payload.uid);
	return r;
}

/* Whoever removes it is its owner, and nobody else. */
static int empty(const struct process_box *b, int dir)
{
	int status = 0;
	pid_t pid;

	if (!b->own_ids)
		return empty_as_payload(b, dir);
	pid = fork();
	if (pid == 0)
		_exit(process_become(b) < 0 || fchdir(dir) < 0 || empty_as_payload(b, dir) < 0);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status == 0 ? 0 : -EIO;
}

static int remove_dir(const struct process_box *b)
{
	auto_close int dir =
		openat(b->parent, b->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (dir < 0)
		return errno == ENOENT ? 0 : -errno;
	end_processes(b);
	r = empty(b, dir);
	if (r == 0 && unlinkat(b->parent, b->name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

void process_done(struct process_box *b)
{
	/* What cannot be removed now goes when the slot is taken again. */
	if (b->dir >= 0)
		remove_dir(b);
	close_fd(&b->dir);
	close_fd(&b->parent);
}

/* ------------------------------------------------------------------ making */

static int open_parent(struct process_box *b, const char *state, struct nsbox_error *err)
{
	char path[PROCESS_PATH];
	struct stat st;

	if (nsbox_format(path, sizeof(path), "%s/process", state) !=
	    (int)(strlen(state) + strlen("/process")))
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_LIMIT, ENAMETOOLONG,
				     "name a directory for the run in '%s'", state);
	if (mkdir(path, 0755) == 0 && chmod(path, 0711) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, errno, "make '%s'",
				     path);
	b->parent = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->parent < 0 || fstat(b->parent, &st) < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, errno, "open '%s'",
				     path);
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, EPERM,
				     "use '%s': it must be a directory of the caller's that no "
				     "other can write",
				     path);
	nsbox_format(b->path, sizeof(b->path), "%s/%s", path, b->name);
	nsbox_format(b->variable, sizeof(b->variable), "NSBOX_ROOT=%s", b->path);
	return 0;
}

static int make_dir(struct process_box *b)
{
	if (mkdirat(b->parent, b->name, 0700) < 0)
		return -errno;
	b->dir = openat(b->parent, b->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->dir < 0)
		return -errno;
	/* The mode before the owner: afterwards it takes CAP_FOWNER. */
	if (fchmodat(b->parent, b->name, b->own_ids ? 0710 : 0700, 0) < 0)
		return -errno;
	if (b->own_ids && fchownat(b->dir, "", b->payload.uid, b->init, AT_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

int process_make(struct process_box *b, const char *state, uint32_t slot, bool own_ids,
		 struct nsbox_error *err)
{
	int r;

	b->own_ids = own_ids;
	b->payload = own_ids ? ids_of_slot(slot) : (struct ids_payload){ geteuid(), getegid() };
	b->init = IDS_INIT_BASE + slot;
	b->reaper = IDS_REAPER_BASE + slot;
	nsbox_format(b->name, sizeof(b->name), "%u", slot);
	r = open_parent(b, state, err);
	if (r < 0)
		return r;
	r = remove_dir(b);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, r,
				     "remove '%s', which an earlier run has left", b->path);
	r = make_dir(b);
	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_SCRATCH, NSBOX_E_IO, r,
				     "make the run's directory '%s'%s", b->path,
				     r == -EPERM ? " (CAP_CHOWN is needed)" : "");
	return 0;
}
