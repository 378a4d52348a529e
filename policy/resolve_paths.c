/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of a manifest become absolute inside paths: relative ones mean the working directory (the
 * skill's, where there is a skill), ${skill} ${work} ${out} ${tmp} may begin one, ".." is refused.
 * Nothing here ever names a path of the host.
 *
 * Also decides which places are mounts of their own: see mounts.c.
 */
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/inputs.h"
#include "policy/resolve.h"

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || path[n] == '\0');
}

static const char *find_below(const char *path, const char *const *dirs)
{
	for (; *dirs; dirs++)
		if (is_below(path, *dirs))
			return *dirs;
	return NULL;
}

bool policy_owns(const char *path)
{
	static const char *const own[] = { "/tmp", "/var/tmp", POLICY_HOME, POLICY_WORKSPACE,
					   "/run", "/skills",  NULL };

	return find_below(path, own) != NULL;
}

/* ------------------------------------------------------------------ one path */

struct place {
	const char *variable, *base, *suffix;
};

/* What the path is relative to, and the part after that; NULL after an error. */
static const char *split_base(struct resolve *rs, const char *path, struct place *ret)
{
	const struct place places[] = {
		{ "${skill}", rs->p->skill_dir, "" },
		{ "${work}", rs->p->workdir, "" },
		{ "${out}", rs->p->workdir, "/out" },
		{ "${tmp}", "/tmp", "" },
	};

	*ret = (struct place){ NULL, *path == '/' ? "" : rs->p->workdir, "" };
	if (path[0] != '$')
		return path;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		size_t n = strlen(places[i].variable);

		if (strncmp(path, places[i].variable, n) || (path[n] && path[n] != '/'))
			continue;
		if (!places[i].base) {
			json_fail(&rs->r, "there is no skill in this run for ${skill}");
			return NULL;
		}
		*ret = places[i];
		return path + n;
	}
	json_fail(&rs->r, "knows ${skill}, ${work}, ${out} and ${tmp} only");
	return NULL;
}

/* Append the components of `rest`: no "..", no empty ones, no ".". */
static int append_components(struct resolve *rs, char *buf, size_t size, const char *rest)
{
	size_t len = strlen(buf);

	while (*rest) {
		size_t n;

		while (*rest == '/')
			rest++;
		n = strcspn(rest, "/");
		if (n == 2 && rest[0] == '.' && rest[1] == '.')
			return json_fail(&rs->r, "must not contain \"..\"");
		if (n > 255 || len + n + 2 > size)
			return json_fail(&rs->r, "is too long");
		if (n && !(n == 1 && *rest == '.')) {
			buf[len++] = '/';
			memcpy(buf + len, rest, n);
			len += n;
			buf[len] = '\0';
		}
		rest += n;
	}
	return 0;
}

/* malloc'd; NULL after an error. */
static char *absolute(struct resolve *rs, const char *path)
{
	char buf[4096];
	struct place place;
	const char *rest = split_base(rs, path, &place);
	char *copy;

	if (!rest)
		return NULL;
	for (const char *p = path; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f) {
			json_fail(&rs->r, "contains a control character");
			return NULL;
		}
	snprintf(buf, sizeof(buf), "%s%s", place.base, place.suffix);
	if (append_components(rs, buf, sizeof(buf), rest) < 0)
		return NULL;
	if (!*buf) {
		json_fail(&rs->r, "must not be the root directory");
		return NULL;
	}
	copy = strdup(buf);
	if (!copy)
		json_nomem(&rs->r);
	return copy;
}

/* ------------------------------------------------------------------ what a list may name */

/* Parts of the sandbox itself; rules about them would break what others rely on. */
static const char *const machinery[] = { "/proc", "/sys", "/dev", "/.nsbox", NULL };
static const char *const image[] = { "/usr",   "/bin",	  "/sbin", "/lib", "/lib32",
				     "/lib64", "/libx32", "/etc",  "/opt", NULL };

