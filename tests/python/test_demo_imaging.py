"""The demo's model, images and migration: right places, and the same bits through every History."""

import types

import numpy as np
import pytest
from demo_stand_in import StandInStore, flip
from ebbtide.demo.imaging import ShotImage, differences, for_the_eye, stack
from ebbtide.demo.job import Scale, in_memory, in_store, migrate, observe, plan_job, plan_room
from ebbtide.demo.migration import MemoryHistory, migrate_shot, record
from ebbtide.demo.model import SALT_SPEED, WATER_SPEED, salt_model, smoothed
from ebbtide.demo.survey import HIGHEST_FREQUENCY, plan_survey
from ebbtide.demo.wave import Propagator

SMALL = plan_job(Scale.small(), shots=2)


@pytest.fixture(scope="module")
def observed():
    return observe(SMALL, lambda *_: None)


def quiet(*_):
    pass


def test_the_model_has_water_layers_and_salt():
    model = salt_model(12.5)
    assert model.shape == (240, 500)
    assert (model.speed[model.salt] == SALT_SPEED).all()
    assert 0.05 < model.salt.mean() < 0.25
    assert (model.speed[0] == WATER_SPEED).all()
    aside = model.speed[:, 30]
    assert (np.diff(aside) >= 0).all() and len(np.unique(aside)) == 9


def test_smoothing_keeps_the_water_and_the_time_to_the_floor():
    model = salt_model(25.0)
    smooth = smoothed(model, 60.0)
    assert smooth.speed.max() <= SALT_SPEED
    for column in (20, 200):  # beside the salt: through it, waves of the picture's band bend
        water = slice(0, model.seabed[column])
        assert (smooth.speed[water, column] == WATER_SPEED).all()
        times = [float((25.0 / m.speed[:, column]).sum()) for m in (model, smooth)]
        assert times[1] == pytest.approx(times[0], rel=0.01)


def test_a_flat_step_of_speed_is_imaged_where_it_is():
    spacing, row = 12.5, 60
    speed = np.full((100, 160), 2000.0, np.float32)
    background = speed.copy()
    speed[row:] = 2300.0
    survey = plan_survey(speed.shape, spacing, shots=1, duration=1.4, group=8, border=40)
    data = record(Propagator(speed, spacing, survey.dt, 40), survey, survey.sources[0])
    waves = Propagator(background, spacing, survey.dt, 40)
    shot = migrate_shot(waves, survey, survey.sources[0], data, MemoryHistory())
    picture = for_the_eye(stack([shot]), np.zeros(160, int), spacing)
    below_source = picture[:, 70:90].mean(axis=1)
    peak = int(np.abs(below_source[15:]).argmax()) + 15
    assert abs(peak - row) <= 1  # the step is at the upper edge of `row`
    assert below_source[peak] > 0  # faster below


def test_snapshots_are_dense_enough_and_fill_the_checkpoints():
    for job in (SMALL, plan_job(Scale.full(), shots=5)):
        survey = job.survey
        assert survey.every * survey.dt < 1 / (2 * HIGHEST_FREQUENCY * survey.peak_frequency)
        assert survey.checkpoints * survey.group * survey.every == survey.steps
    assert 2 << 20 <= job.checkpoint_bytes <= 8 << 20


@pytest.mark.parametrize("scale", [Scale.small(), Scale.full()])
def test_the_caches_hold_at_most_an_eighth_of_a_shot(scale, tmp_path):
    job = plan_job(scale, shots=1)
    room = plan_room(job, tmp_path, None, None)
    assert 0.1 < (room.device + room.host) / job.shot_bytes <= 1 / 8
    assert min(room.device, room.host) >= job.checkpoint_bytes
    assert room.disk >= job.shot_bytes
    assert 4 * room.disk < 2 << 30


class Recording(MemoryHistory):
    def __init__(self):
        super().__init__()
        self.calls = []

    def save(self, index, block):
        self.calls.append(("save", index))
        super().save(index, block)

    def load(self, index, block):
        self.calls.append(("load", index))
        super().load(index, block)


def test_checkpoints_are_written_in_order_and_read_back_in_reverse(observed):
    history, count = Recording(), SMALL.survey.checkpoints
    migrate_shot(SMALL.propagator(SMALL.smooth), SMALL.survey, SMALL.survey.sources[0], observed[0], history)
    assert history.calls == [("save", i) for i in range(count)] + [("load", i) for i in reversed(range(count))]


def test_images_through_a_store_are_identical_to_those_from_memory(observed):
    through_store, _ = migrate(SMALL, observed, in_store(StandInStore(device_cache=1)), quiet)
    from_memory, _ = migrate(SMALL, observed, in_memory, quiet)
    assert differences(through_store, from_memory) == []
    assert all(shot.image.any() and (shot.illumination >= 0).all() for shot in from_memory)


@pytest.mark.filterwarnings("ignore:overflow")
def test_one_flipped_byte_is_found_and_named(observed):
    broken = StandInStore(device_cache=1, flip_at=SMALL.survey.checkpoints + 5)  # in the second shot
    images, _ = migrate(SMALL, observed, in_store(broken), quiet)
    from_memory, _ = migrate(SMALL, observed, in_memory, quiet)
    found = differences(images, from_memory)
    assert {(one.shot, one.cells) for one in found} == {(1, 1)}
    assert "shot 2" in str(found[0])


def test_images_are_compared_by_their_bits():
    def shot(value):
        return ShotImage(np.full((2, 3), value, np.float32), np.ones((2, 3), np.float32))

    assert differences([shot(np.nan)], [shot(np.nan)]) == []
    assert len(differences([shot(0.0)], [shot(-0.0)])) == 1
    changed = shot(1.0)
    flip(changed.illumination)
    (found,) = differences([changed], [shot(1.0)])
    assert (found.what, found.cell, found.cells) == ("illumination", (1, 1), 1)


def test_any_array_module_with_numpys_interface_will_do(observed):
    """The few functions that the physics asks of its array module; a module with only these gives the same bits."""
    names = ("add", "multiply", "asarray", "empty", "zeros", "zeros_like", "float32")
    few = types.SimpleNamespace(**{name: getattr(np, name) for name in names})
    survey, source = SMALL.survey, SMALL.survey.sources[0]
    shots = [
        migrate_shot(
            Propagator(SMALL.smooth.speed, survey.spacing, survey.dt, survey.border, xp),
            survey,
            source,
            observed[0],
            MemoryHistory(),
        )
        for xp in (np, few)
    ]
    assert differences([shots[0]], [shots[1]]) == []
