/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host image: what is in a skeleton, who may use it, how it is made and removed. Every test
 * has a state directory of its own below a directory that everybody can search. As root each runs
 * twice: as root, and as a user without any privilege.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <limits.h>
#include <nsbox/image.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "nsbox/util.h"
#include "overlay/internal.h"
#include "overlay/root.h"

#define ORDINARY 54321

static char top[64], state[96];
static bool was_root;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void setup(void)
{
	was_root = geteuid() == 0;
	strcpy(top, "/tmp/nsbox-skeleton.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	ck_assert_int_eq(chmod(top, 0755), 0);
	snprintf(state, sizeof(state), "%s/state", top);
}

static void teardown(void)
{
	nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Loop tests run as who they are (0), and as an ordinary user (1). */
static int identities(void)
{
	return geteuid() == 0 ? 2 : 1;
}

static void become(int who)
{
	if (who == 0)
		return;
	ck_assert_int_eq(chown(top, ORDINARY, ORDINARY), 0);
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert_int_eq(setresgid(ORDINARY, ORDINARY, ORDINARY), 0);
	ck_assert_int_eq(setresuid(ORDINARY, ORDINARY, ORDINARY), 0);
}

static struct nsbox_root *prepare(void)
{
	struct nsbox_error err = { 0 };
	struct nsbox_root *root = NULL;

	ck_assert_msg(nsbox_root_prepare(state, NULL, &root, &err) == 0, "%s", err.msg);
	return root;
}

/* The error of a prepare that has to fail. */
static const char *refusal(const char *dir)
{
	static struct nsbox_error err;
	struct nsbox_root *root = NULL;

	err = (struct nsbox_error){ 0 };
	ck_assert_int_lt(nsbox_root_prepare(dir, "host", &root, &err), 0);
	ck_assert_int_eq(err.stage, NSBOX_STAGE_IMAGE);
	return err.msg;
}

static const struct mount_op *ops(const struct nsbox_root *root, size_t *n)
{
	return blob_get(nsbox_root_blob(root), SEC_OPS, sizeof(struct mount_op), n);
}

static const char *skeleton_path(const struct nsbox_root *root)
{
	size_t n;

	return blob_get_str(nsbox_root_blob(root), ops(root, &n)->src);
}

static void join(char *buf, const char *dir, const char *name)
{
	ck_assert_int_lt(snprintf(buf, PATH_MAX, "%s/%s", dir, name), PATH_MAX);
}

/* ------------------------------------------------------------------ host.paths */

static void write_paths(const char *text, mode_t mode)
{
	char path[PATH_MAX];
	FILE *f;

	join(path, state, "host.paths");
	unlink(path);
	nsbox_root_free(prepare()); /* makes the state directory */
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	ck_assert_int_eq(chmod(path, mode), 0);
}

/* What is shown besides is tried where there is an /opt to fill: tests/e2e/maxkb-kits.t. */
START_TEST(test_host_paths)
{
	static const struct {
		const char *text;
		mode_t mode;
		const char *why;
	} rows[] = {
		{ "/etc\n", 0644, "not a plain path below /opt" },
		{ "/opt/../etc\n", 0644, "not a plain path" },
		{ "/opt/a/\n", 0644, "not a plain path" },
		{ "/opt//a\n", 0644, "not a plain path" },
		{ "/opt/nsbox\n", 0644, "nsbox has its own files" },
		{ "/opt/not-there-at-all\n", 0644, "No such file" },
		{ "", 0666, "only its owner can change" },
	};

	become(_i);
	write_paths("# a comment\n\n", 0644);
	nsbox_root_free(prepare());
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *msg;

		write_paths(rows[i].text, rows[i].mode);
		msg = refusal(state);
		ck_assert_msg(strstr(msg, rows[i].why) && strstr(msg, "host.paths"), "%s: %s",
			      rows[i].text, msg);
	}
}
END_TEST

/* ------------------------------------------------------------------ what it is */

START_TEST(test_mounts)
{
	struct nsbox_root *root;
	char path[PATH_MAX];
	bool usr = false;
	struct stat st;
	size_t n;

	become(_i);
	root = prepare();
	ck_assert_str_eq(nsbox_root_name(root), "host");
	ck_assert_int_eq(strncmp(nsbox_root_digest(root), "host:", 5), 0);
	const struct mount_op *op = ops(root, &n);

	ck_assert_uint_ge(n, 2);
	ck_assert_uint_eq(op[0].kind, OP_LOWER);
	for (size_t i = 1; i < n; i++) {
		const char *src = blob_get_str(nsbox_root_blob(root), op[i].src);
		const char *dst = blob_get_str(nsbox_root_blob(root), op[i].dst);
		unsigned must = OPF_RDONLY | OPF_NOSUID | OPF_NODEV;

		ck_assert_uint_eq(op[i].kind, OP_BIND);
		ck_assert_uint_eq(op[i].flags & must, must);
		ck_assert(strncmp(src, "/root", 5) && strncmp(src, "/home", 5) &&
			  strncmp(src, "/var", 4) && strcmp(src, "/etc") && strcmp(src, "/"));
		ck_assert_str_ne(src, "/etc/ssl");
		join(path, skeleton_path(root), dst + 1);
		ck_assert_msg(lstat(path, &st) == 0 && S_ISDIR(st.st_mode), "no mount point %s",
			      dst);
		usr |= strcmp(dst, "/usr") == 0;
	}
	ck_assert(usr);
	nsbox_root_free(root);
}
END_TEST

static int judge_node(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *inside = path + strlen(state) + strlen("/skeleton/") + HASH128_TEXT - 1;
	mode_t mode = st->st_mode & 07777;
	struct stat host;

	if (st->st_uid != geteuid())
		return 1;
	if (S_ISDIR(st->st_mode) && mode != 0755)
		return 1;
	if (S_ISREG(st->st_mode) && mode != 0644 && mode != 0755 && mode != 0444)
		return 1;
	if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode))
		return 1;
	/* What others may not read on the host is in no skeleton. */
	if (S_ISREG(st->st_mode) && stat(inside, &host) == 0 && !(host.st_mode & S_IROTH))
		return 1;
	return 0;
}

