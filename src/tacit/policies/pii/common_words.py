"""Common words of seven languages, which are no secret by themselves; in lower case, as they are written.

English, German, French and Dutch words are those of Faker, which makes placeholder text of them, and words of
everyday letters; of the other languages there are the little words alone.
"""

from functools import cache
from importlib import import_module

from tacit.policies.pii.cues import ALL_CUES, NAMESAKES, NEVER_A_NAME, words
from tacit.policies.pii.lexicon import family_names, given_names

_LOCALES = ("en_US", "de_DE", "fr_FR", "nl_NL")

_ENGLISH = words(
    """
    accident accounts actual addition additional admitted adult advance advice afford afraid age aged agreed agrees
    ahead aid aim alarm alcohol allergic allergies allergy allow alone along already although among amount ancient
    anger angle animal ankle annual anxiety anymore anyway apart apartment apologies apologize apparent appeal
    appear apple applicant application apply appointment appreciate approach approve approved apps area argue arm
    army arrange arrive arrived arrives arrow art article ashamed aside asleep assume attach attached attack attempt
    attend attended attendee attitude attorney audience aunt author auto average avoid award awful baby background
    badge bag bake bakery balance ball ballet basis basket bath bathroom battery beach bear beat beautiful became
    bedroom beer began begin behave belief believe bell belong below belt bench beneath benefit beside besides bet
    beyond bicycle bike bill bills bird birth birthday bit bite bitter black blame blank blanket bleed blind block
    blocked blog blood blow blue board boat body boil bone bonus book booked booking books boot border bored boring
    born borrow boss bother bottle bottom bought bowl box boxes boy boyfriend brain branch brave bread break
    breakfast breath breathe bridge brief bright bring broad broke broken brother brought brown browser brush budget
    bug building built burn bus business busy butter button buyer buying cabinet cable cake calendar calm came
    camera camp canceled cancellation cancer capital captain car career careful carer carry cart case cash cat catch
    caught cause ceiling celebrate cell center central chain chair chance changes channel chapter charge charged
    charges chart chase chat cheap cheat cheaper checked checkout cheese chemistry chest chicken chief chief
    children chocolate choice choose church circle citizen city civil claim claims class clean clear clever click
    clients climb clinic clock close closed closet cloth clothes cloud club coach coast coat coffee cold collapse
    colleague collect college color colour column comb comfort comfortable command comment commit common communicate
    companies compare complain complaint complete complex computer concern concerned condition confused connect
    connection consent consider contain content continue contract control convenient conversation cook cookies cool
    cop copies copy corner correctly cough council count country couple coupon courier course court cousin cover
    covered cracked crash crazy cream create credit crew crime cross crowd cry cup curious currency current curtain
    custom customers cut cycle dad daily damage damaged dance danger dark data daughter dead deal death debit debt
    decide decided decision declined deep degree delay delayed delete deliver deliveries deny department depend
    deposit depressed depth describe description deserve design desk despite detail details device diagnosis diary
    die died diet difference difficult difficulty digital dinner direct directly dirt dirty disagree disappear
    discharge discount discover discuss disease dish display distance divide divorce dizziness dizzy doctor document
    documents dog dollar dollars door double doubt download dozen draft drag draw dream dress drink drive driver
    drop drove drug dry duty ear early earn earth ease east eat edge edit education effect effort egg eggs eight
    eighteen eighty elbow election electric electricity electronic eleven else emails emergency employ employee
    employees employer employment empty enclosed encourage end ends energy engine engineer enjoy enough ensure enter
    entire entrance entry envelope equal error escape especially estate euro euros event events evidence exact exam
    examine example except exchange excited exciting excuse exercise exhausted exist exit expect expense expensive
    experience expire expired expires explain express extend extra eye eyes fabric face faced fact factory fail
    failed failure fair faith fake fall familiar family famous fan far farm farmer fast fat father fault favor
    favorite favourite fax fear feature fee feed feedback feet fell felt female fence fever fifteen fifth fifty
    fight figure filed files fill filled film final finally find fingers finish fire firm fish fit five fix fixed
    flag flat flew flight flights floor flow flower flowers flu fly follow followed food foot football force foreign
    forest forever forget forgot forgotten fork form formal former forms forth fortunately forty forum forward found
    four fourteen fourth frame fraud freeze frequent fresh fridge front frozen fruit frustrated frustrating fuel fun
    funeral funny furniture future gain gallery game games gap garage garden gas gate gather gave gear gender
    generally gentle gentleman gift girl girlfriend glass glasses global gloves goal gold golden gonna goods gotta
    grab grade gradually grand grandfather grandma grandmother grandpa granted grass grateful gray great green grew
    grey ground group grow grown growth guarantee guard guess guest guests guide guilty guitar gun guy gym habit
    hair half hall hand handed handle hang happen happened happens hard hardly hate head headache heading headphones
    health healthy hear heard hearing heart heat heavy height held helped helpful helps hidden hide high highly hill
    himself hire history hit hobby hole holiday honest honor hopefully horse hospital host hot hotel hotline hour
    hours house household housing huge human hundred hung hungry hunt hurry hurt husband ice idea ideal ignore ill
    illness image imagine immediate impact impossible improve inch include included includes including income
    increase incorrect inform informed initial injury inquiry inside instead instruction instructions insurance
    insured intend interest internal internet interview introduce invalid invite invoice invoices involve iron
    island issued issues items jacket job jobs join joined joint joke journey judge juice jump junior jury justice
    keeps kept key keyboard keys kick kid kids kill kind kindly kitchen knee knew knife knock known knows label lack
    ladder laid lake lamp land landlord language laptop large largely lastly latest laugh laundry lawyer lay layer
    lazy lead leader leak learn leather leaves lecture led left leg legal lend length lens lesson letter letters
    level liability license lie life lift light likely limit limited link links lip liquid list listed listen lists
    live lived lives load loan local location lock locked lonely looked looks loose lose loss loud loved lovely low
    luck lucky luggage lunch machine mad magazine mail mailbox main mainly maintain major male mall manage managed
    managers manner manual map market marriage married mass master match material matter max maximum meal means
    meant measure meat media medical medication medicine medium meet meeting meetings member members membership
    memory men mental mention mentioned menu mess messages met metal method middle midnight mild mile miles military
    milk million mind minimum minor minute minutes mirror miss missed missing mistake mix mixed mode model modern
    mom money monitor monthly months mood moon mother mount mountain mouse mouth move moved movie moving mum murder
    muscle museum music naked narrow nation national natural nature near nearby nearly neat necessary neck needs
    negative neighbor neighbour neighbours neither nephew nervous net network news newspaper niece nine nineteen
    ninety nobody noise noisy none normal normally north nose note notes noticed notice notify nowhere nurse nuts
    obvious obviously occasion occur ocean odd offered offers office officer official often oil older online onto
    opened opening opens operation opinion opposite option options orange orders ordinary organic original others
    otherwise ought ourselves outside oven overnight owe owed owner pack packages packaging packet page pages pain
    painful paint pair pale panic pants paper papers paperwork parcel parcels parent parents park parking particular
    partly partner parts pass passed passenger passengers passport password passwords past path patience patient
    patients pattern pause pay paying payment payments payroll peace pen pencil pension percent perfectly perform
    period permanent permission permit personal pet pets pharmacy phones photo photos physical physio piano pick
    picked picture pictures piece pieces pilot pin pink pipe pity pizza place places plain plan plane plans plant
    plastic plate platform play played player pleasant pleasure plenty plus pocket point points police policies
    policy polite pool poor popular port position positive post posted postpone posts pot potato pound pounds power
    practical practice pray prefer preferred pregnant premium prepare prescribed prescription present pressure
    prevent previous previously price prices pride print printed printer prior priority prison private prize pro
    probably procedure process processed processing professor profile profit program progress project promise
    promised proof proper properly property protect protection proud prove provided provider public publish pull
    pulse pupil purchased purchases pure purpose push put putting quality quantity quarter queen queue quick quickly
    quiet quit quote race radio rain raise ran random range rang rare rarely rash rate rather rating raw reach
    reached reaction read reader reads reality realize rear receipt receipts recent recently reception recipe
    recognize recommend record recorded records recover red redeem reduce refer referral referred refundable
    refunded refunds refuse refused region register registered registration regret regular regularly reject relate
    related relationship relatives relax release relevant relief religion remain remark remember remind reminder
    remote remove removed rent repair repeat replace replaced replacement reply report reported reports reputation
    require required rescue reservation reserve reset resident residents resolve resolved respect respond response
    responsible rest restaurant result results resume retail retired returned returns reveal review reviews reward
    rice rich ride ring rings rise risk river road rock role roll roof room rooms root rope rough round route row
    rude ruin rule rules run running rush sad safe safety said salad salary sale sales salt sand sandwich sang sat
    satisfied sauce save saved saving savings saying scale scan scared scene schedule scheduled school science
    scissors score scratch scream screen script sea search season seat seats second seconds secret secretary section
    secure security seeing seek seem seemed seems seen select self sell seller send sender sending senior sense
    sensitive sent sentence separate series serious serve served server services session set sets settings settle
    settlement seven seventeen seventy several severe sex shade shall shame shape share shared sharp shelf shift
    shine ship shipped ships shirt shirts shock shoe shoes shop shopping shore short shot shoulder shout show showed
    shower shown shows shut sick side sight sign signal signature signed silence silent silly silver similar simple
    simply sing single sink sister sit site situation six sixteen sixty size sizes skill skin skip sky sleep
    sleeping slept slice slight slightly slip slow slowly small smart smell smile smoke smoking smooth snow soap
    social socks sofa soft software sold solid solution solve somehow somewhere son song sons sort sound soup south
    space spare speak speed spell spend spent spoke spoken spoon sport spot spread spring square staff stage stain
    stairs stamp stand standard star start started starting state stated statement station status stay stayed steal
    steel step stick stock stole stolen stomach stone stood stopped storage stored stores storm story straight
    strange stranger stream street strength stress stressed strict strike strong struggle student students studied
    study stupid style subject submit subscription succeed success sudden suddenly suffer sugar suggest suit
    suitable sum summary summer sun supply supplier suppose supposed surface surgery surprise surprised surprising
    suspect suspicious sweet swim switch swollen symptoms table tablet tablets tail taken takes tale tall tank tape
    task taste taught tax taxes taxi tea teach teacher teachers teeth temperature temporary ten tenant tend term
    terms test tested tests text texted texts theft themselves theory therapy therefore thick thief thin third
    thirteen thirty thought thoughts thousand thread threat three threw throat throw throwing ticket tickets tie
    tied tight till tiny tip tired title toilet toll tone tongue took tool tooth top topic totally touch tough tour
    toward towards towel town toy trade traffic train trained training transfer transferred transit translate
    transport trap trash travel treat treated treatment tree trees trial trick tried tries trip truck trust truth
    turn turned turns twelve twenty twice twin type types typical ugly ultimately umbrella uncle unclear
    uncomfortable unfair unfortunate unhappy uniform union unique unit units unknown unless unlikely unlock unusual
    updated updates upload upon upper upstairs urgent used useful useless users uses usual vacation valid valley
    valuable van vary vegetables vehicle version victim video view village violent visible visit visited visitor
    visits vital voice volume vote voucher wage waist waited waiter wake walk walked wall wallet war ward wardrobe
    warehouse warm warn warned warning warranty wash waste watch watched water wave weak weakness wealth wear
    weather wedding weekend weekly weeks weigh weight weird west wet whatever wheel whenever whereas wherever
    whether whisper white whoever wide wife wild willing win wind window windows wine wing winner winter wipe wire
    wise withdraw withdrawal witness woke woman women wonder wonderful wood wooden wool word words wore worked
    worker workers works worn worried worry worse worst worth wound wrap write writer writes writing written wrote
    yard yellow young younger youth zero zone abdominal acute bilateral chronic denies mg ml kg cm daily nausea
    vomiting presents admitted discharged history follow-up exam negative positive left right upper lower pt hx rx
    dx gonna wanna gotta lol pls plz thx tho u ur r w im dont cant wont isnt didnt doesnt hes shes theyre youre ive
    id sms app apps login logins inbox link links wifi website websites http https www com org net html json log
    info warn debug error user users name names null true false none admin status code level msg
    """
)

