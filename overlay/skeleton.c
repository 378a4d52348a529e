/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The skeletons of a state directory: <state>/skeleton/<hash>, made once and then shared, read
 * only, by every sandbox of every process of this owner.
 *
 *	skeleton/.lock		held exclusively by whoever makes or removes
 *	skeleton/.new		being made; what a crash left is removed by the next maker
 *	skeleton/<hash>		complete: it got its name by rename(2)
 *	skeleton/<hash>.lock	held shared by whoever uses <hash>; its time is the last use
 *
 * The hash covers every input and the boot: a skeleton that a power cut tore apart is not used
 * again, and nothing has to wait for a sync. A skeleton that has not been taken for a day is
 * removed by the next process that makes one, if it gets the exclusive lock at once.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "nsbox/util.h"
#include "overlay/internal.h"

#define UNUSED_KEEP_S 86400
#define MAKER_LOCK    ".lock"
#define MAKING	      ".new"

static int hash_name(const struct sources *src, char ret[HASH128_TEXT], struct nsbox_error *err)
{
	static const char boot_file[] = "/proc/sys/kernel/random/boot_id";
	struct hash128 h;
	char boot[64];
	ssize_t n = read_small_file(AT_FDCWD, boot_file, boot, sizeof(boot));

	if (n < 0)
		return nsbox_fail(err, NSBOX_E_IO, (int)-n, "read '%s'", boot_file);
	hash128_init(&h);
	hash128_add_str(&h, boot);
	skeleton_hash_template(&h);
	sources_hash(src, &h);
	hash128_text(&h, ret);
	return 0;
}

/* 1: there and fit for use, 0: not there. */
static int look(int dir_fd, const char *name, struct nsbox_error *err)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0
				       : nsbox_fail(err, NSBOX_E_IO, errno, "skeleton '%s'", name);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
		return nsbox_fail(err, NSBOX_E_INVALID, EPERM,
				  "skeleton '%s' is not a directory of the caller alone: remove it",
				  name);
	return 1;
}

/* The caller holds the maker's lock. */
static int make(const struct state_dir *state, int dir_fd, const char *name,
		const struct sources *src, struct nsbox_error *err)
{
	struct sources again = { 0 };
	char now[HASH128_TEXT];
	auto_close int fd = -1;
	int r = state_remove_tree(dir_fd, MAKING);

	if (r < 0)
		return nsbox_fail(err, NSBOX_E_IO, -r, "remove an unfinished skeleton");
	r = state_subdir(dir_fd, MAKING, &fd, err);
	if (r == 0)
		r = skeleton_build(fd, src, err);
	/* Sources that changed while they were copied would hide behind the old hash. */
	if (r == 0)
		r = sources_scan(state, &again, err);
	if (r == 0)
		r = hash_name(&again, now, err);
	sources_done(&again);
	if (r == 0 && strcmp(now, name) != 0)
		r = nsbox_fail(err, NSBOX_E_IO, EAGAIN, "the host's files changed meanwhile");
	if (r == 0 && renameat(dir_fd, MAKING, dir_fd, name) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "put skeleton '%s' in place", name);
	if (r < 0)
		state_remove_tree(dir_fd, MAKING);
	return r;
}

static bool is_unused_since(const struct stat *st, time_t now)
{
	return st->st_mtim.tv_sec < now - UNUSED_KEEP_S;
}

/* `lock` is the name of the lock file; a failure leaves things for the next time. */
static void remove_if_unused(int dir_fd, const char *lock, time_t now)
{
	auto_close int lock_fd = -1;
	char name[HASH128_TEXT];
	struct stat st;

	if (fstatat(dir_fd, lock, &st, AT_SYMLINK_NOFOLLOW) < 0 || !is_unused_since(&st, now))
		return;
	if (state_lock(dir_fd, lock, LOCK_EX | LOCK_NB, &lock_fd, NULL) < 0)
		return;
	memcpy(name, lock, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	if (state_remove_tree(dir_fd, name) == 0)
		unlinkat(dir_fd, lock, 0);
}

/* The caller holds the maker's lock. */
static void remove_unused(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	time_t now = time(NULL);

	if (!d) {
		close_fd(&fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d));) {
		size_t len = strlen(e->d_name);

		if (len == HASH128_TEXT - 1 + 5 &&
		    strcmp(e->d_name + HASH128_TEXT - 1, ".lock") == 0)
			remove_if_unused(dir_fd, e->d_name, now);
	}
	closedir(d);
}

/* Take or make the skeleton called `name`; the lock on it is already held. */
static int take(const struct state_dir *state, int dir_fd, const char *name,
		const struct sources *src, struct nsbox_error *err)
{
	auto_close int maker = -1;
	int r = look(dir_fd, name, err);

	if (r)
		return MIN(r, 0);
	r = state_lock(dir_fd, MAKER_LOCK, LOCK_EX, &maker, err);
	if (r < 0)
		return r;
	r = look(dir_fd, name, err); /* another process may have made it while this one waited */
	if (r)
		return MIN(r, 0);
	r = make(state, dir_fd, name, src, err);
	if (r == 0)
		remove_unused(dir_fd);
	return r;
}

int skeleton_ensure(const struct state_dir *state, const struct sources *src, struct skeleton *ret,
		    struct nsbox_error *err)
{
	auto_close int dir_fd = -1, lock_fd = -1;
	char lock[HASH128_TEXT + 8], name[HASH128_TEXT];
	auto_free char *path = NULL;
	size_t size;
	int r = state_subdir(state->fd, "skeleton", &dir_fd, err);

	if (r == 0)
		r = hash_name(src, name, err);
	if (r < 0)
		return r;
	nsbox_format(lock, sizeof(lock), "%s.lock", name);
	r = state_lock(dir_fd, lock, LOCK_SH, &lock_fd, err);
	if (r < 0)
		return r;
	futimens(lock_fd,
		 NULL); /* the last use; where it fails the skeleton is only removed sooner */
	r = take(state, dir_fd, name, src, err);
	if (r < 0)
		return r;
	size = strlen(state->path) + sizeof("/skeleton/") + sizeof(name);
	path = malloc(size);
	if (!path)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "skeleton");
	nsbox_format(path, (int)size, "%s/skeleton/%s", state->path, name);
	ret->path = take_ptr(&path);
	ret->lock_fd = take_fd(&lock_fd);
	memcpy(ret->name, name, sizeof(name));
	return 0;
}

void skeleton_done(struct skeleton *s)
{
	free_ptr(&s->path);
	close_fd(&s->lock_fd);
}
