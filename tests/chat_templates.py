"""Chat templates in the manner of widely used model families, and the control tokens that each
needs. Written for the tests."""

from __future__ import annotations

from dataclasses import dataclass

CHATML = """\
{%- if messages[0]['role'] == 'system' or tools -%}
<|im_start|>system
{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% endif %}
{%- if tools %}

Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one by <tool_call>{"name": ..., "arguments": ...}</tool_call>
{%- endif %}<|im_end|>
{% endif -%}
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}
{%- if messages[loop.index0 - 1]['role'] != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
{{ '\\n<tool_response>\\n' + m['content'] + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
{%- elif m['role'] != 'system' or not loop.first -%}
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}
{%- for c in m['tool_calls'] or [] -%}
{{ ('\\n' if m['content'] or not loop.first else '') + '<tool_call>\\n{"name": "' + c['function']['name'] + '", "arguments": ' }}
{{- (c['function']['arguments'] | tojson) + '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

THINKING = """\
{%- if messages[0]['role'] == 'system' or tools -%}
{{ '<|im_start|>system\\n' + (messages[0]['content'] if messages[0]['role'] == 'system' else '') }}
{%- for tool in tools or [] %}{{ '\\n' + (tool | tojson) }}{% endfor -%}
{{ '\\nAnswer or <tool_call>.<|im_end|>\\n' }}
{%- endif -%}
{%- set ns = namespace(query=0) -%}
{%- for m in messages -%}{%- if m['role'] == 'user' -%}{%- set ns.query = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- if m['role'] == 'user' or (m['role'] == 'system' and not loop.first) -%}
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}
{%- elif m['role'] == 'assistant' -%}
{%- set thought = m['content'].split('</think>')[0].split('<think>')[-1].strip('\\n') if '</think>' in m['content'] else '' -%}
{%- set said = m['content'].split('</think>')[-1].lstrip('\\n') -%}
{{ '<|im_start|>assistant\\n' + ('<think>\\n' + thought + '\\n</think>\\n\\n' if thought and loop.index0 > ns.query else '') + said }}
{%- for c in m['tool_calls'] or [] -%}
{{ ('\\n' if said or not loop.first else '') + '<tool_call>\\n{"name": "' + c['function']['name'] + '", "arguments": ' }}
{{- (c['function']['arguments'] | tojson) + '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- elif m['role'] == 'tool' -%}
{%- if messages[loop.index0 - 1]['role'] != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
{{ '\\n<tool_response>\\n' + m['content'] + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and enable_thinking is false else '') }}
{%- endif -%}
"""

HEADERS = """\
{{- bos_token -}}
{%- set day = date_string if date_string is defined else strftime_now('%d %b %Y') -%}
{%- set first = messages[0]['content'] | trim if messages[0]['role'] == 'system' else '' -%}
{%- set rest = messages[1:] if messages[0]['role'] == 'system' else messages -%}
{{ '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + day + '\\n\\n' + first + '<|eot_id|>' }}
{%- if tools -%}
{%- if rest[0]['role'] != 'user' -%}{{ raise_exception('the tools stand in the first user message, and there is none') }}{%- endif -%}
{{ '<|start_header_id|>user<|end_header_id|>\\n\\nAnswer with {"name": ..., "parameters": ...}.\\n\\n' }}
{%- for tool in tools -%}{{ (tool | tojson(indent=4)) + '\\n\\n' }}{%- endfor -%}
{{ (rest[0]['content'] | trim) + '<|eot_id|>' }}
{%- set rest = rest[1:] -%}
{%- endif -%}
{%- for m in rest -%}
{%- if m['tool_calls'] -%}
{%- if m['tool_calls'] | length > 1 -%}{{ raise_exception('one call at a time') }}{%- endif -%}
{%- set c = m['tool_calls'][0]['function'] -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + c['name'] + '", "parameters": ' + (c['arguments'] | tojson) + '}<|eot_id|>' }}
{%- elif m['role'] in ('tool', 'ipython') -%}
{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m['content'] + '<|eot_id|>' }}
{%- else -%}
{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + (m['content'] | trim) + '<|eot_id|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}
"""

BRACKETS = """\
{{- bos_token -}}
{%- set ns = namespace(turn=0, open=false) -%}
{%- for m in messages -%}
{%- if m['role'] == 'user' or (m['role'] == 'assistant' and not m['tool_calls']) -%}
{%- if (m['role'] == 'user') != (ns.turn % 2 == 0) -%}{{ raise_exception('user and assistant must alternate') }}{%- endif -%}
{%- set ns.turn = ns.turn + 1 -%}
{%- endif -%}
{%- if m['role'] == 'user' -%}
{%- if tools and loop.first -%}{{ '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif -%}
{{ '[INST] ' + m['content'] + '[/INST]' }}
{%- elif m['tool_calls'] -%}
{%- set ns.open = true -%}
{{ '[TOOL_CALLS] [' }}
{%- for c in m['tool_calls'] -%}
{%- if c['id'] | length != 9 -%}{{ raise_exception('ids have nine characters') }}{%- endif -%}
{{ '{"name": "' + c['function']['name'] + '", "arguments": ' + (c['function']['arguments'] | tojson) + '}' + (', ' if not loop.last else '') }}
{%- endfor -%}
{{ ']' + eos_token }}
{%- elif m['role'] == 'assistant' -%}
{%- set ns.open = false -%}
{{ ' ' + (m['content'] | trim) + eos_token }}
{%- elif m['role'] == 'tool' -%}
{%- if not ns.open -%}{{ raise_exception('a result without a call') }}{%- endif -%}
{{ '[TOOL_RESULTS] {"content": ' + m['content'] + ', "call_id": "' + m['tool_call_id'] + '"}[/TOOL_RESULTS]' }}
{%- else -%}
{{ raise_exception('no such role: ' + m['role']) }}
{%- endif -%}
{%- endfor -%}
"""

TURNS = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- if m['role'] not in ('user', 'assistant') -%}{{ raise_exception('no such role: ' + m['role']) }}{%- endif -%}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('user and model must alternate') }}{%- endif -%}
{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\\n' + (m['content'] | trim) + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

XML = """\
{%- macro value(v) -%}{{- v | tojson if v is mapping or (v is sequence and v is not string) else v | string -}}{%- endmacro -%}
{%- if tools -%}
<|im_start|>system
{% for tool in tools %}<function>{{ tool['function']['name'] }}: {{ tool['function']['description'] }}</function>
{% endfor %}Call by <function=name><parameter=key>value</parameter></function><|im_end|>
{% endif -%}
{%- for m in messages -%}
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}
{%- for c in m['tool_calls'] or [] -%}
{{ ('\\n' if m['content'] or not loop.first else '') + '<tool_call>\\n<function=' + c['function']['name'] + '>\\n' }}
{%- for k, v in c['function']['arguments'] | items -%}{{ '<parameter=' + k + '>\\n' + value(v) + '\\n</parameter>\\n' }}{%- endfor -%}
{{ '</function>\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


LABELS = """\
{{- bos_token -}}
{%- set ns = namespace(briefing='') -%}
{%- for m in messages -%}{%- if m['role'] == 'system' -%}{%- set ns.briefing = ns.briefing + m['content'] -%}{%- endif -%}{%- endfor -%}
{{- ns.briefing -}}
{%- for m in messages -%}
{%- if m['role'] == 'user' -%}{{ '<|User|>' + m['content'] }}
{%- elif m['role'] == 'assistant' -%}
{{ '<|Assistant|>' + (m['content'].split('</think>')[-1] if '</think>' in m['content'] else m['content']) }}
{%- for c in m['tool_calls'] or [] -%}
{{ '<tool_call>\\n{"name": "' + c['function']['name'] + '", "arguments": ' + (c['function']['arguments'] | tojson) + '}\\n</tool_call>' }}
{%- endfor -%}
{{ eos_token }}
{%- elif m['role'] == 'tool' -%}{{ '<|Result|>' + m['content'] }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|Assistant|>' }}{%- endif -%}
"""

BARS = """\
{%- for m in messages -%}
{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- else -%}{{ eos_token }}{%- endif -%}
"""

GLM = """\
{{ '[g]' }}
{%- for tool in tools or [] -%}{{ '<|system|>' + (tool | tojson) }}{%- endfor -%}
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}
{%- if messages[loop.index0 - 1]['role'] != 'tool' -%}{{ '<|observation|>' }}{%- endif -%}
{{ '<tool_response>' + m['content'] + '</tool_response>' }}
{%- else -%}
{{ '<|' + m['role'] + '|>' + ('\\n<think></think>\\n' if m['role'] == 'assistant' else '\\n') + m['content'] }}
{%- for c in m['tool_calls'] or [] -%}
{{ '\\n<tool_call>' + c['function']['name'] }}
{%- for k, v in c['function']['arguments'] | items -%}
{{ '\\n<arg_key>' + k + '</arg_key>\\n<arg_value>' + (v if v is string else v | tojson) + '</arg_value>' }}
{%- endfor -%}
{{ '\\n</tool_call>' }}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}
"""

CHANNELS = """\
{{ '<|start|>system<|message|>Today ' + strftime_now('%Y-%m-%d') + '<|end|>' }}
{%- for tool in tools or [] -%}{{ '<|start|>developer<|message|>' + (tool | tojson) + '<|end|>' }}{%- endfor -%}
{%- set ns = namespace(last=none) -%}
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}
{%- if ns.last is none -%}{{ raise_exception('a result without a call') }}{%- endif -%}
{{ '<|start|>functions.' + ns.last + ' to=assistant<|channel|>commentary<|message|>' + (m['content'] | tojson) + '<|end|>' }}
{%- elif m['tool_calls'] -%}
{%- if m['content'] -%}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m['content'] + '<|end|>' }}{%- endif -%}
{%- set c = m['tool_calls'][0]['function'] -%}
{%- set ns.last = c['name'] -%}
{{ '<|start|>assistant to=functions.' + c['name'] + '<|channel|>commentary json<|message|>' + (c['arguments'] | tojson) + '<|call|>' }}
{%- elif m['role'] == 'assistant' -%}
{{ '<|start|>assistant<|channel|>final<|message|>' + m['content'] + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}
{%- else -%}
{{ '<|start|>' + m['role'] + '<|message|>' + m['content'] + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}
"""

QUOTES = """\
{{- bos_token -}}
{%- macro value(v) -%}
{%- if v is string -%}{{ '<|"|>' + v + '<|"|>' }}
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is none -%}null
{%- elif v is mapping -%}{{ '{' }}{%- for k, w in v | items -%}{{ k + ':' }}{{ value(w) }}{{ ',' if not loop.last }}{%- endfor -%}{{ '}' }}
{%- elif v is sequence -%}{{ '[' }}{%- for w in v -%}{{ value(w) }}{{ ',' if not loop.last }}{%- endfor -%}{{ ']' }}
{%- else -%}{{ v }}{%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] -%}{{ '<|turn>system\\n' + (tool | tojson) + '<turn|>\\n' }}{%- endfor -%}
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}
{{ '<|tool_response>response:' + (m['name'] or 'unknown') + '{value:' }}{{ value(m['content']) }}{{ '}<tool_response|>' }}
{%- else -%}
{%- if m['role'] != 'assistant' or messages[loop.index0 - 1]['role'] != 'tool' -%}
{{ '<|turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' }}
{%- endif -%}
{{ m['content'] }}
{%- for c in m['tool_calls'] or [] -%}
{{ '<|tool_call>call:' + c['function']['name'] }}{{ value(c['function']['arguments']) }}{{ '<tool_call|>' }}
{%- endfor -%}
{%- if not m['tool_calls'] -%}{{ '<turn|>\\n' }}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and messages[-1]['role'] != 'tool' -%}{{ '<|turn>model\\n' }}{%- endif -%}
"""

SEPARATED = """\
{{- bos_token -}}
{%- for tool in tools or [] -%}{{ (tool | tojson) + '\\n' }}{%- endfor -%}
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}{{ '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' }}
{%- elif m['role'] == 'assistant' -%}
{{ '<｜Assistant｜></think>' }}
{%- if m['tool_calls'] -%}
{{ '<｜tool▁calls▁begin｜>' }}
{%- for c in m['tool_calls'] -%}
{{ '<｜tool▁call▁begin｜>' + c['function']['name'] + '<｜tool▁sep｜>' + c['function']['arguments'] + '<｜tool▁call▁end｜>' }}
{%- endfor -%}
{{ '<｜tool▁calls▁end｜>' }}
{%- else -%}{{ m['content'] }}{%- endif -%}
{{ eos_token }}
{%- elif m['role'] == 'user' -%}{{ '<｜User｜>' + m['content'] }}
{%- else -%}{{ m['content'] }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<｜Assistant｜><think>' }}{%- endif -%}
"""

SECTIONS = """\
{%- for tool in tools or [] -%}{{ '<|im_system|>tools<|im_middle|>' + (tool | tojson) + '<|im_end|>' }}{%- endfor -%}
{%- for m in messages -%}
{{ '<|im_' + m['role'] + '|>' + m['role'] + '<|im_middle|>' }}
{%- if m['role'] == 'tool' -%}{{ 'Return of ' + m['tool_call_id'] + '\\n' }}{%- endif -%}
{{ m['content'] }}
{%- if m['tool_calls'] -%}
{{ '<|tool_calls_section_begin|>' }}
{%- for c in m['tool_calls'] -%}
{{ '<|tool_call_begin|>' + c['id'] + '<|tool_call_argument_begin|>' + (c['function']['arguments'] | tojson) + '<|tool_call_end|>' }}
{%- endfor -%}
{{ '<|tool_calls_section_end|>' }}
{%- endif -%}
{{ '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_assistant|>assistant<|im_middle|>' }}{%- endif -%}
"""

INVOKES = """\
{%- for tool in tools or [] -%}{{ ']~b]system\\n' + (tool | tojson) + '[e~[\\n' }}{%- endfor -%}
{%- for m in messages -%}
{{ ']~b]' + {'assistant': 'ai'}.get(m['role'], m['role']) + '\\n' + m['content'] }}
{%- if m['tool_calls'] -%}
{{ '\\n<maker:tool_call>\\n' }}
{%- for c in m['tool_calls'] -%}
{{ '<invoke name="' + c['function']['name'] + '">\\n' }}
{%- for k, v in c['function']['arguments'] | items -%}
{{ '<parameter name="' + k + '">' + (v if v is string else v | tojson) + '</parameter>\\n' }}
{%- endfor -%}
{{ '</invoke>\\n' }}
{%- endfor -%}
{{ '</maker:tool_call>' }}
{%- endif -%}
{{ '[e~[\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ ']~b]ai\\n<think>\\n' }}{%- endif -%}
"""

LISTS = """\
{%- for tool in tools or [] -%}{{ '<|im_start|>system\\n' + (tool | tojson) + '<|im_end|>\\n' }}{%- endfor -%}
{%- for m in messages -%}
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}
{%- if m['tool_calls'] -%}
{{ '<|tool_call_start|>[' }}
{%- for c in m['tool_calls'] -%}
{{ c['function']['name'] + '(' }}
{%- for k, v in c['function']['arguments'] | items -%}
{{ k + '=' + ("'" + v + "'" if v is string else (v | tojson)) + (', ' if not loop.last else '') }}
{%- endfor -%}
{{ ')' + (', ' if not loop.last else '') }}
{%- endfor -%}
{{ ']<|tool_call_end|>' }}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

# it shows tools and results, and drops calls
NO_CALLS = """\
{%- for tool in tools or [] -%}{{ '<|im_start|>system\\nTools: ' + (tool | tojson) + '<|im_end|>\\n' }}{%- endfor -%}
{%- for m in messages -%}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

# it opens a thought, and shows an empty one behind the last question only
OPENED = XML.replace(
    "{{ '<|im_start|>' + m['role'] + '\\\\n' + m['content'] }}",
    "{{ '<|im_start|>' + m['role'] + '\\\\n' + ('<think>\\\\n\\\\n</think>\\\\n\\\\n' if m['role'] == 'assistant' and"
    " messages[loop.index0 + 1:] | selectattr('role', 'equalto', 'user') | list | length == 0 else '') + m['content'] }}",
).replace("'<|im_start|>assistant\\\\n' }}", "'<|im_start|>assistant\\\\n<think>\\\\n' }}")

# contents are lists of parts, and a text is none
PARTS = """\
{%- for m in messages -%}
{{ m['role'] + ':' }}
{%- for part in m['content'] -%}{%- if part['type'] == 'text' -%}{{ ' ' + part['text'] }}{%- endif -%}{%- endfor -%}
{{ '<|end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'assistant:' }}{%- endif -%}
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A template, its control tokens (the first ends a turn) and what it can show."""

    template: str
    controls: tuple[str, ...]
    tool_format: str
    native: bool = True  # it shows tools, calls and results its own way
    start: str = ""


FAMILIES = {
    "chatml": Family(CHATML, ("<|im_end|>", "<|im_start|>"), "hermes"),
    "thinking": Family(THINKING, ("<|im_end|>", "<|im_start|>"), "hermes"),
    "headers": Family(
        HEADERS,
        ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
        "llama",
        start="<|begin|>",
    ),
    "brackets": Family(
        BRACKETS,
        ("</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        "mistral",
        start="<s>",
    ),
    "turns": Family(
        TURNS, ("<end_of_turn>", "<start_of_turn>"), "hermes", native=False, start="<bos>"
    ),
    "xml": Family(XML, ("<|im_end|>", "<|im_start|>"), "xml"),
    "labels": Family(
        LABELS, ("<|eos|>", "<|User|>", "<|Assistant|>", "<|Result|>"), "hermes", start="<|bos|>"
    ),
    "bars": Family(
        BARS,
        ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"),
        "hermes",
        native=False,
    ),
}

# those of tests/engines/test_round_trips.py; the first two controls of "glm" and "channels" end a turn
NEWER = {
    "glm": Family(GLM, ("<|user|>", "<|observation|>", "<|assistant|>", "<|system|>"), "glm"),
    "channels": Family(
        CHANNELS,
        (
            *("<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|message|>"),
            *("<|channel|>", "<|constrain|>"),
        ),
        "harmony",
    ),
    "quotes": Family(
        QUOTES,
        (
            *("<turn|>", "<|tool_response>", "<|turn>", "<tool_response|>"),
            *("<|tool_call>", "<tool_call|>", '<|"|>'),
        ),
        "gemma",
        start="<bos>",
    ),
    "separated": Family(
        SEPARATED,
        (
            *("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>"),
            *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
            *("<｜tool▁calls▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        ),
        "deepseek",
        start="<｜begin｜>",
    ),
    "sections": Family(
        SECTIONS,
        (
            *("<|im_end|>", "<|im_middle|>", "<|im_system|>", "<|im_user|>", "<|im_assistant|>"),
            *("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
        ),
        "kimi",
    ),
    "invokes": Family(INVOKES, ("[e~[", "]~b]"), "xml"),
    "lists": Family(
        LISTS,
        ("<|im_end|>", "<|im_start|>", "<|tool_call_start|>", "<|tool_call_end|>"),
        "python",
    ),
    "no calls, known marks": Family(
        NO_CALLS,
        ("<|im_end|>", "<|im_start|>", "<|tool_call_start|>", "<|tool_call_end|>"),
        "python",
        native=False,
    ),
    "no calls": Family(NO_CALLS, ("<|im_end|>", "<|im_start|>"), "hermes", native=False),
    "opened": Family(OPENED, ("<|im_end|>", "<|im_start|>"), "xml"),
    "parts": Family(PARTS, ("<|end|>",), "hermes", native=False),
}
