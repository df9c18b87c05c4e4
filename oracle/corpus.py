"""Strings that tell tokenizers apart: written ones, and random ones from a seed.

No code point is newer than Unicode 14, so that every implementation knows its category.
"""

import random
import unicodedata

WRITTEN = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\n\n\n",
    "\t\n",
    "\r\n",
    " \r\n \r\n",
    "Hello world",
    " Hello world",
    "Hello World!!  How   are\tyou?\n",
    "it's we've I'M they'LL you'd He'S don'T 's 'S 'xyz ''' '",
    "'sun 'reel 'venom 'llama 'dog",
    "0 1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0xFF 1e-9 ½ ² Ⅻ ٣٤٥ १२३ 一二三",
    "3333333 words33and7numbers 2024-11-30T12:34:56Z +49 (0)30 1234567",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case HTTPServer2Client x86_64",
    "def f(x):\n    if x is None:\n        return []\n\n    return [i ** 2 for i in range(x)]\n",
    "fn main() {\n\tlet v: Vec<u8> = vec![0; 4];\n\tprintln!(\"{:?}\", &v[1..]);\n}\n",
    "<div class=\"a b\">\n  <p>text</p>\n</div>\r\n<!-- done -->\r\n",
    "SELECT * FROM t WHERE a <> 'b''c' AND d >= 10; -- comment\n",
    "#include <stdio.h>\nint main(void){for(;;){/*...*/}return 0;}\n",
    "{\"key\": [1, 2.5, null, true], \"text\": \"a\\nb\"}",
    "https://example.org/path/?q=a%20b&c=d#frag user.name+tag@example.org",
    "$ ./run --flag=value | grep -v '^#' > /dev/null 2>&1 && echo \"ok\"",
    "a+b=c; x<y>z ^~`|$€£¥ §¶ © ® ™ ° ± × ÷ ≠ ≤ ∞ ∑ √ ∂ →",
    "¡Hola! ¿Qué tal? – “quotes” ‘single’ «guillemets» … — ‽",
    "Übermäßig große Straße; Ångström; naïve façade; Łódź; Đà Nẵng; İstanbul ıI",
    "Привет, мир! Как дела? ЁЖИК съел 5 яблок.",
    "Ελληνικά: Ωμέγα και άλφα ΣΊΣΥΦΟΣ",
    "שלום עולם, מה שלומך? שָׁלוֹם",
    "مرحبا بالعالم، كيف حالك؟ اَلْعَرَبِيَّةُ",
    "नमस्ते दुनिया। क्या हाल है? क्ष त्र ज्ञ",
    "স্বাগতম বিশ্ব தமிழ் மொழி తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "สวัสดีชาวโลก ฉันชื่อ ທັກທາຍ မင်္ဂလာပါ ភាសាខ្មែរ",
    "日本語の文章です。カタカナとひらがな、漢字。ﾊﾝｶｸ Ｆｕｌｌｗｉｄｔｈ １２３",
    "你好，世界！这是一个测试。繁體中文測試：龍龜鬱",
    "안녕하세요 세계! 한국어 문장입니다. ㄱㄴㄷ ㅏㅑㅓ 한글",
    "ကြိုဆိုပါတယ် ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ⴰⵎⴰⵣⵉⵖ ꦗꦮ",
    "𝓗𝓮𝓵𝓵𝓸 𝕎𝕠𝕣𝕝𝕕 𝟙𝟚𝟛 𐍈 𒀀 𓀀 🂡 𠜎𠜱",
    "😀😃😄 🚀🌊 ❤️ ☕️ ✅ ✌🏽 👍🏿 1️⃣ #️⃣",
    "👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇯🇵🇧🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "e\u0301 e\u0301\u0302\u0303 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞",
    "\u0000\u0001\u0002\u0007\u0008\u000b\u000c\u000e\u001b[0m\u007f",
    "\u0085 \u00a0 \u1680 \u2000\u2003 \u2028 \u2029 \u202f \u205f \u3000 \u200b \ufeff",
    "a\u00a0b\u3000c\u2003\u2003d \u00a0 e\u00a0\n\u3000f",
    "\u200d\u200c\u200e\u200f\u202a\u202e \ue000 \uf8ff \ufffd \ufffe \U0010ffff",
    "▁ ▁▁ ▁▁▁ x▁y ▁word ▁ ▁",
    "Ġ ĠĠ Ċ ĉ Ġhello âĢĻ",
    "<0x0A> <0x00> <0xFF> <0x20>",
    "    \n        \n\n      x\n  \t \t y  \n   ",
    "trailing spaces   ",
    "trailing newline\n",
    "   leading spaces",
    "a b  c   d    e     f      g       h        i",
    "a\nb\n\nc\n\n\nd\n\n\n\ne\n\n\n\n\nf",
    "a\tb\t\tc\t\t\td\t\t\t\te",
    "//////////  ========== ---------- ########## ********** __________ ~~~~~~~~~~",
    "/ // /// a/b //\n/ //\r\n///\n\n/",
    "!?!?!? ...... ,,,;;; ((([[[{{{ }}}]]]))) \"\"\" ''' ```",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ababababababababababababababababababababababababababababababababababababababababab",
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor.",
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG.",
]

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<unused0>",
    "<unused99>",
    "<repo_name>",
    "<file_sep>",
    "<reponame>",
    "<filename>",
    "<jupyter_start>",
    "<gh_stars>",
    "<s>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<table>",
    "</td>",
    "<h1>",
    "<mask>",
    "[multimodal]",
    "[INST]",
]

