"""Word lists of the generated shop. All names are made up for it."""

from __future__ import annotations

# fmt: off
FIRST_NAMES = (
    "Ansel", "Birgit", "Corwin", "Delphine", "Eskil", "Fenna", "Gideon", "Hedda", "Ilmar", "Jorun",
    "Kelda", "Lucan", "Maren", "Nestor", "Odile", "Perrin", "Quilla", "Rowena", "Sorrel", "Tamsin",
    "Ulric", "Verity", "Wendel", "Xanthe", "Yorick", "Zelda", "Alder", "Bryony", "Caspian",
    "Dagny", "Edda", "Florian", "Greta", "Halvard", "Isolde", "Jasper",
)
LAST_NAMES = (
    "Abernathy", "Birchall", "Crowther", "Dunmore", "Ellwood", "Fairbank", "Greaves", "Hollins",
    "Inskip", "Jardine", "Kettering", "Lockhart", "Merriweather", "Northcott", "Oakden",
    "Penhallow", "Quayle", "Ravenhill", "Stanhope", "Thackeray", "Underhill", "Venning",
    "Whitlock", "Yardley", "Ashdown", "Bramwell", "Colefax", "Dunstan",
)
STREETS = (
    "Heron Way", "Mill Bank", "Old Quay", "Thistle Row", "Beacon Hill", "Foundry Street",
    "Larkspur Close", "Abbey Walk", "Tanner Yard", "Harbour Steps",
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

EXCUSES = (
    "it is cheaper elsewhere",
    "it takes too long",
    "the colour would not suit the room",
    "a friend advised against it",
)
FRIENDS = ("my sister", "my neighbour", "my father", "a friend of mine", "my flatmate")
MATTERS = (
    "an invoice made out to a company",
    "compensation for a dented box",
    "a delivery on a Sunday",
    "gift wrapping",
    "a repair under warranty",
)
