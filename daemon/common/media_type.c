/* SPDX-License-Identifier: Apache-2.0 */
/* See media_type.h. By name alone: content is hostile, and guessing from it is a parser. */
#include "daemon/common/media_type.h"

#include <string.h>
#include <strings.h>

#include "nsbox/util.h"

#define OFFICE "application/vnd.openxmlformats-officedocument."
#define ODF    "application/vnd.oasis.opendocument."

static const struct {
	const char *ending, *type;
} types[] = {
	{ "bmp", "image/bmp" },
	{ "css", "text/css" },
	{ "csv", "text/csv" },
	{ "docx", OFFICE "wordprocessingml.document" },
	{ "gif", "image/gif" },
	{ "gz", "application/gzip" },
	{ "htm", "text/html" },
	{ "html", "text/html" },
	{ "jpeg", "image/jpeg" },
	{ "jpg", "image/jpeg" },
	{ "js", "text/javascript" },
	{ "json", "application/json" },
	{ "log", "text/plain" },
	{ "md", "text/markdown" },
	{ "mp3", "audio/mpeg" },
	{ "mp4", "video/mp4" },
	{ "ods", ODF "spreadsheet" },
	{ "odt", ODF "text" },
	{ "pdf", "application/pdf" },
	{ "png", "image/png" },
	{ "pptx", OFFICE "presentationml.presentation" },
	{ "py", "text/x-python" },
	{ "svg", "image/svg+xml" },
	{ "tar", "application/x-tar" },
	{ "tsv", "text/tab-separated-values" },
	{ "txt", "text/plain" },
	{ "wav", "audio/wav" },
	{ "webp", "image/webp" },
	{ "xlsx", OFFICE "spreadsheetml.sheet" },
	{ "xml", "application/xml" },
	{ "yaml", "application/yaml" },
	{ "yml", "application/yaml" },
	{ "zip", "application/zip" },
};

const char *media_type_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && dot != name && i < ARRAY_SIZE(types); i++)
		if (strcasecmp(dot + 1, types[i].ending) == 0)
			return types[i].type;
	return "application/octet-stream";
}
