"""Seeded texts of plain English words, for synthetic prompts: lowercase ASCII, three to nine letters.

They mean nothing.
"""

from typing import Literal

import numpy as np

_TEXT = """
able about above across act add after again age ago air all almost alone along already also always among amount and
animal another answer any appear apple area arm around arrive art ask away baby back bag ball bank base basket bear
beat beauty bed before begin behind believe bell belong below beside best better between big bird black blue board
boat body bone book both bottom box boy branch bread break bridge bright bring broad brother brown build burn busy but
butter button buy call calm camera camp can captain car card care carry case castle cat catch cause center certain
chair chance change chart check child choose circle city class clean clear clock close cloth cloud coast coat coffee
cold collect color come common company compare contain cook cool copper copy corn corner cost cotton could count
country course cover create cross crowd cup current cut dance danger dark day deal decide deep deer desert design
detail develop did differ dinner direct discover dish distance divide doctor dog door double down draw dream dress
drink drive drop dry during dust each ear early earth east easy edge effect egg eight either electric else empty end
energy engine enjoy enough enter equal evening event ever every exact example expect explain eye face fact fair fall
family famous far farm fast father favor fear feel feet felt few field figure fill final find fine finger finish fire
first fish five floor flow flower fly follow food foot for force forest forget form forward found four fresh friend
from front fruit full game garden gate gather general gentle get girl give glad glass goal gold good grain grand grass
great green ground group grow guess guide habit half hand happen happy harbor hard hat have head hear heart heat heavy
height help here high hill history hold hole home honest hope horse hot hotel hour house how huge human hundred hurry
idea image inch include indeed inside invent iron island item join journey judge jump just keep kind king kitchen know
lady lake lamp land language large last late laugh law lead leaf learn least leather leave left letter level library
lift light like line list listen little live long look lot love low lunch machine made main make man many map mark
market master matter may meal mean measure meet member memory metal method middle might mile milk mind minute mirror
miss modern moment money month moon more morning most mother motion mountain mouse move much music must name narrow
nation natural near necessary need neighbor never new next night nine north note nothing notice number object ocean
offer office often oil old once one only open orange order other over own page paint pair paper parent part party pass
past path pattern pay people perhaps person phrase piano pick picture piece pilot place plain plan planet plant play
please plenty pocket point poor position possible pound power prepare present pretty price print problem produce
promise proud public pull purple purpose push quart question quick quiet quite rabbit race radio rain raise range
rather reach read ready real reason receive record red region remember repeat reply report rest result return rice
rich ride right ring rise river road rock roll roof room root rope round row rule run safe sail salt same sand save
say scale school science sea search season seat second seed seem select send sense sentence separate serve set seven
several shade shape share sharp ship shoe shop shore short should shoulder show side sight sign silent silver similar
simple since sing sister sit six size skill skin sky sleep slow small smell smile smooth snow soft soil solve some son
song soon sound south space speak special speed spell spend spoon spot spread spring square stage stand star start
state station stay steam steel step stick still stone stop store storm story straight strange stream street string
strong student study subject sudden sugar suggest summer sun supply support sure surface surprise sweet swim symbol
system table tail take talk tall taste teach team tell ten test than thank that the their then there these thick thin
thing think third this those thought thousand three through ticket time tiny today together tomorrow tone tool top
total touch toward tower town track trade train travel tree triangle trip trouble true trust try turn twelve twenty
two type uncle under unit until upon use usual valley value various very view village visit voice vowel wait walk wall
want warm wash watch water wave way wear weather week weight well west wheel when where which while white whole why
wide wild will wind window wing winter wire wise wish with woman wonder wood word work world worth would write yard
year yellow yes yet you young
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())


def drawn(rng: np.random.Generator, n: int) -> list[str]:
    """``n`` words, each as likely as any other."""
    return [WORDS[i] for i in rng.integers(0, len(WORDS), n).tolist()]


def text(seed: int, length: int, unit: Literal["tokens", "bytes"], tokens_per_word: float) -> str:
    """``length`` bytes exactly, or about as many tokens. A shorter text of a seed is the beginning of a longer one."""
    rng = np.random.Generator(np.random.PCG64(seed))
    if unit == "tokens":
        return " ".join(drawn(rng, max(1, round(length / tokens_per_word))))
    # A word and its space are at least 4 bytes, so this many words always reach the length.
    return " ".join(drawn(rng, length // 4 + 1))[:length]


#: Bytes of a marker: about four words, of which there are 10^11.
MARKER = 24


def marked(prompt: str, seed: int) -> str:
    """``prompt`` with words of this seed in place of its first bytes: as long as before."""
    marker = text(seed, min(MARKER, len(prompt)), "bytes", 1)
    return marker + prompt[len(marker) :]
