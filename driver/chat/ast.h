/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of a chat template. Lists of nodes are linked by `next`.
 */
#ifndef TW_DRIVER_CHAT_AST_H
#define TW_DRIVER_CHAT_AST_H

#include "driver/chat/value.h"

enum tw_jinja_node_kind {
    /* expressions */
    TW_JINJA_CONST,        /* value */
    TW_JINJA_NAME,         /* text */
    TW_JINJA_ITEMS,        /* [list], or (list) if `flag` */
    TW_JINJA_PAIRS,        /* {list}: keys and values, alternating */
    TW_JINJA_ATTR,         /* a.text */
    TW_JINJA_ITEM,         /* a[b] */
    TW_JINJA_SLICE,        /* a[b:c:d], each may be NULL */
    TW_JINJA_CALL,         /* a(list) */
    TW_JINJA_KEYWORD,      /* text=a, in a list of arguments */
    TW_JINJA_SPREAD,       /* *a, in a list of arguments */
    TW_JINJA_SPREAD_NAMED, /* **a, in a list of arguments */
    TW_JINJA_FILTER,       /* a|text(list) */
    TW_JINJA_TEST,         /* a is text(list), or "is not" if `flag` */
    TW_JINJA_NOT,          /* not a */
    TW_JINJA_NEGATE,       /* -a */
    TW_JINJA_PLUS,         /* +a */
    TW_JINJA_AND,          /* a and b */
    TW_JINJA_OR,           /* a or b */
    TW_JINJA_BINARY,       /* a op b */
    TW_JINJA_IF_ELSE,      /* b if a else c (or NULL) */
    /* statements */
    TW_JINJA_DATA,   /* text */
    TW_JINJA_OUTPUT, /* {{ a }} */
    TW_JINJA_IF,     /* {% if a %}list{% else %}other{% endif %} */
    /* {% for target in a if b %}list{% else %}other{% endfor %}; `flag`: recursive */
    TW_JINJA_FOR,
    TW_JINJA_SET,        /* {% set target = a %} */
    TW_JINJA_SET_BLOCK,  /* {% set target|a %}list{% endset %}: a is filters of nothing, or NULL */
    TW_JINJA_MACRO_DEF,  /* {% macro text(target) %}list{% endmacro %} */
    TW_JINJA_CALL_BLOCK, /* {% call(target) a %}list{% endcall %} */
    TW_JINJA_FILTER_BLOCK, /* {% filter a %}list{% endfilter %} */
    TW_JINJA_WITH,         /* {% with target = a ... %}list: `other` are the SETs */
    TW_JINJA_BODY,         /* {% generation %}list{% endgeneration %} */
    TW_JINJA_BREAK,
    TW_JINJA_CONTINUE,
    TW_JINJA_PARAMETER /* text, default a or NULL: in the target of a macro */
};

enum tw_jinja_operator {
    TW_JINJA_ADD,
    TW_JINJA_SUB,
    TW_JINJA_MUL,
    TW_JINJA_DIV,
    TW_JINJA_FLOOR_DIV,
    TW_JINJA_MOD,
    TW_JINJA_POW,
    TW_JINJA_CONCAT,
    TW_JINJA_EQ,
    TW_JINJA_NE,
    TW_JINJA_LT,
    TW_JINJA_LE,
    TW_JINJA_GT,
    TW_JINJA_GE,
    TW_JINJA_IN,
    TW_JINJA_NOT_IN
};

struct tw_jinja_node {
    enum tw_jinja_node_kind kind;
    enum tw_jinja_operator op;
    bool flag;
    uint32_t at; /* offset in the source */
    struct tw_jinja_text text;
    struct tw_jinja_value value;
    struct tw_jinja_node *a, *b, *c, *d;
    struct tw_jinja_node *list, *other, *target;
    struct tw_jinja_node *next;
};

#endif
