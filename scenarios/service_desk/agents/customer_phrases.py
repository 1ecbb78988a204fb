"""What the scripted customer says apart from its wishes, by register. Neutral: no word of any
domain, no digit, nothing that states a fact.

A confirmation begins with a yes and a rejection with a no, so that any reader of answers
understands them.
"""

from __future__ import annotations

REGISTERS = ("plain", "casual", "formal")

# A changed line is another customer: recorded episodes are replayed from these words by a seed.
BANK: dict[str, dict[str, tuple[str, ...]]] = {
    "greet": {
        "plain": ("Hello.", "Hi.", "Good day."),
        "casual": ("Hey there!", "Hi there!", "Heya."),
        "formal": ("Good day to you.", "Dear Sir or Madam,", "Good day."),
    },
    "thank": {
        "plain": ("Thank you.", "Thanks.", "Great, thank you."),
        "casual": ("Awesome, thanks!", "Cool, thanks.", "Nice one, thanks!"),
        "formal": ("Thank you very much.", "I am much obliged.", "Many thanks."),
    },
    "confirm": {
        # No `sure` or `fine`: such words are weak yeses, and could be read as none.
        "plain": ("Yes, please go ahead.", "Yes, do that please.", "Yes, that is right."),
        "casual": ("Yep, go for it.", "Yeah, please do.", "Yes, sounds good."),
        "formal": ("Yes, I confirm this.", "Yes, please proceed.", "Yes, that is correct."),
    },
    "reject": {
        # No thanks and no question in a no, which might turn it.
        "plain": ("No, that is not what I want.", "No, that is not right."),
        "casual": ("No, that's not it.", "Nope, not what I meant."),
        "formal": ("No, I am afraid that is not correct.", "No, I do not agree to that."),
    },
    "clarify": {
        "plain": (
            "What exactly would you change?",
            "Before I agree: what exactly are you going to do?",
        ),
        "casual": (
            "Hang on, what exactly are you going to do?",
            "What exactly would you change there?",
        ),
        "formal": (
            "Could you state exactly what you are going to change?",
            "I should like to know exactly what will be done.",
        ),
    },
    "lacks": {
        "plain": ("You have not said this:", "I miss this:"),
        "casual": ("You left this out:", "I don't see this:"),
        "formal": ("This has not been stated:", "I am missing this:"),
    },
    "price": {
        "plain": ("And what will it cost me, or what do I get back?", "What amount is it about?"),
        "casual": ("How much money are we talking about?", "And what's that in money?"),
        "formal": (
            "Which amount is to be charged or paid back?",
            "I should like to know the amount first.",
        ),
    },
    "deny": {
        "plain": ("I do not know my {slot}.", "I do not remember the {slot}."),
        "casual": ("No idea about the {slot}, honestly.", "I can't recall the {slot}."),
        "formal": (
            "I regret that I do not have the {slot} at hand.",
            "I am afraid I do not recall the {slot}.",
        ),
    },
    "withhold": {
        "plain": ("I would rather not tell you the {slot}.",),
        "casual": ("I'd rather keep the {slot} to myself.",),
        "formal": ("I prefer not to disclose the {slot}.",),
    },
    "dodge": {
        "plain": ("Why do you need the {slot}?", "Do you really need the {slot}?"),
        "casual": ("Ugh, what do you need the {slot} for?", "Do you have to know the {slot}?"),
        "formal": ("May I ask why you need the {slot}?", "Is the {slot} really required?"),
    },
    "again": {
        "plain": ("As I said:", "I told you already:"),
        "casual": ("Like I said:", "Told you already:"),
        "formal": ("As I have stated:", "To repeat myself:"),
    },
    "complain": {
        "plain": (
            "This does not help me.",
            "I still wait for your help.",
            "That is not what I asked for.",
        ),
        "casual": (
            "Come on, this isn't helping.",
            "Still waiting here.",
            "That's not what I asked.",
        ),
        "formal": (
            "I must say that this does not help.",
            "I am still waiting for a solution.",
            "This does not answer my request.",
        ),
    },
    "insist": {
        "plain": (
            "I think that this should be possible.",
            "I do not accept that.",
            "Please look again.",
        ),
        "casual": (
            "Come on, that has to be possible.",
            "I don't buy that.",
            "Please have another look.",
        ),
        "formal": (
            "I believe that this is possible.",
            "I cannot accept that.",
            "I ask you to look again.",
        ),
    },
    "why": {
        "plain": ("Why is that?", "And why?"),
        "casual": ("How come?", "Why's that?"),
        "formal": ("For which cause, please?", "May I know why?"),
    },
    "accept": {
        "plain": ("I see.", "All right then.", "That is a pity."),
        "casual": ("Ah well.", "Too bad.", "Oh, got it."),
        "formal": ("I understand.", "I take note of that.", "That is regrettable."),
    },
    "change_mind": {
        "plain": ("Actually, I have changed my mind.", "On second thought, I want something else."),
        "casual": (
            "Actually, scratch that, I changed my mind.",
            "Hmm, on second thought, something else.",
        ),
        "formal": (
            "On second thought, I have changed my mind.",
            "I have changed my mind, if you will forgive me.",
        ),
    },
    "waver": {
        "plain": (
            "Wait, let me think about this. Please tell me once more what you would do.",
            "I am not sure any more. What was it that you would do?",
        ),
        "casual": (
            "Wait, wait. Say again what you'd do?",
            "Hm, hold on. Run that by me once more?",
        ),
        "formal": (
            "One moment, I hesitate. Please repeat what you would do.",
            "I need to consider this. Kindly repeat your offer.",
        ),
    },
    "slip": {
        "plain": ("Sorry, I got something wrong before.", "Sorry, I made a typo."),
        "casual": ("Oops, sorry, typo on my side.", "Sorry, my mistake."),
        "formal": ("I apologise, I made a mistake before.", "My apologies, there was a typo."),
    },
    "ask_done": {
        "plain": ("Has this been done now?", "Is it done?"),
        "casual": ("So is it done now?", "Did it go through?"),
        "formal": ("May I ask whether it has been carried out?", "Has this been carried out?"),
    },
    "ask_fact": {
        "plain": (
            "You have not told me everything that I asked for yet.",
            "There was also my question.",
        ),
        "casual": ("And my question?", "You still owe me an answer."),
        "formal": (
            "My question has not been answered yet.",
            "I still await an answer to my question.",
        ),
    },
    "wait": {
        "plain": ("All right, I will wait.", "Take your time."),
        "casual": ("I'm waiting.", "Take all the time you need."),
        "formal": ("I shall wait.", "Please take the time you need."),
    },
    "keep": {
        "plain": (
            "Please do not hand me over, I want you to do it.",
            "I would rather settle this with you.",
        ),
        "casual": ("Nah, can't you just do it?", "I'd rather sort it out with you."),
        "formal": ("I prefer that you settle this yourself.", "I do not wish to be handed over."),
    },
    "chat": {
        "plain": (
            "I have been meaning to write to you for days.",
            "I hope that you have a good day so far.",
            "My neighbour told me that you are helpful.",
        ),
        "casual": (
            "It's been a crazy week, you know.",
            "Hope you're having a good one.",
            "My sister says hi, by the way.",
        ),
        "formal": (
            "I trust that this finds you well.",
            "I have long been content with your service.",
            "I appreciate your attention to this matter.",
        ),
    },
}

# Eight, and the last one for all later times: nobody is patient for longer.
ORDINALS = (
    "Again:",
    "Once more:",
    "Yet again:",
    "As before:",
    "I repeat:",
    "For the last time:",
    "Still:",
    "Please, as said:",
)
