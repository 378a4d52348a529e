/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots that are kept (snapshot.h): their files, and the list of them in memory. */
#include "daemon/front/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/front/json_reply.h"
#include "daemon/front/log.h"
#include "nsbox/util.h"

#define HEAD_MAGIC   "nsbox-snapshot 1"
#define MANIFEST_MAX (1u << 20)
#define PART_SUFFIX  ".part"

struct head {
	char magic[24];
	char session[SESSION_ID_MAX + 1], workspace[WHO_WORKSPACE_MAX + 1];
	uint32_t uid;
	uint64_t created_ms, bytes;
	struct recipe recipe;
};

struct snapshots {
	int dir;
	struct snapshot *first;
};

/* ------------------------------------------------------------------ the list */

static void unlink_file(const struct snapshot *n)
{
	unlinkat(n->set->dir, n->id, 0);
}

static void add(struct snapshots *set, struct snapshot *n)
{
	n->set = set;
	n->next = set->first;
	set->first = n;
}

static bool take_out(struct snapshot *n)
{
	for (struct snapshot **p = &n->set->first; *p; p = &(*p)->next) {
		if (*p != n)
			continue;
		*p = n->next;
		n->next = NULL;
		return true;
	}
	return false;
}

void snapshot_hold(struct snapshot *n)
{
	n->holds++;
}

void snapshot_release(struct snapshot *n)
{
	if (!n || --n->holds)
		return;
	unlink_file(n);
	free(n);
}

/* The list's is a hold as well. */
void snapshot_drop(struct snapshot *n)
{
	if (take_out(n))
		snapshot_release(n);
}

struct snapshot *snapshot_find(const struct snapshots *set, const struct who *who, const char *id)
{
	for (struct snapshot *n = set->first; n; n = n->next)
		if (strcmp(n->id, id) == 0 && who_sees(who, n->uid, n->workspace))
			return n;
	return NULL;
}

uint64_t snapshots_bytes(const struct snapshots *set)
{
	uint64_t sum = 0;

	for (const struct snapshot *n = set->first; n; n = n->next)
		sum += n->bytes;
	return sum;
}

unsigned snapshots_count(const struct snapshots *set)
{
	unsigned sum = 0;

	for (const struct snapshot *n = set->first; n; n = n->next)
		sum += !n->passing;
	return sum;
}

static uint64_t unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void snapshots_sweep(struct snapshots *set, uint64_t keep_s)
{
	uint64_t now = unix_ms();

	for (struct snapshot *n = set->first, *next; n; n = next) {
		next = n->next;
		if (!n->passing && now > n->created_ms && now - n->created_ms > keep_s * 1000)
			snapshot_drop(n);
	}
}

struct json_object *snapshot_object(const struct snapshot *n)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "id", n->id);
	json_put_text(o, "session_id", n->session);
	json_put_text(o, "workspace_id", n->workspace);
	json_put_u64(o, "created_ms", n->created_ms);
	json_put_u64(o, "bytes", n->bytes);
	json_put_text(o, "image", *n->recipe.image ? n->recipe.image : "host");
	json_put_text(o, "image_digest", n->recipe.image_digest);
	json_put_text(o, "holds",
		      "files alone: no process, no memory, no secret, and nothing of /tmp");
	return o;
}

struct json_object *snapshots_list(const struct snapshots *set, const struct who *who)
{
	struct json_object *list = json_object_new_array();

	for (const struct snapshot *n = set->first; n; n = n->next)
		if (!n->passing && who_sees(who, n->uid, n->workspace))
			json_object_array_add(list, snapshot_object(n));
	return list;
}

/* ------------------------------------------------------------------ files */

static bool terminated(const char *s, size_t size)
{
	return memchr(s, 0, size) != NULL;
}

