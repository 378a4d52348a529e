/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in archives.
 *
 * A name is a relative path of plain components. Anything that some system reads differently
 * (backslashes, drive letters, control bytes), that leads out of the tree ("..", absolute) or that
 * makes the result depend on the order of entries (the same name twice, a name below a file or a
 * link) is refused: such an archive was made to be read in two ways. Bytes above 127 are taken as
 * they are; upper and lower case are different names, as on the file system they go to.
 */
#include <search.h>
#include <string.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

struct name {
	enum name_kind kind;
	bool implied; /* only seen as the directory of another entry so far */
	char text[];
};

struct names {
	void *tree; /* tsearch(3): balanced, so that no choice of names makes it slow */
};

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

int names_new(struct names **ret, struct nsbox_error *err)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "names of the archive");
}

void names_free(struct names *n)
{
	if (n)
		tdestroy(n->tree, free);
	free(n);
}

void name_blame(const char *name, struct nsbox_error *err)
{
	char show[240];
	size_t len = strlen(name);

	/* Of a long name the end is what tells it apart. */
	nsbox_format(show, sizeof(show), "%s%s", len > 200 ? "..." : "",
		     len > 200 ? name + len - 200 : name);
	files_clean_text(show);
	nsbox_error_prefix(err, "entry '%s'", show);
}

static int refuse(const char *name, struct nsbox_error *err, const char *why)
{
	int r = nsbox_fail(err, NSBOX_E_INVALID, 0, "%s", why);

	name_blame(name, err);
	return r;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int name_normalise(char *name, struct nsbox_error *err)
{
	size_t len;

	for (const char *p = name; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return refuse(name, err, "its name holds a control byte");
		if (*p == '\\')
			return refuse(name, err, "its name holds a backslash");
	}
	if (is_letter(name[0]) && name[1] == ':')
		return refuse(name, err, "its name begins with a drive letter");
	while (name[0] == '.' && name[1] == '/')
		memmove(name, name + 2, strlen(name + 2) + 1);
	len = strlen(name);
	if (len > 1 && name[len - 1] == '/')
		name[--len] = '\0';
	if (strcmp(name, ".") == 0)
		name[len = 0] = '\0'; /* the top itself */
	if (len == 0)
		return 0;
	if (nsbox_files_check_path(name, len, err) == 0)
		return 0;
	nsbox_error_prefix(err, "refused");
	return -EINVAL;
}

int name_check_link(const char *name, const char *target, struct nsbox_error *err)
{
	int depth = 0;

	if (!target || !target[0] || strlen(target) > FILES_TEXT_MAX)
		return refuse(name, err, "a symbolic link without a target, or with a long one");
	for (const char *p = target; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '\\')
			return refuse(name, err, "a symbolic link to a name with control bytes");
	}
	if (target[0] == '/')
		return refuse(name, err, "a symbolic link to an absolute path");
	for (const char *p = name; (p = strchr(p, '/')); p++)
		depth++;
	for (const char *p = target; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			depth--;
		else if (n && !(n == 1 && p[0] == '.'))
			depth++;
		if (depth < 0)
			return refuse(name, err, "a symbolic link that leads out of the archive");
		p += n + (p[n] == '/');
	}
	return 0;
}

/* The entry of that name, added where it is new; NULL without memory. */
static struct name *look_up(struct names *n, const char *text, size_t len, enum name_kind kind,
			    bool *ret_new)
{
	struct name *e = malloc(sizeof(*e) + len + 1);
	void *found;

	if (!e)
		return NULL;
	*e = (struct name){ .kind = kind };
	memcpy(e->text, text, len);
	e->text[len] = '\0';
	found = tsearch(e, &n->tree, by_text);
	*ret_new = found && *(struct name **)found == e;
	if (!*ret_new)
		free(e);
	return found ? *(struct name **)found : NULL;
}

static int out_of_memory(struct nsbox_error *err)
{
	return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "names of the archive");
}

static int add_parents(struct names *n, const char *name, struct nsbox_error *err)
{
	bool fresh;

	for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
		struct name *e = look_up(n, name, (size_t)(slash - name), NAME_DIR, &fresh);

		if (!e)
			return out_of_memory(err);
		if (e->kind == NAME_LINK)
			return refuse(name, err, "it lies behind a symbolic link of the archive");
		if (e->kind != NAME_DIR)
			return refuse(name, err, "it lies below a file of the archive");
		if (fresh)
			e->implied = true;
	}
	return 0;
}

int names_add(struct names *n, const char *name, enum name_kind kind, struct nsbox_error *err)
{
	struct name *e;
	bool fresh;
	int r = add_parents(n, name, err);

	if (r < 0)
		return r;
	e = look_up(n, name, strlen(name), kind, &fresh);
	if (!e)
		return out_of_memory(err);
	if (!fresh && (kind != NAME_DIR || e->kind != NAME_DIR))
		return refuse(name, err, "the archive has this name twice");
	e->implied = false;
	return 0;
}
