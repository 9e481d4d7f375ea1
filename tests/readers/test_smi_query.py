"""nvidia-smi as a table, -q and CSV: products, counts, slices, domains."""

from __future__ import annotations

import pytest

from readers import registry
from readers.formats.nvidia.smi_query import FORMATS
from readers.frame.facts import HostFact
from readers.frame.reading import Contents, Format
from tests.readers.real_files import source_of, understood

QUERY, TABLE, CSV = FORMATS


def query(count: int = 2, uuid: str = "00000000-0000-0000-0000-000000000000", mig: str = "Disabled") -> str:
    head = f"==============NVSMI LOG==============\n\nAttached GPUs                             : {count}\n"
    return head + "".join(
        f"GPU 00000000:{gpu:02X}:00.0\n"
        "    Product Name                          : Own GPU 80GB\n"
        f"    MIG Mode\n        Current                           : {mig}\n        Pending : Enabled\n"
        "    FB Memory Usage\n        Total                             : 81000 MiB\n"
        "    BAR1 Memory Usage\n        Total                             : 128 MiB\n"
        "    Fabric\n        State                             : Completed\n"
        f"        CliqueId                          : 7\n        ClusterUUID                       : {uuid}\n"
        for gpu in range(count)
    )


def table(name: str = "Own GPU 80GB", mig: str = "Disabled") -> str:
    rows = "".join(
        f"|   {gpu}  {name:<25}   On  |   00000000:{gpu + 16:02X}:00.0 Off |                    0 |\n"
        f"| N/A   33C    P0    72W /  700W |       1MiB /  81000MiB |      0%      Default |\n"
        f"|                               |                        | {mig:>20} |\n"
        for gpu in range(3)
    )
    return "| NVIDIA-SMI 550.9        Driver Version: 550.9      CUDA Version: 12.4     |\n" + rows


def host(found: Contents) -> HostFact:
    (fact,) = found.facts
    assert isinstance(fact, HostFact)
    return fact


def test_a_query_tells_the_gpus_and_not_their_links() -> None:
    """A UUID of zeros is not a domain."""
    fact = host(understood(QUERY, source_of(query())))
    assert (fact.gpu_product, fact.gpu_count) == ("Own GPU 80GB", 2)
    assert (fact.scale_up_domain, fact.gpu_in_slices) == (None, False)


def test_the_domain_is_written_as_in_labels() -> None:
    uuid = "7d3b5c1e-0000-4000-8000-000000000001"
    assert host(understood(QUERY, source_of(query(uuid=uuid)))).scale_up_domain == f"{uuid}.7"


@pytest.mark.parametrize(("text", "form"), [(query(mig="Enabled"), QUERY), (table(mig="Enabled"), TABLE)])
def test_slices_take_the_count_away(text: str, form: Format) -> None:
    fact = host(understood(form, source_of(text)))
    assert (fact.gpu_in_slices, fact.gpu_count) == (True, None)


def test_the_table_counts_rows_and_takes_no_cut_name() -> None:
    fact = host(understood(TABLE, source_of(table())))
    assert (fact.gpu_product, fact.gpu_count) == ("Own GPU 80GB", 3)
    assert host(understood(TABLE, source_of(table("Own GPU-SXM...")))).gpu_product is None


def test_csv_is_read_by_its_header() -> None:
    text = "index, name, memory.total [MiB]\n0, Own GPU, 81000 MiB\n1, Own GPU, 81000 MiB\n"
    fact = host(understood(CSV, source_of(text, host="m1")))
    assert (fact.gpu_product, fact.gpu_count) == ("Own GPU", 2)
    assert [name.text for name in fact.names] == ["m1"]


def test_missing_and_mixed_gpus_are_told() -> None:
    cut = query().replace("Attached GPUs                             : 2", "Attached GPUs : 4")
    assert [doubt.code for doubt in understood(QUERY, source_of(cut)).doubts] == ["partial"]
    mixed = "index, name, uuid\n0, One GPU, a\n1, Other GPU, b\n"
    found = understood(CSV, source_of(mixed))
    assert ([doubt.code for doubt in found.doubts], host(found).gpu_product) == (["mixed-gpus"], None)
    assert understood(TABLE, source_of(table().split("\n")[0])).refusals


@pytest.mark.parametrize(("text", "name"), [(query(), QUERY), (table(), TABLE), ("name, uuid\nx, y\n", CSV)])
def test_each_form_is_recognised(text: str, name: Format) -> None:
    ((section, _),) = registry.read(source_of("me@host:~$ nvidia-smi\n" + text)).sections
    assert section.format == name.name


@pytest.mark.parametrize("announced", [True, False])
def test_a_query_of_one_section_tells_how_many_gpus_there_are(*, announced: bool) -> None:
    """``-d PAGE_RETIREMENT`` names no product; GPUs are attached all the same."""
    head = "==============NVSMI LOG==============\n\nDriver Version : 550.9\n\n"
    head += "Attached GPUs                             : 8\n" if announced else ""
    gpus = "".join(
        f"GPU 00000000:{gpu:02X}:00.0\n    Retired Pages\n        Single Bit ECC                    : 0\n"
        "        Double Bit ECC                    : 0\n        Pending Page Blacklist            : No\n"
        for gpu in range(8)
    )
    found = understood(QUERY, source_of(head + gpus))
    assert (host(found).gpu_count, host(found).gpu_product) == (8, None)
    assert (found.refusals, found.doubts) == ((), ())
