/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workspace that changes under every request: inside, two processes swap names for links, FIFOs,
 * devices, directories and files as fast as they can; outside, requests about those names go on.
 * Each has to be answered in time, with what belongs to the sandbox or with an error, and nothing
 * outside may be read or changed:
 *
 *	inside	/workspace/x	"inside", or a link to one of `targets`, a FIFO, a directory
 *		/workspace/d/x	the same, d itself now a directory, now a link
 *	outside	canary		open, writable, as the content of each put, so that /proc/self/fd of the
 *				helper leads there; and beside the directory that downloads go to
 *
 * NSBOX_ROUNDS is how many requests are made (600).
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "nsbox/util.h"
#include "tests/support/box_kit.h"
#include "tests/support/verb_kit.h"

#define CANARY	      "canary outside\n" PUT
#define PUT	      "put from outside\n"
#define ANSWER_MAX_MS 5000

static const char swapper[] =
	"import os, sys, itertools\n"
	"bases, seed = sys.argv[2:], int(sys.argv[1])\n"
	"targets = ['/proc/self/fd/%d' % n for n in range(8)] + ['/proc/self/fd', "
	"'/proc/self/root',"
	" '/proc/self/cwd', '/proc/self/maps', '/proc/1/root', '/proc/1/mem', '/dev/zero', "
	"'/dev/tty',"
	" '/dev/null', '/', '/tmp', '/workspace', '..', '../..', 'x', '/etc', '/nowhere']\n"
	"def link(p, t): os.symlink(t, p)\n"
	"def fifo(p, t): os.mkfifo(p)\n"
	"def file(p, t):\n"
	"  with open(p, 'w') as f: f.write('inside')\n"
	"def tree(p, t): os.mkdir(p); link(p + '/x', t); file(p + '/inside', t)\n"
	"def clear(p):\n"
	"  try:\n"
	"    if os.path.isdir(p) and not os.path.islink(p):\n"
	"      for n in os.listdir(p): clear(p + '/' + n)\n"
	"      os.rmdir(p)\n"
	"    else: os.unlink(p)\n"
	"  except OSError: pass\n"
	"kinds = [link, file, link, tree, link, fifo, link]\n"
	"for i in itertools.count(seed):\n"
	"  base = bases[i // 3 % len(bases)]\n"
	"  spare, old = '%s.new%d' % (base, seed), '%s.old%d' % (base, seed)\n"
	"  clear(spare); clear(old)\n"
	"  try:\n"
	"    kinds[i % len(kinds)](spare, targets[i % len(targets)])\n"
	"    try: os.rename(base, old)\n"
	"    except OSError: pass\n"
	"    os.rename(spare, base)\n"
	"  except OSError: pass\n"
	"  if i % 64 == 0: clear(base)\n";

static char top[] = "/tmp/hostile-files.XXXXXX";

static int rounds(void)
{
	const char *text = getenv("NSBOX_ROUNDS");
	uint64_t n;

	return text && parse_u64(text, &n) && n <= 10000000 ? (int)n : 600;
}

static void start_swapper(struct nsbox_sandbox *sb)
{
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const char *const argv[] = { "sh", "-c",
				     "mkdir d; nice python3 -c \"$0\" 1 x & "
				     "exec nice python3 -c \"$0\" 5 d/x d/x d",
				     swapper, NULL };
	const struct nsbox_exec ex = { .argv = argv, .keep_rest = true };
	const struct nsbox_io io = { -1, null, null, -1, -1 };
	struct nsbox_error err = { 0 };

	ck_assert_msg(nsbox_sandbox_exec(sb, &ex, &io, NULL, &err) == 0, "%s", err.msg);
	box_expect(sb, NSBOX_EVENT_STARTED);
}

/* ------------------------------------------------------------------ what must hold */

