"""Traces of arrivals as text: our columns, those of public traces, and what is wrong with a row."""

from __future__ import annotations

import pytest

from app.documents.trace import read_trace, trace_text
from cluster_models.errors import InvalidWorkload
from cluster_models.serving.traces import Trace

EXPECTED = Trace((0.0, 1.5, 1.5), (1024, 300, 8), (12, 1, 500))
HEAD = "arrival_s,input_tokens,output_tokens\n"
TEXTS = {
    "ours": HEAD + "0,1024,12\n1.5,300,1\n\n1.5,8,500\n",
    "other columns beside": "\ufeffid,output_tokens,arrival_s,input_tokens\na,12,0,1024\nb,1,1.5,300\n"
    "c,500,1.5,8\n",
    "Azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,1024,12\n"
    "2023-11-16 18:17:05.4799600,300,1\n2023-11-16 18:17:05.4799600,8,500\n",
    "Azure of 2024": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,1024,12\n"
    "2024-05-10 00:00:01.509930+00:00,300,1\n2024-05-10 00:00:01.509930+00:00,8,500\n",
    "BurstGPT": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "0,ChatGPT,1024,12,1036,API log\n1.5,GPT-4,300,1,301,API log\n1.5,ChatGPT,8,500,508,API log\n",
    "Mooncake": '{"timestamp": 0, "input_length": 1024, "output_length": 12, "hash_ids": [0, 1]}\n'
    '{"timestamp": 1500, "input_length": 300, "output_length": 1, "hash_ids": []}\n'
    '{"timestamp": 1500, "input_length": 8, "output_length": 500, "hash_ids": []}\n',
}
"""The same three requests."""


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_public_traces_are_read_as_they_are(text: str) -> None:
    """Times in seconds, milliseconds or as times of day; a trace is written in our columns and read again."""
    found = read_trace(text)
    assert (found.input_tokens, found.output_tokens) == (EXPECTED.input_tokens, EXPECTED.output_tokens)
    assert found.arrivals_s == pytest.approx(EXPECTED.arrivals_s, abs=1e-5)
    assert read_trace(trace_text(found)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (HEAD, "has no requests"),
        ("a,b\n1,2\n", "lacks columns"),
        (HEAD + "0,5,5\n2,5,5\n1,5,5\n", "row 3: comes before the arrival at 2 s"),
        (HEAD + "0,5,5\n-1,5,5\n", "row 2: arrival_s must be a finite number, not negative"),
        (HEAD + "0,5,5\nnan,5,5\n", "row 2: arrival_s must be a finite number"),
        (HEAD + "0,5,5\ninf,5,5\n", "row 2: arrival_s must be a finite number"),
        (HEAD + "0,5,0\n", "row 1: output_tokens must be a whole number from 1"),
        (HEAD + "0,5.5,1\n", "row 1: input_tokens must be a whole number"),
        (HEAD + "0,many,1\n", "row 1: input_tokens must be a whole number"),
        (HEAD + "0,5\n", "row 1: output_tokens must be a whole number"),
        (HEAD + "0,5,5\n" * 50_001, "row 50001: a trace has at most 50000 requests"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 5}\n{"timestamp": ', "row 2: is not valid JSON"),
        ('{"timestamp": true, "input_length": 5, "output_length": 5}', "row 1: timestamp must be a finite number"),
        ('{"timestamp": 0, "input_length": [5], "output_length": 5}', "row 1: input_length must be a whole"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,5\n", "row 1: TIMESTAMP is no time"),
        (HEAD + '0,"5,5\n', "is no CSV"),
    ],
)
def test_what_is_wrong_names_its_row(text: str, said: str) -> None:
    """In one line, without the rest of the trace."""
    with pytest.raises(InvalidWorkload) as refused:
        read_trace(text)
    message = str(refused.value)
    assert message.startswith("workload.trace: ")
    assert said in message
    assert len(message) < 400


def test_a_trace_has_a_rate() -> None:
    """From the first to the last arrival; all at once are none."""
    assert Trace((0.0, 0.0, 0.5, 2.0), (5,) * 4, (5,) * 4).requests_per_s == 1.5
    assert Trace((0.0, 1.0), (10, 30), (4, 12)).held_tokens == (4 * 12 + 12 * 36) / 16
    with pytest.raises(InvalidWorkload, match="no rate"):
        _ = Trace((1.0, 1.0), (5, 5), (5, 5)).requests_per_s
