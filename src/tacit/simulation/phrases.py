"""The phrases of all dialogs: a small grammar of our own sentences.

`{lower}` is any phrase of that name, `{item}` and `{carrier}` for what the dialog is about, and a word in
capitals for a secret of the person. A phrase that is listed twice is used twice as often.
"""

SHARED_PHRASES: dict[str, tuple[str, ...]] = {
    # Opening
    "welcome": (
        *("{hello} {offer}", "{hello} {offer}", "{hello} This is the {desk}. {offer}"),
        "Welcome to the {desk}. {offer}",
    ),
    "hello": ("Hello!", "Hello.", "Hi there!", "Hi!", "Good morning.", "Good afternoon.", "Good evening."),
    "desk": ("order desk", "delivery desk", "support chat", "parcel help line", "after-sales team", "service team"),
    "offer": (
        *("How may I help?", "What brings you here?", "What can we sort out today?", "What do you need today?"),
        *("Tell me what went wrong.", "How can we be of service?", "What would you like to know?", "What is it about?"),
    ),
    "user_hello": ("Hello.", "Hi.", "Hey.", "Hi there.", "Good morning!", "Hello there.", "Yes, hello."),
    # Before the first question
    "willing": (
        *("I can look into that.", "Let me see.", "Understood.", "No problem at all.", "Happy to do that."),
        *("We can do that.", "Right away."),
    ),
    "sorry": (
        *("I am sorry to hear that.", "My apologies.", "That should not happen.", "We will sort this out."),
        *("I see, that is annoying.", "Let me see what I can do."),
    ),
    "thanks_name": (
        *("{thanks}", "Thank you, {FIRST}.", "Thanks, {FIRST}.", "Nice to meet you, {FIRST}.", "Hello, {FIRST}."),
        *("Thanks, {NAME}.", "Thank you, {NAME}.", "I found {NAME}."),
    ),
    "thanks": ("Thank you.", "Thanks.", "Great.", "Perfect.", "Got it.", "Noted.", "Very good.", "All right.", "Okay."),
    # Looking it up
    "wait": (
        *("One moment while I open your file.", "Give me a second to check.", "Let me pull that up."),
        *("I am looking at it now.", "Just a moment, please."),
    ),
    "patience": ("Sure, take your time.", "Okay.", "No rush.", "Fine, I will wait.", "Thanks.", "All right."),
    "found": ("Here we are.", "I found it.", "There it is.", "Thanks for waiting.", "Good, everything matches."),
    # Closing
    "anything_else": (
        *("Anything else?", "Does that help?", "Is that all right?", "Was that all?", "Can I do more for you?"),
        *("Any other questions?", "What else is open?"),
    ),
    "user_done": (
        *("That is all. {user_thanks}", "That was everything.", "I am good. {user_thanks}", "Perfect. {user_thanks}"),
        *("Okay, that works for me.", "Nothing more for today.", "All clear now.", "{user_thanks}", "{user_thanks}"),
    ),
    "user_thanks": (
        *("Thank you!", "Thanks a lot.", "Thanks for the help.", "Bye.", "Many thanks, bye.", "Have a good one."),
        *("I appreciate it.", "Cheers."),
    ),
    "farewell": (
        *("You are welcome. {bye}", "You are welcome, {FIRST}.", "Glad I could help.", "Goodbye, {FIRST}."),
        *("Take care, {FIRST}.", "{bye}", "{bye}"),
    ),
    "bye": ("Goodbye!", "Have a lovely day.", "Take care.", "Until next time.", "Bye for now.", "See you soon."),
    # Small words
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    "few": ("two", "three", "four", "five", "six", "ten"),
    "ago": ("yesterday", "{few} days ago", "last week", "last {weekday}", "a while ago", "{few} weeks ago"),
    "depot": ("our warehouse", "the depot", "the sorting center", "the post office", "the night hub"),
    # What people also ask
    "ask_signature": (
        *("Do I have to be home when it comes?", "Will somebody ask me to sign?", "What if nobody opens the door?"),
        "I am at work all day, is that a problem?",
    ),
    "answer_signature": (
        *("No, the driver may leave it on the porch.", "Nobody needs to be home."),
        *("The driver can try again the next day.", "You may pick a time slot in the app."),
    ),
    "ask_cost": (
        *("Does that cost me anything?", "Is there a fee for that?", "I do not have to pay for this, do I?"),
        "Will I see a charge on my card?",
    ),
    "answer_cost": ("No, this is free.", "There is no fee.", "You pay nothing.", "No, we cover it."),
    "ask_mail": (
        *("Can you send me that by mail?", "Will I get that in writing?", "Could I have a confirmation, please?"),
        "Do you write to me when something changes?",
    ),
    "answer_mail": (
        *("Yes, a message is on its way.", "Of course, I have just sent it.", "You will get a message at every step."),
        "Sure, please look into your inbox.",
    ),
    "ask_hours": (
        "Are you there on weekends as well?",
        "What if I have more questions tomorrow?",
        "Who do I talk to if this does not work out?",
    ),
    "answer_hours": (
        *("We are here every day until ten.", "The chat is open around the clock.", "Just come back to this chat."),
        "Write to us at any time.",
    ),
}

