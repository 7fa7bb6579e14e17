"""Words the detectors of personal data know: cues that announce a secret, and words that are never a name."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from tacit.data.records import Span
from tacit.policies.pii.phrases import Hit


def words(text: str) -> frozenset[str]:
    """The words of `text`, which are separated by white space."""
    return frozenset(text.split())


def phrases(text: str) -> frozenset[str]:
    """The phrases of `text`, which are separated by bars."""
    return frozenset(text.split("|"))


CODE_CUES: dict[str, str] = {
    cue: kind
    for kind, cues in {
        "ORDER": "order orders purchase confirmation booking reservation invoice receipt transaction bestellung "
        "auftrag "
        "rechnung commande facture fattura faktura pedido ordine encomenda bestelling po rma return",
        "TRACKING": "tracking track shipment parcel package waybill delivery consignment shipping trk sendung "
        "sendungsnummer paket colis suivi envío localizador spedizione rastreio objeto pakket pakketcode container awb "
        "label retourcode",
        "ID": "id code codes código codice account passport license licence member membership customer employee badge "
        "reference ref case ticket policy claim patient student serial routing record file pnr voucher vin plate "
        "identification loyalty contract registration mrn mr specimen accession npi meter group uid emp acct aba bic "
        "pasaporte passaporto passaporte passeport paspoort reisepass personalausweis kennzeichen kenteken matrícula "
        "targa placa patente cnh permis rijbewijs immatriculation plaque contrat vertrag adhérent allocataire sinistre "
        "cuenta conto konto compte conta rekening cartella utente processo dni nie nif rut cpf rg cnpj cuit curp "
        "bsn nir "
        "siren steuernummer svnr kvk iva telaio chassis chassisnummer fin bastidor zorgpolis patiëntnummer cliente "
        "kundennummer versichertennummer rentenversicherungsnummer nuss cbu medicare nhs ni utr pan aadhaar sin "
        "tfn ein "
        "itin pps amka hetu cpr egn rrn oib tax plate owner unit nhc colegiado episodio nass cipa cip "
        "expediente ipp nip prontuário prontuario",
        "PHONE": "phone telephone mobile cell cellphone call tel fax text whatsapp reach callback landline telefon "
        "téléphone tél telefono teléfono telefone telefoon cellulare móvil telemóvel handy tfno zap nummer "
        "número numéro "
        "pager beeper appelez bel ruf llame ligue fisso numero",
        "CARD": "card cards visa mastercard amex cc debit kartennummer karte carte carta tarjeta cartão creditcard "
        "kaartnummer maestro diners jcb",
        "SSN": "ssn social ss",
        "ADDRESS": "zip postcode zipcode cep plz",
    }.items()
    for cue in cues.split()
} | {
    "social security": "SSN",
    "call me": "PHONE",
    "zip code": "ADDRESS",
    "postal code": "ADDRESS",
    "historia clínica": "ID",
    "medical record": "ID",
    "tarjeta sanitaria": "ID",
}
"""Words before a number or code, and the kind of secret they announce."""

PERSON_CUES: dict[str, str] = {
    cue: role
    for role, cues in {
        "name": words("name names surname name's"),
        "says": phrases(
            "i am|i'm|im|this is|it is|it's|call me|called|calls me|named|speaking with|speaking to|speak with|"
            "speak to|talking to|talking with|talk to|talk with|spoke with|spoke to|chatting with|ask for|on behalf of|"
            "under|call|seen by|behalf of|signed by|contact|attn|attention|signed|regards|sincerely|yours|"
            "addressed to|are you"
        ),
        "kin": phrases(
            "wife|husband|son|daughter|mother|father|mom|dad|brother|sister|friend|partner|boss|colleague|manager|"
            "child|kid|uncle|aunt|cousin|neighbor|neighbour|roommate|fiance|fiancee|grandmother|grandfather|"
            "assistant|secretary|doctor|lawyer|agent|guardian"
        ),
        "greets": phrases(
            "hello|hi|hey|dear|thanks|thank you|welcome|welcome back|sorry|good morning|good afternoon|good evening|"
            "great|perfect|okay|ok|alright|all right|got it|bye|goodbye|nice to meet you|greetings|understood|"
            "you're welcome|you are welcome|apologies|excellent|wonderful|awesome|certainly|of course|sure|cheers"
        ),
        "title": words("mr mrs ms miss dr prof professor mx"),
        "here": words("here speaking"),
        "who": phrases("who am i speaking|who is this|who is calling|who am i talking|who are you"),
    }.items()
    for cue in cues
}
"""Words near a person's name, and how the name stands to them."""

DATE_CUES = words(
    """
    january february march april may june july august september october november december jan feb mar apr jun jul
    aug sep sept oct nov dec januar februar märz mai juni juli oktober dezember jänner dez okt janvier février mars
    avril juin juillet août septembre octobre novembre décembre janv févr juil enero febrero marzo abril mayo junio
    julio agosto septiembre setiembre octubre noviembre diciembre ene abr dic gennaio febbraio aprile maggio giugno
    luglio settembre ottobre dicembre janeiro fevereiro março maio junho julho setembro outubro novembro dezembro
    januari februari maart mei augustus ago
    """
)
"""Months."""

