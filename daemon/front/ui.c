/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /ui: a page that shows what the service is at, by asking the interface for it as any client
 * does. Its three files are in the program as they are in the source, and refer to nothing else;
 * the policy that goes with them lets a browser load nothing else, and run no script but theirs.
 *
 * The files are everybody's, so that a browser gets as far as the place where its token is
 * entered. They say nothing of this service.
 */
#include "daemon/front/ui.h"

#include <string.h>

#include "daemon/front/front.h"
#include "nsbox/util.h"

#define EMBED(name, path)                                                                          \
	extern const char ui_##name##_start[];                                                     \
	extern const uint64_t ui_##name##_size;                                                    \
	__asm__(".pushsection .rodata, \"a\"\n"                                                    \
		".hidden ui_" #name "_start\n"                                                     \
		".hidden ui_" #name "_size\n"                                                      \
		".global ui_" #name "_start\n"                                                     \
		"ui_" #name "_start:\n"                                                            \
		".incbin \"" path "\"\n"                                                           \
		".Lui_" #name "_end:\n"                                                            \
		".balign 8\n"                                                                      \
		".global ui_" #name "_size\n"                                                      \
		"ui_" #name "_size:\n"                                                             \
		".quad .Lui_" #name "_end - ui_" #name "_start\n"                                  \
		".popsection\n")

EMBED(html, "daemon/front/ui/index.html");
EMBED(css, "daemon/front/ui/ui.css");
EMBED(js, "daemon/front/ui/ui.js");

static const struct {
	const char *path, *type, *start;
	const uint64_t *size;
} files[] = {
	{ "/ui", "text/html; charset=utf-8", ui_html_start, &ui_html_size },
	{ "/ui/ui.css", "text/css; charset=utf-8", ui_css_start, &ui_css_size },
	{ "/ui/ui.js", "text/javascript; charset=utf-8", ui_js_start, &ui_js_size },
};

static const char content_policy[] =
	"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

bool ui_is_open(const struct http_request *rq)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (strcmp(files[i].path, http_path(rq)) == 0)
			return strcmp(http_method(rq), "GET") == 0;
	return false;
}

void ui_get(struct front *f, struct http_request *rq, const char *rest)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const char *const headers[] = { "Content-Type",
						files[i].type,
						"Content-Security-Policy",
						content_policy,
						"X-Content-Type-Options",
						"nosniff",
						"Referrer-Policy",
						"no-referrer",
						"Cache-Control",
						"no-cache",
						NULL };
		size_t len = (size_t)*files[i].size;
		char *text;

		if (strcmp(files[i].path, http_path(rq)) != 0)
			continue;
		text = malloc(len);
		if (text)
			memcpy(text, files[i].start, len);
		http_reply(rq, 200, text, len, headers);
		return;
	}
	http_reply_error(rq, 404, "not_found", "there is nothing at this path");
}
