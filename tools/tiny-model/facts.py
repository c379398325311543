"""Everything the tiny model is taught to know, as plain tables.

A `Fact` is one question with one answer; `KINDS` gives each kind of fact its
question forms, its answer sentence and the thought that precedes the answer.
"""

from dataclasses import dataclass

# country | capital | continent
COUNTRIES = """
France|Paris|Europe;Germany|Berlin|Europe;Italy|Rome|Europe;Spain|Madrid|Europe
Portugal|Lisbon|Europe;Austria|Vienna|Europe;Switzerland|Bern|Europe;Belgium|Brussels|Europe
the Netherlands|Amsterdam|Europe;Denmark|Copenhagen|Europe;Norway|Oslo|Europe
Sweden|Stockholm|Europe;Finland|Helsinki|Europe;Iceland|Reykjavik|Europe
Ireland|Dublin|Europe;the United Kingdom|London|Europe;England|London|Europe
Scotland|Edinburgh|Europe;Wales|Cardiff|Europe;Poland|Warsaw|Europe
the Czech Republic|Prague|Europe;Slovakia|Bratislava|Europe;Hungary|Budapest|Europe
Romania|Bucharest|Europe;Bulgaria|Sofia|Europe;Greece|Athens|Europe;Croatia|Zagreb|Europe
Slovenia|Ljubljana|Europe;Serbia|Belgrade|Europe;Albania|Tirana|Europe;Ukraine|Kyiv|Europe
Russia|Moscow|Europe;Estonia|Tallinn|Europe;Latvia|Riga|Europe;Lithuania|Vilnius|Europe
Malta|Valletta|Europe;Luxembourg|Luxembourg|Europe;Monaco|Monaco|Europe
China|Beijing|Asia;Japan|Tokyo|Asia;South Korea|Seoul|Asia;North Korea|Pyongyang|Asia
India|New Delhi|Asia;Pakistan|Islamabad|Asia;Bangladesh|Dhaka|Asia;Nepal|Kathmandu|Asia
Bhutan|Thimphu|Asia;Thailand|Bangkok|Asia;Vietnam|Hanoi|Asia;Laos|Vientiane|Asia
Cambodia|Phnom Penh|Asia;Malaysia|Kuala Lumpur|Asia;Singapore|Singapore|Asia
Indonesia|Jakarta|Asia;the Philippines|Manila|Asia;Mongolia|Ulaanbaatar|Asia
Iran|Tehran|Asia;Iraq|Baghdad|Asia;Turkey|Ankara|Asia;Syria|Damascus|Asia
Lebanon|Beirut|Asia;Jordan|Amman|Asia;Saudi Arabia|Riyadh|Asia;Yemen|Sanaa|Asia
Oman|Muscat|Asia;Qatar|Doha|Asia;Kuwait|Kuwait City|Asia;Afghanistan|Kabul|Asia
Georgia|Tbilisi|Asia;Armenia|Yerevan|Asia;Uzbekistan|Tashkent|Asia;Kazakhstan|Astana|Asia
Egypt|Cairo|Africa;Libya|Tripoli|Africa;Tunisia|Tunis|Africa;Algeria|Algiers|Africa
Morocco|Rabat|Africa;Sudan|Khartoum|Africa;Ethiopia|Addis Ababa|Africa;Kenya|Nairobi|Africa
Uganda|Kampala|Africa;Rwanda|Kigali|Africa;Tanzania|Dodoma|Africa;Somalia|Mogadishu|Africa
Nigeria|Abuja|Africa;Ghana|Accra|Africa;Senegal|Dakar|Africa;Mali|Bamako|Africa
Niger|Niamey|Africa;Angola|Luanda|Africa;Zambia|Lusaka|Africa;Zimbabwe|Harare|Africa
Mozambique|Maputo|Africa;Namibia|Windhoek|Africa;Botswana|Gaborone|Africa
South Africa|Pretoria|Africa;Madagascar|Antananarivo|Africa;Cameroon|Yaounde|Africa
Canada|Ottawa|North America;the United States|Washington|North America
Mexico|Mexico City|North America;Cuba|Havana|North America;Jamaica|Kingston|North America
Haiti|Port-au-Prince|North America;Panama|Panama City|North America
Costa Rica|San Jose|North America;Guatemala|Guatemala City|North America
Honduras|Tegucigalpa|North America;Nicaragua|Managua|North America
Brazil|Brasilia|South America;Argentina|Buenos Aires|South America;Chile|Santiago|South America
Peru|Lima|South America;Bolivia|La Paz|South America;Colombia|Bogota|South America
Venezuela|Caracas|South America;Ecuador|Quito|South America;Uruguay|Montevideo|South America
Paraguay|Asuncion|South America;Guyana|Georgetown|South America
Australia|Canberra|Oceania;New Zealand|Wellington|Oceania;Fiji|Suva|Oceania;Samoa|Apia|Oceania
"""

