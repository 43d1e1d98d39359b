"""The demo's propagator compared with known properties of waves."""

import numpy as np
import pytest
from ebbtide.demo import wave
from ebbtide.demo.model import salt_model
from ebbtide.demo.survey import ricker
from ebbtide.demo.wave import Propagator, UnstableStep, stable_step


def trace(speed, spacing, dt, wavelet, source, receiver, border=50):
    """The pressure at `receiver` after each step, for a source at `source`; cells as (row, column)."""
    waves = Propagator(speed, spacing, dt, border)
    out = []
    for strength in wavelet:
        waves.step(source, strength)
        out.append(waves.pressure[receiver])
    return np.array(out)


def green_2d(wavelet_at, speed, distance, times):
    """The exact pressure: p(t) = 1/(2 pi) * integral of f(t - (r/c) cosh u) du, its singular kernel substituted."""
    u, step = np.linspace(0, 6, 6001, retstep=True)
    delayed = times[:, None] - distance / speed * np.cosh(u)[None, :]
    values = wavelet_at(delayed)
    values[:, 0] /= 2  # the trapezium rule; nothing is left at the other end
    return values.sum(axis=1) * step / (2 * np.pi)


def ricker_at(peak):
    def at(t):
        phase = (np.pi * peak * (t - 1.3 / peak)) ** 2
        return np.where(t > 0, (1 - 2 * phase) * np.exp(-phase), 0.0)

    return at


def error_against_green(dt, cells=16):
    speed, spacing, peak = 2000.0, 10.0, 20.0
    steps = int(0.4 / dt)
    homogeneous = np.full((100, 100), speed, np.float32)
    got = trace(homogeneous, spacing, dt, ricker(peak, dt, steps), (50, 50), (50 + cells, 50 + cells))
    times = np.arange(1, steps + 1) * dt
    exact = green_2d(ricker_at(peak), speed, np.hypot(cells, cells) * spacing, times)
    return np.abs(got - exact).max() / np.abs(exact).max()


def test_matches_the_analytic_solution():
    assert error_against_green(dt=0.0004) < 0.005


def test_error_falls_with_the_square_of_the_time_step():
    coarse, fine = error_against_green(dt=0.0024), error_against_green(dt=0.0012)
    assert 3.3 < coarse / fine < 4.7


def test_a_time_step_beyond_the_stability_limit_is_refused_by_name():
    speed = np.full((20, 20), 3000.0, np.float32)
    limit = stable_step(3000.0, 10.0)
    with pytest.raises(UnstableStep, match="3000 m/s on cells of 10 m"):
        Propagator(speed, 10.0, limit * 1.001)


@pytest.mark.parametrize(("part", "stays"), [(0.99, True), (1.01, False)])
def test_the_stability_limit_is_where_it_is_said_to_be(monkeypatch, part, stays):
    speed = np.full((30, 30), 3000.0, np.float32)
    dt = part * stable_step(3000.0, 10.0)
    monkeypatch.setattr(wave, "stable_step", lambda *_: np.inf)
    waves = Propagator(speed, 10.0, dt, border=0)
    waves.pressure[...] = np.random.default_rng(1).standard_normal(speed.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(600):
            waves.step((0, 0), 0.0)
        assert bool(np.abs(waves.pressure).max() < 1e3) is stays


def test_the_border_absorbs():
    """Against a model so large that nothing can come back from its edge: at grazing and at normal incidence."""
    spacing, speed, peak = 12.5, 2000.0, 12.0
    dt = 0.8 * stable_step(speed, spacing)
    wavelet = ricker(peak, dt, 420)
    rows, columns = np.array([10, 10, 40]), np.array([120, 80, 30])
    small = trace(np.full((60, 160), speed, np.float32), spacing, dt, wavelet, (10, 30), (rows, columns))
    far = (rows + 250, columns + 250)
    large = trace(np.full((560, 660), speed, np.float32), spacing, dt, wavelet, (260, 280), far, border=0)
    assert (np.abs(small - large).max(axis=0) < 0.02 * np.abs(large).max(axis=0)).all()


def test_energy_leaves_through_the_border():
    model = salt_model(50.0)
    dt = 0.9 * stable_step(float(model.speed.max()), 50.0)
    waves = Propagator(model.speed, 50.0, dt)
    energy = []
    for strength in ricker(4.0, dt, 2500):
        waves.step((2, 60), strength)
        energy.append(float((waves.pressure**2).sum()))
    assert energy[-1] < 1e-5 * max(energy)


def test_source_and_receiver_may_change_places():
    model = salt_model(50.0)
    dt = 0.9 * stable_step(float(model.speed.max()), 50.0)
    wavelet = ricker(4.0, dt, 400)
    here, there = (2, 20), (40, 90)
    one = trace(model.speed, 50.0, dt, wavelet, here, there, border=20)
    other = trace(model.speed, 50.0, dt, wavelet, there, here, border=20)
    assert np.abs(one - other).max() < 1e-4 * np.abs(one).max()


def test_backward_steps_are_the_adjoint_of_forward_steps():
    """<d, F s> = <F* d, s> for random s and d, salt and absorbing border included."""
    model, random = salt_model(50.0), np.random.default_rng(7)
    dt = 0.9 * stable_step(float(model.speed.max()), 50.0)
    waves = Propagator(model.speed, 50.0, dt, border=20)
    steps, source, receivers = 500, (20, 40), (2, slice(5, 120, 2))
    s = random.standard_normal(steps).astype(np.float32)
    d = random.standard_normal((steps, waves.pressure[receivers].size)).astype(np.float32)

    forward = np.empty(d.shape)
    for n in range(steps):
        waves.step(source, s[n])
        forward[n] = waves.pressure[receivers]
    waves.reset()
    backward = np.empty(steps)
    for n in reversed(range(steps)):
        waves.step(receivers, d[n])
        backward[n] = waves.pressure[source]

    left, right = float((forward * d).sum()), float((backward * s).sum())
    assert left == pytest.approx(right, rel=1e-4)
    assert abs(left) > 1e-3 * np.linalg.norm(forward) * np.linalg.norm(d) / np.sqrt(d.size)  # not zero by accident


def test_reset_leaves_no_trace_of_the_wave_before():
    model = salt_model(100.0)
    dt = 0.9 * stable_step(float(model.speed.max()), 100.0)
    waves = Propagator(model.speed, 100.0, dt, border=10)

    def run():
        for n in range(100):
            waves.step((1, 30), np.float32(n % 7))
        return waves.pressure.tobytes()

    first = run()
    waves.reset()
    assert run() == first
