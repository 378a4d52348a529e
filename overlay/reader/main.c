/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-import: the parts of an image that only a parser understands, on standard input, as a layer
 * stream or as records on standard output. Started by `nsbox image import`.
 *
 *	nsbox-import tar|layer MAX-BYTES MAX-ENTRIES <ARCHIVE >STREAM
 *	nsbox-import index|manifest|docker|config PLATFORM REF <JSON >RECORDS
 *
 * As nsbox-unpack it gives up everything but memory and its two descriptors before it reads the
 * first byte. It says what is wrong in its output, as END of the stream or as a record "error".
 */
#include <errno.h>
#include <locale.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "nsbox/util.h"
#include "overlay/image/records.h"
#include "overlay/reader/reader.h"
#include "overlay/unpack/unpack.h"

#define DOCUMENT_MAX (8u << 20)

static const struct unpack_limits limits = {
#ifdef __SANITIZE_ADDRESS__
	.memory = RLIM_INFINITY,
#else
	.memory = UINT64_C(1) << 30, /* a window of xz or zstd, or the tree of a document */
#endif
	.cpu_s = 7200,
};

#ifdef __SANITIZE_ADDRESS__
/* The leak check at exit traces this process, which its filter refuses. */
const char *__asan_default_options(void) __attribute__((visibility("default")));
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static const struct {
	const char *name;
	document_fn *read;
} documents[] = {
	{ "index", document_index },
	{ "manifest", document_manifest },
	{ "docker", document_docker },
	{ "config", document_config },
};

static int usage(void)
{
	fputs("usage: nsbox-import tar|layer MAX-BYTES MAX-ENTRIES <ARCHIVE >STREAM\n"
	      "       nsbox-import index|manifest|docker|config PLATFORM REF <JSON >RECORDS\n",
	      stderr);
	return 2;
}

static int read_stdin(char **ret, size_t *ret_len, struct nsbox_error *err)
{
	auto_free char *buf = malloc(DOCUMENT_MAX + 1);
	size_t len = 0;

	if (!buf)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the document");
	while (len <= DOCUMENT_MAX) {
		ssize_t n = read(STDIN_FILENO, buf + len, DOCUMENT_MAX + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "read the document");
		if (n == 0) {
			*ret = take_ptr(&buf);
			*ret_len = len;
			return 0;
		}
		len += (size_t)n;
	}
	return nsbox_fail(err, NSBOX_E_LIMIT, EFBIG, "a document of more than %u bytes",
			  DOCUMENT_MAX);
}

static int write_records(document_fn *read_document, const struct document_options *o,
			 struct nsbox_error *err)
{
	auto_free char *text = NULL, *out = NULL;
	size_t len = 0, out_len = 0;
	FILE *f = open_memstream(&out, &out_len);
	int r = f ? read_stdin(&text, &len, err)
		  : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the document");

	if (!f)
		return r;
	if (r == 0)
		r = read_document(text, len, o, f, err);
	/* Records of a document that was refused are none. */
	if (r < 0) {
		fclose(f);
		free_ptr(&out);
		f = open_memstream(&out, &out_len);
		if (!f)
			return r;
		record_put(f, "error", err->msg);
	}
	if (fclose(f) != 0 || write_full(STDOUT_FILENO, out, out_len) < 0)
		return -EIO;
	return 0;
}

/* What opens files comes before: the locale, by which libarchive decodes names, the time zone,
 * and OpenSSL's configuration. */
static int prepare(struct nsbox_error *err)
{
	unsigned char md[32];
	unsigned n;

	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		return nsbox_fail(err, NSBOX_E_UNSUPPORTED, 0, "no locale C.UTF-8");
	tzset();
	if (!EVP_Digest("", 0, md, &n, EVP_sha256(), NULL))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "SHA-256");
	return confine(&limits, err);
}

static int run(char **argv, struct nsbox_error *err)
{
	const struct document_options o = { argv[2], argv[3] };
	struct layer_limits lim;
	uint64_t bytes, entries;
	int r = prepare(err);

	if (r < 0) {
		fprintf(stderr, "nsbox-import: %s\n", err->msg);
		return r;
	}
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++)
		if (!strcmp(argv[1], documents[i].name))
			return write_records(documents[i].read, &o, err);
	if (!parse_u64(argv[2], &bytes) || !parse_u64(argv[3], &entries))
		return usage();
	lim = (struct layer_limits){ bytes, (uint32_t)MIN(entries, (uint64_t)UINT32_MAX) };
	return tar_to_stream(!strcmp(argv[1], "layer"), &lim, err);
}

int main(int argc, char **argv)
{
	struct nsbox_error err = { 0 };
	bool known = argc == 4 && (!strcmp(argv[1], "tar") || !strcmp(argv[1], "layer"));
	int r;

	for (size_t i = 0; argc == 4 && i < ARRAY_SIZE(documents); i++)
		known |= !strcmp(argv[1], documents[i].name);
	if (!known)
		return usage();
	r = run(argv, &err);
	return r < 0 ? 1 : r;
}