START_TEST(test_modes)
{
	struct nsbox_root *root;

	become(_i);
	umask(077); /* must not matter */
	root = prepare();
	ck_assert_int_eq(nftw(skeleton_path(root), judge_node, 16, FTW_PHYS), 0);
	nsbox_root_free(root);
}
END_TEST

static const struct {
	const char *path, *holds;
} contents[] = {
	{ "etc/passwd", "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n" },
	{ "etc/group", "nogroup:x:65534:" },
	{ "etc/hosts", "127.0.0.1 localhost" },
	{ "etc/nsswitch.conf", "hosts: files dns\n" },
	{ "etc/resolv.conf", "nameserver 127.0.0.1\n" },
	{ ".nsbox/witness", "witness\n" },
};

START_TEST(test_contents)
{
	struct nsbox_root *root = prepare();
	char path[PATH_MAX], buf[4096];
	auto_free char *runner = NULL;
	size_t len = (size_t)runner_py_size;

	for (size_t i = 0; i < ARRAY_SIZE(contents); i++) {
		join(path, skeleton_path(root), contents[i].path);
		ck_assert_int_gt(read_small_file(AT_FDCWD, path, buf, sizeof(buf)), 0);
		ck_assert_msg(strstr(buf, contents[i].holds) != NULL, "%s", contents[i].path);
	}
	join(path, skeleton_path(root), "opt/nsbox/runner.py");
	runner = malloc(len + 2);
	ck_assert_int_gt(len, 100);
	ck_assert_int_eq(read_small_file(AT_FDCWD, path, runner, len + 2), (ssize_t)len);
	ck_assert_int_eq(memcmp(runner, runner_py_start, len), 0);
	nsbox_root_free(root);
}
END_TEST

/* Names that must never appear, whatever is on the host. */
START_TEST(test_secrets)
{
	static const char *const absent[] = {
		"etc/shadow",	   "etc/gshadow",  "etc/ssl/private", "etc/machine-id",
		"etc/environment", "etc/pip.conf", "etc/npmrc",	      "etc/gitconfig",
		"etc/wgetrc",	   "etc/ssh",	   "etc/sudoers",     "etc/apt",
		"etc/mysql",	   "etc/ldap",	   "etc/systemd",     "etc/cron.d",
	};
	struct nsbox_root *root = prepare();
	char path[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(absent); i++) {
		join(path, skeleton_path(root), absent[i]);
		ck_assert_msg(lstat(path, &st) < 0, "%s", absent[i]);
	}
	join(path, skeleton_path(root), "etc/passwd"); /* twin: the way of looking works */
	ck_assert_int_eq(lstat(path, &st), 0);
	nsbox_root_free(root);
}
END_TEST

/* ------------------------------------------------------------------ making it */

static unsigned count_entries(const char *suffix)
{
	char path[PATH_MAX];
	unsigned n = 0;
	DIR *d;

	join(path, state, "skeleton");
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d));) {
		size_t len = strlen(e->d_name), slen = strlen(suffix);

		if (e->d_name[0] != '.' && len >= slen &&
		    strcmp(e->d_name + len - slen, suffix) == 0 &&
		    (slen || !strchr(e->d_name, '.')))
			n++;
	}
	closedir(d);
	return n;
}

