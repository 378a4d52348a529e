/* SPDX-License-Identifier: Apache-2.0 */
/* What the tier "process" cannot stop: the table of gap.h. */
#include <nsbox/gap.h>
#include <stddef.h>

static const struct {
	const char *name, *text;
	uint32_t closed;
} gaps[NSBOX_GAP_MAX] = {
#define X(sym, name, closed, text) { name, text, closed },
	NSBOX_GAPS(X)
#undef X
};

const char *nsbox_gap_name(int gap)
{
	return gap >= 0 && gap < NSBOX_GAP_MAX ? gaps[gap].name : NULL;
}

const char *nsbox_gap_text(int gap)
{
	return gap >= 0 && gap < NSBOX_GAP_MAX ? gaps[gap].text : NULL;
}

uint32_t nsbox_gaps(uint32_t layers)
{
	uint32_t left = 0;

	for (int i = 0; i < NSBOX_GAP_MAX; i++)
		if (!(gaps[i].closed & layers))
			left |= NSBOX_GAP_BIT(i);
	return left;
}
