/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates by name (builtin.h).
 */
#include "driver/chat/builtin.h"

/* Formats that have no place for instructions put them before the first message of the user. */
#define SYSTEM_INTO_USER                                       \
    "{%- set ns = namespace(system='') -%}"                    \
    "{%- for m in messages if m.role == 'system' -%}"          \
    "{%- set ns.system = ns.system ~ m.content ~ '\\n\\n' -%}" \
    "{%- endfor -%}"

const struct tw_chat_builtin tw_chat_builtins[] = {
    {"chatml", "{%- for m in messages -%}"
               "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
               "{%- endfor -%}"
               "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"},
    {"gemma", SYSTEM_INTO_USER
     "{{ bos_token }}"
     "{%- for m in messages if m.role != 'system' -%}"
     "{{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\\n' "
     "~ (ns.system if loop.first else '') ~ m.content | trim ~ '<end_of_turn>\\n' }}"
     "{%- endfor -%}"
     "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif -%}"},
    {"llama2", SYSTEM_INTO_USER
     "{%- set last = namespace(user=false) -%}"
     "{%- for m in messages if m.role != 'system' -%}"
     "{%- if m.role == 'user' -%}"
     "{{ bos_token ~ '[INST] ' ~ ('<<SYS>>\\n' ~ ns.system | trim ~ '\\n<</SYS>>\\n\\n' "
     "if loop.first and ns.system else '') ~ m.content | trim ~ ' [/INST]' }}"
     "{%- else -%}"
     "{{ ' ' ~ m.content | trim ~ ' ' ~ eos_token }}"
     "{%- endif -%}"
     "{%- endfor -%}"},
    {"llama3", "{{ bos_token }}"
               "{%- for m in messages -%}"
               "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content | trim "
               "~ '<|eot_id|>' }}"
               "{%- endfor -%}"
               "{%- if add_generation_prompt -%}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
               "{%- endif -%}"},
    {"mistral",
     SYSTEM_INTO_USER "{{ bos_token }}"
                      "{%- for m in messages if m.role != 'system' -%}"
                      "{%- if m.role == 'user' -%}"
                      "{{ '[INST] ' ~ (ns.system if loop.first else '') ~ m.content ~ ' [/INST]' }}"
                      "{%- else -%}"
                      "{{ ' ' ~ m.content ~ eos_token }}"
                      "{%- endif -%}"
                      "{%- endfor -%}"},
    {"phi3", "{%- for m in messages -%}"
             "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}"
             "{%- endfor -%}"
             "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif -%}"},
    {"zephyr", "{%- for m in messages -%}"
               "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token ~ '\\n' }}"
               "{%- endfor -%}"
               "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif -%}"},
};
const size_t tw_chat_n_builtins = sizeof tw_chat_builtins / sizeof *tw_chat_builtins;
