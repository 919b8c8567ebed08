"""Database URLs as people have them (PG-04)."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from sweeper.errors import UserError
from sweeper.ledger.database import Database
from sweeper.ledger.urls import describe, normalise_url, redact, sqlalchemy_url

PASSWORDS = ["p@ss", "p%ss", "p#ss", "p/ss", "p?ss", "p+ss", "p:ss", "p ss", "pässword", "p&s=s"]


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2", "Postgres"])
def test_every_postgres_scheme_means_the_same_driver(scheme: str) -> None:
    url = normalise_url(f"{scheme}://u:p@h:5433/d")
    assert url == "postgresql://u:p@h:5433/d"
    assert sqlalchemy_url(url) == "postgresql+psycopg://u:p@h:5433/d"


@pytest.mark.parametrize("password", PASSWORDS)
def test_an_encoded_password_reads_alike_by_libpq_and_sqlalchemy(password: str) -> None:
    url = normalise_url(f"postgres://me:{quote(password, safe='')}@h/d")
    assert conninfo_to_dict(url)["password"] == password
    assert sa.make_url(sqlalchemy_url(url)).password == password
    assert password not in redact(url)
    assert password not in describe(url)


@pytest.mark.parametrize(
    "password", ["p@ss", "p%ss", "p#ss", "p/ss", "p?ss", "12/34", "12?34", "p@s@s", "p ss", "p/s=s"]
)
def test_a_raw_special_character_gives_a_hint_to_encode_and_shows_nothing(password: str) -> None:
    with pytest.raises(UserError, match=r"%40") as caught:
        normalise_url(f"postgresql://me:{password}@host/db")
    assert password not in str(caught.value)
    assert password not in redact(f"postgresql://me:{password}@host/db".replace(" ", ""))


def test_a_raw_plus_is_a_plus() -> None:
    assert conninfo_to_dict(normalise_url("postgresql://u:p+ss@h/d"))["password"] == "p+ss"
    assert sa.make_url(normalise_url("postgresql://u:p+ss@h/d")).password == "p+ss"


def test_white_space_around_is_stripped() -> None:
    assert normalise_url(" postgresql://u@h/d\r\n") == "postgresql://u@h/d"


@pytest.mark.parametrize(
    "text",
    ["postgresql://a:1,b:2/d", "postgresql://u@/d?host=a,b&port=1,2", "postgresql+psycopg:///d?host=a:1&host=b:2"],
)
def test_several_hosts_are_kept_and_the_writable_one_is_sought(text: str) -> None:
    url = normalise_url(text)
    settings = conninfo_to_dict(url)
    assert (settings["host"], settings["port"]) == ("a,b", "1,2")
    assert settings["target_session_attrs"] == "read-write"
    assert sa.make_url(sqlalchemy_url(url)).query["host"] == "a,b"
    assert normalise_url(url) == url


def test_settings_in_the_query_survive() -> None:
    url = normalise_url("postgresql://h/d?sslmode=require&options=-csearch_path%3Doptuna&target_session_attrs=any")
    settings = conninfo_to_dict(url)
    assert settings["sslmode"] == "require"
    assert settings["options"] == "-csearch_path=optuna"
    assert sa.make_url(url).query["options"] == "-csearch_path=optuna"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mysql://u:secret@h/d",
        "sqlite:///x",
        "host=h password=secret",
        "postgresql://u:secret",
        "/path",
        "://secret",
    ],
)
def test_what_is_no_postgres_url_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="postgresql://user:password@host") as caught:
        normalise_url(text)
    assert "secret" not in str(caught.value)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(UserError, match="sslmod"):
        Database("postgresql://u:secret@h/d?sslmod=require")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:secret@h/d", "postgresql://u:***@h/d"),
        ("log: postgres://u:sec/ret@h/d failed", "log: postgres://u:***@h/d failed"),
        ("postgresql://u:secret/d", "postgresql://u:***/d"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("postgresql://h/d?user=u&password=secret&x=1", "postgresql://h/d?user=u&password=***&x=1"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
    ],
)
def test_redacted_text_keeps_all_but_the_password(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_real_server_lets_every_encoded_password_in(postgres_server: str, password: str) -> None:
    role = "role_" + password.encode().hex()
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(
            psycopg.sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(psycopg.sql.Identifier(role), password)
        )
    where = conninfo_to_dict(postgres_server)
    port = str(where["port"]).split(",")[0]
    url = f"postgres://{role}:{quote(password, safe='')}@127.0.0.1:{port}/postgres\n"
    with Database(url) as database:
        assert database.run(sa.text("SELECT current_user"))[0][0] == role
    engine = sa.create_engine(sqlalchemy_url(normalise_url(url)))  # as Optuna's storage and dashboard do
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT current_user")).scalar() == role
    engine.dispose()