static void check_canary(const char *name)
{
	char path[128], text[64];
	auto_close int fd = -1;

	nsbox_format(path, sizeof(path), "%s/%s", top, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ck_assert_int_ge(fd, 0);
	box_slurp(fd, text, sizeof(text));
	ck_assert_str_eq(text, CANARY);
}

/* All that GET may give: what is inside, and what we put there. (A tree may be /etc, of the image.) */
static void check_content(const struct verb_answer *a, const char *what)
{
	for (unsigned i = 0; i < a->n && i < VERB_FRAMES_MAX; i++) {
		const struct verb_frame *f = &a->frame[i];

		if (f->kind == NSBOX_FRAME_FILE && f->size)
			ck_assert_msg(!strcmp(f->data, "inside") || !strcmp(f->data, PUT) ||
					      !strcmp(f->data, "x"),
				      "%s gave '%s'", what, f->data);
	}
}

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* ------------------------------------------------------------------ requests */

static uint64_t slowest;

static void ask(struct nsbox_sandbox *sb, uint32_t verb, uint32_t flags, const char *path, int in,
		struct verb_answer *a)
{
	const struct nsbox_file_request req = {
		.verb = verb,
		.flags = flags,
		.path = path,
		.target = verb == NSBOX_FILE_MOVE ? "d/moved" : NULL,
		.text = verb == NSBOX_FILE_GREP ? "canary" : NULL,
		.pattern = verb == NSBOX_FILE_GLOB ? "**/x" : NULL,
		.mode = 0644,
		.length = NSBOX_FILE_SIZE_UNKNOWN,
		.deadline_ms = 20000,
		.lim = { 1 << 20, 2000 },
	};
	uint64_t start = monotonic_us(), took;

	if (in >= 0) /* of the canary only the second line is put */
		lseek(in, verb == NSBOX_FILE_PUT ? sizeof(CANARY) - sizeof(PUT) : 0, SEEK_SET);
	verb_ask(sb, &req, in, a);
	took = (monotonic_us() - start) / 1000;
	slowest = MAX(slowest, took);
	ck_assert_msg(took < ANSWER_MAX_MS, "verb %u of '%s' took %llu ms: %s", verb, path,
		      (unsigned long long)took, a->error.msg);
	/* An answer is whole, or says that it is not. */
	ck_assert_int_eq(a->error.code != 0, a->stream.code != 0);
	if (verb == NSBOX_FILE_GET)
		check_content(a, path);
}

static int stream_with_links(void)
{
	int fd = memfd_create("up", MFD_CLOEXEC);

	nsbox_files_put_frame(fd, NSBOX_FRAME_FILE, "up/f", 0644, "x", 1, NULL);
	nsbox_files_put_frame(fd, NSBOX_FRAME_SYMLINK, "up/l", 0, "/proc/self/fd/3", 15, NULL);
	nsbox_files_end(fd, NULL);
	return fd;
}

/* Write a whole tree of the sandbox below `out`, as a caller would. */
static void download(struct nsbox_sandbox *sb, int dir_fd)
{
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_DOWNLOAD,
						.path = "/workspace",
						.lim = { 1 << 20, 2000 } };
	auto_close int out = memfd_create("down", MFD_CLOEXEC);
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;

	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 77, -1, out, &err), 0);
	ev = box_expect(sb, NSBOX_EVENT_FILES);
	ck_assert_uint_eq(ev.id, 77);
	lseek(out, 0, SEEK_SET);
	/* A tree that changed while it was sent may be refused; what matters is where it goes. */
	(void)nsbox_files_receive_dir(out, dir_fd, NULL, NULL, NULL, &err);
}

static const struct {
	uint32_t verb, flags;
	const char *path;
	int in; /* 0: none, 1: the canary, 2: a stream */
} acts[] = {
	{ NSBOX_FILE_LIST, 0, "x", 0 },
	{ NSBOX_FILE_GET, 0, "x", 0 },
	{ NSBOX_FILE_PUT, 0, "d/x", 1 },
	{ NSBOX_FILE_GET, 0, "d/x", 0 },
	{ NSBOX_FILE_STAT, NSBOX_FILE_FOLLOW, "d/x", 0 },
	{ NSBOX_FILE_LIST, NSBOX_FILE_RECURSIVE, "/workspace", 0 },
	{ NSBOX_FILE_PUT, NSBOX_FILE_PARENTS, "x/new/f", 1 },
	{ NSBOX_FILE_GET, 0, "x/x", 0 },
	{ NSBOX_FILE_UPLOAD, 0, "d", 2 },
	{ NSBOX_FILE_MOVE, NSBOX_FILE_PARENTS, "x", 0 },
	{ NSBOX_FILE_GLOB, 0, "d", 0 },
	{ NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "x", 0 },
	{ NSBOX_FILE_MKDIR, NSBOX_FILE_PARENTS, "d/x/deep", 0 },
	{ NSBOX_FILE_DOWNLOAD, 0, "x", 0 },
	{ NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "d/x", 0 },
};

START_TEST(swapped)
{
	struct nsbox_plan *plan =
		box_plan("{\"manifestVersion\":1,\"timeouts\":{\"wall\":\"6h\"}}", NULL);
	struct nsbox_sandbox *sb = box_new(plan, -1);
	auto_close int canary = -1, dir_fd = -1, up = stream_with_links();
	static struct verb_answer a;
	char path[128];
	unsigned good = 0;

	ck_assert_ptr_nonnull(mkdtemp(top));
	nsbox_format(path, sizeof(path), "%s/canary", top);
	canary = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	ck_assert_int_eq(write(canary, CANARY, sizeof(CANARY) - 1), sizeof(CANARY) - 1);
	nsbox_format(path, sizeof(path), "%s/out", top);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	box_expect(sb, NSBOX_EVENT_READY);
	start_swapper(sb);

	for (int i = 0; i < rounds(); i++) {
		size_t k = (size_t)i % ARRAY_SIZE(acts);

		ask(sb, acts[k].verb, acts[k].flags, acts[k].path,
		    acts[k].in == 1   ? canary
		    : acts[k].in == 2 ? up
				      : -1,
		    &a);
		good += a.error.code == 0;
		if (i % 50 == 0)
			download(sb, dir_fd);
		if (i && i % 10000 == 0) {
			printf("# %d requests, %u of them carried out\n", i, good);
			fflush(stdout);
		}
	}
	nsbox_sandbox_free(sb);
	nsbox_plan_close(plan);
	/* Not vacuous: a good part of them met something that they could do. */
	ck_assert_uint_gt(good, (unsigned)rounds() / 10);
	check_canary("canary");
	ck_assert_int_eq(entries(top), 2);
	printf("# %d requests, %u of them carried out, the slowest took %llu ms\n", rounds(), good,
	       (unsigned long long)slowest);
}
END_TEST

static void clean_up(void)
{
	char line[160];

	nsbox_format(line, sizeof(line), "rm -rf '%s'", top);
	if (system(line))
		return;
}

int main(void)
{
	Suite *s = suite_create("hostile_files");
	TCase *tc = tcase_create("hostile_files");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_add_checked_fixture(tc, NULL, clean_up);
	tcase_set_timeout(tc, 6 * 3600);
	tcase_add_test(tc, swapped);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
