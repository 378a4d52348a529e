/* SPDX-License-Identifier: Apache-2.0 */
/* The command line's HTTP client against a service that answers whatever a test wants. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/common/client.h"
#include "nsbox/util.h"

static char dir[] = "/tmp/nsbox-client-XXXXXX";
static char path[64];
static int listener;

static void setup(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	strcpy(addr.sun_path, path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
}

static void teardown(void)
{
	close_fd(&listener);
	unlink(path);
	rmdir(dir);
}

/* In a child: read `eat` bytes of one request, send the answer, close. */
static pid_t answer(const char *text, size_t eat)
{
	pid_t pid = fork();
	char buf[4096];

	if (pid != 0)
		return pid;
	int fd = accept(listener, NULL, NULL);

	while (eat > 0) {
		ssize_t n = read(fd, buf, MIN(eat, sizeof(buf)));

		if (n <= 0)
			break;
		eat -= (size_t)n;
	}
	(void)!write(fd, text, strlen(text));
	close(fd);
	_exit(0);
}

static int ask(const char *body, int *status, char **ret, struct nsbox_error *err)
{
	size_t len = 0;
	int r = client_request(path, body ? "POST" : "GET", "/x", body, body ? strlen(body) : 0,
			       status, ret, &len, err);

	if (r == 0)
		ck_assert_uint_eq(len, strlen(*ret));
	return r;
}

static const struct {
	const char *text;
	int status; /* 0: the answer is refused */
	const char *body;
} rows[] = {
	{ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "hi" },
	{ "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 404, "" },
	{ "HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end" },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi", 0, NULL },
	{ "HTTP/1.1 200 OK\r\nContent-Le", 0, NULL },
	{ "SSH-2.0\r\n\r\n", 0, NULL },
	{ "", 0, NULL },
};

START_TEST(test_answers)
{
	struct nsbox_error err = { 0 };
	pid_t pid = answer(rows[_i].text, 20);
	char *body = NULL;
	int status = 0;
	int r = ask(NULL, &status, &body, &err);

	if (rows[_i].status) {
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(status, rows[_i].status);
		ck_assert_str_eq(body, rows[_i].body);
	} else {
		ck_assert_int_lt(r, 0);
		ck_assert_int_ne(err.code, 0);
	}
	free(body);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(test_early_answer)
{
	/* The service reads almost nothing of a body that fills the socket, and answers. */
	static const char refused[] = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
	pid_t pid = answer(refused, 10);
	size_t n = 4 << 20;
	char *big = malloc(n + 1), *body = NULL;
	int status = 0;

	memset(big, ' ', n);
	big[n] = 0;
	ck_assert_int_eq(ask(big, &status, &body, NULL), 0);
	ck_assert_int_eq(status, 413);
	free(body);
	free(big);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(test_nobody_there)
{
	struct nsbox_error err = { 0 };
	char *body = NULL;
	int status;

	close_fd(&listener);
	ck_assert_int_eq(ask(NULL, &status, &body, &err), -ECONNREFUSED);
	ck_assert_int_eq(err.code, NSBOX_E_IO);
	ck_assert_ptr_nonnull(strstr(err.msg, "is nsboxd running?"));
}
END_TEST

START_TEST(test_bad_path)
{
	size_t len;
	char *body = NULL;
	int status;
	pid_t pid = answer("", 1);

	ck_assert_int_lt(
		client_request(path, "GET", "/a b\r\nX: y", NULL, 0, &status, &body, &len, NULL),
		0);
	waitpid(pid, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client");
	TCase *tc = tcase_create("client");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_answers, 0, ARRAY_SIZE(rows));
	tcase_add_test(tc, test_early_answer);
	tcase_add_test(tc, test_nobody_there);
	tcase_add_test(tc, test_bad_path);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
