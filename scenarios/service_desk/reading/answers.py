"""What a customer's answer to a proposal means: the one reader of yes and no in the house, for
judges and scripted sides alike.

It never guesses a yes. A message is read sentence by sentence: the first that is clearly a yes
or a no decides, and a yes is taken back by whatever follows that waits, doubts, sets a condition
or wants something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gem_ma.scenarios.service_desk.reading.phrases import plain

READ = 4000  # characters of a message that are read: nobody hides a yes behind more
SHORT = 5  # words; a longer doubt behind a yes is about something else
# The point of `1.5` parts a sentence too; its halves still read as yes or no.
_SENTENCE = re.compile(r"[^.!?;\n]+[.!?;\n]?")
_FILLS = re.compile(  # what may stand before an answer and says nothing
    r"^\W*(?:(?:oh|ah|aha|well|great|perfect|wonderful|excellent|awesome|thanks?(?: you)?(?: so"
    r" much| very much| a lot)?|hi|hello|hey|good"
    r"|alright(?:y)?|all right|hm+|u[mh]+|sorry|ok(?:ay)?|so|then|and|or"
    r"|in that case|now|you know what|duh|please|but|got it|i see|understood)\b[\W_]*)+"
)
# `no problem`, `no objections` and `no one` do not refuse. A bare `not` needs what it denies.
_NO = re.compile(
    r"^\W*(?:no(?!\w| (?:idea|clue|one|objections?|complaints?)\b)|nope|nah|negative|never\b(?!"
    r" mind)|don't|do not|stop\b(?!#)"
    r"|not (?!yet|sure|really sure|certain|until|unless)|please (?:don't|do not)|let's"
    # `leave it as it is` turns a change down without a no.
    r" not\b|i(?:'ll| will| think i'll) pass\b"
    r"|(?:please |let's |just )?(?:leave|keep) (?:it|that|this|them|everything|things|all)(?: all)?"
    r" (?:as|the way|like|how)\b"
    r"|(?:certainly|absolutely|definitely|of course|surely|obviously|clearly|hell) not?\b"
    r"|(?:that|this|it)(?:'s| is| was| isn't| wasn't| doesn't| does not)(?: all)?"
    r" (?:not\b|wrong|incorrect|false|what i)"
    r"|(?:that|this|it) isn't|wrong\b|incorrect"
    r"|i (?:don't|do not|didn't|did not|wouldn't|would not|won't|will not)"
    r" (?:want|agree|confirm|ask|need|like|wish|accept|approve)"
    r"|i (?:already )?(?:said|say) no\b|i don't think so"
    r"|i(?:'d| would) (?:rather|prefer) (?:not(?! (?:to )?(?:tell|say|give|share))|you didn't))"
)
_NO_OTHER = re.compile(  # a no to another question than the proposal: whether there is more
    r"^\W*(?:no|nope|nah|nothing|not)\b[\W_]*(?:problem|worries|need to|doubt|rush|(?:any"
    r" ?thing|nothing|none|no one) else|nothing (?:more|further)"
    r"|else|(?:other|more|further|additional)\b|(?:that|this|it)(?:'s| is| was| will be| would be)"
    r" (?:all|it|everything|the only)"
    r"|(?:changes?|corrections?|questions?|objections?) (?:needed|necessary|required|from me|at"
    r" all|there|here)"
    r"|just (?:that|this|these|those)|only (?:that|this|these|those|the)|i(?:'m| am)"
    r" (?:good|fine|all set))"
)
# Why something is to be done, and no word against it.
REASON = re.compile(
    r"^\W*(?:i|we) (?:really |just |simply )?(?:do not|don't)"
    r" (?:need\b(?! to)|(?:want|like|use) [^.!?,]{0,60}\bany ?(?:more|longer)\b|like (?:the|how)\b)"
)
# `maybe` and `let me think` neither allow nor refuse.
_DOUBTS = re.compile(
    r"\b(?:not (?:really |quite |entirely |too |so"
    r" )?(?:sure|certain|convinced)|unsure|uncertain|maybe|perhaps|possibly|i guess|i suppose"
    r"|might|hesita\w+|let me (?:think|check|see|ask|sleep|consider|get back|talk)|i(?:'ll| will)"
    r" (?:think|have to think|need to think|let you know)"
    r"|need (?:some |more |a (?:bit|little) )?(?:time|to think|to check)|in two minds|depends?)\b"
)
# What holds a yes back: a condition, another time, another item, something instead.
_HOLDS = re.compile(
    r"\b(?:but (?!that|thanks|thank|yes|ok|no\b|please hurry|first thank)|however|except\b|only"
    r" if|as long as"
    r"|provided (?:that|it)\b|unless|on one condition"
    r"|(?<!can't )(?<!cannot )wait\b|hold on|hang on|hold off|not yet|not now|not right now"
    r"|one moment|(?:a|one) (?:sec|second|minute)\b|actually\b|instead\b"
    r"|although|before (?:you|we|i)\b|if (?:it|that|you|the|i|there)\b"
    r"|(?:to|for|with) the (?:first|second|third|last|former|latter|other)\b|rather\b(?!"
    r" (?:good|nice|fine))|changed? my mind|on second thou?ghts?)"
)
# A yes wherever it stands in the sentence.
_STRONG = re.compile(
    r"\b(?:y+e+s+(?:sir|siree)?|yep|yeah|yea|yup|yas|affirmative|aye)\b(?! (?:or|if|man)\b)"
    r"|\bi (?:do |hereby |can |fully )?(?:confirm|agree|approve|consent|accept)\b"
)
# A yes only at the beginning: `correct` may be said of anything.
_PLAINLY = re.compile(
    r"^\W*(?:is (?:all )?(?:right|correct|fine|good)"
    r"|confirm(?:ed)?|agreed|approved|absolutely|definitely|certainly|exactly|correct|of course|by"
    r" all means|obviously|naturally|indeed"
    r"|deal|precisely|totally|gladly|with pleasure)\b|^\W*why not\W*$"
)
_POLITE = (
    r"(?:[\W_]*(?:please|sir|madam|ma'am|mate|thing|by me|with me|for me|i think|i"
    r" (?:do|am|will))\b)*"
)
_WEAK = re.compile(  # a yes only where hardly anything follows
    rf"^\W*(?:sure(?: thing)?|ok(?:ay)?|k|right|fine|alright|all right|ya|y){_POLITE}"
    r"(?:[\W_]*(?:thanks?|thank you|thx|cheers|great|good|fine|ok|like (?:this|that))\b)*\W*$"
    rf"|^\W*(?:good|great|perfect|wonderful|excellent|cool|lovely){_POLITE}\W*$|^\W*[👍✅👌]"
    # `please and thank you` answers an offer.
    r"|^\W*(?:no objections?|please and thank you)\b[^,]*$"
    r"|^\W*(?:sure|ok(?:ay)?|fine|alright|great|perfect)[, ]+please"
    r" (?!note|wait|hold|tell|let|use|explain|check|don't|send|give|clarify)"
)
_DO = re.compile(
    r"\b(?:go (?:ahead|for it|on)|proceed|do (?:it|that|so|this|them|both|these)\b|please"
    r" do\b|let's (?:do|go|proceed|make|get|finali[sz]e)"
    r"|carry on|make it (?:so|happen)|make (?:the|that|this|those|these|both)"
    r" changes?|(?:place|submit|process|save|finali[sz]e|complete|book|send)"
    r" (?:it|that|this|them|the (?:order|exchange|return|change|request)s?)"
    r"|you (?:may|can|have my|do have my|got my)(?:"
    # `you have my permission` needs no verb; `you can` needs one that is close.
    r" (?:permission|approval|consent|ok(?:ay)?|go-ahead|blessing))?\b(?=\W*$|.{0,40}\b(?:proceed"
    r"|go))"
    r"|you have my (?:permission|approval|consent|ok(?:ay)?|go-ahead)|please"
    r" (?:submit|process|continue|finali[sz]e|complete)\b"
    r"|you (?:can|may)(?: now| please| just)? "
    r"(?!not\b|see|find|check|tell|explain|keep|leave|forget|skip|stop)[a-z]+"
    r" (?:it|this|that|them|both|these|those)\b"
    r"|(?:it|that)(?:'s| is) a (?:go|deal|yes)\b|green light|(?:fire|go) (?:away|right ahead)|be my"
    r" guest"
    r"|i(?:'m| am) (?:on board|all for it|game|in favou?r)|let's (?:roll|get (?:it|this|that) done)"
    r"|my (?:confirmation|consent|approval|go-ahead)\b|(?:all )?suits me|(?:that|this|it)(?:'ll|"
    r" will) (?:do|work)\b)"
)
_FITS = re.compile(
    r"\b(?:that|this|it|everything|all(?! right)(?: of (?:it|that|this))?|those|these|the"
    # Up to four small words, not any number: two bounded groups keep the search linear.
    r" (?:details|summary|plan|changes?|address|list|total))"
    r"(?:'s|'re| is| are| all| both| now| does| just|,){0,4} (?:all |just |perfectly |quite |about"
    r" |absolutely |totally |exactly ){0,4}"
    r"(?:right|correct|fine|good|great|perfect|ok(?:ay)?|works?|sounds?|looks?|seems?|fits?"
    r"|matche?s?|what"
    r" i (?:want|meant|asked)\w*|exactly)\b"
    r"|\b(?:sounds?|looks?|seems?) (?:good|great|right|perfect|fine|correct|like a plan|about"
    r" right|ok(?:ay)?|reasonable|all right)\b"
    r"|\b(?:works|good|fine|ok(?:ay)?) (?:for|by|with) me\b|\b(?:that|it) would be"
    r" (?:great|good|perfect|fine|lovely|nice|wonderful|ideal)\b"
    r"|\bi(?:'m| am) (?:ok|okay|fine|happy|good|cool) with (?:that|this|it)\b|\bi(?:'d| would)"
    r" (?:like|love|appreciate) that\b"
    r"|\bi(?:'d| would)(?: really)? (?:like|love|want) to (?:proceed|go ahead|go with|move"
    r" forward|continue)\b|\bi want to (?:proceed|go ahead)\b"
    r"|\bi(?:'m| am) (?:quite |very |absolutely |totally )?sure(?!"
    r" (?:you|that|it|there|about|if|we|this)\b)"
)
# `so` at the end is an echo of `I think so`.
_CLAUSE = re.compile(r"[,:]|\band\b|\bso\b(?!\W*$)")
_TAKES_BACK = re.compile(r"\b(?:actually|instead|wait|hold on|rather|changed? my mind|not yet)\b")
# `yes, but no` is a no; `yes, no problem` is none.
_BEHIND_YES = re.compile(
    r"no(?:t|pe)?\b(?!"
    r" (?:problem|other|more|need|further|worries|changes?|questions?|objections?|issues?"
    r"|corrections?))"
)
_NEGATED = re.compile(  # what it says is not so, or only what others say
    r"\b(?:not|don't|doesn't|isn't|never|can't|cannot|won't|no|nor|without|wouldn't|didn't|wrong"
    r"|told|said|thought|heard|hope|assume|wonder(?:ing)?|whether|until|after)\b"
)
_MIND = re.compile(
    r"\b(?:changed? my mind|on second thou?ghts?|thinking about it|thought about it|scratch"
    r" that|forget (?:that"
    r"|it|what i)|actually,? (?:i|let|can|could|please|make|no)|never ?mind|i(?:'d| would)"
    r" rather(?! not\b))\b"
)
_CORRECT = re.compile(
    r"\b(?:sorry|apolog\w+|my mistake|i (?:meant|misspoke|mistyped|misread|got that wrong|gave you"
    r" the wrong"
    r"|made a (?:mistake|typo))|correction|typo|oops|rather than|should (?:be|have"
    r" been)|wrong)\b|\bactually\b"
)


def answer(text: str) -> str:
    """Whether a customer's message is a clear `yes` or `no` to what was proposed; "" where it is
    neither, or a yes with a but.

    >>> answer("Yes, please go ahead."), answer("Yes, but use my other card."), answer("No.")
    ('yes', '', 'no')
    >>> answer("No problem, yes"), answer("Certainly not."), answer("Yeah, no.")
    ('yes', 'no', 'no')
    >>> answer("Fine, just do it."), answer("Okay, how much is it?")
    ('yes', '')
    >>> answer("Yes, cancel it. I don't need it anymore."), answer("Y")
    ('yes', 'yes')
    """
    meant = ""
    for sentence, reading in sentences(text):
        # A short doubt takes a yes back; a long one is mostly about something else.
        if reading == "hold" or (reading == "doubt" and (not meant or sentence.count(" ") < SHORT)):
            return ""  # a yes with a but, or a doubt: neither
        # The first clear sentence decides: later ones explain it.
        if not meant:
            meant = reading if reading != "doubt" else ""
        # `Yes. No, wait, don't.` ends as a no; `Yes, cancel it. I don't need it` does not.
        elif meant == "yes" and reading == "no" and not REASON.search(sentence):
            return "no"
    return meant


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """The sentences of a message, each with what it says by itself: `yes`, `no`, `hold` (it
    waits or sets a condition), `doubt`, or ""."""
    for sentence in _SENTENCE.findall(plain(text[:READ])):
        yield sentence, _sentence(sentence)


def _sentence(sentence: str) -> str:
    """One sentence as `yes`, `no`, `hold` (it waits or sets a condition), `doubt`, or ""."""
    # A question is never a yes by its clauses alone.
    asks = sentence.rstrip().endswith("?")
    if asks and _HOLDS.search(sentence):
        return "hold" if _TAKES_BACK.search(sentence) else ""
    # `No, but thanks` refuses, whatever is held.
    if _HOLDS.search(sentence):
        return "no" if _NO.search(_bare(sentence)) else "hold"
    if _NO_OTHER.search(sentence):
        # `No, that's all, please go ahead`: behind the answer to another question the real one may
        # follow.
        rest = sentence.split(",", 1)[1] if "," in sentence else ""
        return _sentence(rest) if rest else ""
    bare = _bare(sentence)
    if _NO.search(bare):
        return "no"
    if _DOUBTS.search(sentence):
        return "doubt" if not asks else ""
    if strong := _STRONG.search(sentence) or _PLAINLY.search(bare):
        # What follows the yes on its sentence may turn it: `yes, not that one`.
        behind = strong.string[strong.end() :].strip(" ,")
        if not behind.startswith("?"):
            return "no" if _BEHIND_YES.match(behind) else "yes"
    if asks:
        return ""
    # By clauses, so that a negated one does not take back what the next one allows.
    clauses = [clause for clause in _CLAUSE.split(sentence) if not _NEGATED.search(clause)]
    return (
        "yes"
        if any(_DO.search(clause) or _FITS.search(clause) for clause in clauses)
        or _WEAK.search(sentence)
        else ""
    )


def _bare(sentence: str) -> str:
    """The sentence without what may stand before an answer."""
    return _FILLS.sub("", sentence)


def changes_mind(text: str) -> bool:
    """Whether a customer takes back what it wanted."""
    return _MIND.search(plain(text)) is not None


def corrects(text: str) -> bool:
    """Whether a customer corrects itself or the other side."""
    return _CORRECT.search(plain(text)) is not None or changes_mind(text)


# `we keep the other one`: what is not said yes to stands apart.
_APART = re.compile(
    r"\b(?:others?|rest|remaining|second|third|first|last|latter|former|keep|leave)\b"
)
# `just asking` allows nothing.
_ONLY = re.compile(
    r"^\W*(?:(?:yes|ok(?:ay)?|fine|sure)\W+)?(?:only|just)\b"
    r" (?!(?:asking|wondering|curious|checking|a (?:moment|second|minute|sec)))"
)


def is_partial(text: str) -> bool:
    """Whether a text allows a part of what was proposed and keeps the rest of it back.

    >>> is_partial("Only the chair, please. We'll keep the other one.")
    True
    >>> is_partial("Yes. But wait, not yet.")
    False
    """
    allows = False
    keeps = False
    for sentence, reading in sentences(text):
        # A yes may speak of the others too, so it keeps nothing back.
        if _APART.search(sentence) and reading != "yes":
            keeps = True
        # A doubt leaves the whole open, parts included.
        elif reading in ("hold", "doubt", "no"):
            return False
        elif reading == "yes" or (_ONLY.search(sentence) and "?" not in sentence):
            allows = True
    return allows and keeps
