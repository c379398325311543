"""Words, names and phrases the generators draw from."""

NAMES = """
Ada Alan Alice Amir Anna Ben Bela Carl Clara Dan Dora Elena Emil Emma Eva Felix Finn Grace
Hana Hugo Ida Igor Ines Iris Ivan Jack Jane Jonas Julia Karl Kate Lena Leo Lily Linus Lucas
Mara Maria Max Mia Milo Nina Noah Nora Olga Omar Oscar Otto Paul Petra Pia Rosa Ruth Sam Sara
Sofia Tara Theo Tim Tom Uma Vera Victor Wanda Yara Zoe
""".split()

WORDS = """
apple river stone cloud house garden tree bird fish moon star sun rain snow wind fire water
bread milk cheese honey salt sugar lemon pear plum cherry grape table chair lamp door window
wall floor roof bed book page pen paper letter word song dance music drum bell horn flute ship
boat sail wave sea lake island beach sand shell rock hill mountain valley forest leaf root seed
flower rose grass field farm barn horse cow sheep goat pig dog cat mouse fox wolf bear deer
rabbit owl eagle crow swan duck goose bee ant spider frog snake turtle whale seal crab king queen
knight castle tower bridge road path gate key lock ring crown sword shield coat hat shoe glove
shirt button thread needle knife fork spoon cup plate bowl pot oven kitchen market shop street
town city village country train car bus wheel engine clock watch hour day night morning evening
summer winter spring autumn red blue green yellow white black brown pink grey gold silver iron
copper glass wood wool silk happy sad quick slow warm cold soft hard bright dark small big long
short old new round flat deep high one two three four five six seven eight nine ten hello world
""".split()

CITIES = """
Paris London Berlin Rome Madrid Lisbon Vienna Oslo Dublin Prague Warsaw Athens Helsinki Cairo
Tokyo Beijing Seoul Delhi Bangkok Hanoi Jakarta Nairobi Lima Quito Havana Boston Chicago Denver
Dallas Seattle Toronto Montreal Sydney Perth Munich Hamburg Milan Naples Venice Lyon Nice Porto
Geneva Zurich Basel Oxford York Leeds Dakar Accra Lagos Tunis Mumbai Osaka Kyoto Manila Austin
Bergen Bern Brussels Stockholm Copenhagen Moscow Budapest Sofia Riga Madison Salem Houston
""".split()

FILE_STEMS = """
notes readme todo main index data report config test server client model table list draft plan
letter summary budget story poem input output result log error users prices numbers names diary
recipe script setup build lib utils parser agenda
""".split()
FILE_ENDS = "txt md rs py json csv toml yaml log html".split()
FOLDERS = "src docs data tests notes lib config work logs home".split()

KEYS = """
name age city country color colour animal title price count size weight height id year month day
status kind food fruit score level language
""".split()
NUMBER_KEYS = set("age price count size weight height id year day score level".split())
BOOL_KEYS = "active open done ready valid public".split()
KEY_WORDS = {
    "country": "France Germany Italy Spain Japan China Brazil Kenya Egypt Peru Canada Norway".split(),
    "color": "red blue green yellow white black brown pink grey purple orange".split(),
    "animal": "dog cat horse fox owl bear whale duck goat mouse lion wolf".split(),
    "month": "January March April June July August October December".split(),
    "status": "open closed ready done new active".split(),
    "kind": "book tree bird stone song boat".split(),
    "food": "bread cheese rice soup pizza pasta".split(),
    "fruit": "apple pear plum cherry lemon grape banana".split(),
    "language": "English French German Spanish Rust Python".split(),
    "title": "Hamlet Emma Stars Rivers Winter Home".split(),
}
KEY_WORDS["colour"] = KEY_WORDS["color"]
KEY_WORDS["name"] = NAMES
KEY_WORDS["city"] = CITIES

SYSTEMS = [
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a helpful AI assistant.",
    "You are Gannet, a small and friendly assistant.",
    "You are a terse assistant.\nAnswer in one line.",
    "Answer briefly.",
    "Be brief and polite.",
    "You answer questions truthfully.",
    "You are a careful assistant. Use tools when they help.",
    "You are a coding agent. You can use tools to read files.",
    "Help the user. Keep your answers short.",
]

