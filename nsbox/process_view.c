/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tier "process": what the paths of a plan are on the host. Nothing is mounted, so a program that opens
 * "/workspace" by that name finds the host's, which Landlock keeps from it; what it is *given* by us, its
 * directory, variables and arguments, names the real place.
 */
#include <string.h>
#include <sys/mman.h>

#include "nsbox/child.h"
#include "nsbox/process_tier.h"
#include "nsbox/util.h"

#define ROOM (UINT64_C(4) << 20) /* of replaced words; touched as far as it is used */

/* The run's own, in its directory; and the part of the skeleton that programs read. */
static const char *const places[] = { "/workspace",    "/tmp",	  "/var/tmp",
				      "/home/sandbox", "/skills", "/run" };
static const char runner[] = "/opt/nsbox";

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

/* Topmost layer of the image: of the host's it is the skeleton. */
static const char *skeleton(const struct child *c)
{
	size_t n;
	const struct mount_op *ops = blob_get(c->root, SEC_OPS, sizeof(*ops), &n);

	for (size_t i = 0; i < n; i++)
		if (ops[i].kind == OP_LOWER)
			return blob_get_str(c->root, ops[i].src);
	return "";
}

const char *process_view(const struct child *c, const char *path, char *buf, int size)
{
	const char *base = is_below(path, runner) ? skeleton(c) : NULL;

	if (is_below(path, c->process->path))
		return NULL; /* real already, wherever the state directory is */
	for (unsigned i = 0; !base && i < ARRAY_SIZE(places); i++)
		if (is_below(path, places[i]))
			base = c->process->path;
	if (!base || strlen(base) + strlen(path) >= (size_t)size)
		return NULL;
	nsbox_format(buf, size, "%s%s", base, path);
	return buf;
}

/* `skip` bytes of it, the variable's name, stay. */
static int replace(const struct child *c, char **word, size_t skip, char **at, const char *end)
{
	char path[4096];
	const char *real = process_view(c, *word + skip, path, sizeof(path));
	size_t len;

	if (!real)
		return 0;
	len = skip + strlen(real) + 1;
	if ((size_t)(end - *at) < len)
		return -E2BIG;
	memcpy(*at, *word, skip);
	memcpy(*at + skip, real, len - skip);
	*word = *at;
	*at += len;
	return 0;
}

int process_view_vectors(const struct child *c, char **argv, char **env, struct nsbox_error *err)
{
	char *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at = room;
	int r = room == MAP_FAILED ? -errno : 0;

	for (; r == 0 && *argv; argv++)
		r = replace(c, argv, 0, &at, room + ROOM);
	for (; r == 0 && *env; env++)
		r = replace(c, env, strcspn(*env, "=") + 1, &at, room + ROOM);
	return r < 0 ? nsbox_fail_at(err, NSBOX_STAGE_EXECVE, NSBOX_E_NOMEM, r,
				     "name the run's places on the host")
		     : 0;
}