VERIFICATION_PHRASES: dict[str, tuple[str, ...]] = {
    "why": (
        *("To open your account", "So that I find you", "For your own safety", "To be sure it is you", "First of all"),
        *("To start", "Before we go on"),
    ),
    "sure": ("Sure,", "Of course,", "Yes,", "Okay,", "Certainly,", "Yeah,", "Sure thing,", "Right,", "No problem,"),
    "ask_name": (
        *("What is your full name?", "May I have your first and last name?", "Your full name, please?"),
        *("{why}, could you tell me your full name?", "{why}, I need your full name."),
        *("{why}, what is your full name?", "Under which full name was it ordered?"),
        *("Please type your first and last name.", "Who am I speaking with? Your full name, please."),
    ),
    "give_name": (
        *("{NAME}", "{NAME}.", "{NAME}.", "It's {NAME}.", "{sure} {NAME}.", "{sure} my name is {NAME}."),
        *("{sure} it's {NAME}.", "My name is {NAME}.", "I am {NAME}.", "This is {NAME}.", "It should be under {NAME}."),
        *("{NAME}, that's me.", "You can find me as {NAME}."),
    ),
    "ask_phone": (
        *("What is your phone number?", "Could you also tell me your phone number?", "Which phone number do you use?"),
        *("At which number can the driver call you?", "Please confirm your phone number."),
        *("May I have your phone number, with the area code?", "I also need your phone number."),
        *("Next, please type your phone number.", "Your phone number, please?"),
    ),
    "give_phone": (
        *("{PHONE}", "{PHONE}.", "It's {PHONE}.", "{sure} {PHONE}.", "{sure} it's {PHONE}."),
        *("{sure} my number is {PHONE}.", "My phone number is {PHONE}.", "The best number for me is {PHONE}."),
        *("That would be {PHONE}.", "{PHONE} is the one I use.", "Call me on {PHONE}."),
    ),
    "ask_order": (
        *("What is the order number?", "Could you read me your order number?", "Which order number is on the receipt?"),
        *("Please tell me the number of the order.", "Do you have the order number at hand?"),
        *("I also need the order number.", "And the order number?", "Next, please type the order number."),
        "May I have the order number as well?",
    ),
    "give_order": (
        *("{ORDER}", "{ORDER}.", "It's {ORDER}.", "{sure} {ORDER}.", "{sure} it's {ORDER}."),
        *("The order number is {ORDER}.", "My mail says {ORDER}.", "Order {ORDER}.", "It reads {ORDER} here."),
        *("Let me look. It is {ORDER}.", "The receipt shows {ORDER}."),
    ),
    "ask_address": (
        *("What is your address?", "What address did we send it to?", "Could you confirm your delivery address?"),
        *("Please give me the full shipping address.", "Which address is on the parcel?"),
        *("And where do you live, with the ZIP code?", "May I have the address on the order?"),
        *("I also need the shipping address.", "Next, please type your postal address."),
    ),
    "give_address": (
        *("{ADDRESS}", "{ADDRESS}.", "It's {ADDRESS}.", "{sure} {ADDRESS}.", "{sure} it's {ADDRESS}."),
        *("I live at {ADDRESS}.", "The address is {ADDRESS}.", "{ADDRESS} is where I live.", "We are at {ADDRESS}."),
        "It should go to {ADDRESS}.",
    ),
    "ask_new_address": (
        *("What is the new address?", "Where should it go instead?", "Please type the new address with its ZIP code."),
        *("Which address shall I use now?", "And the new street, town and ZIP code?"),
    ),
    "give_new_address": (
        *("{ADDRESS}", "{ADDRESS}.", "Please send it to {ADDRESS}.", "The new one is {ADDRESS}.", "{sure} {ADDRESS}."),
        *("We just moved to {ADDRESS}.", "From now on I am at {ADDRESS}."),
    ),
}

