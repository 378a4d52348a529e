/* SPDX-License-Identifier: Apache-2.0 */
/* `nsbox skill init`: a first skill.json, written where none is. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/cli/skill.h"
#include "nsbox/util.h"

struct init {
	const char *dir;
	bool force, print;
};

static int set_force(void *ctx, const char *v)
{
	((struct init *)ctx)->force = true;
	return 0;
}

static int set_print(void *ctx, const char *v)
{
	((struct init *)ctx)->print = true;
	return 0;
}

static const struct option_row rows[] = {
	{ "force", 'F', NULL, "replace the skill.json that is there", set_force },
	{ "print", 'n', NULL, "write it to standard output and change nothing", set_print },
	{ NULL, 0, NULL, NULL, NULL },
};

/* Whole or not at all; a link in its place is replaced, never followed. */
static int write_manifest(int dir_fd, const char *text, bool force, struct nsbox_error *err)
{
	static const char temporary[] = ".skill.json.new";
	const char *name = force ? temporary : "skill.json";
	auto_close int fd = -1;
	int r;

	if (force)
		unlinkat(dir_fd, temporary, 0);
	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 && errno == EEXIST)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "there is a skill.json already (--force replaces it)");
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make skill.json");
	r = write_full(fd, text, strlen(text));
	if (r == 0 && force && renameat(dir_fd, temporary, dir_fd, "skill.json") < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dir_fd, name, 0);
		return nsbox_fail(err, NSBOX_E_IO, -r, "write skill.json");
	}
	return 0;
}

static int init_dir(const struct init *in, int dir_fd, struct nsbox_error *err)
{
	auto_free char *real = realpath(in->dir, NULL), *text = NULL;
	const char *slash = real ? strrchr(real, '/') : NULL;
	int r = skill_init(dir_fd, slash && slash[1] ? slash + 1 : "skill", &text, err);

	if (r == 0 && in->print)
		printf("%s", text);
	else if (r == 0)
		r = write_manifest(dir_fd, text, in->force, err);
	if (r == 0 && !in->print)
		printf("skill.json is written; read it over, then `nsbox skill check %s`\n",
		       in->dir);
	return r;
}

int skill_cmd_init(int argc, char **argv)
{
	struct init in = { 0 };
	struct nsbox_error err = { 0 };
	char name[] = "nsbox skill init";
	auto_close int fd = -1;
	int r;

	argv[0] = name;
	r = skill_options(argc, argv, "nsbox skill init [OPTION...] DIR", rows, &in, &in.dir);
	if (r >= 0)
		return r;
	fd = skill_open_dir(in.dir);
	if (fd < 0)
		return EXIT_NSBOX;
	return init_dir(&in, fd, &err) < 0 ? cli_error(&err) : 0;
}