#define ENDS(member) terminated(h->member, sizeof(h->member))
static bool head_ok(const struct head *h, uint64_t size)
{
	return strcmp(h->magic, HEAD_MAGIC) == 0 && ENDS(session) && ENDS(workspace) &&
	       ENDS(recipe.image) && ENDS(recipe.image_digest) && ENDS(recipe.terms) &&
	       ENDS(recipe.manifest_sha256) && ENDS(recipe.skill_dir) && h->bytes == size &&
	       h->recipe.manifest_len <= MANIFEST_MAX &&
	       size >= sizeof(*h) + h->recipe.manifest_len;
}

static int load(struct snapshots *set, const char *name)
{
	auto_close int fd = openat(set->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct snapshot *n = calloc(1, sizeof(*n));
	struct head h;
	struct stat st;

	if (fd < 0 || !n || fstat(fd, &st) < 0 || read_full(fd, &h, sizeof(h)) < 0 ||
	    !head_ok(&h, (uint64_t)st.st_size)) {
		free(n);
		return -EBADMSG;
	}
	snprintf(n->id, sizeof(n->id), "%s", name);
	memcpy(n->session, h.session, sizeof(n->session));
	memcpy(n->workspace, h.workspace, sizeof(n->workspace));
	n->uid = h.uid;
	n->created_ms = h.created_ms;
	n->bytes = h.bytes;
	n->recipe = h.recipe;
	n->holds = 1;
	add(set, n);
	return 0;
}

/* Those of forks and those that never became whole are nobody's; what is not ours stays. */
static void scan(struct snapshots *set)
{
	DIR *d = fdopendir(fcntl(set->dir, F_DUPFD_CLOEXEC, 3));
	struct dirent *e;

	while (d && (e = readdir(d))) {
		size_t len = strlen(e->d_name), end = strlen(PART_SUFFIX);

		if (e->d_name[0] == '.')
			continue;
		if ((len > end && strcmp(e->d_name + len - end, PART_SUFFIX) == 0) ||
		    strncmp(e->d_name, "fork-", 5) == 0)
			unlinkat(set->dir, e->d_name, 0);
		else if (len >= SNAPSHOT_ID_MAX || load(set, e->d_name) < 0)
			log_line(4, "snapshot", "unreadable", e->d_name, NULL);
	}
	if (d)
		closedir(d);
}

int snapshots_open(int data_fd, struct snapshots **ret, struct nsbox_error *err)
{
	struct snapshots *set = calloc(1, sizeof(*set));

	if (!set)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the snapshots");
	if (mkdirat(data_fd, "snapshots", 0700) < 0 && errno != EEXIST)
		set->dir = -1;
	else
		set->dir = openat(data_fd, "snapshots",
				  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (set->dir < 0) {
		free(set);
		return nsbox_fail(err, NSBOX_E_IO, errno, "open 'snapshots' of the data directory");
	}
	scan(set);
	*ret = set;
	return 0;
}

void snapshots_close(struct snapshots *set)
{
	if (!set)
		return;
	for (struct snapshot *n = set->first, *next; n; n = next) {
		next = n->next;
		if (n->passing)
			unlink_file(n);
		free(n);
	}
	close_fd(&set->dir);
	free(set);
}

/* ------------------------------------------------------------------ making one */

static int new_id(bool passing, char ret[SNAPSHOT_ID_MAX])
{
	unsigned char rnd[8];

	if (getrandom(rnd, sizeof(rnd), 0) != (ssize_t)sizeof(rnd))
		return -EIO;
	snprintf(ret, SNAPSHOT_ID_MAX, "%s-%llx-", passing ? "fork" : "snap",
		 (unsigned long long)unix_ms());
	for (size_t i = 0; i < sizeof(rnd); i++)
		snprintf(ret + strlen(ret), 3, "%02x", rnd[i]);
	return 0;
}

static int write_start(const struct session *s, int fd)
{
	struct head h = { 0 };
	int r = write_full(fd, &h, sizeof(h)); /* it becomes one with its head */

	return r == 0 ? write_full(fd, s->manifest ? s->manifest : "", s->recipe->manifest_len) : r;
}

int snapshot_begin(struct snapshots *set, const struct session *s, bool passing,
		   struct snapshot **ret, int *ret_fd, struct nsbox_error *err)
{
	struct snapshot *n = calloc(1, sizeof(*n));
	char part[SNAPSHOT_ID_MAX + sizeof(PART_SUFFIX)];
	auto_close int fd = -1;
	int r;

	if (!n)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "make a snapshot");
	n->set = set;
	n->passing = passing;
	n->uid = s->uid;
	n->created_ms = unix_ms();
	n->recipe = *s->recipe;
	memcpy(n->recipe.terms, s->terms, sizeof(n->recipe.terms));
	memcpy(n->recipe.image_digest, s->image_digest, sizeof(n->recipe.image_digest));
	snprintf(n->session, sizeof(n->session), "%s", s->id);
	snprintf(n->workspace, sizeof(n->workspace), "%s", s->workspace);
	r = new_id(passing, n->id);
	snprintf(part, sizeof(part), "%s" PART_SUFFIX, n->id);
	if (r == 0) {
		fd = openat(set->dir, part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    0600);
		r = fd < 0 ? -errno : write_start(s, fd);
	}
	if (r < 0) {
		if (fd >= 0)
			unlinkat(set->dir, part, 0);
		free(n);
		return nsbox_fail(err, NSBOX_E_IO, -r, "make a snapshot's file");
	}
	*ret = n;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int write_head(struct snapshot *n, int fd)
{
	struct head h = { .magic = HEAD_MAGIC, .uid = n->uid };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	n->bytes = (uint64_t)st.st_size;
	h.created_ms = n->created_ms;
	h.bytes = n->bytes;
	h.recipe = n->recipe;
	memcpy(h.session, n->session, sizeof(h.session));
	memcpy(h.workspace, n->workspace, sizeof(h.workspace));
	if (pwrite(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return -EIO;
	/* What a fork passes on is never looked for after a power cut. */
	return n->passing || fdatasync(fd) == 0 ? 0 : -errno;
}

int snapshot_commit(struct snapshot *n, int fd, struct nsbox_error *err)
{
	char part[SNAPSHOT_ID_MAX + sizeof(PART_SUFFIX)];
	int r = fd < 0 ? -ECANCELED : write_head(n, fd);

	snprintf(part, sizeof(part), "%s" PART_SUFFIX, n->id);
	if (r == 0 && renameat(n->set->dir, part, n->set->dir, n->id) < 0)
		r = -errno;
	if (r == 0 && !n->passing && fsync(n->set->dir) < 0)
		r = -errno;
	if (r == 0) {
		n->holds = 1;
		add(n->set, n);
		return 0;
	}
	unlinkat(n->set->dir, part, 0);
	free(n);
	return nsbox_fail(err, NSBOX_E_IO, -r, "keep a snapshot");
}

/* ------------------------------------------------------------------ going on from one */

static int open_file(const struct snapshot *n, int *ret_fd, struct nsbox_error *err)
{
	*ret_fd = openat(n->set->dir, n->id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? nsbox_fail(err, NSBOX_E_IO, errno, "open the snapshot '%s'", n->id)
			   : 0;
}

int snapshot_stream(const struct snapshot *n, int *ret_fd, struct nsbox_error *err)
{
	int r = open_file(n, ret_fd, err);

	if (r < 0)
		return r;
	if (lseek(*ret_fd, (off_t)(sizeof(struct head) + n->recipe.manifest_len), SEEK_SET) >= 0)
		return 0;
	close_fd(ret_fd);
	return nsbox_fail(err, NSBOX_E_IO, errno, "read the snapshot '%s'", n->id);
}

int snapshot_manifest(const struct snapshot *n, char **ret, struct nsbox_error *err)
{
	size_t len = n->recipe.manifest_len;
	auto_close int fd = -1;
	int r = open_file(n, &fd, err);

	*ret = NULL;
	if (r < 0 || len == 0)
		return r;
	*ret = calloc(1, len + 1);
	if (*ret && pread(fd, *ret, len, sizeof(struct head)) == (ssize_t)len)
		return 0;
	free_ptr(ret);
	return nsbox_fail(err, NSBOX_E_IO, EIO, "read the snapshot '%s'", n->id);
}