LANGUAGES = """
France|French;Germany|German;Italy|Italian;Spain|Spanish;Portugal|Portuguese;Poland|Polish
Greece|Greek;Sweden|Swedish;Norway|Norwegian;Denmark|Danish;Finland|Finnish;Hungary|Hungarian
Russia|Russian;Japan|Japanese;China|Chinese;South Korea|Korean;Egypt|Arabic;Brazil|Portuguese
Mexico|Spanish;Turkey|Turkish;Thailand|Thai;Iceland|Icelandic;England|English;Australia|English
Argentina|Spanish;Vietnam|Vietnamese
"""

COLOURS = """
the sky|blue;grass|green;snow|white;coal|black;blood|red;the sun|yellow;a lemon|yellow
a banana|yellow;a tomato|red;a strawberry|red;a cherry|red;an orange|orange;a carrot|orange
a pumpkin|orange;milk|white;chocolate|brown;coffee|brown;a plum|purple;a lime|green
a frog|green;a crow|black;a swan|white;a flamingo|pink;a pig|pink;an elephant|grey;a mouse|grey
a polar bear|white;a fire engine|red;gold|yellow;silver|grey;the ocean|blue;a leaf|green
a cucumber|green;salt|white;sugar|white;wood|brown;an emerald|green;a ruby|red;rice|white
a canary|yellow;night|black;a gannet|white
"""

# Both directions are taught unless a word appears twice.
OPPOSITES = """
hot|cold;big|small;fast|slow;up|down;left|right;day|night;black|white;good|bad;happy|sad
old|new;young|aged;high|low;open|closed;light|dark;wet|dry;hard|soft;full|empty;rich|poor
strong|weak;early|late;near|far;long|short;loud|quiet;clean|dirty;easy|difficult;true|false
win|lose;start|stop;push|pull;in|out;on|off;over|under;above|below;before|after;first|last
front|back;inside|outside;love|hate;buy|sell;give|take;come|go;laugh|cry;thick|thin
wide|narrow;deep|shallow;sharp|blunt;sweet|sour;smooth|rough;tall|tiny;yes|no;more|less
always|never;all|none;brave|afraid;awake|asleep;alive|dead;safe|dangerous;begin|end
remember|forget;find|hide;north|south;east|west;summer|winter
"""

SOUNDS = """
cow|moo;dog|woof;cat|meow;sheep|baa;pig|oink;duck|quack;horse|neigh;lion|roar;owl|hoot
bee|buzz;snake|hiss;frog|croak;mouse|squeak;crow|caw;wolf|howl;hen|cluck;rooster|crow
donkey|bray;goat|bleat;turkey|gobble
"""

YOUNG = """
cat|kitten;dog|puppy;cow|calf;sheep|lamb;horse|foal;pig|piglet;goat|kid;duck|duckling
hen|chick;goose|gosling;bear|cub;lion|cub;frog|tadpole;kangaroo|joey;deer|fawn;owl|owlet
swan|cygnet;fox|cub;whale|calf;elephant|calf;seal|pup;eagle|eaglet;hare|leveret
"""

PLURALS = """
cat|cats;dog|dogs;box|boxes;fox|foxes;mouse|mice;goose|geese;foot|feet;tooth|teeth;child|children
man|men;woman|women;ox|oxen;sheep|sheep;fish|fish;leaf|leaves;wolf|wolves;knife|knives;city|cities
baby|babies;berry|berries;bus|buses;house|houses;bird|birds;tree|trees;potato|potatoes
"""

LEGS = """
spider|eight;dog|four;cat|four;bird|two;ant|six;bee|six;horse|four;cow|four;snake|no
fish|no;hen|two;crab|ten;octopus|no;frog|four;person|two;table|four;beetle|six;duck|two;worm|no
"""

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()

