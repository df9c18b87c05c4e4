//! Which `tokenizer.ggml.pre` cuts text how.
//!
//! The regular expressions are facts about each model family, published in its
//! `tokenizer.json`; here they are written as rules, beside the expression they stand for.
//! The tests run both on the same texts. An unknown name must refuse to load: a wrong cut
//! gives wrong ids silently.

use super::character::kind::{
    ALL, LETTER, LINE_END, LOWERCASE, MARK, MODIFIER, NUMBER, OTHER_LETTER, PUNCTUATION, SPACE,
    SYMBOL, TITLECASE, UPPERCASE, WHITE,
};
use super::rule::{CharacterClass, Rule, Step, any, one, optional, some, up_to};

/// One pass over all pieces; each piece is cut further.
#[derive(Debug)]
pub(super) enum Stage {
    /// Matches become pieces of their own, and so does what lies between them.
    Rules {
        /// What the rules stand for.
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "the specification of the rules")
        )]
        regex: &'static str,
        rules: &'static [Rule],
    },
    /// `\s+$`: white space at the end of a piece is a piece.
    TrailingSpace,
}

/// How one family of models cuts text before merging.
#[derive(Debug)]
pub(super) struct Scheme {
    /// Values of `tokenizer.ggml.pre`.
    pub(super) names: &'static [&'static str],
    pub(super) stages: &'static [Stage],
    /// A piece that is a token as a whole is not built by merges.
    pub(super) whole_pieces: bool,
    /// BOS is added where the file does not say.
    pub(super) add_bos: bool,
}

const fn class(kinds: u16) -> CharacterClass {
    CharacterClass::of(kinds)
}

const BLANK: Step = optional(class(SPACE));
/// `[^\s\p{L}\p{N}]+`
const MARKS: Step = some(class(ALL & !WHITE & !LETTER & !NUMBER));
/// `[^\r\n\p{L}\p{N}]?`
const LEAD: Step = optional(class(ALL & !LINE_END & !LETTER & !NUMBER));
const LETTERS: Step = some(class(LETTER));
const LINE_ENDS: Step = any(class(LINE_END));
const CASED: u16 = MODIFIER | OTHER_LETTER | MARK;
const UPPER: CharacterClass = class(UPPERCASE | TITLECASE | CASED);
const LOWER: CharacterClass = class(LOWERCASE | CASED);
const LINE_ENDS_OR_SLASHES: Step = any(CharacterClass {
    kinds: LINE_END,
    without: &[],
    with: &[('/', '/')],
});

const WORD: Rule = Rule::Steps(&[BLANK, LETTERS]);
const LED_WORD: Rule = Rule::Steps(&[LEAD, LETTERS]);
const DIGIT: Rule = Rule::Steps(&[one(class(NUMBER))]);
const THREE_DIGITS: Rule = Rule::Steps(&[up_to(3, class(NUMBER))]);
const DIGITS: Rule = Rule::Steps(&[some(class(NUMBER))]);
/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
const MARKS_TO_LINE_END: Rule = Rule::Steps(&[BLANK, MARKS, LINE_ENDS]);
/// `\s*[\r\n]+`
const SPACE_TO_LINE_END: Rule = Rule::Steps(&[any(class(WHITE)), some(class(LINE_END))]);
/// `\s+`
const WHITE_SPACE: Rule = Rule::Steps(&[some(class(WHITE))]);

