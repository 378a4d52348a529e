/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/ids.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nsbox/util.h"

/* ------------------------------------------------------------------ slots */

int ids_run_dir(char *buf, int size, struct nsbox_error *err)
{
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (geteuid() == 0)
		nsbox_format(buf, size, "/run/nsbox");
	else if (xdg && *xdg == '/')
		nsbox_format(buf, size, "%s/nsbox", xdg);
	else
		nsbox_format(buf, size, "/tmp/nsbox-%u", (unsigned)geteuid());
	if (mkdir(buf, 0755) < 0 && errno != EEXIST)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_IO, errno, "make '%s'", buf);
	/* /tmp is everyone's: a directory that another made there is not ours to trust. */
	if (lstat(buf, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 022))
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_IO, EPERM,
				     "use '%s': it must be a directory of this user that no other "
				     "can write",
				     buf);
	return 0;
}

static int open_slots(struct nsbox_error *err)
{
	char dir[256], path[300];
	int fd, r = ids_run_dir(dir, sizeof(dir), err);

	if (r < 0)
		return r;
	nsbox_format(path, sizeof(path), "%s/slots", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_IO, errno, "open '%s'", path);
	return fd;
}

/*
 * What this process holds, all by one description: the kernel keeps one record for neighbours, where a
 * description each would make it look at all of them for each, and at each close of one in a child.
 * Who is born with a copy of this has none of its own: a lock of the same description is no
 * obstacle, so it opens another.
 */
static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int fd;
	pid_t pid;
	unsigned count; /* of those held; open while there is one */
	bool held[IDS_SLOTS];
} own;

static int own_open(struct nsbox_error *err)
{
	int fd;

	if (own.count && own.pid == getpid())
		return 0;
	fd = open_slots(err);
	if (fd < 0)
		return fd;
	if (own.count) { /* the parent's */
		close_fd(&own.fd);
		memset(own.held, 0, sizeof(own.held));
		own.count = 0;
	}
	own.fd = fd;
	own.pid = getpid();
	return 0;
}

static void own_close(void)
{
	if (!own.count)
		close_fd(&own.fd);
}

static int set_lock(uint32_t n, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = n, .l_len = 1 };

	if (fcntl(own.fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* 0, or -errno; -EAGAIN: it is held already. */
static int hold(uint32_t n, struct slot *ret)
{
	int r = own.held[n] ? -EAGAIN : set_lock(n, F_WRLCK);

	if (r < 0)
		return r;
	own.held[n] = true;
	own.count++;
	*ret = (struct slot){ .held = true, .number = n };
	return 0;
}

/*
 * Where the search begins. Locks are of one file tree, and users are of the whole host: containers without
 * user namespaces, which do not see each other's locks, begin in places of their own, or a run of one would
 * have the user of a run of another. (The host's own pid namespace has a number that is the kernel's
 * ABI: PROC_PID_INIT_INO.)
 */
static uint32_t first_slot(void)
{
	char link[64] = "";
	unsigned long inode;

	if (readlink("/proc/self/ns/pid", link, sizeof(link) - 1) < 0 ||
	    strncmp(link, "pid:[", 5) != 0)
		return 0;
	inode = strtoul(link + 5, NULL, 10);
	return inode == 0xEFFFFFFC ? 0 : ((uint32_t)inode * UINT32_C(2654435761)) % IDS_SLOTS;
}

/* Always in the same order: after a crash the leftovers of a slot are met, and cleared, soon. */
static int hold_first(struct slot *ret, struct nsbox_error *err)
{
	const uint32_t first = first_slot();

	for (uint32_t i = 0; i < IDS_SLOTS; i++) {
		int r = hold((first + i) % IDS_SLOTS, ret);

		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_IO, r,
					     "lock a slot for the sandbox");
		return 0;
	}
	return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_LIMIT, EAGAIN,
			     "%d sandboxes are alive on this host", IDS_SLOTS);
}

int slot_take(struct slot *ret, struct nsbox_error *err)
{
	int r;

	pthread_mutex_lock(&own_mutex);
	r = own_open(err);
	if (r == 0) {
		r = hold_first(ret, err);
		own_close();
	}
	pthread_mutex_unlock(&own_mutex);
	return r;
}

int slot_try(uint32_t number, struct slot *ret)
{
	int r = -EAGAIN;

	if (number >= IDS_SLOTS)
		return r;
	pthread_mutex_lock(&own_mutex);
	if (own_open(NULL) == 0) {
		r = hold(number, ret);
		own_close();
	}
	pthread_mutex_unlock(&own_mutex);
	return r;
}

/* Of a child, which holds none of its parent's, nothing goes. */
void slot_release(struct slot *slot)
{
	pthread_mutex_lock(&own_mutex);
	if (slot->held && own.pid == getpid() && own.held[slot->number]) {
		set_lock(slot->number, F_UNLCK);
		own.held[slot->number] = false;
		own.count--;
		own_close();
	}
	pthread_mutex_unlock(&own_mutex);
	slot->held = false;
}

/* ------------------------------------------------------------------ maps */

static int write_map(int proc, const char *name, const char *text, struct nsbox_error *err)
{
	int r = write_small_file(proc, name, text);

	if (r < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_SETUP, r,
				     "write the %s of the sandbox", name);
	return 0;
}

/* One line for each stretch of inside ids: below the payload's, it, and above. */
static void full_map(char *buf, int size, uint32_t payload)
{
	nsbox_format(buf, size, "0 %u %u\n%u %u 1\n%u %u %u\n", IDS_IMAGE_BASE, IDS_INSIDE,
		     IDS_INSIDE, payload, IDS_INSIDE + 1, IDS_IMAGE_BASE + IDS_INSIDE + 1,
		     65536 - IDS_INSIDE - 1);
}

int ids_write_maps(pid_t pid, int kind, struct ids_payload outside, uint32_t inside,
		   struct nsbox_error *err)
{
	char path[32], map[160], gmap[64];
	auto_close int proc = -1;
	int r;

	nsbox_format(path, sizeof(path), "/proc/%d", (int)pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_SETUP, errno, "open %s", path);
	if (kind == NSBOX_IDS_PRIVILEGED) {
		full_map(map, sizeof(map), outside.gid);
		r = write_map(proc, "gid_map", map, err);
		full_map(map, sizeof(map), outside.uid);
		return r < 0 ? r : write_map(proc, "uid_map", map, err);
	}
	/* With a single id the payload is the caller outside as well, and that may never be root. */
	if (geteuid() == 0 || getegid() == 0)
		return nsbox_fail_at(err, NSBOX_STAGE_IDS, NSBOX_E_UNSUPPORTED, EPERM,
				     "map ids: root without CAP_SETUID and CAP_SETGID could only "
				     "map itself; give it these, or run as an ordinary user");
	/* Without privilege the kernel wants setgroups off first: dropping a group that a file
	 * denies would be a gain. */
	r = write_map(proc, "setgroups", "deny", err);
	nsbox_format(gmap, sizeof(gmap), "%u %u 1\n", inside, (unsigned)getegid());
	nsbox_format(map, sizeof(map), "%u %u 1\n", inside, (unsigned)geteuid());
	if (r == 0)
		r = write_map(proc, "gid_map", gmap, err);
	if (r == 0)
		r = write_map(proc, "uid_map", map, err);
	return r;
}