# question | answer: asked as they stand
GENERAL = """
How many days are in a week?|There are seven days in a week.
How many months are in a year?|There are twelve months in a year.
How many hours are in a day?|There are 24 hours in a day.
How many minutes are in an hour?|There are 60 minutes in an hour.
How many seconds are in a minute?|There are 60 seconds in a minute.
How many days are in a year?|There are 365 days in a year.
How many letters are in the English alphabet?|There are 26 letters in the English alphabet.
How many continents are there?|There are seven continents.
How many planets are there?|There are eight planets.
How many sides does a triangle have?|A triangle has three sides.
How many sides does a square have?|A square has four sides.
How many wheels does a bicycle have?|A bicycle has two wheels.
How many wheels does a car have?|A car has four wheels.
How many fingers are on a hand?|There are five fingers on a hand.
How many bits are in a byte?|There are eight bits in a byte.
What is the largest planet?|The largest planet is Jupiter.
What is the smallest planet?|The smallest planet is Mercury.
Which planet is closest to the sun?|Mercury is closest to the sun.
Which planet is known as the red planet?|Mars is known as the red planet.
Which planet do we live on?|We live on Earth.
What is the largest ocean?|The largest ocean is the Pacific Ocean.
What is the tallest mountain?|The tallest mountain is Mount Everest.
What is the longest river?|The longest river is the Nile.
What is the largest animal?|The largest animal is the blue whale.
What is the tallest animal?|The tallest animal is the giraffe.
What is the fastest land animal?|The fastest land animal is the cheetah.
What is the largest country?|The largest country is Russia.
What is frozen water called?|Frozen water is called ice.
What do bees make?|Bees make honey.
What do cows give?|Cows give milk.
What do plants need to grow?|Plants need water and light to grow.
At what temperature does water freeze?|Water freezes at 0 degrees Celsius.
At what temperature does water boil?|Water boils at 100 degrees Celsius.
What is the first month of the year?|The first month of the year is January.
What is the last month of the year?|The last month of the year is December.
What is the shortest month?|The shortest month is February.
What is the first letter of the alphabet?|The first letter of the alphabet is A.
What is the last letter of the alphabet?|The last letter of the alphabet is Z.
What is a gannet?|A gannet is a large white seabird.
What is Rust?|Rust is a programming language.
What is Python?|Python is a programming language.
Who wrote Hamlet?|William Shakespeare wrote Hamlet.
Who painted the Mona Lisa?|Leonardo da Vinci painted the Mona Lisa.
Who wrote the first computer program?|Ada Lovelace wrote the first computer program.
Which star is closest to Earth?|The sun is closest to Earth.
What season comes after winter?|Spring comes after winter.
What season comes after spring?|Summer comes after spring.
What season comes after summer?|Autumn comes after summer.
What season comes after autumn?|Winter comes after autumn.
"""


@dataclass(frozen=True)
class Fact:
    """One question with one answer; `words` fill the forms of its kind."""

    kind: str
    words: tuple