static int judge_any(struct resolve *rs, const char *path)
{
	const char *dir = find_below(path, machinery);

	if (policy_is_process(rs->p) && !policy_owns(path))
		return json_fail(&rs->r,
				 "would be the host's in the tier \"process\": its places are "
				 "/workspace, /tmp, HOME, /skills and /run; " TIER_REMEDY);
	return dir ? json_fail(&rs->r, "%s is managed by the sandbox", dir) : 0;
}

static struct policy_tmpfs *find_tmpfs(struct nsbox_policy *p, const char *path)
{
	for (size_t i = 0; i < TMPFS_MAX; i++)
		if (p->tmpfs[i].used && p->tmpfs[i].path && is_below(path, p->tmpfs[i].path))
			return &p->tmpfs[i];
	return NULL;
}

static int judge_write(struct resolve *rs, const char *path)
{
	const char *dir = find_below(path, image);
	int r = judge_any(rs, path);

	if (r < 0)
		return r;
	if (dir)
		return json_fail(&rs->r, "%s belongs to the image, which is read-only", dir);
	if (rs->p->profile->root_rdonly && !find_tmpfs(rs->p, path))
		return json_fail(&rs->r,
				 "is read-only in profile \"%s\"; /tmp, HOME and the "
				 "workspace can be written",
				 rs->p->profile->name);
	return 0;
}

/* A noexec mount has to be executable as a whole; Landlock then narrows it to the path. */
static int judge_exec(struct resolve *rs, const char *path)
{
	struct policy_tmpfs *t = find_tmpfs(rs->p, path);

	if (t)
		t->exec = true;
	return judge_any(rs, path);
}

size_t policy_pattern_base(const char *path)
{
	size_t n = strcspn(path, "*?[");

	if (!path[n])
		return n;
	while (n && path[n - 1] != '/')
		n--;
	return n ? n - 1 : 0;
}

static int judge_executable(struct resolve *rs, const char *path)
{
	if (!policy_pattern_base(path))
		return json_fail(&rs->r, "a pattern has to begin with a directory");
	return judge_write(rs, path);
}

typedef int judge_fn(struct resolve *, const char *path);

/* The place of the list is entered; the paths are the policy's afterwards. */
static int resolve_list(struct resolve *rs, char *const *from, judge_fn *judge, char ***to)
{
	for (size_t i = 0; from && from[i]; i++) {
		size_t mark = json_enter_index(&rs->r, i);
		char *path = absolute(rs, from[i]);
		int r = path ? judge(rs, path) : -EINVAL;

		if (r < 0) {
			free(path);
			return r;
		}
		if (strings_add_take(to, path) < 0)
			return json_nomem(&rs->r);
		json_leave(&rs->r, mark);
	}
	return 0;
}

/* Takes path. A path that is granted without `optional` too may not be missing. */
static int add_granted(struct resolve *rs, char *path, bool optional, char ***to)
{
	int r = resolve_grant(rs, "%s", path);

	if (r == 0 &&
	    strings_add_take(optional ? &rs->p->optional : &rs->required, strdup(path)) < 0)
		r = json_nomem(&rs->r);
	if (r < 0) {
		free(path);
		return r;
	}
	return strings_add_take(to, path) < 0 ? json_nomem(&rs->r) : 0;
}

static int resolve_grants(struct resolve *rs, const struct manifest_paths *from, judge_fn *judge,
			  char ***to)
{
	for (size_t i = 0; i < from->n; i++) {
		const struct manifest_path *g = &from->v[i];
		size_t mark = json_enter_index(&rs->r, i);
		struct resolve_attempt attempt;
		char *path;
		int r;

		resolve_try(rs, &attempt);
		path = absolute(rs, g->path);
		r = path ? judge(rs, path) : -EINVAL;
		if (r < 0) {
			free(path);
			path = NULL;
		}
		r = resolve_tried(rs, &attempt, r, g->optional, g->path);
		if (r == 0 && path)
			r = add_granted(rs, path, g->optional, to);
		if (r < 0)
			return r;
		json_leave(&rs->r, mark);
	}
	return 0;
}

static bool in_list(char *const *list, const char *s)
{
	for (; list && *list; list++)
		if (!strcmp(*list, s))
			return true;
	return false;
}