const GPT2: Stage = Stage::Rules {
    regex: r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::Contraction,
        WORD,
        Rule::Steps(&[BLANK, some(class(NUMBER))]),
        Rule::Steps(&[BLANK, MARKS]),
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const SINGLE_DIGITS: Stage = Stage::Rules {
    regex: r"\p{N}",
    rules: &[DIGIT],
};

const LLAMA3: Stage = Stage::Rules {
    regex: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::ContractionAnyCase,
        LED_WORD,
        THREE_DIGITS,
        MARKS_TO_LINE_END,
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const QWEN2: Stage = Stage::Rules {
    regex: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::ContractionAnyCase,
        LED_WORD,
        DIGIT,
        MARKS_TO_LINE_END,
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const QWEN35: Stage = Stage::Rules {
    regex: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::ContractionAnyCase,
        Rule::Steps(&[LEAD, some(class(LETTER | MARK))]),
        DIGIT,
        Rule::Steps(&[
            BLANK,
            some(class(ALL & !WHITE & !LETTER & !NUMBER & !MARK)),
            LINE_ENDS,
        ]),
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const SEED_CODER: Stage = Stage::Rules {
    regex: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::ContractionAnyCase,
        LED_WORD,
        DIGIT,
        Rule::Steps(&[BLANK, MARKS]),
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const TEKKEN: Stage = Stage::Rules {
    regex: r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::Steps(&[LEAD, any(UPPER), some(LOWER)]),
        Rule::Steps(&[LEAD, some(UPPER), any(LOWER)]),
        DIGIT,
        Rule::Steps(&[BLANK, MARKS, LINE_ENDS_OR_SLASHES]),
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const GPT4O: Stage = Stage::Rules {
    regex: r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    rules: &[
        Rule::StepsThenContraction(&[LEAD, any(UPPER), some(LOWER)]),
        Rule::StepsThenContraction(&[LEAD, some(UPPER), any(LOWER)]),
        THREE_DIGITS,
        Rule::Steps(&[BLANK, MARKS, LINE_ENDS_OR_SLASHES]),
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

/// Punctuation and the ASCII signs that are symbols to Unicode, with the backtick.
const FALCON_MARKS: Stage = Stage::Rules {
    regex: r"[\p{P}\$\+<=>\^~\|`]+",
    rules: &[Rule::Steps(&[some(CharacterClass {
        kinds: PUNCTUATION,
        without: &[],
        with: &[
            ('$', '$'),
            ('+', '+'),
            ('<', '>'),
            ('^', '^'),
            ('~', '~'),
            ('|', '|'),
            ('`', '`'),
        ],
    })])],
};

const DEFAULT_MARKS: Stage = Stage::Rules {
    regex: r"[\p{P}\$\+<=>\^~\|]+",
    rules: &[Rule::Steps(&[some(CharacterClass {
        kinds: PUNCTUATION,
        without: &[],
        with: &[
            ('$', '$'),
            ('+', '+'),
            ('<', '>'),
            ('^', '^'),
            ('~', '~'),
            ('|', '|'),
        ],
    })])],
};

const ASCII_DIGIT: Step = one(CharacterClass::ranges(&[('0', '9')]));
const THREE_ASCII_DIGITS: Stage = Stage::Rules {
    regex: r"[0-9][0-9][0-9]",
    rules: &[Rule::Steps(&[ASCII_DIGIT, ASCII_DIGIT, ASCII_DIGIT])],
};

const SINGLE_LINE_ENDS: Stage = Stage::Rules {
    regex: r"[\r\n]",
    rules: &[Rule::Steps(&[one(class(LINE_END))])],
};

const ANY_BLANK: Step = optional(class(WHITE));

/// Han, kana block neighbours and Hangul as DeepSeek's first tokenizers list them.
const DEEPSEEK_CJK: Stage = Stage::Rules {
    regex: r"[一-龥ࠀ-一가-퟿]+",
    rules: &[Rule::Steps(&[some(CharacterClass::ranges(&[
        ('一', '龥'),
        ('\u{800}', '一'),
        ('가', '\u{d7ff}'),
    ]))])],
};

const DEEPSEEK3_CJK: Stage = Stage::Rules {
    regex: r"[一-龥぀-ゟ゠-ヿ]+",
    rules: &[Rule::Steps(&[some(CharacterClass::ranges(&[
        ('一', '龥'),
        ('\u{3040}', '\u{30ff}'),
    ]))])],
};

const DEEPSEEK3: Stage = Stage::Rules {
    regex: r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    rules: &[
        Rule::Steps(&[
            one(CharacterClass::ranges(&[
                ('!', '/'),
                (':', '@'),
                ('[', '`'),
                ('{', '~'),
            ])),
            some(CharacterClass::ranges(&[('A', 'Z'), ('a', 'z')])),
        ]),
        Rule::Steps(&[
            optional(class(ALL & !LINE_END & !LETTER & !PUNCTUATION & !SYMBOL)),
            some(class(LETTER | MARK)),
        ]),
        Rule::Steps(&[BLANK, some(class(PUNCTUATION | SYMBOL)), LINE_ENDS]),
        SPACE_TO_LINE_END,
        Rule::SpaceBeforeSpace,
        WHITE_SPACE,
    ],
};

const BLOOM: Stage = Stage::Rules {
    regex: r" ?[^(\s|.,!?…。，、।۔،)]+",
    rules: &[Rule::Steps(&[
        BLANK,
        some(CharacterClass {
            kinds: ALL & !WHITE,
            without: &[
                ('(', ')'),
                ('|', '|'),
                ('.', '.'),
                (',', ','),
                ('!', '!'),
                ('?', '?'),
                ('…', '…'),
                ('。', '。'),
                ('，', '，'),
                ('、', '、'),
                ('।', '।'),
                ('۔', '۔'),
                ('،', '،'),
            ],
            with: &[],
        }),
    ])],
};

/// What most schemes are: no whole pieces, no BOS unless the file says so.
const fn plain(names: &'static [&'static str], stages: &'static [Stage]) -> Scheme {
    Scheme {
        names,
        stages,
        whole_pieces: false,
        add_bos: false,
    }
}

pub(super) const SCHEMES: &[Scheme] = &[
    plain(
        &["default"],
        &[
            DEFAULT_MARKS,
            GPT2,
            Stage::Rules {
                regex: r"\p{N}+",
                rules: &[DIGITS],
            },
            THREE_ASCII_DIGITS,
        ],
    ),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
            "mellum",
            "gigachat",
            "a.x-4.0",
            "modern-bert",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
        ],
        &[GPT2],
    ),
    plain(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[SINGLE_DIGITS, GPT2],
    ),
    plain(&["falcon"], &[FALCON_MARKS, GPT2, THREE_ASCII_DIGITS]),
    Scheme {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        stages: &[LLAMA3],
        whole_pieces: true,
        add_bos: true,
    },
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    Scheme {
        names: &["glm4", "glm5"],
        stages: &[LLAMA3],
        whole_pieces: true,
        add_bos: false,
    },
    plain(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "stablelm2",
            "hunyuan",
            "grok-2",
            "kormo",
            "f2llmv2",
            "solar-open",
        ],
        &[QWEN2],
    ),
    plain(&["qwen35"], &[QWEN35]),
    plain(&["seed-coder"], &[SEED_CODER]),
    Scheme {
        names: &["tekken"],
        stages: &[TEKKEN],
        whole_pieces: true,
        add_bos: true,
    },
    plain(
        &["gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"],
        &[GPT4O],
    ),
    plain(
        &["deepseek-llm"],
        &[
            SINGLE_LINE_ENDS,
            Stage::Rules {
                regex: super::deepseek::LETTERS_REGEX,
                rules: &[Rule::Steps(&[
                    ANY_BLANK,
                    some(CharacterClass::ranges(super::deepseek::LETTERS)),
                ])],
            },
            Stage::Rules {
                regex: r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                rules: &[Rule::Steps(&[
                    ANY_BLANK,
                    some(CharacterClass::ranges(&[
                        ('!', '/'),
                        (':', '~'),
                        ('！', '／'),
                        ('：', '～'),
                        ('‘', '‟'),
                        ('\u{3000}', '。'),
                    ])),
                ])],
            },
            Stage::TrailingSpace,
            DEEPSEEK_CJK,
            Stage::Rules {
                regex: r"\p{N}+",
                rules: &[DIGITS],
            },
        ],
    ),
    plain(
        &["deepseek-coder"],
        &[
            SINGLE_LINE_ENDS,
            Stage::Rules {
                regex: r"\s?\p{L}+",
                rules: &[Rule::Steps(&[ANY_BLANK, LETTERS])],
            },
            Stage::Rules {
                regex: r"\s?\p{P}+",
                rules: &[Rule::Steps(&[ANY_BLANK, some(class(PUNCTUATION))])],
            },
            DEEPSEEK_CJK,
            SINGLE_DIGITS,
        ],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[
            Stage::Rules {
                regex: r"\p{N}{1,3}",
                rules: &[THREE_DIGITS],
            },
            DEEPSEEK3_CJK,
            DEEPSEEK3,
        ],
    ),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, SINGLE_DIGITS]),
];
