"""What a server's sentence says of a request that it refused: that the conversation no longer fits,
or that a moderation flagged it.

Every vendor words this in its own way, and changes it. So a sentence is read by its parts, not by
a list: something of the conversation, a measure, and that the one is above the other. Knows no
status and no fault. A text is read up to `LOOKED_AT` characters, at a cost linear in them.
"""

from __future__ import annotations

import re

LOOKED_AT = 2000  # characters: what follows is mostly the request, sent back

_URL = re.compile(r"https?://\S+")
# an option of the request, such as messages[2].tool_calls[0].id or #/tools/0/name or body.user
_PATH = re.compile(r"#?/?\b[a-z_]+(?:\[\d+\]|[./](?:\d+|[a-z_]+)\b){1,16}")
_INDEX = re.compile(r"\[\d|[./]\d|^body\b|^#")
# the last name of a path to what is said; any other path leads to an option
_TEXT_FIELDS = frozenset({"content", "contents", "text", "messages", "message", "prompt", "input"})
_CODE = re.compile(
    r"context[_ ]?(?:length|window|size)?[_ ]?(?:exceeded|overflow)|exceed_context_size"
    r"|(?:prompt|input)_?too_?(?:long|large)|tokens_limit_reached"
    r"|max_(?:prompt|input|context|seq)\w{0,20}_exceeded"
)
# the length of the answer has limits of its own
_OUTPUT = re.compile(
    r"\bmax(?:imum)?[ _-]?(?:completion|new|output)?[ _-]?tokens\b(?! allowed)|\bmaxoutputtokens\b"
    r"|\b(?:output|completion|budget|thinking|reasoning|new|generated)[ _]?(?:tokens?|length)\b"
    r"|\bmaximum output\b|\btokens to generate\b"
)
# a limit on use is one of time or money
_USE = re.compile(
    r"(?:\bper[ -]|/ ?)(?:minute|min\b|second|hour|day|month)|\btp[md]\b|\brate[ _-]?limit|\bquota"
    r"|\bmonthly\b|\bdaily\b|\bplease wait\b|\btime(?:d )?out|\bdeadline|\bbilling\b|\bcredits?\b"
    r"|\btokens? budget\b|\bexpired?\b|\bmemory\b"
)
# what a validator says of the value of any field, and a limit from below
_OTHER = re.compile(
    r"\binputs? should\b|\bstop[ _]sequences?\b"
    r"|\b(?:must|should) (?:be|have|contain) (?:greater|more|longer|larger|higher) than\b"
)
_MEDIA = re.compile(r"\b(?:image|audio|video|file|document|pdf|attachment)s?\b")
_TEXT = re.compile(r"\b(?:context|prompt|text)\b")
# names of fields are not words, but for those of a measure
_NAME = re.compile(
    r"\b(?:[a-z]+_)+(?!(?:tokens?|len|length|size|limit|ctx|window|context)\b)[a-z]+"
)
_CONVERSATION = re.compile(
    r"\b(?:context|ctx|prompts?|inputs?|messages?|conversation|history|sequence|seq|chat|dialogue"
    r"|text|model length)\b"
)
_REQUEST = re.compile(r"\brequest(?:ed)?\b")  # of which the conversation is but a part
_MEASURE = re.compile(
    r"\b(?:tokens|token (?:count|limit|length|number|size)|char(?:acter)?s?|context|ctx|length|len"
    r"|window|maxlength|words|fits?|(?:input|prompt) limit)\b"
)
# whole sentences, without a measure
_TOO_LONG = re.compile(
    r"\b(?:prompt|inputs?|conversation|history|text|messages?|chat|dialogue)"
    r"(?: (?:you|that|submitted|sent|provided|given|history|text|content|has|become|got|is|are|was"
    r"|were|much|far|way)){0,4} too (?:long|large|big)\b"
    r"|\bcontext (?:\w+ ){0,2}(?:too small|insufficient)\b|(?:^|error: )too many tokens"
)
_ABOVE = re.compile(
    r"\bexceed|\bsurpass|\boverflow|\btruncat|\breached\b|\bfull\b|\bnot enough\b"
    r"|\btoo (?:long|large|many|big|much)\b|\b(?:reduce|shorten|decrease|trim)\b"
    r"|\b(?:longer|greater|larger|more|bigger|higher) than\b|\b(?:above|beyond|over) the\b"
    r"|\b(?:less|fewer|smaller|shorter) (?:than|or)\b|\bat most\b|\bno more than\b|\bup to\b"
    r"|<=|\d\)? ?> |\bmaximum length\b|\bmaxlength\b|\brange of\b|\bonly \d|\blimit: ?\d"
    r"|\b(?:not|n't|no longer) fits?\b|\bout of (?:context|room)\b|\blimit(?:ed)? to\b"
    r"|\b(?:limit|maximum|only) (?:is|of|supports)\b|\bcontext (?:\w+ )?(?:is|of) (?:only )?\d"
    r"|\bmax(?:imum)? (?:context|prompt|input|sequence|model|total|number|is)\b"
)
_HAN = re.compile(r"(?:上下文|输入|提示词|prompt).{0,40}(?:超|过长|上限)|超.{0,40}上下文")