# First and last code point of what random strings are made from.
RANGES = [
    (0x20, 0x7E),
    (0x61, 0x7A),
    (0x41, 0x5A),
    (0x30, 0x39),
    (0x00, 0x1F),
    (0x80, 0xFF),
    (0x100, 0x24F),
    (0x250, 0x2FF),
    (0x300, 0x36F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x530, 0x58F),
    (0x590, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0x97F),
    (0x980, 0xDFF),
    (0xE00, 0xEFF),
    (0x1000, 0x109F),
    (0x10A0, 0x10FF),
    (0x1100, 0x11FF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2070, 0x209F),
    (0x20A0, 0x20CF),
    (0x2100, 0x218F),
    (0x2190, 0x22FF),
    (0x2460, 0x24FF),
    (0x2500, 0x27BF),
    (0x3000, 0x30FF),
    (0x3130, 0x318F),
    (0x4E00, 0x9FA5),
    (0xA000, 0xA4CF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE00, 0xFE0F),
    (0xFF00, 0xFFEF),
    (0x10400, 0x1044F),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1F64F),
    (0x1F900, 0x1F9FF),
    (0x20000, 0x2A6D6),
]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n", "\n ", "\u00a0", "\u3000", "     "]
WORDS = (
    "the of and to in is that for it as was with be by on not he his are this at from have or had "
    "token model server stream engine def return class import self print function const let var "
    "don't it's we'll I've you're THE HTTP JSON x1 y22 z333 4444 55555"
).split()


def _character(rng):
    while True:
        first, last = rng.choice(RANGES)
        code = rng.randint(first, last)
        if not 0xD800 <= code <= 0xDFFF and unicodedata.category(chr(code)) != "Cn":
            return chr(code)


def _script_run(rng):
    first, last = rng.choice(RANGES)
    codes = (rng.randint(first, last) for _ in range(rng.randint(1, 12)))
    return "".join(chr(code) for code in codes if unicodedata.category(chr(code)) not in ("Cn", "Cs"))


def _piece(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return _character(rng)
    if kind == 1:
        return _script_run(rng)
    if kind == 2:
        return str(rng.randrange(10 ** rng.randint(1, 9)))
    if kind == 3:
        return rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") * rng.randint(1, 4)
    if kind == 4:
        return rng.choice(SPECIAL)
    if kind == 5:
        return rng.choice("abcxyzAB01 \n.-=") * rng.randint(2, 40)
    return rng.choice(WORDS)


def _random_string(rng):
    parts = []
    for _ in range(rng.randint(1, 24)):
        parts.append(_piece(rng))
        if rng.random() < 0.6:
            parts.append(rng.choice(SPACES))
    return "".join(parts)


def strings(count, seed):
    """The written strings, special tokens in and out of context, and `count` random ones."""
    rng = random.Random(seed)
    special = [f"{left}{token}{right}" for token in SPECIAL for left, right in (("", ""), ("a ", " b"), ("\n", "\n"))]
    return WRITTEN + special + [_random_string(rng) for _ in range(count)]