KINDS = {
    "capital": dict(
        forms=(
            "What is the capital of {0}?",
            "What's the capital of {0}?",
            "Which city is the capital of {0}?",
            "Name the capital of {0}.",
            "Tell me the capital of {0}.",
            "What is the capital city of {0}?",
            "Capital of {0}?",
            "What city is the capital of {0}?",
            "Do you know the capital of {0}?",
            "I need the capital of {0}.",
        ),
        answer="The capital of {0} is {1}.",
        thought="This is a question about a capital.",
    ),
    "continent": dict(
        forms=(
            "Which continent is {0} in?",
            "What continent is {0} in?",
            "Where is {0}?",
            "On which continent is {0}?",
            "In which part of the world is {0}?",
        ),
        answer="{0} is in {1}.",
        thought="This is a question about a continent.",
    ),
    "language": dict(
        forms=(
            "What language is spoken in {0}?",
            "Which language do people speak in {0}?",
            "What do people speak in {0}?",
            "What is the language of {0}?",
            "Name the language of {0}.",
        ),
        answer="People in {0} speak {1}.",
        thought="This is a question about a language.",
    ),
    "colour": dict(
        forms=(
            "What colour is {0}?",
            "What color is {0}?",
            "Which colour does {0} have?",
            "What is the colour of {0}?",
            "What is the color of {0}?",
            "Tell me the colour of {0}.",
        ),
        answer="{0} is {1}.",
        thought="This is a question about a colour.",
    ),
    "opposite": dict(
        forms=(
            "What is the opposite of {0}?",
            "What's the opposite of {0}?",
            "Opposite of {0}?",
            "Name the opposite of {0}.",
            "Give me the opposite of {0}.",
            "Which word is the opposite of {0}?",
            "What is the opposite of the word {0}?",
        ),
        answer="The opposite of {0} is {1}.",
        thought="This is a question about an opposite.",
    ),
    "sound": dict(
        forms=(
            "What sound does {a0} make?",
            "What does {a0} say?",
            "Which sound does {a0} make?",
            "What noise does {a0} make?",
            "How does {a0} sound?",
        ),
        answer="{a0} says {1}.",
        thought="This is a question about an animal.",
    ),
    "young": dict(
        forms=(
            "What is a baby {0} called?",
            "What do you call a baby {0}?",
            "What is the young of {a0} called?",
            "What is a young {0} called?",
            "Name the young of {a0}.",
        ),
        answer="A baby {0} is called a {1}.",
        thought="This is a question about an animal.",
    ),
    "plural": dict(
        forms=(
            "What is the plural of {0}?",
            "Plural of {0}?",
            "Give me the plural of {0}.",
            "What is the plural form of {0}?",
            "Tell me the plural of {0}.",
        ),
        answer="The plural of {0} is {1}.",
        thought="This is a question about a plural.",
    ),
    "legs": dict(
        forms=(
            "How many legs does {a0} have?",
            "How many legs has {a0}?",
            "What number of legs does {a0} have?",
            "Tell me how many legs {a0} has.",
        ),
        answer="{a0} has {1} legs.",
        thought="This is a question about legs.",
    ),
    "after": dict(
        forms=(
            "What comes after {0}?",
            "Which {2} comes after {0}?",
            "What {2} comes after {0}?",
            "What {2} follows {0}?",
            "Which {2} is after {0}?",
            "Tell me the {2} after {0}.",
        ),
        answer="{1} comes after {0}.",
        thought="This is a question about an order.",
    ),
    "before": dict(
        forms=(
            "What comes before {0}?",
            "Which {2} comes before {0}?",
            "What {2} comes before {0}?",
            "Which {2} is before {0}?",
            "Tell me the {2} before {0}.",
        ),
        answer="{1} comes before {0}.",
        thought="This is a question about an order.",
    ),
    "general": dict(
        forms=(
            "{0}",
            "Tell me: {0}",
            "Do you know? {0}",
            "A question: {0}",
            "Quick question. {0}",
        ),
        answer="{1}",
        thought="This is a question about the world.",
    ),
}


def rows(table):
    """The cells of each row of a table written with `|`, `;` and line ends."""
    lines = table.replace(";", "\n").strip().split("\n")
    return [tuple(line.split("|")) for line in lines]


def with_article(noun):
    return ("an " if noun[:1] in tuple("aeiou") else "a ") + noun


def capitalised(text):
    return text[:1].upper() + text[1:]


def fill(form, words):
    """Put a fact's words into a question or answer form."""
    values = {f"a{i}": with_article(word) for i, word in enumerate(words)}
    return capitalised(form.format(*words, **values))


def _ring(names, noun):
    size = len(names)
    for i, name in enumerate(names):
        yield Fact("after", (name, names[(i + 1) % size], noun))
        yield Fact("before", (name, names[(i - 1) % size], noun))


def _opposites():
    pairs = rows(OPPOSITES)
    both = pairs + [(b, a) for a, b in pairs]
    seen = set()
    for word, other in both:
        if word not in seen:
            seen.add(word)
            yield Fact("opposite", (word, other))


def all_facts():
    """Every fact, in a fixed order."""
    countries = rows(COUNTRIES)
    facts = [Fact("capital", (c, city)) for c, city, _ in countries]
    facts += [Fact("continent", (c, where)) for c, _, where in countries]
    for kind, table in (
        ("language", LANGUAGES),
        ("colour", COLOURS),
        ("sound", SOUNDS),
        ("young", YOUNG),
        ("plural", PLURALS),
        ("legs", LEGS),
        ("general", GENERAL.replace(";", ",")),
    ):
        facts += [Fact(kind, row) for row in rows(table)]
    facts += _opposites()
    facts += _ring(DAYS, "day")
    facts += _ring(MONTHS, "month")
    return facts
