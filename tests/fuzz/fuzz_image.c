/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an import reads: documents of an image, archives, records and layer streams. The first byte
 * says which of them the rest is.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nsbox/layer_stream.h"
#include "nsbox/util.h"
#include "overlay/image/records.h"
#include "overlay/image/store.h"
#include "overlay/internal.h"
#include "overlay/reader/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct layer_limits lim = { 1u << 20, 200 };

static void read_document(document_fn *fn, const uint8_t *data, size_t size)
{
	const struct document_options o = { "linux/amd64", size % 2 ? "latest" : "" };
	struct nsbox_error err = { 0 };
	struct image_index x = { 0 };
	char *out = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);
	int r;

	if (!f)
		return;
	r = fn((const char *)data, size, &o, f, &err);
	fclose(f);
	if (r < 0 && !err.code)
		abort(); /* a refusal without a reason */
	/* Whatever comes out of a document has to be what the importer can read. */
	if (r == 0 && records_parse(out, len, index_record, &x, &err) < 0 &&
	    strstr(err.msg, "malformed record"))
		abort();
	index_done(&x);
	free(out);
}

static void read_index(const uint8_t *data, size_t size)
{
	struct image_index x = { 0 };
	auto_free char *text = malloc(size + 1), *again = NULL;
	size_t len;

	if (!text)
		return;
	memcpy(text, data, size);
	if (records_parse(text, size, index_record, &x, NULL) == 0 &&
	    index_text(&x, &again, &len, NULL) == 0) {
		struct image_index y = { 0 };

		if (records_parse(again, len, index_record, &y, NULL) < 0)
			abort(); /* what was written cannot be read */
		index_done(&y);
	}
	index_done(&x);
}

/* Whatever a stream says, it is written below its directory or not at all. */
static void write_layer(const uint8_t *data, size_t size)
{
	char place[] = "/tmp/fuzz-layer.XXXXXX";
	const struct layer_options opt = { .upper = size % 2, .lim = lim };
	auto_close int in = make_memfd("stream", data, size, false), fd = -1, top = -1;
	struct layer_sums sums;
	struct stat st;

	if (in < 0 || !mkdtemp(place))
		return;
	top = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(top, "layer", 0700) == 0)
		fd = openat(top, "layer", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		layer_write(in, fd, &opt, &sums, NULL);
	if (fstat(top, &st) < 0 || st.st_nlink != 3)
		abort(); /* something beside it */
	if (fd >= 0)
		fchmod(fd, 0700);
	state_remove_tree(top, "layer");
	rmdir(place);
}

static void read_tar(const uint8_t *data, size_t size)
{
	static int null = -1;
	auto_close int in = make_memfd("archive", data, size, false);
	struct nsbox_error err = { 0 };
	int out;

	if (null < 0)
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (in < 0 || null < 0)
		return;
	out = dup(STDOUT_FILENO);
	dup2(in, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (tar_to_stream(size % 2, &lim, &err) < 0 && !err.code)
		abort();
	dup2(out, STDOUT_FILENO);
	close(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static document_fn *const documents[] = { document_index, document_manifest,
						  document_docker, document_config };

	if (size < 2)
		return 0;
	switch (data[0] & 7) {
	case 4: read_index(data + 1, size - 1); break;
	case 5: write_layer(data + 1, size - 1); break;
	case 6:
	case 7: read_tar(data + 1, size - 1); break;
	default: read_document(documents[data[0] & 3], data + 1, size - 1); break;
	}
	return 0;
}