AGENDA_PHRASES: dict[str, tuple[str, ...]] = {
    "tracking_line": (
        "Here is your tracking number: {TRACKING}.",
        "You can follow it with {TRACKING}.",
        "Please use tracking number {TRACKING}.",
        "{TRACKING} is the tracking number.",
        "Just enter {TRACKING} in our app.",
        "Tracking number with {carrier}: {TRACKING}.",
        "To see each stop, look for {TRACKING}.",
        "It travels under the number {TRACKING}.",
    ),
    "track_request": (
        "Where is the {item} I bought {ago}?",
        "I would like to know where my {item} is.",
        "I ordered a {item} {ago} and lost the link.",
        "Can you check how far my {item} has come?",
        "Could you look up the parcel with my {item}?",
        "I need to know when my {item} arrives.",
        "How do I track my {item}?",
        "Is my {item} on the way yet?",
    ),
    "track_outcome": (
        "Order {ORDER} left {depot} on {weekday}. {tracking_line}",
        "{carrier} has it. {tracking_line}",
        "It is now at {depot}. {tracking_line}",
        "Order {ORDER} is on the truck. {tracking_line}",
        "It is {few} days away. {tracking_line}",
        "It should come on {weekday}. {tracking_line}",
        "It is on its way to {ADDRESS}. {tracking_line}",
        "{tracking_line}",
        "{tracking_line}",
    ),
    "delayed_request": (
        "My {item} should have been here {ago}.",
        "I was promised a {item} for {weekday}.",
        "I have been waiting for my {item} for {few} weeks.",
        "Why does my {item} take so long?",
        "The date for my {item} keeps moving.",
        "My order with the {item} is late again.",
        "I need the {item} by {weekday}, and it is late.",
    ),
    "delayed_outcome": (
        "Heavy weather stopped the trucks. {tracking_line}",
        "Order {ORDER} was held up at {depot}. {tracking_line}",
        "Your {item} went out this morning. {tracking_line}",
        "The label was printed again. {tracking_line}",
        "It now goes by express. {tracking_line}",
        "It comes to {ADDRESS} on {weekday}. {tracking_line}",
        "Order {ORDER} leaves {depot} tonight.",
        "Order {ORDER} ships on {weekday}.",
    ),
    "missing_request": (
        *("The app says my {item} was delivered, but it is not here.", "My {item} never arrived."),
        *("I came home and there was no {item}.", "Somebody took the {item} from my porch."),
        *("No neighbor has my {item}.", "I never signed for the {item}.", "The box for my {item} was empty."),
    ),
    "missing_outcome": (
        "The driver left it at the wrong door. {tracking_line}",
        "{carrier} will search for it. {tracking_line}",
        "We send a new one to {ADDRESS}. {tracking_line}",
        "It is still at {depot}. {tracking_line}",
        "The driver comes back on {weekday}. {tracking_line}",
        "I reported order {ORDER} as lost. A new {item} is on its way.",
    ),
    "damaged_request": (
        *("My {item} came broken.", "The {item} I got {ago} has a crack.", "You sent me the wrong {item}."),
        *("A part of my {item} is missing.", "My new {item} does not work at all."),
        *("The {item} got wet and is ruined.", "The {item} stopped working after {few} days."),
    ),
    "damaged_outcome": (
        "A new one goes to {ADDRESS}. {tracking_line}",
        "A replacement comes on {weekday}. {tracking_line}",
        "{carrier} brings you a new one. {tracking_line}",
        "The right one is in the mail. {tracking_line}",
        "We exchange it within {few} days. {tracking_line}",
        "We refund order {ORDER} in full.",
    ),
    "return_line": (
        "The label has the tracking number {TRACKING}.",
        "Your return travels as {TRACKING}.",
        "Please keep the tracking number {TRACKING}.",
        "You can follow the return with {TRACKING}.",
        "At the counter, show them {TRACKING}.",
    ),
    "return_request": (
        "I would like to send a {item} back.",
        "How do I return a {item}?",
        "I changed my mind about the {item} from {ago}.",
        "The {item} does not fit, I want to return it.",
        "I got the same {item} twice and need to give one back.",
        "I need a return label for a {item}.",
        "Can I still return the {item}?",
    ),
    "return_outcome": (
        "You have {few} weeks. {return_line}",
        "{carrier} collects it on {weekday}. {return_line}",
        "I have sent you a label. {return_line}",
        "Please hand it in by {weekday}. {return_line}",
        "We accept the return of order {ORDER}. {return_line}",
        "Any counter takes it. Just show them order {ORDER}.",
    ),
    "refund_request": (
        "I sent the {item} back and still have no money.",
        "When do I get my refund for the {item}?",
        "You charged me twice for one {item}.",
        "I should be paid back for the {item}.",
        "My card was charged for the wrong {item}.",
    ),
    "refund_outcome": (
        "The refund for order {ORDER} was sent on {weekday}.",
        "I have just released the money.",
        "You will be paid back within {few} days.",
        "I have taken back the charge for order {ORDER}.",
        "The money for order {ORDER} is on its way.",
    ),
    "change_address_request": (
        "I am moving. Can my {item} go elsewhere?",
        "I typed the wrong street when I ordered a {item}.",
        "Please send my {item} to another address.",
        "The driver could not find me, he has a {item}.",
        "I need to change where my {item} goes.",
    ),
    "change_address_outcome": (
        "Done, it goes there on {weekday}.",
        "Done, it goes to {ADDRESS}. {tracking_line}",
        "{carrier} was told. {tracking_line}",
        "I changed the label. {tracking_line}",
        "It had not left {depot} yet. {tracking_line}",
        "That adds about {few} days. {tracking_line}",
        "All set, order {ORDER} goes there.",
    ),
    "cancel_request": (
        "I want to cancel my order for a {item}.",
        "Please stop my order, I found another {item}.",
        "I bought a second {item} by mistake.",
        "Please cancel the {item} I ordered {ago}.",
        "I do not need the {item} any more. Can I cancel?",
    ),
    "cancel_outcome": (
        "It is cancelled, and nothing will be charged.",
        "I stopped it before it left {depot}.",
        "Order {ORDER} is cancelled.",
        "I stopped order {ORDER}. The refund takes {few} days.",
        "Too late to stop it. Just turn it away at the door.",
    ),
}
