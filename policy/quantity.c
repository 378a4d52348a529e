/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts with units. Integer arithmetic throughout: "0.1" is exact, and overflow is an error. */
#include "policy/quantity.h"

#include <stddef.h>
#include <string.h>

#define FRACTION_DIGITS_MAX 9

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit byte_units[] = {
	{ "", 1 },
	{ "Ki", UINT64_C(1) << 10 },
	{ "Mi", UINT64_C(1) << 20 },
	{ "Gi", UINT64_C(1) << 30 },
	{ "Ti", UINT64_C(1) << 40 },
	{ "k", 1000 },
	{ "M", 1000000 },
	{ "G", 1000000000 },
	{ "T", 1000000000000 },
	{ NULL, 0 },
};

static const struct unit cpu_units[] = { { "", 1000 }, { "m", 1 }, { NULL, 0 } };

static const struct unit time_units[] = {
	{ "ms", 1 },	  { "s", 1000 },     { "m", 60000 },
	{ "h", 3600000 }, { "d", 86400000 }, { NULL, 0 },
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits before and after the point, as one integer and the power of ten that divides it. */
static const char *read_digits(const char *p, uint64_t *value, uint64_t *scale, const char **why)
{
	int fraction = 0;

	*value = 0;
	*scale = 1;
	*why = "is not a plain decimal number with a unit";
	if (!is_digit(*p) || (p[0] == '0' && is_digit(p[1])))
		return NULL;
	for (bool point = false;; p++) {
		if (*p == '.' && !point && is_digit(p[1])) {
			point = true;
			continue;
		}
		if (!is_digit(*p))
			return p;
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, (uint64_t)(*p - '0'), value) ||
		    (point && ++fraction > FRACTION_DIGITS_MAX)) {
			*why = "has too many digits";
			return NULL;
		}
		if (point)
			*scale *= 10;
	}
}

static bool parse(const char *text, const struct unit *units, const char *bad_unit, uint64_t *ret,
		  const char **why)
{
	uint64_t value, scale;
	const char *unit = read_digits(text, &value, &scale, why);

	if (!unit)
		return false;
	for (const struct unit *u = units; u->name; u++) {
		if (strcmp(unit, u->name) != 0)
			continue;
		*why = "is too large";
		if (__builtin_mul_overflow(value, u->factor, &value))
			return false;
		*why = "does not come out as a whole number of the smallest unit";
		if (value % scale)
			return false;
		*ret = value / scale;
		return true;
	}
	*why = bad_unit;
	return false;
}

bool quantity_bytes(const char *text, uint64_t *ret, const char **why)
{
	return parse(text, byte_units, "has no unit of bytes: Ki, Mi, Gi, Ti, or k, M, G, T", ret,
		     why);
}

bool quantity_cpu(const char *text, uint64_t *ret, const char **why)
{
	return parse(text, cpu_units, "is not a number of CPUs: \"2\", \"1.5\" or \"500m\"", ret,
		     why);
}

bool quantity_ms(const char *text, uint64_t *ret, const char **why)
{
	return parse(text, time_units, "needs a unit of time: ms, s, m, h or d", ret, why);
}
