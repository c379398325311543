"""Writes pre_types.json: how each pre-tokenizer of GGUF files splits texts.

    python pre_types.py > pre_types.json      (tokenizers 0.23, whose expressions Oniguruma runs)

The expressions are those of the published tokenizer.json of a model with this pre-tokenizer, not
the ones of the code that is tested.
"""

import json
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split, WhitespaceSplit

ABBREVIATIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = ABBREVIATIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL
QWEN2 = ABBREVIATIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL
QWEN35 = (ABBREVIATIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(suffix, numbers, upper=UPPER, lower=LOWER, ends=r"[\r\n/]*"):
    words = [rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{suffix}",
             rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{suffix}"]
    return "|".join(words + [numbers, rf" ?[^\s\p{{L}}\p{{N}}]+{ends}", r"\s*[\r\n]+",
                             r"\s+(?!\S)", r"\s+"])


GPT4O = cased(ABBREVIATIONS + "?", r"\p{N}{1,3}")
TEKKEN = cased("", r"\p{N}")
KIMI = r"[\p{Han}]+|" + cased(ABBREVIATIONS + "?", r"\p{N}{1,3}",
                              r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
                              r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\r\n]*")
PUNCTUATED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
CJK = r"[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK3 = [r"\p{N}{1,3}", CJK, PUNCTUATED + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
SPARK = [r"\p{N}{1,3}", CJK, PUNCTUATED + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
         r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"]
# By numbers: composed forms of some of these characters are others.
DEEPSEEK_LETTERS = (r"\s?[\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}"
                    r"\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}"
                    r"\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}"
                    r"\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}"
                    r"\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}"
                    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}"
                    r"\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}"
                    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}"
                    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}"
                    r"\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}"
                    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}-\x{2184}\x{2C00}-\x{2C7B}"
                    r"\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}"
                    r"\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}"
                    r"\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}"
                    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}"
                    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+")
IDEOGRAPHS = r"[一-龥ࠀ-一가-퟿]+"
WORDS_TO_PUNCTUATION = r" ?[^(\s|.,!?…。，、।۔،)]+"
DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"

# Names, expressions, and whether a piece that is a token is taken whole.
ROWS = [
    ("default", [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], False),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", [LLAMA3], True),
    ("glm4 glm5", [LLAMA3], True),
    ("dbrx smaug-bpe chatglm-bpe", [LLAMA3], False),
    ("jais-2", [LLAMA3[:-len(r"\s+(?!\S)|\s+")]
                + "".join(rf"\s{{{n}}}(?!\S)|" for n in ["512", "256", "128", "64", "32", "16", "8",
                                                         "4", "1,2"]) + r"\s{1}"], False),
    ("minicpm5", [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")], True),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open megrez grok-2", [QWEN2], False),
    ("qwen35", [QWEN35], False),
    ("ufakzeka", [QWEN2[len(ABBREVIATIONS) + 1:]], False),
    ("laguna", [r"[^\n]+|[\n]+", QWEN2], False),
    ("exaone-moe", [ABBREVIATIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"], False),
    ("deepseek-llm", ["[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
                      IDEOGRAPHS, r"\p{N}+"], False),
    ("deepseek-coder", ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", IDEOGRAPHS, r"\p{N}"], False),
    ("deepseek-v3 joyai-llm hunyuan-dense hy_v4", DEEPSEEK3, False),
    ("spark2_5", SPARK, False),
    ("youtu", ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + CJK,
               cased(ABBREVIATIONS + "?", r"\p{N}")], True),
    ("kimi-k2", [KIMI], False),
    ("afmoe", [DIGITS_FROM_RIGHT,
               r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}"
               r"\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}"
               r"\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+",
               DEEPSEEK3[2]], False),
    ("superbpe", [r"\p{N}+", r"(?=(\d{3})+(?!\d))"], False),
    ("gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum mpt olmo jais trillion"
     " granite-docling exaone4 roberta-bpe jina-v1-en jina-v2-code modern-bert", [GPT2], False),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", [r"\p{N}", GPT2], False),
    ("falcon", [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"], False),
    ("tekken", [TEKKEN], True),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", [GPT4O], False),
    ("granite-embed-multi-97m", [GPT4O], True),
    ("tiny_aya cohere2moe", [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O], False),
    ("chameleon", ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )",
                   r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2], False),
    ("seed-coder", [ABBREVIATIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
                    r"|\s*[\r\n]+|\s+(?!\S)|\s+"], False),
    ("bailingmoe bailingmoe2 llada-moe", [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                                          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"], False),
    ("poro-chat bloom gpt3-finnish", [WORDS_TO_PUNCTUATION], False),
    ("viking", [WORDS_TO_PUNCTUATION, r"\p{N}"], False),
    # Spaces are marked first, and merges cross words.
    ("gemma4 granite-embed-multi-311m sarvam-moe", [], False),
    ("whitespace", None, False),
]

TEXTS = [
    "Hello world, don't we'LL I'M 'tis A'S",
    "HelloWorld CamelCase XMLHttp's iPhone",
    "1 12 123 1234 1234567 12a 1234abc 12345.678 ½¾ ١٢٣٤",
    "  two   spaces\t\ttabs \n\n new\r\nline  \n end  ",
    "if (x<=y) { return a[i]+=1; } // $5 ^~`|_ \"q\"",
    "你好世界123，ひらがなカタカナ。한국어 조선어ㄱ ㄅㄆ x汉字y!",
    "é e\u0301 ü नमस्ते ภาษาไทย العربية، Привет мир",
    "🙂🙃 family👨\u200d👩\u200d👧 ⅷ №5 – — … “quoted”",
    "path/to/file.txt\n/usr/bin//\n!!!\n\n",
    "<sentinel:12> IMGIMGABZ IMGIMGABCDEZ     five",
    " " * 13 + "x" + " " * 600 + "y",
    "a",
]


def pieces(expressions, text):
    if expressions is None:
        stages = [WhitespaceSplit()]
    else:
        stages = [Split(Regex(expression), "isolated") for expression in expressions]
    return [piece for piece, _ in Sequence(stages).pre_tokenize_str(text)] if stages else [text]


def row(names, expressions, whole):
    found = {"names": names, "whole": whole, "pieces": [pieces(expressions, text) for text in TEXTS]}
    return json.dumps(found, ensure_ascii=False)


rows = ",\n".join(row(*it) for it in ROWS)
print(f'{{"texts": {json.dumps(TEXTS, ensure_ascii=False)},\n"rows": [\n{rows}\n]}}')
