"""Warnings that one thread keeps to itself do not come out because another does the same."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from fdgpriv.utils.warnings_filter import warnings_ignored, warnings_in_one_line


def test_only_the_category_is_silenced():
    with pytest.warns(UserWarning, match="heard") as output_cache, warnings_ignored(DeprecationWarning):
        _warn_twice()
    assert len(output_cache) == 1


def _warn_twice() -> None:
    warnings.warn("nobody hears", DeprecationWarning, stacklevel=1)
    warnings.warn("heard", UserWarning, stacklevel=1)


def test_quiet_threads_leave_the_filters():
    """Were the second let in before the first left, it would put back the first one's filters for good."""
    before = list(warnings.filters)
    first_in, second_in, first_out = Event(), Event(), Event()

    def first() -> None:
        with warnings_ignored():
            first_in.set()
            second_in.wait(0.2)
        first_out.set()

    def second() -> None:
        first_in.wait()
        with warnings_ignored():
            second_in.set()
            first_out.wait(0.2)

    with ThreadPoolExecutor(2) as pool:
        for done in (pool.submit(first), pool.submit(second)):
            done.result()
    assert warnings.filters == before


@pytest.mark.filterwarnings("always")
def test_a_command_prints_a_warning_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = warnings.showwarning
    with warnings_in_one_line():
        warnings.warn("heard", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: heard\n"
    assert warnings.showwarning is before