FIELD_CUES: dict[str, str] = {
    cue: kind
    for kind, cues in {
        "PASSWORD": phrases(
            "password|passwords|passwd|pwd|pw|pass|gate code|entry code|alarm code|verification code|one-time code|"
            "passord|passphrase|psk|passwort|kennwort|mot de passe|contraseña|clave|senha|"
            "wachtwoord|secret|token|api key|api_key|apikey|api token|api_token|secret_access_key|access_key_id|key|"
            "private_key_id|otp|cvv|cvc|pin|pincode|passcode|door code|security code|prüfziffer|cryptogramme|"
            "código de segurança|alarm|key safe|key safe code|access code|code du portail|"
            "temporary pin|pasword|-p|sshpass -p|"
            "backup codes|codice di recupero|auth|bearer"
        ),
        "USERNAME": phrases(
            "user|username|user name|userid|user id|benutzername|nombre de usuario|nome utente|nome de usuário|"
            "nom d'utilisateur|gamertag|skype name|steam id|for user|logged in as|signed in as|logged on as|log in as|"
            "sign in as|angemeldet als|eingeloggt als|connecté en tant que|ingelogd als|conectado como|login|"
            "usuario|usuário|utente|benutzer|identifiant|utilisateur|gebruiker|"
            "gebruikersnaam|"
            "-u|handle|screen name|snapchat|insta|instagram|skype|discord|steam|telegram|account name|login is|"
            "anmeldung von|"
            "failed password for|sign-in to|inlog mislukt|todo"
        ),
        "NAME": phrases(
            "name|first_name|last_name|firstname|lastname|full_name|fullname|given|family|given_name|family_name|"
            "surname|"
            "nombre|apellidos|nome|naam|vorname|nachname|prenom|display|customer|cust|owner|employee|patient|"
            "author|contact"
        ),
    }.items()
    for cue in cues
}
"""Keys and words before a value, and the kind of the value."""

AGE_CUES: dict[str, str] = (
    {
        cue: role
        for role, cues in {
            "unit": "old yo y/o y.o ans años anos anni jaar jahre jahren jährige jähriger jährigen jarige j yr",
            "cue": "age aged turned turning turns edad âge età idade leeftijd alter compiuto cumple cumplió "
            "tengo tenho "
            "ages nearly cumplí compie compì completou fez",
            "becomes": "wird wordt worden",
            "kin": "dad mum mom father mother son daughter wife husband client patient brother sister nonno nonna "
            "novio novia "
            "oma opa mari femme marido esposa mann hijo hija fils fille filho filha kinder child boy girl twins zoon "
            "dochter vrouw sohn tochter vater mutter père mère padre madre pai mãe vader moeder frau grandma grandpa "
            "grandmother grandfather uncle aunt nephew niece toddler moglie marito figlio figlia",
        }.items()
        for cue in cues.split()
    }
    | dict.fromkeys(
        phrases(
            "i am|i'm|im|she's|he's|she was|he was|she is|he is|hij is|zij is|hij was|zij was|ik ben|bin jetzt|"
            "like he's|like she's"
        ),
        "self",
    )
    | {"of age": "unit"}
)
"""Words before or after the age of a person."""

NEVER_A_NAME = words(
    """
    a able about above absolutely account actually address after afternoon again ago agent ai all almost alright also
    always am amazing an and another answer any anybody anyone anything app appreciate april are around as ask asking
    assist assistance assistant at august available away awesome back bad bank because been before being best better
    between bot box bought but buy by bye call called caller calling can can't cancel cannot card certainly change
    check client code coming company completely confirm confirmation confirmed contact contacting correct cost could
    customer cyber date day dear december definitely delivered delivery department did didn't different do does
    doesn't doing don't done down due during each easy either else email emailing english even evening ever every
    everybody everyone everything exactly excellent excuse expecting experiencing extremely fantastic february feel
    feeling few file fine first folks for free friday friend friends from full fully further general get getting give
    giving glad go god going gone good goodbye got great greetings guys had happy has have having he hello help
    helping her here hey hi him his hold home hope hoping how however i i'd i'll i'm i've if important in indeed
    information interested interesting into is issue it it's item its january july june just keep know lady ladies
    last late later least leave left less let let's like line little living located long looking lost lot love ma'am
    maam madam make making manager many march may maybe me mean message might mine moment monday month more morning
    most mr mrs ms much must my myself name named names need needed never new next nice night no nobody none nope not
    nothing november now number october of off offer oh ok okay old on once one only open or order ordered other our
    out over own package paid part party people perfect perhaps person phone placed please pleased possible pretty
    problem product provide purchase question quite ready real really reason receive received refund regarding regards
    representative request return returning right robot same satisfied saturday saw say saying see september service
    she should shipment shipping shortly should sincerely since sir so some somebody someone something soon sorry
    speaking special still stop store stuff such sunday super support sure system take talk talking team tell terrible
    than thank thanks that that's the their them then there there's these they thing think this those though through
    thursday time to today together told tomorrow tonight too total track tracking trouble true truly trying tuesday
    two unable under understand understood unfortunately until up update upset us use user using usually value valued
    verify very virtual wait waiting want wanted was wasn't we we'll we're web website wednesday week welcome well
    were what what's when where which while who whoever whole whom whose why will wish with within without wonderful
    won't work working world would wouldn't wrong yea yeah year years yep yes yesterday yet you you'd you'll you're
    your yours yourself yup agreed alas anytime appreciated congrats congratulations noted usr sys
    tel fax mobile cell email e-mail ssn dob visa mastercard amex ups usps fedex dhl po apo fpo dpo america american
    british canadian french german spanish italian chinese japanese indian mexican christmas easter thanksgiving
    attention attn subject re cc ps fyi asap faq id pin url usa uk eu ceo hr it's isn't aren't seriously honestly
    basically hopefully apparently currently recently immediately probably possibly clearly simply frustrated
    disappointed annoyed angry confused worried curious excited grateful thankful afraid aware certain wondering
    checking writing reaching following sending getting inquiring enquiring responding replying transferring
    """
)
"""Lower-case words that stand beside cues and are not names."""

