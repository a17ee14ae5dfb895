/* SPDX-License-Identifier: MIT */
/* quote - strings in JSON and XML documents. */
#ifndef PP_BASE_QUOTE_H
#define PP_BASE_QUOTE_H

#include <stdio.h>

/* Writes s as a JSON string, quotes included. s is UTF-8. */
void pp_quote_json(FILE *f, const char *s);

/* Writes s as XML text or as part of an attribute. Control characters, which
 * XML cannot hold, become spaces. s is UTF-8. */
void pp_quote_xml(FILE *f, const char *s);

#endif
