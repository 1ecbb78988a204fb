"""Word lists of the generated shop. All names are made up for it."""

from __future__ import annotations

# fmt: off
FIRST_NAMES = (
    "Ansel", "Birgit", "Corwin", "Delphine", "Eskil", "Fenna", "Gideon", "Hedda", "Ilmar", "Jorun", "Kelda", "Lucan", "Maren", "Nestor",
    "Odile", "Perrin", "Quilla", "Rowena", "Sorrel", "Tamsin", "Ulric", "Verity", "Wendel", "Xanthe", "Yorick", "Zelda", "Alder", "Bryony",
    "Caspian", "Dagny", "Edda", "Florian", "Greta", "Halvard", "Isolde", "Jasper",
)
LAST_NAMES = (
    "Abernathy", "Birchall", "Crowther", "Dunmore", "Ellwood", "Fairbank", "Greaves", "Hollins", "Inskip", "Jardine", "Kettering", "Lockhart",
    "Merriweather", "Northcott", "Oakden", "Penhallow", "Quayle", "Ravenhill", "Stanhope", "Thackeray", "Underhill", "Venning", "Whitlock",
    "Yardley", "Ashdown", "Bramwell", "Colefax", "Dunstan",
)
STREETS = (
    "Heron Way", "Mill Bank", "Old Quay", "Thistle Row", "Beacon Hill", "Foundry Street", "Larkspur Close", "Abbey Walk", "Tanner Yard",
    "Harbour Steps",
)
EXTRAS = (
    "Flat 2", "Flat 7", "Floor 3", "Unit 12", "Unit 40", "House B", "Studio 5", "",
)
# fmt: on
CITIES = (
    ("Fernhollow", "OR", "973"),
    ("Saltmarsh", "ME", "041"),
    ("Greywater", "MN", "556"),
    ("Pinecastle", "ID", "837"),
    ("Brightwell", "VT", "057"),
    ("Copper Bend", "MT", "596"),
    ("Larkhaven", "WI", "548"),
    ("Stonebridge", "NH", "036"),
)
COUNTRY = "USA"
BRANDS = ("visa", "mastercard")

PRODUCTS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    ("Hammock", {"fabric": ("cotton rope", "nylon", "canvas"), "width": ("single", "double"), "colour": ("sand", "teal", "rust")}),
    ("Kite", {"shape": ("delta", "box", "diamond"), "line": ("30 m", "60 m"), "colour": ("crimson", "amber", "violet")}),
    ("Bread Bin", {"material": ("bamboo", "enamel", "tin"), "lid": ("roll top", "drop front"), "finish": ("matt", "gloss")}),
    ("Sleeping Mat", {"filling": ("foam", "air", "down"), "length": ("short", "regular", "long"), "colour": ("olive", "slate")}),
    ("Telescope", {"aperture": ("70 mm", "90 mm", "130 mm"), "mount": ("tabletop", "tripod"), "finder": ("red dot", "optical")}),
    ("Wall Clock", {"face": ("numerals", "bare"), "frame": ("oak", "walnut", "brass"), "diameter": ("20 cm", "30 cm", "40 cm")}),
    ("Garden Hose", {"length": ("10 m", "20 m", "30 m"), "type": ("flat", "expanding", "braided"), "nozzle": ("jet", "spray")}),
    ("Chess Set", {"pieces": ("boxwood", "resin", "ebony"), "board": ("folding", "solid"), "king": ("75 mm", "95 mm")}),
    ("Picnic Rug", {"backing": ("waxed", "foil", "plain"), "area": ("small", "medium", "large"), "pattern": ("tartan", "stripe")}),
    ("Juicer", {"drive": ("manual", "slow", "fast"), "jug": ("0.5 l", "0.8 l"), "colour": ("cream", "graphite", "mint")}),
    ("Violin Case", {"shell": ("foam", "fibreglass", "carbon"), "form": ("oblong", "shaped"), "lining": ("navy", "wine")}),
    ("Bird Feeder", {"mounting": ("hanging", "pole", "window"), "capacity": ("300 g", "700 g"), "roof": ("copper", "slate", "cedar")}),
    ("Sewing Kit", {"box": ("tin", "leather", "willow"), "spools": ("12 spools", "24 spools"), "scissors": ("straight", "pinking")}),
    ("Snow Shovel", {"blade": ("aluminium", "polymer", "steel"), "handle": ("straight", "bent"), "grip": ("D grip", "T grip")}),
    ("Fountain Pen", {"nib": ("fine", "medium", "broad"), "filling": ("cartridge", "piston"), "barrel": ("ivory", "jade", "onyx")}),
    ("Lantern", {"fuel": ("candle", "oil", "solar"), "glass": ("clear", "frosted", "amber"), "hook": ("fixed", "swivel")}),
    ("Rain Barrel", {"volume": ("100 l", "200 l", "300 l"), "tap": ("brass", "plastic"), "shape": ("round", "corner")}),
    ("Yoga Bolster", {"cover": ("linen", "velvet", "hemp"), "core": ("buckwheat", "kapok"), "form": ("round", "rectangular")}),
    ("Ice Skates", {"style": ("figure", "hockey", "touring"), "size": ("38", "40", "42", "44"), "closure": ("laces", "buckles")}),
    ("Board Eraser", {"body": ("beech", "magnetic", "felt"), "length": ("9 cm", "12 cm"), "pack": ("pack of 2", "pack of 6")}),
    ("Pepper Mill", {"body": ("acacia", "steel", "acrylic"), "height": ("12 cm", "18 cm", "25 cm"), "grinder": ("ceramic", "carbon steel")}),
    ("Map Case", {"closure": ("roll", "zip", "snap"), "format": ("A4", "A5"), "cord": ("neck cord", "wrist cord")}),
)
