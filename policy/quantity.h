/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amounts as people write them: decimal digits, at most one point, one unit. No sign, no exponent,
 * no space, no leading zero; what does not come out whole is refused, not rounded.
 *
 *   bytes  "65536" "64Ki" "512Mi" "1.5Gi" "2Ti"; decimal "64k" "512M" "1G" "1T"
 *   cpu    "2" "1.5" "500m" -> thousandths
 *   time   "250ms" "30s" "1.5s" "2m" "1h" "1d" -> milliseconds; the unit is not optional
 */
#ifndef POLICY_QUANTITY_H
#define POLICY_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

/* False: *why says what is wrong, in words that follow the quoted text. */
typedef bool quantity_fn(const char *text, uint64_t *ret, const char **why);

bool quantity_bytes(const char *text, uint64_t *ret, const char **why);
bool quantity_cpu(const char *text, uint64_t *ret, const char **why);
bool quantity_ms(const char *text, uint64_t *ret, const char **why);

#endif
