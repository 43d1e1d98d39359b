"""The demo in three dimensions, as on a GPU: with NumPy in the GPU's place, and PyTorch where there is one."""

import json
import math

import ebbtide
import numpy as np
import pytest
import typer
from bench_stand_in import GPUS, torch_on_the_cpu
from ebbtide._machine import device
from ebbtide.demo import command
from ebbtide.demo.command import demo
from ebbtide.demo.imaging import ShotImage, differences
from ebbtide.demo.job import Scale, in_memory, in_store, migrate, observe, plan_job, plan_room, tier_bytes
from ebbtide.demo.model import SALT_SPEED, salt_model, smoothed, vertical
from ebbtide.demo.survey import HIGHEST_FREQUENCY, ricker
from ebbtide.demo.wave import Propagator, UnstableStep, stable_step
from typer.testing import CliRunner

app = typer.Typer()
app.command()(demo)


def quiet(*_):
    pass


def migrated(job, history_of=in_memory):
    images, _ = migrate(job, observe(job, quiet), history_of, quiet)
    return images


def test_the_slice_through_the_middle_is_the_model_in_two_dimensions():
    flat, volume = salt_model(50.0), salt_model(50.0, crossline_km=1.0)
    assert volume.shape == (60, 20, 125)
    middle = volume.vertical()
    for name in ("speed", "salt", "seabed"):
        assert np.array_equal(getattr(middle, name), getattr(flat, name))
    assert flat.vertical().shape == flat.shape
    assert 0 < volume.salt[:, 0].sum() < volume.salt[:, 10].sum(), "the salt is a body, not a wall"
    smooth = smoothed(volume, 60.0)
    assert smooth.speed.shape == volume.shape and smooth.speed.max() <= SALT_SPEED


def test_a_wave_in_space_arrives_when_and_as_strongly_as_it_should():
    """p(t) = f(t - r/c) / (4 pi r), for a source f integrated over a cell."""
    speed, spacing, peak, dt, steps = 2000.0, 10.0, 15.0, 0.0008, 260
    waves = Propagator(np.full((40, 40, 40), speed, np.float32), spacing, dt, border=16)
    wavelet = ricker(peak, dt, steps)
    times = np.arange(1, steps + 1) * dt
    got = []
    for strength in wavelet:
        waves.step((20, 20, 20), strength)
        got.append(waves.pressure[20, 28, 26])
    distance = 10 * spacing
    phase = (np.pi * peak * (times - distance / speed - 1.3 / peak)) ** 2
    exact = np.where(times > distance / speed, (1 - 2 * phase) * np.exp(-phase), 0.0) / (4 * np.pi * distance)
    found = np.array(got) / spacing  # the source's strength is per metre of the third axis
    assert np.abs(found - exact).max() < 0.03 * np.abs(exact).max()


@pytest.mark.parametrize(("part", "stays"), [(0.99, True), (1.04, False)])
def test_the_stability_limit_in_space(monkeypatch, part, stays):
    speed = np.full((16, 16, 16), 3000.0, np.float32)
    limit = stable_step(3000.0, 10.0, dimensions=3)
    if not stays:
        with pytest.raises(UnstableStep):
            Propagator(speed, 10.0, part * limit)
        monkeypatch.setattr("ebbtide.demo.wave.stable_step", lambda *_: math.inf)
    waves = Propagator(speed, 10.0, part * limit, border=0)
    waves.pressure[...] = np.random.default_rng(1).standard_normal(speed.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(800):
            waves.step((0, 0, 0), 0.0)
        assert bool(np.abs(waves.pressure).max() < 1e3) is stays


def test_images_of_a_volume_through_a_store_are_identical_to_those_from_memory(disk):
    job = plan_job(Scale.small_volume(), shots=1)
    room = plan_room(job, disk, None, None)
    assert 0 < room.device + room.host <= job.shot_bytes / 8
    with ebbtide.open(**room.options()) as store:
        through_store = migrated(job, in_store(store))
        to_disk, from_disk = tier_bytes(store.stats())["local"]
    from_memory = migrated(job)
    assert differences(through_store, from_memory) == []
    assert min(to_disk, from_disk) > job.shot_bytes / 2, "most went to disk and came back"
    (image,) = from_memory
    assert image.image.shape == job.true.shape
    assert np.isfinite(image.image).all() and (image.illumination > 0).all()
    assert np.count_nonzero(image.image) > 0.9 * image.image.size


def test_pytorch_images_as_numpy_does():
    scale = Scale(200.0, border=6, group=2, shots=1, duration=1.5, crossline_km=1.0)
    ours, theirs = plan_job(scale, 1), plan_job(scale, 1, torch_on_the_cpu())
    (numpy_image,), (torch_image,) = migrated(ours), migrated(theirs)
    assert isinstance(torch_image.image, np.ndarray)
    assert differences(migrated(theirs), [torch_image]) == [], "the same bits each time"
    for name in ("image", "illumination"):
        one, other = getattr(numpy_image, name), getattr(torch_image, name)
        assert np.abs(one - other).max() < 1e-5 * np.abs(one).max()


def test_the_full_size_holds_several_gigabytes_a_shot_and_its_caches_an_eighth(tmp_path):
    job = plan_job(Scale.full_volume(), shots=3)
    assert len(job.true.shape) == 3 and len(set(job.survey.sources)) == 3
    assert 3e9 < job.shot_bytes < 6e9
    room = plan_room(job, tmp_path, None, None)
    assert 0.1 < (room.device + room.host) / job.shot_bytes <= 1 / 8
    assert room.device == pytest.approx(job.shot_bytes / 16, rel=0.2)
    survey = job.survey
    assert survey.every * survey.dt < 1 / (2 * HIGHEST_FREQUENCY * survey.peak_frequency)
    assert vertical(job.true.salt).mean() > 0.05


def test_a_difference_in_a_volume_is_named_by_its_cell():
    one, other = (ShotImage(np.zeros((3, 4, 5), np.float32), np.zeros((3, 4, 5), np.float32)) for _ in range(2))
    other.image[1, 2, 3] = 1
    (found,) = differences([one], [other])
    assert "row 1, line 2, column 3" in str(found)


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in ("--device", "cuda", "--small", *arguments)])


@pytest.mark.parametrize("make", GPUS)
def test_the_demo_of_a_gpu_from_end_to_end(make, monkeypatch, disk, tmp_path):
    gpu = make()
    monkeypatch.setattr(device, "_found", lambda: (1, lambda number: gpu))
    monkeypatch.setattr(command, "LEAST_TO_COMPARE", 0)
    result = run("--dir", disk, "--out", tmp_path, "--json", tmp_path / "demo.json", "--shots", 1)
    assert result.exit_code == 0, result.output
    assert "images identical" in result.output
    for name in ("demo-image.png", "demo-blocked.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG\r\n")
    document = json.loads((tmp_path / "demo.json").read_text())
    assert document["images_identical"] is True and len(document["config"]["shape"]) == 3
    assert all(way["wrong_bytes"] == 0 for way in document["replay"]["ways"])
    assert list(disk.iterdir()) == []


def test_without_a_gpu_the_demo_says_what_to_do(monkeypatch, tmp_path):
    def nothing():
        raise device.NoDevice("no GPU to compute on: install one")

    monkeypatch.setattr(device, "_found", nothing)
    result = run("--dir", tmp_path)
    assert result.exit_code == 2
    assert "--device" in result.output and "NoDevice" in result.output
