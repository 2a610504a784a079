"""What the registry keeps shares no byte with what a later run writes over."""

import stat

from rl.checkpoint import folder_hash
from tasks.registry import immutable_copy


def test_a_registered_copy_does_not_change_with_the_model(tmp_path):
    model = tmp_path / "doctor"
    model.mkdir()
    (tmp_path / "cache").write_bytes(b"weights")
    (model / "model.safetensors").symlink_to(tmp_path / "cache")  # as DVC may lay it out
    (model / "config.json").write_text("{}")
    copy, digest = immutable_copy(model, tmp_path / "registry")
    assert copy == tmp_path / "registry" / digest
    (tmp_path / "cache").write_bytes(b"other weights")
    with (model / "config.json").open("a") as file:
        file.write("edited in place")
    assert folder_hash(copy) == digest
    for path in copy.iterdir():
        assert not path.is_symlink()
        assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def test_the_same_model_is_copied_once_and_a_killed_copy_is_made_anew(tmp_path):
    model = tmp_path / "doctor"
    model.mkdir()
    (model / "config.json").write_text("{}")
    partial = tmp_path / "registry" / f".{folder_hash(model)}.partial"
    partial.mkdir(parents=True)
    (partial / "half").write_text("")
    copy, _ = immutable_copy(model, tmp_path / "registry")
    made = (copy / "config.json").stat().st_mtime_ns
    assert immutable_copy(model, tmp_path / "registry")[0] == copy
    assert [path.name for path in copy.iterdir()] == ["config.json"]
    assert (copy / "config.json").stat().st_mtime_ns == made
    assert [path.name for path in (tmp_path / "registry").iterdir()] == [copy.name]


def test_a_damaged_copy_is_made_anew_from_the_model(tmp_path, caplog):
    model = tmp_path / "doctor"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    copy, digest = immutable_copy(model, tmp_path / "registry")
    (copy / "model.safetensors").chmod(0o644)
    (copy / "model.safetensors").write_bytes(b"weigths")
    assert immutable_copy(model, tmp_path / "registry") == (copy, digest)
    assert folder_hash(copy) == digest
    assert [path.name for path in (tmp_path / "registry").iterdir()] == [digest]
    assert caplog.messages == [f"{copy} is not what was registered; it is made again from {model}"]