NAMESAKES = words(
    """
    april august bank best box case christian church cost day dear early easter english fields fine first free french
    friday general german glad god good hope joy june king lady lane law little long lord lot love march may monday
    new noon open page park part price reason rich rose sharp small stone story stuff sunday true visa will
    wise wish work world young
    """
)
"""Words that are never a name alone in lower case, and yet part of many."""

COMMON_PAIRS = words(
    """
    th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic
    ne ea ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un
    lo wa ge ie wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv ia am fi ci vi pl ig tu ev
    ld ry mp fe bl ab gh ty op wo sa ay ke ck
    """
)
"""Pairs of letters that English is full of: a code in letters has few of them."""

PARTICLES = words("de da del della der den di dos du la le van von bin ibn al el st")
NAME_ENDINGS = words("jr sr ii iii iv md phd dds dvm esq cpa rn")

BEFORE_VOCATIVE = words(
    """
    you today that else day time week weekend with moment wait patience please calling assist help back now much lot
    again welcome sorry problem done thanks luck care bye goodbye for information details order inconvenience in
    """
)
"""Words after which, behind a comma, somebody is called by name."""

FILLERS = phrases(
    "sure|yes|yeah|yea|yep|yup|ok|okay|of course|certainly|absolutely|hi|hello|hey|thanks|thank you|please|well|um|uh|"
    "oh|so|no problem|alright|all right|right|fine|great|it is|it's|its|it should be|it would be|that is|that's|good|"
    "that would be|this is|i am|i'm|im|my full name is|my first name is|my last name is|my name is|my name's|name is|"
    "name's|the name is|you can call me|call me|they call me|here it is|here you go|here|under|it's under|sir|madam|"
    "ma'am|there|robot|bot|definitely|gladly|happy to|sure thing|the name's|name|no worries|one moment|let me see"
)
"""What people say before they give their name."""

CUES: Mapping[str, Iterable[str]] = {
    "code": CODE_CUES,
    "person": PERSON_CUES,
    "date": DATE_CUES,
    "field": FIELD_CUES,
    "age": AGE_CUES,
}
"""All cues by their group; of them, longer ones hide the ones inside them."""

ALL_CUES = frozenset(cue for cues in CUES.values() for cue in cues)
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[^\W_][\w'’-]*")
Cue = Hit


def fold(text: str) -> str:
    """The text in lower case with straight apostrophes, character for character, so that offsets stay true."""
    lower = text.lower()
    if len(lower) != len(text):
        lower = "".join(small if len(small := character.lower()) == 1 else character for character in text)
    return _SURROGATE.sub("?", lower.replace("’", "'")) if not lower.isascii() else lower


def name_start(text: str, start: int, end: int) -> int:
    """Where a name begins in [start, end): behind the words that are never part of one; `end` if there is none."""
    for word in _WORD.finditer(text, start, end):
        if word.group().lower() not in NEVER_A_NAME and not word.group()[0].islower():
            return word.start()
    return end


def overlaps(spans: Sequence[Span], start: int, end: int) -> bool:
    """Whether one of the sorted, disjoint `spans` shares a character with [start, end)."""
    after = bisect_left(spans, (end, 0, ""))
    return after > 0 and spans[after - 1].end > start


def covers(spans: Sequence[Span], start: int, end: int) -> bool:
    """Whether one of the sorted, disjoint `spans` holds all of [start, end)."""
    after = bisect_left(spans, (end, 0, ""))
    return after > 0 and spans[after - 1].start <= start and spans[after - 1].end >= end
