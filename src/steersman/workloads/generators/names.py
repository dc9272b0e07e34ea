"""Random names for Deployments: an adjective and a noun."""

from __future__ import annotations

import numpy as np

_ADJECTIVES = (
    "amber ancient bashful bold brave breezy bright brisk bubbly calm cheerful chilly clever cosmic cozy crisp "
    "curious daring dapper dizzy drowsy eager earnest electric fancy fearless feisty fluffy foggy frosty fuzzy "
    "gentle giddy gleeful golden grumpy happy hasty hidden humble hungry icy jaunty jolly jumpy keen kind lanky "
    "lazy leafy lively lucky mellow merry mighty misty modest mossy nimble noble nosy odd patient peppy perky "
    "placid playful plucky polite proud puzzled quick quiet quirky rainy rapid rosy rowdy rusty salty scruffy shiny "
    "shy silent silly sleepy sly smooth snappy snug solemn spicy spry steady stormy stubborn sturdy sunny swift "
    "tame tidy tiny tough tricky upbeat vivid wacky warm wavy wild windy wise witty zany zesty"
)
_NOUNS = (
    "acorn albatross anchor apricot badger bagel banjo barnacle beacon beaver biscuit bison bobcat bosun buoy "
    "cactus canoe captain caravel carrot catamaran cheddar cobbler compass coral cormorant crumpet cuttlefish "
    "dinghy dolphin donkey dumpling falcon ferret fiddle flamingo frigate galleon gecko ginger goblet gondola "
    "gopher gosling halibut hammock harbor harpoon hedgehog helm heron hippo iguana jackal jellyfish kayak ketch "
    "kettle keel lantern lemur lighthouse limpet lobster mackerel magpie mango marmot mast mermaid minnow mitten "
    "mongoose muffin narwhal noodle nutmeg octopus otter oyster paddle pancake parrot pelican penguin pickle "
    "pinecone pirate plover porpoise pretzel puffin pumpkin quail rabbit raccoon radish rudder sailor salmon "
    "schooner seahorse sextant shanty shrimp sloop snail spanner squid starfish tadpole teapot tiller toucan "
    "trawler turnip turtle urchin waffle walrus whistle wombat yak yawl zebra"
)


def funny_name(taken: set[str], rng: np.random.Generator) -> str:
    """Return a name that is not in `taken`, and add it; nouns are added when a plain pair is taken."""
    name = f"{_choose(_ADJECTIVES, rng)}-{_choose(_NOUNS, rng)}"
    while name in taken:
        name = f"{name}-{_choose(_NOUNS, rng)}"
    taken.add(name)
    return name


def _choose(words: str, rng: np.random.Generator) -> str:
    choices = words.split()
    return choices[int(rng.integers(len(choices)))]
