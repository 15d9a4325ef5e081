"""All ranks of a job may be told to make the repository."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import everstep
from everstep import _everstep, _repository


def test_many_may_create_at_once_and_get_the_same_repository(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: everstep.Repository(str(tmp_path / "repo"), create=True).id, range(8)))
    assert len(ids) == 1


def test_one_that_was_made_between_the_look_and_the_creation_is_opened(tmp_path, monkeypatch):
    class Late:
        looks = 0

        @classmethod
        def open(cls, url, options):
            cls.looks += 1
            if cls.looks == 1:
                with pytest.raises(everstep.NotFound):
                    _everstep.Repository.open(url, options)
                cls.made = _everstep.Repository.create(url, options)
                raise everstep.NotFound("not yet")
            return _everstep.Repository.open(url, options)

        create = _everstep.Repository.create

    monkeypatch.setattr(_repository, "NativeRepository", Late)
    repository = everstep.Repository(str(tmp_path / "repo"), create=True)
    assert repository.id == Late.made.id and Late.looks == 2
