"""Where samples go: laws over small worlds."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from pipeline.features import Feature, Form, Reading
from pipeline.index import Row
from pipeline.layout import Layout, lay_out

FORM = Form("float32", (4,))


def sample_of(number: int, class_name: str, item: str, size: int) -> tuple[Row, Feature]:
    row = Row(class_name, item, f"id {number}", None, f"{number}.npy", number + 2, "index")
    return row, Feature(row.path, size + 128, 1000 + number, FORM, size // 16, size)


drawn = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.sampled_from("123"),
        st.integers(200, 60_000),
        st.sampled_from(["train", "val", "x", "test"]),
    ),
    min_size=1,
    max_size=60,
).map(lambda world: [(*sample_of(n, *drawn[:3]), drawn[3]) for n, drawn in enumerate(world)])
targets = st.sampled_from([1, 30_000, 100_000, 10_000_000])


def laid_out(world: list[tuple[Row, Feature, str]], target: int, *, keep: bool = False) -> Layout:
    rows, features, splits = zip(*world, strict=True)
    return lay_out(
        rows, features, splits, form=FORM, shard_bytes=target, reading=Reading(non_finite="keep" if keep else "refuse")
    )


@given(drawn, targets)
def test_every_sample_is_in_one_shard_of_its_split(world: list[tuple[Row, Feature, str]], target: int) -> None:
    """With its own file and its class's position as label."""
    layout = laid_out(world, target)
    placed = [
        (row, feature, shard.split)
        for shard in layout.shards
        for row, feature in zip(shard.rows, shard.features, strict=True)
    ]

    assert sorted(placed, key=lambda p: p[0].row) == world
    for shard in layout.shards:
        assert shard.rows
        assert shard.name.startswith(f"{shard.split}-")
        assert [layout.classes[label] for label in shard.labels] == [row.class_name for row in shard.rows]
    assert len({shard.name for shard in layout.shards}) == len(layout.shards)


@given(drawn, targets)
def test_rows_lie_by_split_class_item_and_id(world: list[tuple[Row, Feature, str]], target: int) -> None:
    """Train first, then val, test and others; classes in text order, each in one run."""
    layout = laid_out(world, target)
    order = [(["train", "val", "test", "x"].index(s.split), *row[:3]) for s in layout.shards for row in s.rows]

    assert order == sorted(order)
    assert list(layout.classes) == sorted({row.class_name for row, _, _ in world})


@given(drawn, targets)
def test_a_class_is_in_as_few_shards_as_possible(world: list[tuple[Row, Feature, str]], target: int) -> None:
    """One if it fits; a larger one has shards of its own, none much larger than the target."""
    layout = laid_out(world, target)
    for split, of_split in groupby(layout.shards, key=lambda s: s.split):
        shards = list(of_split)
        for name in layout.classes:
            sizes = [f.nbytes + 6144 for row, f, s in world if row.class_name == name and s == split]
            having = [shard for shard in shards if any(row.class_name == name for row in shard.rows)]
            if sum(sizes) <= target:
                assert len(having) <= 1
            elif sizes:
                assert len(having) <= -(-sum(sizes) // target)
                assert all({row.class_name for row in shard.rows} == {name} for shard in having)
        for shard in shards:
            largest = max(f.nbytes for f in shard.features) + 6144
            assert shard.nbytes <= target + largest


@given(drawn, targets, st.randoms(use_true_random=False))
def test_the_order_of_the_index_decides_nothing(
    world: list[tuple[Row, Feature, str]], target: int, random: object
) -> None:
    """The same rows shuffled give the same shards, digests and all, but for the rows' numbers."""
    shuffled = list(world)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert laid_out(world, target) == laid_out(shuffled, target)


@given(drawn, st.integers(0, 59), st.sampled_from(["item", "size", "mtime_ns", "path", "id"]))
def test_a_change_of_one_sample_changes_the_digest_of_its_shard(
    world: list[tuple[Row, Feature, str]], which: int, field: str
) -> None:
    """And a sheet's row number alone does not, so that rows may be moved about."""
    before = laid_out(world, 10_000_000)
    row, feature, split = world[which % len(world)]
    moved = [(r._replace(row=r.row + 7), f, s) for r, f, s in world]
    if field in {"size", "mtime_ns"}:
        feature = feature._replace(**{field: getattr(feature, field) + 1})
    else:
        row = row._replace(**{field: getattr(row, field) + "'"})
    changed = [*(w for w in world if w[0] != world[which % len(world)][0]), (row, feature, split)]

    digests = [{s.name: s.digest for s in laid_out(w, 10_000_000).shards} for w in (moved, changed)]

    assert digests[0] == {s.name: s.digest for s in before.shards}
    assert [name for name in digests[0] if digests[0][name] != digests[1][name]] == [f"{split}-00000.tar"]


def test_the_policy_for_nan_is_part_of_the_digest() -> None:
    """Shards made under `keep` are not taken for checked ones."""
    world = [(*sample_of(0, "a", "1", 500), "train")]

    assert laid_out(world, 10**6).shards[0].digest != laid_out(world, 10**6, keep=True).shards[0].digest