_OTHERS = words(
    """
    aber als am an auch auf aus bei bin bis bist da damit dann das dass dem den der des dich die dir doch durch ein
    eine einem einen einer er es euch für geht gibt haben habe hat hatte ich ihm ihn ihr ihre im in ist ja jetzt
    kann kein keine mein meine mich mir mit nach nicht noch nun nur oder ohne schon sein seine sich sie sind so über
    um und uns unser von vor war waren was weil wenn wer werden wie wird wir wo zu zum zur wurde bitte danke kannst
    sagen mehr au aux avec ce ces cette chez comme dans de des deux du elle elles en encore est et être eu fait il
    ils je la le les leur lui ma mais me mes moi mon ne nos notre nous on ou où par pas plus pour qu que qui sa sans
    se ses si son sont sur ta te tes toi ton tout très tu un une vos votre vous y été avez sera merci a al algo como
    con cual cuando de del desde donde dos el ella en era es esa ese eso esta está este esto fue ha hace han hasta
    hay la las le les lo los más me mi mis muy no nos o para pero por porque que qué se ser si sin sobre son su sus
    también te tiene todo tu un una uno y ya yo ai alla alle anche c che chi ci come con cui da dal dalla degli dei
    del della delle di dopo e ed era gli ha hanno ho i il in io l la le lei li lo loro lui ma mi mia mio ne nei nel
    nella no noi non o per però più qui se sei si sia sono su sua suo tra tu tutti un una uno vi è ao aos as à às
    com da das de dela dele do dos e ela ele em entre era eu foi há isso já lhe mais mas me mesmo meu minha muito na
    nas no nos não o os ou para pela pelo por qual quando que quem se sem ser seu sua são só também te tem tu um uma
    você aan als bij dan dat de deze die dit doen door een en er geen haar had heb hebben heeft het hier hij hoe hun
    ik in is je kan maar me meer men met mij mijn na naar niet nog nu of om omdat onder ons ook op over te tegen
    toch toen tot u uit uw van veel voor want waren was wat we wel werd wie wij wil worden wordt zal ze zei zich zij
    zijn zo zou
    """
)

