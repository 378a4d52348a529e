/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as SKILL.md: read, compared with nothing, and shown. What is shown is UTF-8. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/skill/frontmatter.h"
#include "policy/skill/skill.h"
#include "policy/skill/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct skill_report rep = { 0 };
	struct nsbox_error err = { 0 };
	struct frontmatter f = { 0 };
	char *shown = text_shown((const char *)data, size);
	int r = frontmatter_read((const char *)data, size, &f, &err);

	check(shown && text_is_utf8(shown, strlen(shown)));
	check(r == 0 || r == -ENOENT || (r == -EINVAL && err.msg[0]));
	check(!f.name.text || text_is_utf8(f.name.text, strlen(f.name.text)));
	frontmatter_done(&f);
	skill_agree(NULL, false, (const char *)data, size, &rep);
	for (size_t i = 0; i < rep.n; i++)
		check(text_is_utf8(rep.list[i].message, strlen(rep.list[i].message)));
	report_done(&rep);
	free(shown);
	return 0;
}
