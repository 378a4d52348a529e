# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: paths, TAP, the service under test, leftovers, cases.

Standard library only, Python 3.9 or later. Nothing here knows how the product works inside: it
is driven through `nsbox` and through the HTTP interface of `nsboxd`, and watched through /proc.
"""