_FLAGGED_CODE = re.compile(
    r"content_?filter|content_?policy_?violation|responsibleaipolicyviolation|prohibited_content"
    r"|moderation_(?:blocked|failed|error)|data_?inspection_?failed|flagged_input"
    r"|guardrail_?intervened|content_?moderation"
)
_FLAGGED = re.compile(
    r"\bflagged\b|\bmoderation\b(?! (?:model|endpoint))|\binappropriate\b|\bunsafe\b|\bharmful\b"
    r"|\bhigh risk\b|\bcontent exists risk\b|\bresponsible ai\b"
    r"|\bcontent[ -](?:filter|polic|manage)"
    r"|\bsafety (?:system|reason|check|filter|concern|polic|guideline|violation|classifier)"
    r"|\busage (?:polic|guideline)|\b(?:prohibited|disallowed) (?:content|use\b)"
    r"|\bsensitive (?:content|info|word|topic|material)"
    r"|\bguardrails?\b.{0,40}\b(?:interven|block|violat|trigger|reject)|\bby .{0,20}\bguardrail"
    r"|\bviolat.{0,40}\b(?:polic|guideline|terms|standard)|敏感|不安全|违规|不合规"
)
_SPOKEN = re.compile(
    r"\b(?:input|prompt|content|message|text|request|output|completion|response|conversation"
    r"|answer|question|image)s?\b|内容|输入"
)
# who asks was refused, not what was asked
_ASKER = re.compile(
    r"\bkeys?\b|\baccounts?\b|\borgani[sz]ation|\bproject\b|\baccess\b|\bpermissions?\b"
    r"|\bauthori[sz](?:ed|ation)\b|\bauthenticat(?:ed|ion)\b|\bcredential|\bsuspended\b|\bbanned\b|\bregion\b|\bcountry\b|\bterritory\b"
    r"|\bsubscri|\bip address\b|\blog ?in\b"
)


def overflows(text: str) -> bool:
    """Whether a folded text says that the conversation is longer than the model's context.

    >>> overflows("the input (9000 tokens) is longer than the model's context length (8192)")
    True
    >>> overflows("max_tokens is too large: 9000. this model has at most 4096 completion tokens")
    False
    """
    text = _URL.sub(" ", text[:LOOKED_AT])
    if _CODE.search(text):
        return True
    if _USE.search(text) or any(map(_is_option, _PATH.finditer(text))):
        return False
    answer = bool(_OUTPUT.search(text))
    rest = _NAME.sub(" ", _OTHER.sub(" ", _OUTPUT.sub(" ", text))).replace("_", " ")
    if _MEDIA.search(rest) and not _TEXT.search(rest):  # a picture has limits of its own
        return False
    if not answer and _TOO_LONG.search(text):
        return True
    if not _ABOVE.search(rest):
        return bool(_HAN.search(rest))
    spoken = _CONVERSATION.search(rest) or (not answer and _REQUEST.search(rest))
    return bool(spoken and _MEASURE.search(rest))


def flagged(text: str) -> bool:
    """Whether a folded text says that a moderation refused what was said, and not who asks.

    >>> flagged("your input was flagged for: violence"), flagged("your account was flagged")
    (True, False)
    """
    text = text[:LOOKED_AT]
    if _FLAGGED_CODE.search(text):
        return True
    return bool(_FLAGGED.search(text) and _SPOKEN.search(text) and not _ASKER.search(text))


def _is_option(path: re.Match[str]) -> bool:
    names = re.findall(r"[a-z_]+", path[0])
    return bool(_INDEX.search(path[0])) and names[-1] not in _TEXT_FIELDS
