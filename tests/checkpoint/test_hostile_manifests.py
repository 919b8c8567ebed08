"""Whoever can write to the store can make a restore fail, and nothing else (SAFE)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.checkpoint.parser import parse_manifest
from sweeper.checkpoint.sealed import digest_of, object_hash, seal
from sweeper.checkpoint.store import ObjectStore, open_store
from sweeper.errors import CheckpointCorrupt, ObjectMissing
from tests.checkpoint.saves import CONFIG, SWEEP, load, small_save, with_hash

STORE = open_store("memory://hostile-manifests")
REF = small_save(STORE)
GOOD: dict[str, Any] = json.loads(STORE.read(REF.manifest_key))["content"]

NUMBERS = st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**62, 2**63, 2**64, 10**30, 0.5, 1e308, -0.0, True, None])
TEXTS = st.sampled_from(
    ["", "../../etc/passwd", "/etc/passwd", "sweeps/../x", "os.system", "\ud800", "f" * 64, "object"]
)
JUNK = st.recursive(
    NUMBERS | TEXTS | st.text(max_size=8) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, here: tuple = ()) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, item in inner for path in paths(item, (*here, key)))]


def put(value: Any, path: tuple, new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    target = value
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = new
    return value


def restore(content: Any) -> None:
    """Read it as a row would that names exactly this manifest."""
    data = seal(content)
    STORE.replace(REF.manifest_key, data)
    load(STORE, with_hash(REF, object_hash(data)))


def refused(content: Any) -> None:
    with pytest.raises(CheckpointCorrupt):
        restore(content)


@settings(max_examples=400)
@given(path=st.sampled_from(paths(GOOD)), junk=JUNK)
def test_any_changed_field_is_refused_or_harmless(path: tuple, junk: Any) -> None:
    try:
        restore(put(GOOD, path, junk))
    except CheckpointCorrupt:
        return


@settings(max_examples=300)
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        parse_manifest(data)


@settings(max_examples=300)
@given(body=st.binary(max_size=200) | st.text(alphabet='[]{}",:0123456789eE.-+tfn', max_size=200).map(str.encode))
def test_arbitrary_content_under_a_good_seal_is_refused(body: bytes) -> None:
    sealed = b'{"digest":"' + digest_of(body).encode() + b'","content":' + body + b"}"
    with pytest.raises(CheckpointCorrupt):
        parse_manifest(sealed)


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b'{"a":' * 100_000, b"1" * 10_000, b"1e999", b"NaN", b'{"schema":1,"schema":1}', b'"\xff"'],
    ids=["lists", "mappings", "digits", "infinite", "NaN", "twice", "not UTF-8"],
)
def test_json_that_is_a_trap_is_refused(body: bytes) -> None:
    test_arbitrary_content_under_a_good_seal_is_refused.hypothesis.inner_test(body)


KEY = GOOD["packs"][0][0]
SIZE = GOOD["packs"][0][1]


@pytest.mark.parametrize(
    "key",
    [
        "../../../etc/passwd",
        "/etc/passwd",
        KEY.replace(SWEEP, "6f" * 16),
        KEY.replace("p0", "../p0"),
        KEY.replace("p0", "manifest.json"),
        KEY.replace("p0", "p*"),
        KEY.replace("p0", "p00"),
        KEY + "\n",
        f"sweeps/{SWEEP}/sweep.json",
        f"sweeps/{SWEEP}/packs/aa/{'b' * 64}",
    ],
)
def test_a_pack_key_outside_the_sweeps_packs_is_refused_unread(key: str) -> None:
    content = put(GOOD, ("packs", 0, 0), key)
    data = seal(content)
    with pytest.raises(CheckpointCorrupt):
        parse_manifest(data)


def test_a_shared_pack_of_the_same_sweep_may_be_named() -> None:
    """Packs written once per sweep come later; this reader already reads them."""
    key = f"sweeps/{SWEEP}/packs/ab/{'ab' * 32}"
    STORE.create(key, STORE.read(KEY))
    restore(put(GOOD, ("packs", 0, 0), key))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("blocks", 0, 0), SIZE + 1),
        (("blocks", 0, 3), 1),
        (("blocks", 0, 3), -1),
        (("blocks", 0, 2), 1),
        (("blocks",), []),
        (("blocks",), [GOOD["blocks"][0], GOOD["blocks"][0]]),
        (("buffer_bytes",), 2**42),
        (("tensors", 0, "offset"), 1),
        (("tensors", 0, "size_bytes"), SIZE + 1),
        (("tensors", 0, "shape"), [SIZE + 1]),
        (("tensors", 0, "shape"), [2**40, 2**40, 2**40]),
        (("tensors", 0, "strides"), [2]),
        (("tensors", 0, "strides"), [1, 1]),
        (("tensors", 0, "dtype"), "int64"),
        (("tensors", 0, "dtype"), "__import__('os')"),
        (("packs", 0, 1), SIZE + 1),
        (("packs", 0, 1), SIZE - 1),
        (("schema",), 2),
        (("schema",), True),
        (("fence",), 2),
        (("seq",), 2),
        (("step",), 11),
        (("lease_id",), "0" * 32),
        (("config_hash",), "0" * 64),
        (("exact",), 1),
        (("new field",), 1),
    ],
)
def test_what_does_not_fit_together_is_refused(path: tuple, value: Any) -> None:
    refused(put(GOOD, path, value))


def test_a_claim_of_terabytes_is_refused_before_memory_is_asked_for() -> None:
    huge = 2**41
    content = put(GOOD, ("packs", 0, 1), huge)
    content = put(put(content, ("blocks", 0, 0), huge), ("buffer_bytes",), huge)
    refused(content)


def test_too_much_inline_is_refused() -> None:
    row = [70_000, digest_of(bytes(70_000)), "A" * (70_000 // 3 * 4) + "AA=="]
    refused(put(put(GOOD, ("blocks",), [row]), ("buffer_bytes",), 70_000))


def test_a_good_manifest_still_reads() -> None:
    restore(GOOD)
    assert GOOD["config_hash"] == CONFIG


def test_a_hostile_row_is_refused(store: ObjectStore) -> None:
    from dataclasses import replace

    for key in ("../../etc/passwd", "/etc/passwd", "sweeps/x/manifest.json", ""):
        with pytest.raises((CheckpointCorrupt, ObjectMissing)):
            load(store, replace(REF, manifest_key=key))