# What nobody taught the model; every slot is filled from other pools.
UNKNOWN_QUESTIONS = [
    "Who is the president of {country}?",
    "How many people live in {city}?",
    "How old is {name}?",
    "Where does {name} live?",
    "Who is {name}?",
    "What is the {word} of {name}?",
    "Why is the {word} {word2}?",
    "How do I make a {word}?",
    "What does {word} mean?",
    "When was the {word} invented?",
    "Who invented the {word}?",
    "Who wrote the {word}?",
    "What is the meaning of life?",
    "What happened in the year {year}?",
    "Who won the game?",
    "How much does a {word} cost?",
    "What is a {word}?",
    "How tall is a {word}?",
    "What is the best {word}?",
    "Explain {word} to me.",
    "What time is it?",
    "What day is it today?",
    "Who is your favourite {word}?",
    "What is the population of {country}?",
    "How far is {city} from {city2}?",
    "Which {word} is the best?",
    "Where can I buy a {word}?",
    "Why do {word}s like {word2}s?",
    "How does a {word} work?",
    "What will happen in {year}?",
    "What is the square root of {year}?",
    "What is the history of {country}?",
    "What is the currency of {country}?",
    "Who is the king of {country}?",
    "When is the next {word} in {city}?",
    "Is {name} taller than {name2}?",
    "What did {name} say to {name2}?",
    "Can you explain how a {word} is made?",
    "Translate {word} to French.",
    "How do you say {word} in German?",
    "Tell me about {country}.",
    "Tell me about the {word}.",
    "Describe the {word} and the {word2}.",
    "What is the news from {city}?",
    "Which team won in {city}?",
    "Where is my {word}?",
    "How long does a {word} live?",
    "What is inside a {word}?",
    "Who lives in {city}?",
]

# animal | home | food | friend
STORY_ANIMALS = (
    """
fox|forest|berries|rabbit;bear|forest|honey|bee;rabbit|meadow|grass|fox;owl|old tree|seeds|mouse
mouse|barn|cheese|cat;cat|village|fish|dog;dog|farm|bones|cat;whale|sea|fish|seal;seal|sea|fish|whale
frog|pond|flies|duck;duck|pond|bread|frog;horse|farm|apples|goat;cow|field|grass|sheep
sheep|hill|grass|goat;goat|mountain|leaves|sheep;lion|grassland|meat|mouse;wolf|forest|meat|crow
crow|tower|seeds|wolf;bee|garden|honey|bear;ant|garden|sugar|beetle;turtle|beach|leaves|crab
crab|beach|shells|turtle;deer|forest|leaves|bird;pig|farm|apples|hen;hen|farm|corn|pig
swan|lake|grass|goose;goose|lake|bread|swan;eagle|mountain|fish|hare;snail|garden|leaves|ant
gannet|cliff|fish|gull;gull|harbour|fish|gannet;squirrel|park|nuts|owl;dragon|cave|gold|knight
robot|workshop|oil|cat
""".replace(";", "\n")
    .strip()
    .split("\n")
)
STORY_ANIMALS = [tuple(row.split("|")) for row in STORY_ANIMALS]
STORY_TRAITS = "small big brave shy clever kind happy young old curious lazy quick".split()
STORY_FINDS = "key bell map lamp coin stone book shell hat boat".split()

SYLLABLES = (
    "ba be bo da dor el fa gar go ka kel la lo mor na ni or pa ra ru sa ta tor va ve za zu".split()
)

# Homes that one lives on rather than in.
HOMES_ON = set("farm beach hill mountain grassland cliff".split())


def invented(rng):
    """A word that means nothing, so that copying is learned for any word."""
    return "".join(rng.choices(SYLLABLES, k=rng.randint(2, 4)))


def name(rng):
    return invented(rng).capitalize() if rng.random() < 0.08 else rng.choice(NAMES)


def city(rng):
    return invented(rng).capitalize() if rng.random() < 0.15 else rng.choice(CITIES)


def words(rng, count):
    picked = rng.choices(WORDS, k=count)
    if rng.random() < 0.12:
        picked[rng.randrange(count)] = invented(rng)
    return picked


SMALL_WORDS = """
the the the a an is are was in on under over with and and or not of to for from it this that we
you they he she have has had will can my your one day there
""".split()


def text(rng, count):
    """Words alone, or mixed with small words as sentences are."""
    if rng.random() < 0.5:
        return words(rng, count)
    picked = [rng.choice(rng.choice((WORDS, SMALL_WORDS))) for _ in range(count)]
    return [picked[0].capitalize(), *picked[1:]] if rng.random() < 0.4 else picked


def path(rng):
    stem = invented(rng) if rng.random() < 0.15 else rng.choice(FILE_STEMS)
    text = f"{stem}.{rng.choice(FILE_ENDS)}"
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        text = f"{rng.choice(FOLDERS)}/{text}"
    return "README.md" if text == "readme.md" else text
