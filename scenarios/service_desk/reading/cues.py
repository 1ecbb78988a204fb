"""The cues of service talk in neutral English, as patterns over case-folded text with plain quotes:
what asks, proposes, reports, refuses.

No word of any domain: what its writes, slots, values and states sound like stands in its
phrasebook.
"""

from __future__ import annotations

import re

# A point ends a sentence only before a blank: `1.5 l` and `a@b.com` go on.
SENTENCE = re.compile(r"(?:[^.!?\n]|[.](?=\S)|[!?](?=[\w]))+(?:[.!?]+[\"')\]*_]*|\n|$)")
WH = r"(?:which|what|where|when|who|whose|why|how)"
REQUEST = re.compile(
    r"\?|\bplease"
    r" (?:provide|tell|share|give|specify|send|let|enter|state|type|verify|confirm|supply|include"
    r"|choose|select|describe|clarify)\b"
    r"|\b(?:could|can|would|will) you (?:please |kindly |also"
    r" )*(?:provide|tell|share|give|specify|send|let|verify|confirm|describe|clarify|choose)\b"
    r"|\bmay i (?:please )?(?:have|get|ask|know)\b|\b(?:i|we)(?:'ll|'d| will| would)? (?:also |just"
    r" |first "
    r"|still )*(?:need|require)\b(?! to (?:check|look|verify that))"
    r"|\blet me know (?:your|the|which|what|how|if|whether)\b|\bi(?:'d| would) (?:like|love) to"
    r" know\b|\btell me\b|\bwhat i need\b"
)
# Asks for a yes: the words with which assistants put a change to the customer.
STRONG = re.compile(
    r"\b(?:fine|ok(?:ay)?|good|alright|all right) (?:with|by|for) you\b|\bthis is (?:what you"
    r" (?:want|meant)|correct|right|ok(?:ay)?)\b|"
    r"\b(?:do|can|could|will|would) you (?:please"
    r" )?(?:agree|approve|consent|authori[sz]e|accept|okay|ok)\b|\bdo you (?:want to )?confirm\b"
    r"|\b(?:shall|should|may|can|could|might) (?:i|we)\b(?!"
    # Behind `may I` many verbs ask for something else than a yes: `may I have your name`.
    r" (?:have|get|ask|help|know|assist|please|also (?:have"
    r"|get)|see|(?:do|offer)(?: you)? (?:any|some)thing|be of))"
    r"|\b(?:would you like|do you want|would you prefer|do you wish|want|are you"
    r" (?:ok|okay|happy|fine) (?:with|for)) (?:me|us)\b(?: to)?"
    r"|\bwould you (?:still )?like to (?:proceed|go ahead|continue|confirm|move forward|go"
    r" through|finali[sz]e|go with)\b"
    r"|\bdo you (?:want|wish) to (?:proceed|go ahead|continue|move forward|go through|go"
    r" with)\b|\bwould (?:that"
    r"|this) (?:work|be (?:ok|okay|fine|all right|alright|good|acceptable|correct))\b"
    r"|\b(?:is|are|does|do|did) (?:that|this|these|it|everything|all(?: of)?(?: this| that|"
    r" the)?|the (?:above"
    # Gaps are bounded and stop at the end of a sentence; without that a long list is searched from
    # each of its words.
    r"|details|information|following|summary)|i)\b[^.?!]{0,60}"
    r"\b(?:correct|right|ok(?:ay)?|accurate|good|fine|acceptable|work for you|as you want|what you"
    r" want|look alright)\b"
    r"|\b(?:sounds?|looks?)"
    r" (?:good|right|ok(?:ay)?|fine|correct)\b(?=[^.!]{0,200}\?)|\byes\b[\"'”]? ?(?:/|or"
    r"|to) ?[\"'“(]*(?:no|confirm|proceed|continue|go ahead|authori[sz]e|approve)\b"
    r"|\b(?:reply|respond|answer|say|type|write)(?: back)?(?: with)?(?: a(?: simple)?)?"
    r" [\"'“(]*(?:yes"
    r"|confirm|ok)\b|\(yes\)|\bready (?:for me )?to (?:proceed|go"
    r" ahead|submit|continue)\b(?=[^.!]{0,200}\?)"
    r"|\b(?:go ahead|proceed|move forward)\b(?=[^.!]{0,200}\?)|\bto confirm[, ]+you(?:'d|"
    r" would|'re| want| wish)\b"
    r"|\bif (?:you agree|that's (?:ok|okay|fine|correct|right)|everything (?:is|looks))\b"
    r"|\b(?:i|we)(?:'ll| will)? need your (?:explicit |clear |final"
    r" )?(?:confirmation|approval|consent|go-ahead|ok|okay|permission|yes)\b"
    r"|\b(?:ok|okay|all right|alright|good) (?:to|for me to|with you)\b|\bis it (?:ok|okay|all"
    r" right|alright"
    r"|fine) (?:if|to)\b|\b(?:correct|right|ok|okay|agreed|yes)\s*\?"
    r"|\bdo i have your (?:ok|okay|permission|approval|consent|go-ahead|confirmation)\b|\bdoes"
    r" (?:that"
    r"|this) (?:work|suit|match)\b|\bhappy (?:for me )?to (?:proceed|go ahead)\b"
    r"|\bis (?:it|that|this) (?:a (?:go|deal|yes)|all right|alright|settled)\b|\bgood to"
    r" go\b(?=[^.!]{0,200}\?)|\b(?:do|shall) we have a deal\b"
    r"|\bgive me (?:the|a|your) (?:go-ahead|green light|ok|okay|yes)\b|\bwould you like this"
    r" (?:done|changed|processed)\b"
)
# May ask for a yes, or speak of one: `once you confirm`.
WEAK = re.compile(
    r"\bconfirm(?:ation|ed|ing)?\b|\blet me know if (?:you(?:'d| would)?"
    r" (?:like|want|agree|wish)|this"
    r"|that|everything|it|i (?:should|can|may))\b|\b(?:your|explicit) (?:approval|consent)\b"
    r"|\bonce you(?:'ve)? (?:approve|agree|say yes|give)\b|\bauthori[sz]e\b"
)
# Announces what will be done, apart from reading, helping and thinking.
INTENDS = re.compile(
    r"\b(?:i|we)(?:'ll|'d| will| would| am going to|'m going to|'m about to| am about to) (?:now"
    r" |then |go ahead and "
    r"|proceed to |just"
    r" )*(?!like|love|be\b|suggest|recommend|rather|prefer|appreciate|first|need|check|look|be"
    r" able|transfer|help|have)\w+"
)
# Before a report these turn it into a plan, a condition or a question.
MODAL = re.compile(
    r"\b(?:will|would|'ll|once|after|before|when|if|until|unless|to"
    r" be|can|could|cannot|can't|not|haven't"
    r"|hasn't|isn't|aren't|wasn't|unable|shall|should|may|might|must|as soon as|whether|already"
    r" been|never"
    r"|want)\b"
)
DONE = re.compile(
    r"\b(?:i|we)(?:'ve| have) (?:(?:now|just|also|already|successfully|gone ahead and|gone ahead,?"
    r" and) )*"
    # `I have found your order` has changed nothing.
    r"(?!found|located|checked|looked|verified|reviewed|noted|received|seen|pulled|identified"
    r"|confirmed|your|the|a|to|been|got|gone)\w+"
    r"|\b(?:has|have|had)(?: (?:now|just|also|successfully|all|both))* been\b(?!"
    r" (?:located|found|verified|identified|noted|received))"
    # `is now being processed` is a state, not a change that was made.
    r"|\b(?:is|are) now\b(?! (?:being|in))|\bsuccessfully\b|\bwent through\b|\btaken care of\b"
    r"|\b(?:is|are|was|were|'s)(?: (?:all|now|been|also))*"
    r" (?:done|completed?|finished|sorted|handled|submitted|processed"
    r"|set|in place|finali[sz]ed|updated|changed)\b"
    r"|^\W*(?:all |it's |that's |and |great, |perfect, )*(?:done|set|completed?)\b|\b(?:was|were)"
    r" successful\b"
    r"|^\W*(?:success|confirmed|submitted|completed|updated)\W*$"
)
# Reports that fit any write; they count where the sentence speaks of none.
GENERIC_DONE = re.compile(
    r"\b(?:done|complete[d]?|processed|submitted|updated|applied|finali[sz]ed|taken care|all"
    r" set|set up"
    r"|made|changed|gone through|went"
    r" through|finished|handled|requested|confirmed|success\w*|sorted)\b"
)
REFUSE = re.compile(
    r"\b(?:can ?not|can't|could not|couldn't|unable to|not able to|isn't"
    r" (?:possible|allowed|permitted|eligible|available|an option|something)"
    r"|(?:is|are|it's|that's|be) ?not (?:possible|allowed|permitted|eligible|available|an"
    r" option|something (?:i|we))"
    r"|aren't (?:eligible|available|possible|allowed|able)|not"
    r" (?:possible|allowed|permitted)|impossible|won't be able|will not be able"
    r"|(?:won't|will not|does(?:n't| not)|would(?:n't| not)) (?:work|be possible|exist)|(?:can|may)"
    r" only (?:help"
    r"|assist|serve)|not eligible|ineligible|no way (?:to|for)|do(?:n't| not) have (?:the|an?)"
    r" (?:ability"
    r"|option|way|tool|permission)"
    r"|do(?:es)?(?:n't| not) (?:support|allow|offer|permit)|no longer"
    r" (?:possible|available|eligible)|against (?:our|the) policy"
    r"|outside (?:of )?(?:our|the|my) (?:policy|scope)|must (?:refuse|decline)|have to"
    r" (?:refuse|decline)|too late"
    r"|there is no|there's no|there are no|there isn't|there's none|i(?:'m| am) not"
    r" (?:able|allowed)|prohibited|denied|declin\w+|refus\w+"
    r"|no longer able|nothing (?:i|we) can do|no further \w+|(?:falls?|is) (?:too )?short|can only"
    r" go|do(?:n't| not) seem to have"
    # `isn't a valid reason`, `does not cover it`: the ways to refuse for one reason.
    r"|(?:not|[a-z]{2,6}n't)(?: an?| one of the| one of our)? (?:accept\w*|valid|enough"
    r"|sufficient|reasons?)|(?:not|[a-z]{2,6}n't) (?:cover|stretch|be enough|be turned)"
    r"|unfortunately|i(?:'m| am) afraid|but not (?:to|for|into))\b"
)
NOT_FOUND = re.compile(
    r"\b(?:can ?not|can't|could not|couldn't|unable to|not able to|wasn't able to|was not able"
    r" to|did(?:n't"
    r"| not)|do(?:n't| not)|don't) (?:seem to"
    r" )?(?:find|locate|verify|see|identify|match|recogni[sz]e"
    r"|authenticate)\b"
    r"|\bnot found\b|\bno (?:account|user|record|match)\b"
)
# Speaks of what follows or of a rule: no write is proposed by it.
NOTE = re.compile(
    r"^\W*(?:once|after|please note|note|keep in mind|please keep|remember|please be aware|be"
    r" aware|afterwards"
    r"|as a reminder|reminder|just so you know|important|you(?:'ll| will)"
    r" (?:receive|get|be|then|have"
    r"|need|also)|"
    r"it (?:can|may|will|could|usually|typically|should) |the status (?:of|will)|this"
    r" (?:action|change"
    r"|can only|will|is a one)|if you)\b|\b(?:please note|note that|keep in mind|be aware)\b"
)
# With a person behind the verb, since money is transferred too.
TRANSFER = re.compile(
    r"\btransfer(?:ring|red|s)?\b(?=[^.?!]{0,200}\b(?:you|human|agent|specialist|representative"
    r"|person|colleague"
    r"|team|department|support)\b)|\b(?:connect|put|pass) you"
    r" (?:with|to|through|over)\b|\bhand(?:ing)?\b[^.?!]{0,20}\bover to\b"
    r"|\bescalat\w+\b|\bhuman agent\b"
)
MORE = re.compile(
    r"\b(?:any|some)thing (?:else|more|further)\b|\bany"
    r" (?:other|further|more|additional)\b[^.?!]{0,30}\b(?:help"
    r"|request|question|change|item|issue|concern|thing|detail)s?\b|\bfurther"
    r" (?:assist|help|question"
    r"|change)\w*"
    r"|\b(?:what|how) else\b|\b(?:is|was|will) (?:that|this|it|these)(?: be)?"
    # `is that all?` offers more without the word.
    r" (?:all|everything|it)\b"
    r"|\b(?:all|other) (?:the"
    r" )?items\b[^.?!]{0,30}\b(?:include|listed|want|collected|change|exchange)\b(?=[^.]{0,200}\?)"
    r"|\beverything you\b[^.?!]{0,40}\?"
)
GREET = re.compile(
    r"^\W*(?:hi|hello|hey|good"
    r" (?:day|morning|afternoon|evening)|welcome|greetings)\b|\b(?:happy|glad"
    r"|pleasure) to (?:help|assist|serve)\b|\bthank(?:s| you)\b|\byou're (?:very"
    r" )?welcome\b|\b(?:goodbye"
    r"|bye|take care|have a (?:great|nice|good|wonderful|lovely))\b"
)
# Where a second question begins in the sentence.
AND_ASKS = re.compile(
    r"[,;]? (?:and|or) (?=(?:do|does|shall|should|may|can|could|is|are|would|will)\b)"
)
CONTENTS = re.compile(  # the list of what a record holds, behind a line that says so
    r"(?i)(\b(?:contains?|includes?|holds?|consists? of|comes"
    r" with)\b[^\n:]{0,40}:[^\S\n]*\n\n?)(?:[^\S\n]*(?:[-*•]|\d{1,2}[.)])[^\n]*(?:\n|$))+"
)
# Asks for the whole matter, not for a value.
OPEN = re.compile(
    r"\b(?:how|what) (?:can|may|could|should) (?:i|we) (?:help|assist|do)\b|\bwhat"
    r" (?:would|do|did|will) you (?:like|want|need|wish)\b"
    rf"|\b{WH} exactly\b|\bwhat (?:is|brings|seems)\b[^.?!]{{0,20}}\b(?:want|request|you"
    r" here|issue|problem|matter)\b"
    r"|\bmore (?:details?|information|specific)\b|\bclarify\b|\brephrase\b|\bdescribe\b|\bdo(?:n't|"
    r" not) (?:quite )?(?:understand"
    r"|follow)\b|\bwhat (?:it is )?you (?:want|need|would like)\b|\bhow (?:can|may) i"
    r" (?:help|assist)\b"
)
WAIT = re.compile(
    r"\b(?:one (?:moment|second|minute)|pulling (?:up|your|that|it)|just a"
    r" (?:moment|second|minute|sec)|please (?:wait|hold|bear)|give me a (?:moment"
    r"|second|minute)|hold on|let me"
    r" (?:check|look|find|see|pull|verify|get|take|review|fetch)|looking (?:that"
    r"|it|this|into)|i(?:'ll| will) (?:check|look)|checking|bear with me|while i)\b"
)
ONCE = re.compile(r"\bonce\b|\bafter (?:that|this)\b|\bafterwards?\b")
ONLY_ONCE = re.compile(
    r"\bonly\b[^.?!]{0,40}\bonce\b|\bonce (?:per|for each|for an?)\b|\bone time only\b"
)
STATUS = re.compile(r"\bstatus\b[^.]{0,40}(?:\bis\b|\bwas\b|:)")
# what changes nothing
LOOKED = re.compile(r"\b(?:authenticat|verif|locat|identif|retriev|pulled|logged|found|looked)\w*")
NUMBERED = re.compile(r"^[^\S\n]*\d{1,2}\.(?=\s)", re.MULTILINE)
ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s")
# `or no` and `or not` leave nothing to choose.
CHOICE = re.compile(r"\bor\b(?! no\b| not\b)")
WH_START = re.compile(
    r"(?:^|[,;:\-(]|\band\b|\bbut\b|\bso\b|\balso\b)\s*(?:please |could you (?:please )?|can you"
    r" (?:please )?|would you )?"
    r"(?:(?:to|for|from|in|on|at|by|with|of) )?"
    rf"(?:tell me |let me know |specify |confirm |share |clarify |explain )?{WH}\b(?! i(?:'ll|"
    r" will| would|'d)\b)"
)
# A sentence with a number or a price says something that may be a detail.
FACT = re.compile(r"\d|[$€£]")
NEGATES = re.compile(  # what follows is not to be done
    r"\b(?:not|never|won't|don't|shan't|instead of|rather"
    r" than|without|undo(?:ing)?|stop(?:ping)?|revers(?:e|ing)|abort(?:ing)?"
    r"|prevent(?:ing)?|revok(?:e|ing))\b"
)
JOINS = re.compile(r"\b(?:and|then|also)\b(?! (?:and|then|also)\b)")
OTHERWISE = re.compile(
    r"\bor (?:shall|should|would|do you|rather|keep|leave|just|instead|something|somewhere|is"
    r" (?:that|it|this))\b"
)