static void drop_required(struct resolve *rs)
{
	char **kept = rs->p->optional;

	for (char **o = rs->p->optional; o && *o; o++) {
		if (in_list(rs->required, *o))
			free(*o);
		else
			*kept++ = *o;
	}
	if (kept)
		*kept = NULL;
	strings_sort_unique(rs->p->optional);
}

/* ------------------------------------------------------------------ places */

static int resolve_workdir(struct resolve *rs)
{
	struct nsbox_policy *p = rs->p;
	const char *skill = rs->opt->skill_dir;

	p->workspace = rs->m->fs.workspace != WORKSPACE_NONE;
	/* Without a manifest a skill may write beside its code, as it could where it came from. */
	p->skill_readonly =
		rs->m->fs.skill == UNSET ? !rs->m->is_default : rs->m->fs.skill == SKILL_RO;
	if (skill) {
		p->skill_dir = strdup(skill);
		if (!p->skill_dir)
			return json_nomem(&rs->r);
	}
	p->workdir = strdup(skill ? skill : p->workspace ? POLICY_WORKSPACE : "/tmp");
	return p->workdir ? 0 : json_nomem(&rs->r);
}

/*
 * Under a read-only root the places share `disk` between them, since each is a mount of its own.
 * /tmp is always one: a program that fills it can still write to its working directory (and say
 * that it did).
 */
static void resolve_tmpfs(struct resolve *rs)
{
	const struct nsbox_manifest *m = rs->m;
	struct nsbox_policy *p = rs->p;
	uint64_t disk = MIN(p->limits.disk, p->limits.memory / 2); /* these are memory */
	bool own = p->profile->root_rdonly;
	bool exec = p->profile->exec_writable && p->subprocess != SUBPROCESS_SKILL;
	const struct policy_tmpfs all[TMPFS_MAX] = {
		[TMPFS_TMP] = { "/tmp", own ? disk / 4 : disk, 01777, exec, true },
		[TMPFS_VAR_TMP] = { "/var/tmp", disk / 8, 01777, exec, own },
		[TMPFS_HOME] = { POLICY_HOME, disk / 8, 0700, exec, own },
		[TMPFS_WORKSPACE] = { POLICY_WORKSPACE, disk / 2, 0755, exec, own && p->workspace },
		/* Programs of the skill are started from there. */
		[TMPFS_SKILL] = { p->skill_dir, disk, 0755, true, own && p->skill_dir },
		[TMPFS_SECRETS] = { SECRETS_DIR, SECRETS_SIZE, 0700, false, false },
	};

	memcpy(p->tmpfs, all, sizeof(all));
	if (m->fs.tmp_size)
		p->tmpfs[TMPFS_TMP].size = m->fs.tmp_size;
	if (m->fs.tmp_exec != UNSET)
		p->tmpfs[TMPFS_TMP].exec = m->fs.tmp_exec;
	if (m->fs.workspace == WORKSPACE_RW) {
		p->tmpfs[TMPFS_WORKSPACE].used = p->tmpfs[TMPFS_WORKSPACE].shared = true;
		p->tmpfs[TMPFS_WORKSPACE].size = 0;
	} else if (m->fs.workspace_size && p->workspace) {
		p->tmpfs[TMPFS_WORKSPACE].used = true;
		p->tmpfs[TMPFS_WORKSPACE].size = m->fs.workspace_size;
	}
}

/* The host's files are in reach then: not for an author to decide. */
static int check_shared(struct resolve *rs)
{
	uint32_t asked = rs->ceiling->shared;
	bool may = asked == NSBOX_ALLOWANCE_UNSET ? rs->opt->as_operator
						  : asked == NSBOX_ALLOWANCE_YES;
	size_t mark;

	if (rs->m->fs.workspace != WORKSPACE_RW)
		return 0;
	mark = json_enter(&rs->r, "filesystem");
	json_enter(&rs->r, "workspace");
	if (!may)
		return json_fail(&rs->r,
				 "\"rw\" shares a directory of the host, which is more than "
				 "the operator allows (sharedWorkspace in the ceiling)");
	if (rs->m->fs.workspace_size)
		return json_fail(&rs->r, "a directory of the host has no size of the run's: leave "
					 "size out, or mode \"rw\"");
	if (rs->p->uid != POLICY_UID)
		return json_fail(&rs->r,
				 "\"rw\" is for the user %d inside, whose files the "
				 "directory's owner gets: not for user 0",
				 POLICY_UID);
	if (resolve_grant(rs, "rw") < 0)
		return -ENOMEM;
	json_leave(&rs->r, mark);
	return 0;
}

