"""The products of the generated shop, with the options that each comes in. All are made up."""

from __future__ import annotations

Products = tuple[tuple[str, dict[str, tuple[str, ...]]], ...]  # (name, axis -> values)


# A text and not nested tuples: some seventy products stay readable, and the order of the lines is
# the order that seeds draw in.
def _listed(catalogue: str) -> Products:
    """The products of a text: `Name | axis: value, value | axis: ...`; a line that ends in `|`
    goes on in the next one."""
    products = []
    # Joined again where a product was too long for one line.
    for line in catalogue.strip().replace("|\n", "|").split("\n"):
        name, *axes = (part.strip() for part in line.split("|"))
        pairs = (axis.split(": ") for axis in axes)
        products.append((name, {axis: tuple(values.split(", ")) for axis, values in pairs}))
    return tuple(products)


PRODUCTS = _listed("""
Hammock | fabric: cotton rope, nylon, canvas | width: single, double | colour: sand, teal, rust
Kite | shape: delta, box, diamond | line: 30 m, 60 m | colour: crimson, amber, violet
Bread Bin | material: bamboo, enamel, tin | lid: roll top, drop front | finish: matt, gloss
Sleeping Mat | filling: foam, air, down | length: short, regular, long | colour: olive, slate
Telescope | aperture: 70 mm, 90 mm, 130 mm | mount: tabletop, tripod | finder: red dot, optical
Wall Clock | face: numerals, bare | frame: oak, walnut, brass | diameter: 20 cm, 30 cm, 40 cm
Garden Hose | length: 10 m, 20 m, 30 m | type: flat, expanding, braided | nozzle: jet, spray
Chess Set | pieces: boxwood, resin, ebony | board: folding, solid | king: 75 mm, 95 mm
Picnic Rug | backing: waxed, foil, plain | area: small, medium, large | pattern: tartan, stripe
Juicer | drive: manual, slow, fast | jug: 0.5 l, 0.8 l | colour: cream, graphite, mint
Violin Case | shell: foam, fibreglass, carbon | form: oblong, shaped | lining: navy, wine
Bird Feeder | mounting: hanging, pole, window | capacity: 300 g, 700 g |
  roof: copper, slate, cedar
Sewing Kit | box: tin, leather, willow | spools: 12 spools, 24 spools |
  scissors: straight, pinking
Snow Shovel | blade: aluminium, polymer, steel | handle: straight, bent | grip: D grip, T grip
Fountain Pen | nib: fine, medium, broad | filling: cartridge, piston | barrel: ivory, jade, onyx
Lantern | fuel: candle, oil, solar | glass: clear, frosted, amber | hook: fixed, swivel
Rain Barrel | volume: 100 l, 200 l, 300 l | tap: brass, plastic | shape: round, corner
Yoga Bolster | cover: linen, velvet, hemp | core: buckwheat, kapok | form: round, rectangular
Ice Skates | style: figure, hockey, touring | size: 38, 40, 42, 44 | closure: laces, buckles
Board Eraser | body: beech, magnetic, felt | length: 9 cm, 12 cm | pack: pack of 2, pack of 6
Pepper Mill | body: acacia, steel, acrylic | height: 12 cm, 18 cm, 25 cm |
  grinder: ceramic, carbon steel
Map Case | closure: roll, zip, snap | format: A4, A5 | cord: neck cord, wrist cord
Umbrella | handle: crook, straight | canopy: plain, dotted, striped | opening: manual, automatic
Tea Kettle | metal: copper, steel, enamel | capacity: 1.0 l, 1.5 l, 2.0 l |
  whistle: with whistle, silent
Door Mat | fibre: coir, jute, rubber | size: small, medium, large | motif: plain, leaf
Easel | stand: tripod, H frame, table | wood: beech, pine | tray: with tray, without tray
Globe | diameter: 20 cm, 25 cm, 30 cm | map: political, physical, antique | light: lit, unlit
Metronome | case: mahogany, maple, black | drive: clockwork, quartz |
  bell: with bell, without bell
Fruit Press | basket: 6 l, 12 l, 20 l | frame: iron, steel | crank: ratchet, spindle
Oven Glove | lining: terry, felt, silicone | length: short, long |
  pattern: checked, plain, olive branch
Bath Stool | wood: teak, bamboo, birch | legs: three legs, four legs | height: 35 cm, 45 cm
Coat Rack | hooks: 4 hooks, 6 hooks, 8 hooks | mounting: wall, floor | finish: black, white, oak
Seed Tray | cells: 12 cells, 24 cells, 60 cells | cover: clear lid, open |
  material: cork, plastic
Camping Stove | burners: 1 burner, 2 burners | fuel: gas, alcohol, wood |
  windshield: folding, fixed
Skipping Rope | cord: leather, steel, beaded | grips: wood, foam | length: 2.5 m, 2.8 m, 3.1 m
Compass | type: baseplate, sighting, marine | dial: luminous, plain | case: brass, plastic
Toolbox | trays: 1 tray, 3 trays, 5 trays | shell: steel, polymer | colour: red, blue, grey
Shower Curtain | cloth: polyester, cotton, hemp | print: plain, waves, fern |
  drop: 180 cm, 200 cm
Cake Stand | tiers: 1 tier, 2 tiers, 3 tiers | material: glass, marble, slate |
  dome: with dome, without dome
Dog Basket | weave: wicker, felt, rope | size: small, medium, large | cushion: flat, bolstered
Photo Album | pages: 40 pages, 60 pages, 100 pages | cover: linen, leather |
  paper: ivory, black, white
Paint Roller | nap: short nap, medium nap, long nap | width: 10 cm, 18 cm, 25 cm |
  handle: fixed, telescopic
Recipe Box | wood: olive, ash, cherry | cards: 50 cards, 100 cards | dividers: tabs, plain
Trellis | shape: fan, arch, panel | material: cedar, iron | height: 120 cm, 150 cm, 180 cm
Wool Blanket | weight: light, medium, heavy | weave: herringbone, twill | edge: fringed, bound
Pocket Knife | blades: 1 blade, 3 blades, 5 blades | scales: horn, walnut, micarta |
  lock: liner lock, slip joint
Desk Lamp | arm: rigid, swing, goose neck | shade: brass, green glass, white |
  base: clamp, weighted
Spice Rack | jars: 6 jars, 12 jars, 18 jars | form: carousel, shelf | labels: printed, blank
Log Basket | shape: round, square, oval | material: willow, felt |
  wheels: with wheels, without wheels
Ukulele | body: soprano, concert, tenor | top: koa, spruce | strings: nylon, fluorocarbon
Hot Water Bottle | cover: knitted, fleece, bare | volume: 0.7 l, 1.8 l |
  colour: plum, moss, dove
Letter Scale | range: 500 g, 1000 g | display: needle, digital | pan: brass, steel, glass
""")
# sold in the worlds of the split `shift` only
HELD_OUT = _listed("""
Barometer | case: rosewood, ship brass, bare steel | scale: millibar, inches |
  dial: porcelain, paper
Bean Bag | cover: corduroy, denim, chenille | fill: beads, shredded foam |
  size: child, adult, double
Bookend | figure: owl, anchor, plain arc | metal: cast iron, bronze | feet: cork feet, felt feet
Butter Dish | form: half pound, full pound | ware: stoneware, china, glass |
  glaze: blue, white, speckled
Candle Mould | profile: taper, pillar, beehive | cups: 2 cups, 4 cups, 6 cups |
  metal: tin, silicone
Card Table | top: baize, cork, veneer | legs: folding, turned | seats: 4 seats, 6 seats
Cheese Board | wood: acacia, elm, mango | groove: with groove, flat | tools: 2 tools, 4 tools
Fishing Creel | weave: split willow, rattan | strap: canvas strap, leather strap |
  size: trout, salmon, pike
Garden Gnome | pose: reading, fishing, sleeping | clay: terracotta, resin cast |
  hat: red, green, blue
Hat Box | outline: round, octagon | covering: paper, silk, canvas | depth: 15 cm, 20 cm, 30 cm
Ice Bucket | wall: single wall, double wall | metal: hammered, brushed, copper |
  tongs: with tongs, no tongs
Jigsaw | pieces: 250 pieces, 500 pieces, 1000 pieces | cut: random, ribbon |
  scene: harbour, orchard, castle
Key Cabinet | pegs: 10 pegs, 20 pegs, 40 pegs | door: glazed, panelled | lock: latch, key lock
Loom | width: 40 cm, 60 cm, 80 cm | sheds: rigid heddle, four shaft | wood: maple, beech
Magnifier | power: 3 x, 5 x, 10 x | holder: hand held, stand | rim: horn, nickel
Oil Can | spout: rigid spout, flexible spout | volume: 0.2 l, 0.5 l | pump: thumb, lever, none
Plant Press | boards: ply, slatted | format: pocket, field, herbarium |
  straps: buckle straps, wing nuts
Rocking Horse | coat: dapple, bay, black | rockers: bow, safety stand |
  mane: wool mane, hair mane
Sundial | mount: pedestal, wall, equatorial | metal: bronze, slate plate |
  motto: with motto, without motto
Weather Vane | figure: cockerel, whale, arrow | finish: verdigris, gilt, black iron |
  fitting: ridge, post
""")
