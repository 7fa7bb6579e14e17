"""What is said in every dialog, whatever it is about: a small grammar of our own sentences.

`{lower}` stands for any phrase of that name, `{item}` and `{carrier}` for what the dialog is about, and a word in
capitals for a secret of the person. A phrase that stands twice is said twice as often.
"""

SHARED_PHRASES: dict[str, tuple[str, ...]] = {
    # Opening
    "welcome": (
        "{hello} {offer}",
        "{hello} {offer}",
        "{hello} This is the {desk}. {offer}",
        "Welcome to the {desk}. {offer}",
    ),
    "hello": ("Hello!", "Hello.", "Hi there!", "Hi!", "Good morning.", "Good afternoon.", "Good evening."),
    "desk": ("order desk", "delivery desk", "support chat", "parcel help line", "after-sales team", "service team"),
    "offer": (
        "How may I help?",
        "What brings you here?",
        "What can we sort out today?",
        "What do you need today?",
        "Tell me what went wrong.",
        "How can we be of service?",
        "What would you like to know?",
        "What is it about?",
    ),
    "user_hello": ("Hello.", "Hi.", "Hey.", "Hi there.", "Good morning!", "Hello there.", "Yes, hello."),
    # Before the first question
    "willing": (
        "I can look into that.",
        "Let me see.",
        "Understood.",
        "No problem at all.",
        "Happy to do that.",
        "We can do that.",
        "Right away.",
    ),
    "sorry": (
        "I am sorry to hear that.",
        "My apologies.",
        "That should not happen.",
        "We will sort this out.",
        "I see, that is annoying.",
        "Let me see what I can do.",
    ),
    "thanks_name": (
        "{thanks}",
        "Thank you, {FIRST}.",
        "Thanks, {FIRST}.",
        "Nice to meet you, {FIRST}.",
        "Hello, {FIRST}.",
        "Thanks, {NAME}.",
        "Thank you, {NAME}.",
        "I found {NAME}.",
    ),
    "thanks": ("Thank you.", "Thanks.", "Great.", "Perfect.", "Got it.", "Noted.", "Very good.", "All right.", "Okay."),
    # Looking it up
    "wait": (
        "One moment while I open your file.",
        "Give me a second to check.",
        "Let me pull that up.",
        "I am looking at it now.",
        "Just a moment, please.",
    ),
    "patience": ("Sure, take your time.", "Okay.", "No rush.", "Fine, I will wait.", "Thanks.", "All right."),
    "found": ("Here we are.", "I found it.", "There it is.", "Thanks for waiting.", "Good, everything matches."),
    # Closing
    "anything_else": (
        "Anything else?",
        "Does that help?",
        "Is that all right?",
        "Was that all?",
        "Can I do more for you?",
        "Any other questions?",
        "What else is open?",
    ),
    "user_done": (
        "That is all. {user_thanks}",
        "That was everything.",
        "I am good. {user_thanks}",
        "Perfect. {user_thanks}",
        "Okay, that works for me.",
        "Nothing more for today.",
        "All clear now.",
        "{user_thanks}",
        "{user_thanks}",
    ),
    "user_thanks": (
        "Thank you!",
        "Thanks a lot.",
        "Thanks for the help.",
        "Bye.",
        "Many thanks, bye.",
        "Have a good one.",
        "I appreciate it.",
        "Cheers.",
    ),
    "farewell": (
        "You are welcome. {bye}",
        "You are welcome, {FIRST}.",
        "Glad I could help.",
        "Goodbye, {FIRST}.",
        "Take care, {FIRST}.",
        "{bye}",
        "{bye}",
    ),
    "bye": ("Goodbye!", "Have a lovely day.", "Take care.", "Until next time.", "Bye for now.", "See you soon."),
    # Small words
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    "few": ("two", "three", "four", "five", "six", "ten"),
    "ago": ("yesterday", "{few} days ago", "last week", "last {weekday}", "a while ago", "{few} weeks ago"),
    "depot": ("our warehouse", "the depot", "the sorting center", "the post office", "the night hub"),
    # What people also ask
    "ask_signature": (
        "Do I have to be home when it comes?",
        "Will somebody ask me to sign?",
        "What if nobody opens the door?",
        "I am at work all day, is that a problem?",
    ),
    "answer_signature": (
        "No, the driver may leave it on the porch.",
        "Nobody needs to be home.",
        "The driver can try again the next day.",
        "You may pick a time slot in the app.",
    ),
    "ask_cost": (
        "Does that cost me anything?",
        "Is there a fee for that?",
        "I do not have to pay for this, do I?",
        "Will I see a charge on my card?",
    ),
    "answer_cost": ("No, this is free.", "There is no fee.", "You pay nothing.", "No, we cover it."),
    "ask_mail": (
        "Can you send me that by mail?",
        "Will I get that in writing?",
        "Could I have a confirmation, please?",
        "Do you write to me when something changes?",
    ),
    "answer_mail": (
        "Yes, a message is on its way.",
        "Of course, I have just sent it.",
        "You will get a message at every step.",
        "Sure, please look into your inbox.",
    ),
    "ask_hours": (
        "Are you there on weekends as well?",
        "What if I have more questions tomorrow?",
        "Who do I talk to if this does not work out?",
    ),
    "answer_hours": (
        "We are here every day until ten.",
        "The chat is open around the clock.",
        "Just come back to this chat.",
        "Write to us at any time.",
    ),
}