_ENDINGS = ("s", "es", "d", "ed", "ing", "ly", "r", "'s", "n't")


LABELS = words(
    """
    iban ssn dob md pin hpi rtc gcs mac vin btc eth cvv otp mrn npi nhs bic kfz tel fax attn hd nr abs bgb bw id ids sku
    betreff objet oggetto asunto assunto objeto courriel correo medicare visa tfno geb svnr sum again hij sie ihr der
    die das de la le el il het een un une l d s t m c
    """
)


@cache
def plain_words() -> frozenset[str]:
    """Common words and labels of fields that are not also names."""
    cues = {word for cue in ALL_CUES for word in cue.split()}
    return frozenset((common_words() | cues) - given_names() - family_names() | LABELS | NEVER_A_NAME - NAMESAKES)


@cache
def common_words() -> frozenset[str]:
    """The words, with the regular forms of English ones unless these are names."""
    faked = {
        locale: {word.lower() for word in import_module(f"faker.providers.lorem.{locale}").Provider.word_list}
        for locale in _LOCALES
    }
    english = faked["en_US"] | _ENGLISH | NEVER_A_NAME
    stems = english | {word[:-1] for word in english if word.endswith("e")}
    regular = {word + ending for word in stems for ending in _ENDINGS} | {
        word[:-1] + "ies" for word in english if word.endswith("y")
    }
    named = given_names() | family_names()
    known = english | _OTHERS
    return frozenset(known.union(*(faked[locale] - named for locale in _LOCALES[1:]), regular - named))


@cache
def function_words() -> frozenset[str]:
    """Little words, and the most common of dialogs, which no name of several words begins or ends with."""
    return (NEVER_A_NAME - NAMESAKES) | _OTHERS
