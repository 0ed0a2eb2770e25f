"""A local training of FedAvg with so many clients that share 16,000 images: prints its seconds and peak memory.

A process of its own: the kernel keeps the peak of a whole process. Of all numbers of clients the mini-batches have the same
size and number.
"""

import json
import sys
from dataclasses import replace
from threading import Event, Thread
from time import process_time

import torch
from _server_memory import resident

from fdgpriv import data
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import VIEWS, Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.utils.memory import reuse_freed

IMAGES, BATCH, ROUNDS = 16_000, 16, 2


def clients_of(count: int) -> dict[str, ClientData]:
    """Digits, repeated, divided evenly among clients."""
    digits = data.load("digits").domains[0]
    chosen = torch.arange(IMAGES) % len(digits)
    parts = {}
    for number, index in enumerate(chosen.chunk(count)):
        name = f"client-{number:05d}"
        pixels, labels = digits.pixels[index], digits.labels[index]
        held_out = (digits.pixels[:0], digits.labels[:0])
        parts[name] = ClientData(name, pixels, labels, *held_out, classes=10, flip=False, translate=True)
    return parts


def trained(count: int) -> dict[str, float]:
    """Seconds of processor time, peak megabytes of memory, and those of the transcript's files, which the system evicts."""
    reuse_freed()
    clients = clients_of(count)
    config = AuditConfig(preset="quick").checked()
    federation = config.federation(data.load("digits"), list(clients), 0)
    method = replace(config.method("fedavg"), rounds=ROUNDS, batch_size=BATCH)  # type: ignore[call-arg]
    wire = Wire({name: len(images) for name, images in clients.items()}, Defense.named("none")(), Transcript(VIEWS))
    peak, ended = [resident("RssAnon")], Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peak[0] = max(peak[0], resident("RssAnon"))

    watcher = Thread(target=watch)
    watcher.start()
    start = process_time()
    LocalEngine(1).run(method, federation, clients, wire)
    seconds = process_time() - start
    ended.set()
    watcher.join()
    stored = {id(artifact): artifact.nbytes for artifact in wire.transcript.kept.values()}
    return {"s": seconds, "memory_mb": peak[0] / 2**20, "files_mb": sum(stored.values()) / 2**20}


if __name__ == "__main__":
    print(json.dumps(trained(int(sys.argv[1]))))
