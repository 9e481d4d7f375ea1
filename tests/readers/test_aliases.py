"""One node, many names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from readers.frame.facts import Name, NameKind
from readers.proposal.aliases import AliasTable, alias_table

KINDS = [NameKind.HOST, NameKind.FQDN, NameKind.SLURM, NameKind.INSTANCE]


def group(*names: str) -> list[Name]:
    return [Name(NameKind.FQDN if "." in name else NameKind.HOST, name) for name in names]


def test_names_of_one_record_are_one_node() -> None:
    """Slurm's name, the FQDN, an instance id, a GUID in any spelling: all find the node that launchers know."""
    record = [
        Name(NameKind.INSTANCE, "i-0abc"),
        Name(NameKind.FQDN, "n1.pod.example"),
        Name(NameKind.SLURM, "gpu-n1"),
        Name(NameKind.PORT_GUID, "0x0011223344556677"),
    ]
    table = alias_table([record, group("n1")], given=AliasTable())
    for name in ("i-0abc", "n1.pod.example", "N1.POD.EXAMPLE", "n1", "gpu-n1", "11223344556677"):
        assert table.node(name) == "gpu-n1"
    assert table.node("n2") is None


def test_a_short_name_of_two_hosts_is_ambiguous() -> None:
    table = alias_table([group("n1.a"), group("n1.b"), group("n1")], given=AliasTable())
    assert table.node("n1") is None
    assert table.candidates("n1") == ("n1.a", "n1.b")
    assert table.node("n1.a") == "n1.a"


def test_stored_nodes_and_given_aliases_keep_their_names() -> None:
    given_table = AliasTable({"login-7": "n7"})
    table = alias_table(
        [group("n1.pod.example"), group("login-7.pod.example")], given=given_table, known=["n1", "n7"]
    )
    assert (table.node("n1.pod.example"), table.node("login-7.pod.example")) == ("n1", "n7")


def test_localhost_joins_nobody() -> None:
    table = alias_table([group("localhost", "n1"), group("localhost", "n2")], given=AliasTable())
    assert (table.node("n1"), table.node("n2"), table.node("localhost")) == ("n1", "n2", None)


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "a.x", "b.x", "a.y", "i-1"]), min_size=1, max_size=3), max_size=6)
)
def test_the_order_of_records_changes_nothing(names: list[list[str]]) -> None:
    groups = [group(*each) for each in names]
    table = alias_table(groups, given=AliasTable())
    assert table == alias_table([list(reversed(each)) for each in reversed(groups)], given=AliasTable())
    for each in names:
        assert len({table.node(name) for name in each} - {None}) <= 1, "one record names one node"
