/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-unpack: an archive on standard input, a file stream (nsbox/files.h) on standard output.
 *
 * Archives come from anywhere and their parsers are large. So they are read here, in a process
 * that has given up everything else (confine.c) before it reads the first byte, and what it says
 * is checked again by who unpacks the stream, inside a sandbox.
 *
 * An archive is taken as a whole or refused as a whole: the END frame of a refused one carries the
 * reason, with the entry's name, and the exit status is 1 (2 for usage). What was written before
 * it has to be thrown away; the readers of the library do so.
 *
 * It speaks on standard error only where it cannot speak in the stream.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"
#include "overlay/unpack/unpack.h"

#define MiB (UINT64_C(1) << 20)

static const struct unpack_limits default_limits = {
	.input = 128 * MiB,
	.total = 256 * MiB,
	.entries = 20000,
	.ratio = 200,
	.ratio_from = 16 * MiB,
#ifdef __SANITIZE_ADDRESS__
	.memory = RLIM_INFINITY, /* its shadow takes terabytes of address space */
#else
	.memory = 640 * MiB, /* the archive, a window of xz or zstd, the names */
#endif
	.cpu_s = 60,
};

#ifdef __SANITIZE_ADDRESS__
/* The leak check at exit traces this process, which its filter refuses. */
const char *__asan_default_options(void) __attribute__((visibility("default")));
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static const char usage[] = "usage: nsbox-unpack [--max-input BYTES] [--max-bytes BYTES] "
			    "[--max-files N] <ARCHIVE >STREAM\n";

static bool number(const char *text, uint64_t max, uint64_t *ret)
{
	return parse_u64(text, ret) && *ret > 0 && *ret <= max;
}

static int parse_options(int argc, char **argv, struct unpack_limits *lim)
{
	static const struct option options[] = {
		{ "max-input", required_argument, NULL, 'i' },
		{ "max-bytes", required_argument, NULL, 'b' },
		{ "max-files", required_argument, NULL, 'f' },
		{ 0 },
	};
	uint64_t v;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?' || !number(optarg, UINT32_MAX, &v))
			return -EINVAL;
		if (c == 'i')
			lim->input = v;
		else if (c == 'b')
			lim->total = v;
		else
			lim->entries = (uint32_t)v;
	}
	if (lim->memory != RLIM_INFINITY)
		lim->memory = lim->memory - default_limits.input + lim->input;
	return optind == argc ? 0 : -EINVAL;
}

/*
 * All of standard input, at most lim->input bytes. Whole, because the directory of a zip file is
 * at its end; in a mapping whose unused pages cost nothing.
 */
static int read_input(const struct unpack_limits *lim, unsigned char **ret, size_t *ret_len,
		      struct nsbox_error *err)
{
	size_t room = (size_t)lim->input + 1, len = 0;
	unsigned char *p =
		mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "read the archive");
	while (len < room) {
		ssize_t n = read(STDIN_FILENO, p + len, room - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "read the archive");
		if (n == 0)
			break;
		len += (size_t)n;
	}
	if (len == room)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "an archive of more than %llu bytes",
				  (unsigned long long)lim->input);
	*ret = p;
	*ret_len = len;
	return 0;
}

int main(int argc, char **argv)
{
	struct unpack_limits lim = default_limits;
	struct nsbox_error err = { 0 };
	unsigned char *data = NULL;
	size_t len = 0;
	int r;

	if (parse_options(argc, argv, &lim) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	/* What would be opened later, behind the filter: names are UTF-8, times do not matter. */
	setlocale(LC_ALL, "C.UTF-8");
	setenv("TZ", "UTC0", 1);
	tzset();
	name_decode_open();

	r = confine(&lim, &err);
	if (r == 0)
		r = read_input(&lim, &data, &len, &err);
	if (r == 0)
		r = archive_to_stream(data, len, &lim, STDOUT_FILENO, &err);
	if (r == 0)
		r = nsbox_files_end(STDOUT_FILENO, &err);
	else if (files_put_error(STDOUT_FILENO, &err, NULL) == 0)
		return 1;
	if (r < 0)
		fprintf(stderr, "nsbox-unpack: %s\n", err.msg);
	return r < 0;
}