static int check_sizes(struct resolve *rs)
{
	const struct {
		const char *key;
		uint64_t size;
	} asked[] = { { "tmp", rs->m->fs.tmp_size }, { "workspace", rs->m->fs.workspace_size } };

	for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
		if (asked[i].size > MIN(rs->p->limits.disk, rs->p->limits.memory)) {
			json_enter(&rs->r, "filesystem");
			json_enter(&rs->r, asked[i].key);
			return json_fail(
				&rs->r, "is more than resources.disk or memory (%llu bytes)",
				(unsigned long long)MIN(rs->p->limits.disk, rs->p->limits.memory));
		}
	return 0;
}

static int resolve_lists(struct resolve *rs)
{
	const struct nsbox_manifest *m = rs->m;
	struct nsbox_policy *p = rs->p;
	const struct {
		const char *object, *key;
		const struct manifest_paths *grants;
		char *const *from; /* where `grants` is NULL */
		judge_fn *judge;
		char ***to;
	} lists[] = {
		{ "filesystem", "read", &m->fs.read, NULL, judge_any, &p->read },
		{ "filesystem", "write", &m->fs.write, NULL, judge_write, &p->write },
		{ "filesystem", "exec", &m->fs.exec, NULL, judge_exec, &p->exec },
		{ "filesystem", "mask", NULL, m->fs.mask, judge_any, &p->mask },
		{ "filesystem", "readOnly", NULL, m->fs.read_only, judge_any, &p->read_only },
		{ "files", "executable", NULL, m->executable, judge_executable, &p->make_exec },
	};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		size_t start = json_enter(&rs->r, lists[i].object);
		int r;

		json_enter(&rs->r, lists[i].key);
		*lists[i].to = calloc(1, sizeof(**lists[i].to));
		if (!*lists[i].to)
			return json_nomem(&rs->r);
		if (lists[i].grants)
			r = resolve_grants(rs, lists[i].grants, lists[i].judge, lists[i].to);
		else
			r = resolve_list(rs, lists[i].from, lists[i].judge, lists[i].to);
		if (r < 0)
			return r;
		strings_sort_unique(*lists[i].to);
		json_leave(&rs->r, start);
	}
	return 0;
}

int nsbox_policy_path(const struct nsbox_policy *p, const char *path, char **ret,
		      struct nsbox_error *err)
{
	/* Looked at, not changed: what a path is relative to is all that is asked of it. */
	struct resolve rs = { .p = (struct nsbox_policy *)p };
	char *full;

	json_reader_init(&rs.r, NSBOX_E_INVALID, err);
	json_enter(&rs.r, path);
	full = absolute(&rs, path);
	if (!full)
		return -EINVAL;
	*ret = full;
	return 0;
}

int resolve_paths(struct resolve *rs)
{
	struct nsbox_policy *p = rs->p;
	int r = resolve_workdir(rs);

	if (r == 0)
		r = check_shared(rs);
	if (r == 0)
		r = check_sizes(rs);
	if (r < 0)
		return r;
	resolve_tmpfs(rs);
	r = resolve_lists(rs);
	drop_required(rs);
	/* An executable /tmp that was asked for is a grant like any other: Landlock has to know. */
	if (r == 0 && rs->m->fs.tmp_exec == 1 && p->subprocess != SUBPROCESS_ANY &&
	    strings_add_take(&p->exec, strdup("/tmp")) < 0)
		r = json_nomem(&rs->r);
	strings_sort_unique(p->exec);
	return r;
}
