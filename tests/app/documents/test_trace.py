"""Traces of arrivals as text: our columns, those of public traces, and what is wrong with a row."""

from __future__ import annotations

import json

import pytest

from app.documents.trace import read_trace, trace_text
from cluster_models.errors import InvalidWorkload
from cluster_models.serving.traces import Trace

EXPECTED = Trace((0.0, 1.5, 1.5), (1024, 300, 8), (12, 1, 500))
MOONCAKE = '{"timestamp": 0, "input_length": 5, "output_length": 5'
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


def test_blocks_that_earlier_prompts_had_are_cached() -> None:
    """512 tokens each, from the start of a prompt on, the last one cut; one token at least is computed."""
    blocks = [(1500, [0, 1, 2]), (1200, [0, 1, 7]), (1500, [0, 1, 2]), (600, [9, 1])]
    rows = [{"timestamp": 0, "input_length": tokens, "output_length": 1, "hash_ids": own} for tokens, own in blocks]
    found = read_trace("\n".join(map(json.dumps, rows)))
    assert found.cached_tokens == (0, 1024, 1499, 0)
    assert found.new_tokens == (1500 + 176 + 1 + 600) / 4
    assert read_trace(trace_text(found)) == found


def test_rows_name_their_class_and_what_is_cached() -> None:
    """Beside the columns of any format; they are written and read again, with commas in names too."""
    found = read_trace('arrival_s,input_tokens,output_tokens,class,cached_tokens\n0,10,5,"a, b",9\n1,10,5,c,0\n')
    assert (found.classes, found.cached_tokens) == (("a, b", "c"), (9, 0))
    assert read_trace(trace_text(found)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD.replace("\n", ",class\n") + "0,5,5,a\n1,5,5,\n", "row 2: class must be a name"),
        (
            HEAD.replace("\n", ",cached_tokens\n") + "0,5,5,5\n",
            "row 1: cached_tokens must be at least 0 and below the 5",
        ),
        (
            HEAD.replace("\n", ",cached_tokens\n") + "0,5,5,-1\n",
            "row 1: cached_tokens must be a whole number from 0",
        ),
        (MOONCAKE + ', "hash_ids": [0.5]}', "row 1: hash_ids must be a list of whole numbers"),
        (MOONCAKE + ', "hash_ids": [0]}\n' + MOONCAKE + "}", "row 2: lacks cached_tokens or hash_ids"),
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
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,5\n", "row 1: TIMESTAMP is not a time"),
        (HEAD + '0,"5,5\n', "is not CSV"),
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
    with pytest.raises(InvalidWorkload, match="not a rate"):
        _ = Trace((1.0, 1.0), (5, 5), (5, 5)).requests_per_s
