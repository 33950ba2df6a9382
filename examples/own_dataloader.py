"""Your own DataLoader, our sampler: balanced batches in worker processes, resumed in mid-epoch by torchdata.

    python examples/own_dataloader.py data/demo/shards

For what must run in processes: transforms that hold the GIL, or a collate_fn of your own. Otherwise
`shards.loader.Loader` is faster, with less memory. Needs `pip install torchdata`.
"""

import sys

from torchdata.stateful_dataloader import StatefulDataLoader

from shards import BalancedSampler, Crop, Manifest


def main(folder: str) -> list[list[int]]:
    """Read three batches, stop, and go on in a new loader; returns the rows of all batches of the epoch."""
    data = Manifest.open(folder)
    dataset = data.dataset(Crop(frames=100), seed=1)

    def loader() -> StatefulDataLoader:
        sampler = BalancedSampler(data.split("train"), batch_size=8, samples_per_class=2, seed=1)
        return StatefulDataLoader(dataset, batch_sampler=sampler, num_workers=2)

    first = loader()
    rows: list[list[int]] = []
    for batch in first:
        rows.append(batch["row"].tolist())
        if len(rows) == 3:
            state = first.state_dict()
            break

    resumed = loader()
    resumed.load_state_dict(state)
    rows += [batch["row"].tolist() for batch in resumed]
    print(f"{len(rows)} batches of {tuple(batch['features'].shape)}, the last {len(rows) - 3} after a resume")
    return rows


if __name__ == "__main__":
    main(sys.argv[1])