START_TEST(test_made_once)
{
	struct nsbox_root *one, *two;
	struct stat a, b;

	become(_i);
	one = prepare();
	ck_assert_int_eq(stat(skeleton_path(one), &a), 0);
	two = prepare();
	ck_assert_int_eq(stat(skeleton_path(two), &b), 0);
	ck_assert_str_eq(nsbox_root_digest(one), nsbox_root_digest(two));
	ck_assert_uint_eq(a.st_ino, b.st_ino);
	ck_assert_uint_eq(count_entries(""), 1);
	nsbox_root_free(one);
	nsbox_root_free(two);
}
END_TEST

START_TEST(test_race)
{
	pid_t pid[8];

	become(_i);
	for (size_t i = 0; i < ARRAY_SIZE(pid); i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct nsbox_root *root = NULL;
			struct stat st;
			int r = nsbox_root_prepare(state, "host", &root, NULL);

			_exit(r < 0 || stat(skeleton_path(root), &st) < 0);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(pid); i++) {
		int status = -1;

		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_uint_eq(count_entries(""), 1);
}
END_TEST

START_TEST(test_unfinished)
{
	char path[PATH_MAX];
	struct stat st;

	become(_i);
	nsbox_root_free(prepare());
	join(path, state, "skeleton/.new");
	ck_assert_int_eq(mkdir(path, 0755), 0);
	join(path, state, "skeleton/.new/junk");
	ck_assert_int_eq(mkdir(path, 0755), 0);
	/* Only a maker looks at it: take the finished one away. */
	struct nsbox_root *root = prepare();
	char old[PATH_MAX];

	snprintf(old, sizeof(old), "%s", skeleton_path(root));
	nsbox_root_free(root);
	ck_assert_int_eq(nftw(old, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	root = prepare();
	ck_assert_int_eq(stat(skeleton_path(root), &st), 0);
	join(path, skeleton_path(root), "junk");
	ck_assert_int_lt(stat(path, &st), 0);
	nsbox_root_free(root);
}
END_TEST

/* A skeleton of other inputs, used last `days` ago. */
static void plant(const char *name, int days)
{
	struct timespec t[2] = { { .tv_sec = time(NULL) - days * 86400 - 60 } };
	char path[PATH_MAX], lock[PATH_MAX];

	t[1] = t[0];
	snprintf(path, sizeof(path), "%s/skeleton/%s", state, name);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(lock, sizeof(lock), "%s/skeleton/%s.lock", state, name);
	close(open(lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	ck_assert_int_eq(utimensat(AT_FDCWD, lock, t, 0), 0);
}

START_TEST(test_unused_are_removed)
{
	static const char unused[] = "00000000000000000000000000000000";
	static const char held[] = "11111111111111111111111111111111";
	static const char recent[] = "22222222222222222222222222222222";
	auto_close int lock_fd = -1;
	char path[PATH_MAX];
	struct stat st;
	int skel;

	become(_i);
	skel = open(top, O_PATH | O_CLOEXEC);
	ck_assert_int_eq(mkdir(state, 0755), 0);
	join(path, state, "skeleton");
	ck_assert_int_eq(mkdir(path, 0755), 0);
	plant(unused, 2);
	plant(held, 2);
	plant(recent, 0);
	join(path, state, "skeleton/11111111111111111111111111111111.lock");
	lock_fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(flock(lock_fd, LOCK_SH), 0);
	nsbox_root_free(prepare());
	ck_assert_int_lt(fstatat(skel, "state/skeleton/00000000000000000000000000000000", &st, 0),
			 0);
	ck_assert_int_lt(
		fstatat(skel, "state/skeleton/00000000000000000000000000000000.lock", &st, 0), 0);
	ck_assert_int_eq(fstatat(skel, "state/skeleton/11111111111111111111111111111111", &st, 0),
			 0);
	ck_assert_int_eq(fstatat(skel, "state/skeleton/22222222222222222222222222222222", &st, 0),
			 0);
	close(skel);
}
END_TEST

/* A held root keeps its own skeleton, even where it looks unused. */
START_TEST(test_held_root_stays)
{
	struct nsbox_root *root = prepare();
	struct timespec t[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	char lock[PATH_MAX];
	auto_close int fd = -1;

	snprintf(lock, sizeof(lock), "%s.lock", skeleton_path(root));
	ck_assert_int_eq(utimensat(AT_FDCWD, lock, t, 0), 0);
	fd = open(lock, O_RDWR | O_CLOEXEC);
	ck_assert_int_lt(flock(fd, LOCK_EX | LOCK_NB), 0);
	nsbox_root_free(root);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
}
END_TEST

/* ------------------------------------------------------------------ who may have it */

START_TEST(test_state_refused)
{
	char path[PATH_MAX];
	struct nsbox_error err = { 0 };
	struct nsbox_root *root = NULL;

	become(_i);
	ck_assert_int_eq(mkdir(state, 0755), 0);

	ck_assert_int_eq(chmod(state, 0775), 0);
	ck_assert_ptr_nonnull(strstr(refusal(state), "written by others"));
	ck_assert_int_eq(chmod(state, 0757), 0);
	ck_assert_ptr_nonnull(strstr(refusal(state), "written by others"));
	ck_assert_int_eq(chmod(state, 0755), 0);

	join(path, top, "link");
	ck_assert_int_eq(symlink("state", path), 0);
	ck_assert_ptr_nonnull(strstr(refusal(path), "not a link"));
	join(path, top, "link/");
	ck_assert_ptr_nonnull(strstr(refusal(path), "not a link"));

	ck_assert_ptr_nonnull(strstr(refusal("state"), "absolute"));
	ck_assert_int_lt(nsbox_root_prepare(state, "debian", &root, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "'debian'"));

	nsbox_root_free(prepare()); /* twin */
}
END_TEST

START_TEST(test_state_of_another)
{
	if (!was_root)
		return; /* needs two users; runs as root in the same target */
	ck_assert_int_eq(mkdir(state, 0755), 0);
	ck_assert_int_eq(chown(state, ORDINARY, ORDINARY), 0);
	ck_assert_ptr_nonnull(strstr(refusal(state), "owned by user 54321"));
	ck_assert_int_eq(chown(state, 0, 0), 0);
	nsbox_root_free(prepare());
}
END_TEST

/* With ids of their own sandboxes are strangers here; with the caller's they are not. */
START_TEST(test_unreachable)
{
	become(_i);
	ck_assert_int_eq(chmod(top, 0700), 0);
	if (was_root && _i == 0) {
		ck_assert_ptr_nonnull(strstr(refusal(state), "cannot pass"));
		ck_assert_ptr_nonnull(strstr(refusal(state), top));
		ck_assert_int_eq(chmod(top, 0711), 0);
	}
	nsbox_root_free(prepare());
}
END_TEST

START_TEST(test_state_dir)
{
	char buf[256], small[8];

	setenv("NSBOX_STATE_DIR", "/some/where", 1);
	ck_assert_int_eq(nsbox_state_dir(buf, sizeof(buf), NULL), 0);
	ck_assert_str_eq(buf, "/some/where");
	ck_assert_int_lt(nsbox_state_dir(small, sizeof(small), NULL), 0);
	setenv("NSBOX_STATE_DIR", "here", 1);
	ck_assert_int_lt(nsbox_state_dir(buf, sizeof(buf), NULL), 0);
	unsetenv("NSBOX_STATE_DIR");
	if (_i == 0 && geteuid() == 0) {
		ck_assert_int_eq(nsbox_state_dir(buf, sizeof(buf), NULL), 0);
		ck_assert_str_eq(buf, "/var/lib/nsbox");
		return;
	}
	become(_i);
	setenv("HOME", "/h", 1);
	unsetenv("XDG_STATE_HOME");
	ck_assert_int_eq(nsbox_state_dir(buf, sizeof(buf), NULL), 0);
	ck_assert_str_eq(buf, "/h/.local/state/nsbox");
	setenv("XDG_STATE_HOME", "/x", 1);
	ck_assert_int_eq(nsbox_state_dir(buf, sizeof(buf), NULL), 0);
	ck_assert_str_eq(buf, "/x/nsbox");
	unsetenv("XDG_STATE_HOME");
	unsetenv("HOME");
	ck_assert_int_lt(nsbox_state_dir(buf, sizeof(buf), NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("skeleton");
	TCase *tc = tcase_create("skeleton");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_host_paths, 0, identities());
	tcase_add_loop_test(tc, test_mounts, 0, identities());
	tcase_add_loop_test(tc, test_modes, 0, identities());
	tcase_add_test(tc, test_contents);
	tcase_add_test(tc, test_secrets);
	tcase_add_loop_test(tc, test_made_once, 0, identities());
	tcase_add_loop_test(tc, test_race, 0, identities());
	tcase_add_loop_test(tc, test_unfinished, 0, identities());
	tcase_add_loop_test(tc, test_unused_are_removed, 0, identities());
	tcase_add_test(tc, test_held_root_stays);
	tcase_add_loop_test(tc, test_state_refused, 0, identities());
	tcase_add_test(tc, test_state_of_another);
	tcase_add_loop_test(tc, test_unreachable, 0, identities());
	tcase_add_loop_test(tc, test_state_dir, 0, identities());
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
